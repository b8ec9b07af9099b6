"""What `accerl bench training` measures: whether learning goes on with each compression."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.records import (
    SUMMARY,
    fingerprint,
    make_out_dir,
    read_json,
    read_metrics,
    versions,
    write_json,
)
from accerl.run_folder import read_config, starting_learner
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, STUDENTS, CompressionSpec, Decision
from accerl.train import evaluate_checkpoint, train
from studies.progress import bar

EVALUATION = "eval.json"
EPISODES = 20
"""at the start and at the end of a run, whose mean scores are compared"""


def specs_for(network: str) -> list[CompressionSpec]:
    """Return one spec of each compressor, and compositions, for a learner's network."""
    smaller = STUDENTS[STUDENTS.index(network) + 1 :]
    specs = [
        IDENTITY,
        CompressionSpec(bits=16),
        CompressionSpec(bits=8),
        CompressionSpec(sparsity=0.5, bits=8),
        CompressionSpec(rank=0.25, bits=8),
    ]
    specs += [CompressionSpec(student=student, bits=8) for student in smaller]
    specs += [CompressionSpec(student=student, sparsity=0.5, bits=8) for student in smaller[:1]]
    return specs


def bench_training(
    run: Path,
    out: Path,
    *,
    specs: Sequence[CompressionSpec] = (),
    seconds: float,
    seeds: int,
    episodes: int = 16,
) -> dict[str, Any]:
    """Go on from a run's learner with every compression, interleaved; return a row for each.

    Runs are kept in `out`, one folder each; those that are finished are not repeated.

    Args:
        run: run directory to start from; its settings are kept.
        out: folder of the runs.
        specs: what actors act with; the first is what speeds are compared with.
        seconds: length of each run.
        seeds: runs of each spec.
        episodes: played with the learner's own policy after each run; 0: none.

    Raises:
        UserError: there is no such run, or a number or spec is not allowed.
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    config = replace(read_config(run), seconds=seconds, start=str(run.absolute()))
    starting_learner(config)
    specs = list(specs) or specs_for(config.network)
    for spec in specs:
        Decision.of(spec).check_students(config.network)
    order, folders = list(specs), {}
    with bar("training", len(specs) * seeds) as advance:
        for seed in range(seeds):
            for spec in order:
                folder = out / f"{spec.label.replace(' ', '-').replace('%', '')}-seed{seed}"
                folders[spec, seed] = folder
                if not (folder / SUMMARY).is_file():
                    _train_apart(replace(config, seed=seed), spec, folder)
                row = measured(folder)
                advance(1, f"{spec.label}: {row['env_steps_per_second']:,.0f} env steps/s")
            order = [*order[1:], order[0]]
    start_return = None
    if episodes:
        with bar("playing", len(folders) + 1) as advance:
            start_return = evaluate_checkpoint(run, episodes)["mean_return"]
            advance(1, "the learner to start from")
            for folder in folders.values():
                if not (folder / EVALUATION).is_file():
                    write_json(folder / EVALUATION, evaluate_checkpoint(folder, episodes))
                advance(1, folder.name)
    found = {spec: [measured(folders[spec, seed]) for seed in range(seeds)] for spec in specs}
    result = {
        "bench": "training",
        "game": config.game,
        "network": config.network,
        "start": run.name,
        "start_return": start_return,
        "seconds": seconds,
        "seeds": list(range(seeds)),
        "fingerprint": fingerprint(),
        "versions": versions(),
        "rows": [_row(spec, rows, found[specs[0]]) for spec, rows in found.items()],
    }
    write_json(make_out_dir(out) / "bench-training.json", result)
    return result


def _train_apart(config: RunConfig, spec: CompressionSpec, folder: Path) -> None:
    """Train in a process of its own: memory that one run leaves must not count for the next."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        try:
            fresh.submit(_train, config, spec, folder).result()
        except BrokenProcessPool as error:
            raise UserError(f"the run in {folder} was killed: is there memory enough?") from error


def _train(config: RunConfig, spec: CompressionSpec, folder: Path) -> None:
    train(config, FixedStrategy(spec), strategy_name=f"fixed {spec.label}", out=folder)


def measured(folder: Path) -> dict[str, Any]:
    """Return what one finished run shows."""
    reports = [report for report in read_metrics(folder) if report.env_steps]
    if not reports:
        raise UserError(f"the run in {folder} collected nothing; give it more --seconds")
    scores = [score for report in reports for score in report.episode_returns]
    steps = np.array([report.env_steps for report in reports], float)
    distances = [kl for report in reports for kl in report.student_kl_nats.values()]
    return {
        "env_steps_per_second": steps.sum() / sum(report.seconds for report in reports),
        "policy_lag": _weighted(reports, "policy_lag", steps),
        "kl_mean_nats": _weighted(reports, "kl_mean_nats", steps),
        "kl_max_nats": max(report.kl_max_nats for report in reports),
        "student_kl_nats": float(np.mean(distances)) if distances else None,
        "publication_kb": sum(report.publication_bytes for report in reports)
        / max(sum(report.publications - report.publications_unchanged for report in reports), 1)
        / 1e3,
        "return_first": float(np.mean(scores[:EPISODES])) if scores else None,
        "return_last": float(np.mean(scores[-EPISODES:])) if scores else None,
        "learner_return": (
            read_json(folder / EVALUATION)["mean_return"]
            if (folder / EVALUATION).is_file()
            else None
        ),
        "events": sum(len(report.events) for report in reports),
    }


def _weighted(reports: Sequence[IntervalReport], name: str, weights: np.ndarray) -> float:
    return float(np.average([getattr(report, name) for report in reports], weights=weights))


def _row(
    spec: CompressionSpec, rows: Sequence[dict[str, Any]], reference: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return medians over seeds, and ranges of what is noisy."""
    speeds = [row["env_steps_per_second"] for row in rows]
    ratios = [a / b["env_steps_per_second"] for a, b in zip(speeds, reference, strict=True)]
    found: dict[str, Any] = {"spec": spec.to_json()}
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] is not None]
        found[name] = float(np.median(values)) if values else None
    found["env_steps_per_second_ratio"] = float(np.median(ratios))
    found["env_steps_per_second_all"] = speeds
    found["learner_return_all"] = [row["learner_return"] for row in rows]
    found["return_last_all"] = [row["return_last"] for row in rows]
    found["return_first_all"] = [row["return_first"] for row in rows]
    return found
