"""One HTML file that opens with the network off: text, tables and inline SVG, no script."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from accerl.errors import UserError
from accerl.records import make_out_dir, write_bytes
from analysis.figures.theme import render_svg
from analysis.records.comparison import COMPARISON, load_comparison
from analysis.records.load import (
    RunRecord,
    is_room,
    is_study,
    load_events,
    load_room,
    load_run,
)
from analysis.report.blocks import Section
from analysis.report.runs import run_sections
from analysis.report.studies.comparison import comparison_sections
from analysis.report.studies.room import room_sections
from analysis.report.study import StudyReport
from analysis.report.table import figure_table

TEMPLATES = Path(__file__).parent / "templates"
ROWS_SHOWN = 200
"""of the data behind a figure; `accerl report --figures` writes all of it"""


def write_study_report(report: StudyReport, html_path: Path) -> Path:
    """Write the report of a study.

    Raises:
        UserError: the file cannot be written.
    """
    return write_page(report.sections, html_path, report.study.name)


def write_room_report(folder: Path, html_path: Path) -> Path:
    """Write the page of a study of room from its room.json, plan.json and bench-events.json.

    Raises:
        UserError: the records are missing or damaged, or the file cannot be written.
    """
    return write_page(room_sections(*load_room(folder), load_events(folder)), html_path, "Room")


def write_page(sections: Sequence[Section], html_path: Path, title: str) -> Path:
    """Write a page of sections that are worked out already.

    Raises:
        UserError: the file cannot be written.
    """
    return _write(html_path, sections, title=title, kicker="AcceRL study report", lead="")


def write_comparison_report(folder: Path, html_path: Path) -> Path:
    """Write the page of a comparison of strategies from its comparison.json and runs.

    Raises:
        UserError: they are missing or damaged, or the file cannot be written.
    """
    result = load_comparison(folder)
    first = f"seed-{result['seeds'][0]}"
    folders = result["run_folders"]
    labels = [row["label"] for row in result["strategies"]]  # in the order that colours go by
    runs = {label: load_run(folder / folders[label] / first) for label in labels}
    sections = comparison_sections(result, runs)
    title = f"Strategies on {result['game']}"
    return _write(html_path, sections, title=title, kicker="AcceRL comparison", lead="")


def is_comparison(path: Path) -> bool:
    """Return whether a folder holds a comparison of strategies."""
    return (path / COMPARISON).is_file()


def write_runs_report(
    run_dirs: Sequence[Path], html_path: Path, levels: Sequence[float] | None = None
) -> Path:
    """Write a report of single runs side by side; a study or a comparison gets its own.

    `levels` are the scores whose first reaching is tabled; None chooses some.

    Raises:
        UserError: no run is given, one is missing or damaged, or the file cannot be written.
    """
    paths = [Path(path) for path in run_dirs]
    if not paths:
        raise UserError("no run directory given; name at least one folder that a run wrote")
    for holds, write in (
        (is_study, lambda folder, page: write_study_report(StudyReport.of(folder), page)),
        (is_room, write_room_report),
        (is_comparison, write_comparison_report),
    ):
        if any(map(holds, paths)):
            if len(paths) > 1:
                raise UserError("a study directory gets a report of its own; give it alone")
            return write(paths[0], html_path)
    runs = label_runs([load_run(path) for path in paths])
    return _write(
        html_path,
        run_sections(runs, levels),
        title="Runs" if len(runs) > 1 else f"Run: {next(iter(runs))}",
        kicker="AcceRL run report",
        lead="Single runs say nothing about what another seed would do.",
    )


def label_runs(runs: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Return runs by labels: the strategy, and in what else they differ; or else the path.

    Raises:
        UserError: a run is given twice.
    """
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UserError("a run directory is given twice; give each once")
    networks, games, clocks, seeds = (
        len({getattr(run, name) for run in runs}) > 1
        for name in ("network", "env", "clock", "seed")
    )

    def label(run: RunRecord) -> str:
        text = f"{run.network}: {run.strategy}" if networks else run.strategy
        text += f" on {run.env}" if games else ""
        text += f" ({run.clock})" if clocks else ""
        return f"{text}, seed {run.seed}" if seeds else text

    found = {label(run): run for run in runs}
    return found if len(found) == len(runs) else {str(run.path): run for run in runs}


def _write(html_path: Path, sections: Sequence[Section], **heading: str) -> Path:
    import jinja2  # only reports need it
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "svg": lambda figure: markupsafe.Markup(render_svg(figure)),
        "behind": lambda figure: figure_table(figure, ROWS_SHOWN),
    }
    html_path = Path(html_path)
    make_out_dir(html_path.parent)
    text = environment.get_template("report.html.j2").render(sections=sections, **heading)
    try:
        write_bytes(html_path, text.encode())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space, or give another file" if full else "give another file"
        reason = error.strerror or error
        raise UserError(f"cannot write {html_path}: {reason}; {advice}") from error
    return html_path
