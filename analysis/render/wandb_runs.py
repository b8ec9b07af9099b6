"""Offline W&B runs from the records: no account, no network, every file in the given folder."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accerl.errors import UserError
from accerl.records import json_hash, make_out_dir, read_json, write_json
from accerl.runtime.run import IntervalReport
from analysis.comparison import curves
from analysis.figures.explainer import run_explainers
from analysis.figures.theme import Figure
from analysis.records.load import RunRecord, StudyRecord, load_run
from analysis.render.html import label_runs
from analysis.report.study import StudyReport

GRID_POINTS = 60
STEP = "seconds"
"""x axis of single runs"""
STUDY_STEP = "horizon_share"
"""x axis of a study's runs, whose games have horizons from seconds to minutes"""
MOST_ROWS = 10_000
"""of a table: W&B drops what is beyond, and says so only in a log"""
RETURNS = {
    *("charts/episodic_return", "charts/learner_return"),
    *("monitor/learner_return", "monitor/learner_return_new"),
    *(f"monitor/actor_return{end}" for end in ("", "_new", "_low", "_median", "_high")),
}
"""scores, which games have on scales of their own"""
PLAYED = "charts/env_steps"
IN_POINTS = {*RETURNS, "monitor/reward_gap"}
"""these and their differences"""
EXPLAINED = ("env_steps_per_second", "efficiency", "preference")
"""of what is believed of a candidate, the numbers that get a chart"""
PROJECT = "accerl"
WRITTEN = "accerl-runs.json"
"""names of the runs that were written last, by what they are of: a study or a run directory"""
STRATEGY_ROLE, REPORT_ROLE = "strategy", "report"
"""what a study's runs are for: one a strategy, and one that holds the figures' tables"""
ID_LENGTH = 16
"""of a run's id, the beginning of a hash"""


def write_offline_runs(source: StudyReport | Sequence[Path], out_dir: Path) -> list[Path]:
    """Write one offline W&B run a strategy of a study, or one a run directory.

    Upload them later with ``wandb sync``. A study's run holds means over its test runs on a common
    grid of shares of each game's horizon: `charts/learner_return` normalised over games, and raw
    below `charts/learner_return/GAME`, whose seconds are `seconds/GAME`; the contest is in the
    summary. One more run holds a table for every figure of the report, which W&B draws its charts
    from. Written and uploaded again, a study's runs replace those of the same plan at W&B. A single
    run goes without its decision explainer, which standard error then says, where that has more
    rows than W&B keeps.

    Args:
        source: the report of a study, or run directories.
        out_dir: where `offline-run-*` (below a folder `wandb`) and W&B's own files go.

    Returns:
        the folders of the written runs.

    Raises:
        UserError: a run is missing or damaged, `out_dir` cannot be written, or a study's figure
            has more rows than W&B keeps.
    """
    if not source:
        raise UserError("no run directory given; name at least one folder that a run wrote")
    out_dir = make_out_dir(Path(out_dir)).resolve()
    if isinstance(source, StudyReport):
        jobs = list(_study_jobs(source))
        sources = [str(source.study.path.resolve())] * len(jobs)
    else:
        runs = label_runs([load_run(Path(path)) for path in source])
        jobs = [_run_job(label, run) for label, run in runs.items()]
        sources = [str(Path(path).resolve()) for path in source]
    for job in jobs:
        for figure in job.get("figures", ()):
            check_size(figure)
    written = _without_earlier(out_dir, sources)
    with _environment(out_dir):
        import wandb

        try:
            folders = [_write(out_dir, **job) for job in jobs]
            for origin, folder in zip(sources, folders, strict=True):
                written.setdefault(origin, []).append(folder.name)
            write_json(out_dir / WRITTEN, written)
            return folders
        finally:
            # W&B writes in a process of its own, and a finished run's last rows may still be on
            # their way to the file; when that process has ended, they are there.
            wandb.teardown()


def _without_earlier(out_dir: Path, sources: Sequence[str]) -> dict[str, list[str]]:
    """Remove the earlier runs of `sources`, which would be drawn twice; return the others' names.

    Those may not have been uploaded yet.
    """
    written = read_json(out_dir / WRITTEN) if (out_dir / WRITTEN).is_file() else {}
    if not isinstance(written, dict):  # an earlier version did not say whose they are
        return {}
    for source in set(sources):
        for name in written.pop(source, ()):
            shutil.rmtree(runs_folder(out_dir) / name, ignore_errors=True)
    return written


def runs_folder(out_dir: Path) -> Path:
    """Return where the runs lie: a folder "wandb" below `out_dir`, or `out_dir` if it is one."""
    return out_dir if out_dir.name == "wandb" else out_dir / "wandb"


def table_key(figure: Figure) -> str:
    """Return the key that a figure's table is logged under."""
    return f"figures/{figure.name}"


def check_size(figure: Figure) -> None:
    """Refuse a figure whose table W&B would cut short without a word.

    Raises:
        UserError: it has more than MOST_ROWS rows.
    """
    if len(figure.table) > MOST_ROWS:
        raise UserError(
            f"figure {figure.name} has {len(figure.table):,} rows, and W&B keeps {MOST_ROWS:,} of "
            "a table; leave --wandb out, or report fewer strategies or games"
        )


@contextlib.contextmanager
def _environment(out_dir: Path) -> Iterator[None]:
    """Keep W&B offline, silent and inside `out_dir`; some of it is read when it is imported."""
    wanted = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_CONSOLE": "off",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_DIR": str(out_dir),
        "WANDB_DATA_DIR": str(out_dir / "data"),
        "WANDB_CACHE_DIR": str(out_dir / "cache"),
        "WANDB_CONFIG_DIR": str(out_dir / "config"),
        "WANDB_ARTIFACT_DIR": str(out_dir / "artifacts"),
    }
    before = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            os.environ.pop(name, None)
        os.environ.update(before)


def _write(
    out_dir: Path,
    *,
    name: str,
    group: str,
    config: Mapping[str, Any],
    tags: Sequence[str],
    rows: Iterable[Mapping[str, float]] = (),
    summary: Mapping[str, Any] | None = None,
    figures: Sequence[Figure] = (),
    step: str = STEP,
    run_id: str | None = None,
) -> Path:
    import wandb  # slow, and only this report needs it

    settings = wandb.Settings(
        mode="offline",
        silent=True,
        console="off",
        quiet=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
        disable_git=True,
        disable_code=True,
    )
    run = wandb.init(
        project=PROJECT,
        id=run_id,
        name=name,
        group=group,
        job_type="eval",
        tags=list(tags),
        config=dict(config),
        dir=runs_folder(out_dir).parent,
        reinit="create_new",
        settings=settings,
    )
    run.define_metric(step)
    run.define_metric("*", step_metric=step)
    for row in rows:
        run.log({key: value for key, value in row.items() if math.isfinite(value)})
    for figure in figures:
        columns: list[Any] = figure.columns  # W&B's keys may be more than strings
        data: list[Any] = [[row.get(key) for key in columns] for row in figure.table]
        table = wandb.Table(columns=columns, data=data, allow_mixed_types=True)
        run.log({table_key(figure): table})
    run.summary.update(dict(summary or {}))
    folder = Path(run.dir).parent
    run.finish()
    return folder


def _run_job(label: str, run: RunRecord) -> dict[str, Any]:
    return {
        "name": label,
        "group": run.env,
        "config": {**run.config, "strategy": run.strategy, "game": run.env, "seed": run.seed},
        "tags": [str(run.summary.get(key, "unknown")) for key in ("tier", "runtime")],
        "rows": [{STEP: item.total_seconds, **_report_values(item)} for item in run.reports],
        "summary": {key: value for key, value in run.summary.items() if value is not None},
        "figures": _kept_figures(label, run_explainers({label: run}).values()),
    }


def _kept_figures(label: str, figures: Iterable[Figure]) -> list[Figure]:
    """Return the figures that W&B keeps whole; say which of a run are left out."""
    kept = []
    for figure in figures:
        if len(figure.table) > MOST_ROWS:
            print(
                f"{label}: left out of W&B: {figure.name}, of whose {len(figure.table):,} rows W&B "
                f"would keep {MOST_ROWS:,}; it is in the page of `accerl report`",
                file=sys.stderr,
            )
        else:
            kept.append(figure)
    return kept


def _report_values(report: IntervalReport) -> dict[str, float]:
    """One interval under the names that people look for."""
    learned = report.learner_return
    values = {
        "charts/episodic_return": float(np.mean(report.episode_returns or [math.nan])),
        "charts/learner_return": math.nan if learned is None else learned,
        "charts/SPS": report.env_steps / max(report.seconds, 1e-9),
        PLAYED: float(report.total_env_steps),
        "charts/policy_lag": report.policy_lag,
        "charts/queue_fill": report.queue_fill,
        "charts/entropy_nats": report.entropy_nats,
        "charts/learner_rss_mb": report.rss_bytes.get("learner", math.nan) / 1e6,
        "charts/publication_mb": report.publication_bytes / 1e6,
        "kl/mean_nats": report.kl_mean_nats,
        "kl/max_nats": report.kl_max_nats,
        "kl/var": report.kl_var,
    }
    values |= {f"kl/student {spec.label}": kl for spec, kl in report.student_kl_nats.items()}
    values |= {
        f"kl/waiting {spec.label}": kl
        for spec, kl in report.waiting_kl_nats.items()
        if kl is not None
    }
    for label, why in report.explanation.items():
        values |= {f"explanation/{key}/{label}": why[key] for key in EXPLAINED if key in why}
    values |= {f"losses/{key}": float(value) for key, value in report.losses.items()}
    return values | {f"monitor/{key}": value for key, value in report.indicators.items()}


def strategy_run_id(study: StudyRecord, name: str) -> str:
    """Return the id of the run of a strategy's means, the same whenever it is written."""
    return _run_id(study, STRATEGY_ROLE, name)


def _run_id(study: StudyRecord, *parts: str) -> str:
    return json_hash([_identity(study), *parts])[:ID_LENGTH]


def _identity(study: StudyRecord) -> dict[str, Any]:
    return {"study": study.name, "plan_hash": study.info["plan_hash"]}


def _study_jobs(report: StudyReport) -> Iterator[dict[str, Any]]:
    study = report.study
    mine = _identity(study)
    for strategy in study.strategies:
        runs = {key[1:]: run for key, run in study.runs.items() if key[0] == strategy.name}
        if not runs:
            continue
        yield {
            "name": strategy.label,
            "run_id": strategy_run_id(study, strategy.name),
            "group": study.name,
            "config": {
                **mine,
                "strategy": strategy.name,
                "role": STRATEGY_ROLE,
                "profile": study.info.get("profile"),
                "tuned_params": dict(strategy.tuned_params),
                "inner_runs": strategy.inner_runs,
                "test_seeds": sorted({seed for _, seed in runs}),
                "games": list(study.games),
            },
            "tags": [study.tier],
            "rows": _mean_rows(study, runs),
            "step": STUDY_STEP,
            "summary": _contest_summary(strategy.name, report.contest),
        }
    yield {
        "name": f"{study.name}: report",
        "run_id": _run_id(study, REPORT_ROLE),
        "group": study.name,
        "config": {**mine, "role": REPORT_ROLE},
        "tags": [study.tier],
        "figures": report.figures,
    }


def _mean_rows(
    study: StudyRecord, runs: Mapping[tuple[str, int], RunRecord]
) -> list[dict[str, float]]:
    """Means over test runs on a grid of shares of each game's horizon; games count the same.

    Returns are averaged over games after normalising, and begin with random play; env steps begin
    with none. What not every run has measured at a share of its horizon has no mean there. A game's
    own seconds are `seconds/GAME`.
    """
    shares = np.linspace(0.0, 1.0, GRID_POINTS)
    columns: dict[str, dict[str, list[np.ndarray]]] = {}
    runs_of = Counter(env for env, _ in runs)
    means = {STUDY_STEP: shares}
    for (env, _), run in runs.items():
        game = study.games[env]
        grid = shares * game.horizon_seconds
        means[f"{STEP}/{env}"] = grid
        series: dict[str, list[tuple[float, float]]] = {}
        for report in run.reports:
            for key, value in _report_values(report).items():
                if math.isfinite(value):
                    series.setdefault(key, []).append((report.total_seconds, value))
        for key, points in series.items():
            if key in RETURNS:
                points.insert(0, (0.0, game.random_return))
            elif key == PLAYED:
                points.insert(0, (0.0, 0.0))
            x, y = np.array(points).T
            # The last interval may end a little before the horizon, or behind it.
            held = y[-1] if grid[-1] - x[-1] <= run.reports[-1].seconds else math.nan
            values = np.interp(grid, x, y, left=math.nan, right=held)
            if key in IN_POINTS:
                columns.setdefault(f"{key}/{env}", {}).setdefault(env, []).append(values)
                zero = game.random_return if key in RETURNS else 0.0
                span = game.reference_return - game.random_return
                values = curves.normalise(values, zero, zero + span)
            columns.setdefault(key, {}).setdefault(env, []).append(values)
    for key, by_game in columns.items():
        of_one_game = runs_of.get(key.rpartition("/")[2])
        if sum(map(len, by_game.values())) == (of_one_game or len(runs)):
            means[key] = np.mean([np.mean(own, axis=0) for own in by_game.values()], axis=0)
    return [{key: float(mean[i]) for key, mean in means.items()} for i in range(GRID_POINTS)]


def _contest_summary(strategy: str, contest: Mapping[str, Any]) -> dict[str, Any]:
    """The strategy's rows and, where it takes part in one, its contrasts."""
    summary: dict[str, Any] = {}
    for level in contest["levels"]:
        if level["strategy"] == strategy:
            summary |= {f"contest/{key}": value for key, value in level.items()}
    for row in contest["rows"]:
        if row["strategy"] == strategy:
            for key in ("seconds_to_target", "censored", "auc", "gain_per_second", "final_return"):
                summary[f"contest/{row['env']}/seed-{row['seed']}/{key}"] = row[key]
    for item in contest["contrasts"]:
        if item["a"] == strategy:
            for key in ("ratio", "difference", "low", "high", "p_holm", "n"):
                summary[f"contrast/{item['b']}/{item['metric']}/{key}"] = item[key]
    return {key: value for key, value in summary.items() if value is not None}
