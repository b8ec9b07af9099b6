"""The figures of a report as picture files, for papers and pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import make_out_dir, write_bytes, write_json
from analysis.comparison.contest import CONTEST
from analysis.comparison.scores import EPISODES, curves_json, score_curve
from analysis.figures.explainer import run_explainers
from analysis.figures.runs import run_curves
from analysis.figures.studies.comparison import comparison_figures
from analysis.figures.studies.events import event_figures
from analysis.figures.studies.room import room_figures
from analysis.figures.theme import Figure, render_png
from analysis.records.comparison import load_comparison
from analysis.records.load import StudyRecord, load_events, load_room, load_run
from analysis.render.html import label_runs
from analysis.report.study import StudyReport


def write_figures(report: StudyReport, out: Path) -> list[Path]:
    """Write every figure of a study's report: NAME.png and its data, NAME.csv; return the paths.

    Beside them contest.json is written again without its rows, small enough for a repository, and
    with what the study says of its strategies, its candidates and its instances.

    Raises:
        UserError: `out` cannot be written.
    """
    make_out_dir(out)
    write_json(out / CONTEST, contest_summary(report.study, report.contest))
    found = {figure.name: figure for figure in report.figures}
    pictures = write_pngs(found.values(), out)
    return [out / CONTEST, *pictures, *(write_csv(figure, out) for figure in found.values())]


def contest_summary(study: StudyRecord, contest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a contest without the rows of its test runs, and what its records say beside it."""
    stated = ("instances", "test_opened", "strategies")
    info = {**study.info, "instances": list(study.info["games"].values())}
    return {
        **{key: value for key, value in contest.items() if key != "rows"},
        **{key: info[key] for key in stated if key in info},
        "checks": list(study.checks),
        "variants": list(study.variants),
        "real": dict(study.real),
    }


def write_run_figures(run_dirs: Sequence[Path], out: Path) -> list[Path]:
    """Write the learning curves of runs: curves.json, and a PNG for each axis; return the paths.

    Without any score there is no PNG of curves. Beside them, decision-explainer.png where the
    records explain decisions.

    Raises:
        UserError: a run is missing or damaged, or `out` cannot be written.
    """
    labelled = label_runs([load_run(path) for path in run_dirs])
    make_out_dir(out)
    write_json(out / "curves.json", {"episodes": EPISODES, "runs": curves_json(labelled)})
    has_scores = any(score_curve(run) for run in labelled.values())
    axes = ("seconds", "env_steps") if has_scores else ()
    curves = [run_curves(labelled, axis) for axis in axes]
    found = [*curves, *run_explainers(labelled).values()]
    return [out / "curves.json", *write_pngs(found, out)]


def write_room_figures(folder: Path, out: Path) -> list[Path]:
    """Write every figure of a study of room: NAME.png and its data, NAME.csv; return the paths.

    Raises:
        UserError: the records are missing or damaged, or `out` cannot be written.
    """
    figures = [*room_figures(load_room(folder)[0]), *event_figures(load_events(folder))]
    return _with_tables(figures, out)


def write_comparison_figures(folder: Path, out: Path) -> list[Path]:
    """Write every figure of a comparison of strategies, as `write_room_figures` does.

    Raises:
        UserError: the record is missing or damaged, or `out` cannot be written.
    """
    return _with_tables(comparison_figures(load_comparison(folder)), out)


def _with_tables(figures: Sequence[Figure], out: Path) -> list[Path]:
    """Write figures as pictures and their data as CSV; return the paths."""
    make_out_dir(out)
    pictures = write_pngs(figures, out)
    return [*pictures, *(write_csv(figure, out) for figure in figures)]


def write_pngs(figures: Iterable[Figure], out: Path) -> list[Path]:
    """Write figures as PNG under their names; return the paths.

    Raises:
        UserError: `out` cannot be written.
    """
    return [_write(out / f"{figure.name}.png", render_png(figure)) for figure in figures]


def write_csv(figure: Figure, out: Path) -> Path:
    """Write the table behind a figure, unrounded; what a row does not have is an empty cell.

    Raises:
        UserError: `out` cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, figure.columns)
    writer.writeheader()
    writer.writerows(figure.table)
    return _write(out / f"{figure.name}.csv", text.getvalue().encode())


def _write(path: Path, data: bytes) -> Path:
    try:
        write_bytes(path, data)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return path
