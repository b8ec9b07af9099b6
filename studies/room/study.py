"""The runs of the study: made, counted and kept as rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accerl.spec import IDENTITY, CompressionSpec
from analysis.comparison.room.matrix import CHOICES, Matrix, missing_runs
from controller.env.instances import Instance
from studies.contest.study import strategy_job
from studies.core_seconds import CoreSeconds
from studies.jobs.executor import Executor, Outcome
from studies.jobs.inner import StrategyJob, StrategyResult
from studies.progress import Advance, bar, silent
from studies.room.plan import FIRST_SEEDS, STOP, RoomBudget
from studies.room.runs import Rows, log_seconds, make_matrix, rows_of

Cell = tuple[Instance, CompressionSpec, int]
"""a run of the matrix: its instance, spec and seed"""


def static(spec: CompressionSpec, label: str = "") -> dict[str, Any]:
    """Return the description of a strategy that acts with one spec."""
    return {"name": "fixed", "params": {"spec": spec.to_json()}, "label": label or spec.label}


@dataclass
class RoomStudy:
    """What the steps of the study hand to each other."""

    out: Path
    budget: RoomBudget
    specs: tuple[CompressionSpec, ...]
    """that all machines have times for on which room is measured"""
    seed: int
    executor: Executor
    costs: CoreSeconds
    plan: str
    """its hash"""
    instances: list[Instance] = field(default_factory=list)
    runs: dict[tuple[str, str, int], Rows] = field(default_factory=dict)
    """by name of the instance, label of the spec, and seed"""
    scales: list[dict[str, Any]] = field(default_factory=list)
    """of the games, see `cells.scales_of`"""
    stopped: dict[tuple[str, str], int] = field(default_factory=dict)
    """seeds that were saved, by name of the instance and label of the spec"""

    def group(self, *names: str) -> list[Instance]:
        """Return the instances of some groups."""
        return [item for item in self.instances if item.group in names]

    def results(
        self, jobs: Sequence[StrategyJob], on_done: Advance = silent
    ) -> list[StrategyResult]:
        """Make runs; return their results, in order."""
        outcomes: list[Outcome[StrategyResult]] = self.executor.map(jobs, on_done)
        for job, outcome in zip(jobs, outcomes, strict=True):
            self.costs.add(job.instance.game, outcome)
        self.costs.save()
        return [outcome.result for outcome in outcomes]

    def run_cells(self, title: str, cells: Sequence[Cell]) -> None:
        """Make runs of the matrix, and keep their rows."""
        jobs = [strategy_job(item, seed, static(spec)) for item, spec, seed in cells]
        with bar(title, len(jobs)) as advance:
            found = self.results(jobs, advance)
        for (item, spec, seed), result in zip(cells, found, strict=True):
            key = (item.name, spec.label, seed)
            self.runs[key] = rows_of(item, spec.label, seed, result)

    def run_matrix(self, title: str, instances: Sequence[Instance], seeds: Sequence[int]) -> None:
        """Run every spec on every instance, seed by seed; stop what is clearly last."""
        for place, seed in enumerate(seeds):
            cells: list[Cell] = []
            for item in instances:
                last = self._clearly_last(item, seeds[:place])
                for spec in self.specs:
                    if item.has(spec) and spec.label not in last:
                        cells.append((item, spec, seed))
            self.run_cells(f"{title}, seed {seed}", cells)
        self._count_stopped(instances, seeds)

    def _count_stopped(self, instances: Sequence[Instance], seeds: Sequence[int]) -> None:
        """Keep of how many runs it saved to stop what is clearly last."""
        for item in instances:
            for label in self._clearly_last(item, seeds):
                missing = sum((item.name, label, seed) not in self.runs for seed in seeds)
                self.stopped.pop((item.name, label), None)
                if missing:
                    self.stopped[item.name, label] = missing

    def _clearly_last(self, instance: Instance, seeds: Sequence[int]) -> set[str]:
        """Return the labels of the specs that stop on an instance, see `plan.STOP`.

        No compression never does: it is what all gains are over, and it would stop where it was
        slow by luck.
        """
        found: dict[str, list[float]] = {}
        for seed in seeds[:FIRST_SEEDS]:
            for spec in self.specs:
                if rows := self.runs.get((instance.name, spec.label, seed)):
                    found.setdefault(spec.label, []).append(log_seconds(rows))
        return clearly_last(found) - {IDENTITY.label}

    def run_missing(self, instances: Sequence[Instance], seeds: Sequence[int]) -> Matrix:
        """Make the runs of stopped specs that choices need after all; return the matrix."""
        shared = [spec for spec in self.specs if all(item.has(spec) for item in instances)]
        specs = {spec.label: spec for spec in shared}
        while True:
            matrix = make_matrix(instances, list(specs), seeds, self.runs)
            missing = missing_runs(matrix, CHOICES)
            if not missing:
                self._count_stopped(instances, seeds)
                return matrix
            cells = [(instances[n], specs[matrix.specs[s]], matrix.seeds[k]) for n, s, k in missing]
            self.run_cells("stopped runs that a choice needs", cells)


def clearly_last(log_seconds_by_spec: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the specs that took `STOP` times the fastest's seconds with each of the first seeds.

    Args:
        log_seconds_by_spec: of the first seeds, in one order; with fewer seeds nothing stops.
    """
    whole = {label: own for label, own in log_seconds_by_spec.items() if len(own) >= FIRST_SEEDS}
    if not whole:
        return set()
    best = [min(values) for values in zip(*whole.values(), strict=True)]
    slower = math.log(STOP)
    return {
        label
        for label, own in whole.items()
        if all(value - least >= slower for value, least in zip(own, best, strict=True))
    }
