"""One HTML file that opens with the network off: text, tables and inline SVG, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import make_out_dir, read_json
from analysis import figures, figures_runs, figures_schedule, formats, scores, tables
from analysis.contest import METRICS, PRIMARY, write_contest
from analysis.load import RunRecord, StudyRecord, is_study, load_run, load_study, machine_warning
from analysis.theme import Figure, render_svg

TEMPLATES = Path(__file__).parent / "templates"


def write_study_report(study_dir: Path, html_path: Path) -> Path:
    """Write the report of a study, and its contest.json, from the records.

    Raises:
        UserError: the study is missing or damaged, or the file cannot be written.
    """
    study = load_study(Path(study_dir))
    contest = read_json(write_contest(Path(study_dir)))
    return _write(html_path, "study.html.j2", _study_page(study, contest))


def write_runs_report(
    run_dirs: Sequence[Path], html_path: Path, levels: Sequence[float] | None = None
) -> Path:
    """Write a report of single runs side by side; a lone study directory gets its own report.

    `levels` are the scores whose first reaching is tabled; None chooses some.

    Raises:
        UserError: no run is given, one is missing or damaged, or the file cannot be written.
    """
    paths = [Path(path) for path in run_dirs]
    if not paths:
        raise UserError("no run directory given; name at least one folder that a run wrote")
    if any(is_study(path) for path in paths):
        if len(paths) > 1:
            raise UserError("a study directory gets a report of its own; give it alone")
        return write_study_report(paths[0], html_path)
    runs = label_runs([load_run(path) for path in paths])
    return _write(html_path, "runs.html.j2", _runs_page(runs, levels))


def label_runs(runs: Sequence[RunRecord]) -> dict[str, RunRecord]:
    """Return runs by the shortest label that tells them apart."""
    found: dict[str, RunRecord] = {}
    for parts in (
        lambda run: run.strategy,
        lambda run: f"{run.strategy}, seed {run.seed}",
        lambda run: f"{run.network}: {run.strategy}, seed {run.seed}",
        lambda run: f"{run.network}: {run.strategy} on {run.env}, seed {run.seed}",
        lambda run: str(run.path),
    ):
        found = {parts(run): run for run in runs}
        if len(found) == len(runs):
            return found
    raise UserError("a run directory is given twice; give each once")


def _write(html_path: Path, template: str, page: Mapping[str, Any]) -> Path:
    import jinja2  # only reports need it
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["svg"] = lambda figure: markupsafe.Markup(render_svg(figure))
    html_path = Path(html_path)
    make_out_dir(html_path.parent)
    try:
        html_path.write_text(environment.get_template(template).render(**page), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {html_path}: {reason}; give --html a file name") from error
    return html_path


def _study_page(study: StudyRecord, contest: Mapping[str, Any]) -> dict[str, Any]:
    secondary = [metric for metric in METRICS if metric != PRIMARY]
    has_contrasts = bool(contest["contrasts"])
    infer = figures_schedule.infer_rows(study.profile)
    return {
        "title": f"AcceRL study: {study.name}",
        "study": study,
        "contest": contest,
        "subject": study.labels[study.subject],
        "metrics": {tables.NAMES[name]: text for name, text in METRICS.items()},
        "primary_name": tables.NAMES[PRIMARY],
        "games": tables.game_table(study),
        "levels": tables.level_table(study, contest),
        "primary": tables.contrast_table(study, contest, PRIMARY),
        "secondary": [tables.contrast_table(study, contest, metric) for metric in secondary],
        "test_runs": tables.test_run_table(study, contest),
        "latency_figure": figures_schedule.latency_bars(infer) if infer else None,
        "latency_tables": tables.object_tables(study.profile),
        "forest": figures.time_forest(study, contest) if has_contrasts else None,
        "secondary_forest": figures.secondary_forest(study, contest) if has_contrasts else None,
        "time_strip": figures.time_strip(study, contest),
        "curves": [figures.learning_curves(study, axis) for axis in ("seconds", "env_steps")],
        "strips": figures_schedule.study_strips(study),
        "tuning": tables.tuning_table(study),
        "budget_sentence": budget_sentence(study),
        "wall": _wall_table(study),
        "meta_figure": _meta_figure(study),
        "meta_table": tables.rows_table("Meta-training, every iteration", study.meta_training),
        "replay": tables.replay_table(study.replays),
        "replay_figure": _replay_figure(study),
        "replay_sentence": replay_sentence(study),
        "bundle": tables.pairs_table("Bundle", study.bundle) if study.bundle else None,
        "provenance": _provenance(study.info),
        "commands": [str(item) for item in study.info.get("commands") or ()],
        "notes": [str(item) for item in study.info.get("notes") or ()],
    }


def _runs_page(runs: Mapping[str, RunRecord], levels: Sequence[float] | None) -> dict[str, Any]:
    curves = [figures_runs.run_curves(runs, axis) for axis in ("seconds", "env_steps")]
    notes = [
        f"{label} never finished; what it wrote until then is shown."
        for label, run in runs.items()
        if not run.finished
    ]
    clocks = sorted({run.clock for run in runs.values()})
    if len(clocks) > 1:
        notes.append(
            f"These runs' seconds come from different clocks ({'; '.join(clocks)}): "
            f"do not compare them with each other."
        )
    warning = machine_warning("These runs", list(runs.values()))
    return {
        "title": "AcceRL runs" if len(runs) > 1 else f"AcceRL run: {next(iter(runs))}",
        "warnings": notes + ([warning] if warning else []),
        "summary": tables.run_table(runs),
        "curves": curves if any(curve.table for curve in curves) else [],
        "scores": scores.score_table(runs, levels),
        "indicators": figures_runs.run_indicators(runs),
        "strips": figures_schedule.run_strips(runs),
        "phases": figures_schedule.phase_bars(runs),
        "phase_table": tables.replay_table(runs),
        "provenance": [
            (label, [*_provenance(run.summary), tables.pairs_table("Configuration", run.config)])
            for label, run in runs.items()
        ],
    }


def budget_sentence(study: StudyRecord) -> str:
    """Say whether the tuned strategies had the same number of inner runs."""
    spent = {item.label: item.inner_runs for item in study.strategies if item.inner_runs > 0}
    untuned = [item.label for item in study.strategies if item.inner_runs == 0]
    rest = f" Nothing was tuned for {', '.join(untuned)}." if untuned else ""
    if not spent:
        return f"No inner runs were spent on tuning.{rest}"
    if len(set(spent.values())) == 1:
        count = next(iter(spent.values()))
        return f"Every tuned strategy was given the same {count:,} inner runs.{rest}"
    listed = ", ".join(f"{label} {count:,}" for label, count in spent.items())
    return f"The budgets were NOT equal, read the contest with that in mind: {listed}.{rest}"


def replay_sentence(study: StudyRecord) -> str:
    """Say how fast the schedule ran beside the others on the real clock."""
    speeds = {
        name: float(run.summary["env_steps_per_second"])
        for name, run in study.replays.items()
        if run.summary.get("env_steps_per_second")
    }
    if len(speeds) < 2:
        return ""
    (first, speed), *others = speeds.items()
    parts = [f"{speed / other:.2f}x the speed of the {name} run" for name, other in others]
    return (
        f"The {first} run did {formats.significant(speed)} env steps per second, "
        f"{', '.join(parts)}. "
        f"One short run each: an observation, without an interval."
    )


def _wall_table(study: StudyRecord) -> tables.Table:
    wall = study.info.get("wall_seconds") or {}
    rows = tuple(
        (tables.Cell(name.replace("_", " ")), tables.number(value, formats.duration(value)))
        for name, value in wall.items()
    )
    return tables.Table("What the study itself took", ("Phase", "#Wall time"), rows)


def _replay_figure(study: StudyRecord) -> Figure | None:
    if not study.replays:
        return None
    return figures_schedule.phase_bars(study.replays, subject=next(iter(study.replays)))


def _meta_figure(study: StudyRecord) -> Figure | None:
    rows = [row for row in study.meta_training if "iteration" in row]
    return figures_schedule.meta_training_curves(rows) if rows else None


def _provenance(data: Mapping[str, Any]) -> list[tables.Table]:
    result = []
    for key, title in (("fingerprint", "Machine"), ("versions", "Versions")):
        value = data.get(key)
        if isinstance(value, Mapping):
            result.append(tables.pairs_table(title, value))
        elif value:
            result.append(tables.pairs_table(title, {"id": value}))
    return result
