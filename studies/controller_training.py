"""`accerl controller train`: meta-train the Advanced Indicator on tier 0, compare it, export it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from accerl.checkpoint import has_checkpoint, load_checkpoint
from accerl.errors import UserError
from accerl.records import check_new_dir, locked
from accerl.runtime.latency.families import machine_of
from analysis.formats import rounded
from controller.actions import PresetActions
from controller.bundle.bundle import check_place, export_bundle
from controller.bundle.meta import BundleMeta, Result, TrainedOn
from controller.bundle.schedule import Schedule, median_schedules
from controller.env.instances import Instance
from controller.env.machine_instances import SPECS, DrawnInstances
from controller.env.play import play
from controller.indicator.compare import TRAINED, Compared, compare
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.indicator.training import train_on_tier0
from controller.objective import OFFSET, SLOWER
from controller.training.gradient import GradientConfig
from studies.jobs.meta_training import first_indicator
from studies.options import check_seed
from studies.progress import bar, console, numbers_table, paragraph, say

SCHEDULED = 16
"""runs of the training split that schedules are made of"""
PLAYED = "drawn games on drawn machines"
METRIC = f"discounted_gain_plus_{OFFSET:g}"


def train_tier0(
    out: Path, *, iterations: int, instances: int, draws: int, seed: int
) -> dict[str, Any]:
    """Train an indicator on drawn machines and games, compare it, and export it as a bundle.

    What an interrupted call has trained lies beside `out`, and the same call goes on from there.

    Args:
        out: the bundle's folder, a new one.
        iterations: of the policy gradient.
        instances: drawn for each of them.
        draws: of the validation split, on which it is compared.
        seed: of its initial weights, of what is drawn and explored.

    Returns:
        ``rows`` (`Compared`, one a strategy), ``history`` (a row an iteration), ``bundle``.

    Raises:
        UserError: the seed is not allowed, `out` holds anything already, cannot be written or is
            being trained, or an interrupted training of it had other settings or is damaged.
    """
    check_seed(seed)
    check_new_dir(out)
    check_place(out)
    torch.set_num_threads(1)
    settings = IndicatorSettings(specs=SPECS)
    rule, trained = first_indicator(settings, seed), first_indicator(settings, seed)
    begun = out.resolve().with_name(f".{out.resolve().name}.training")
    lock = begun.with_name(f"{begun.name}.lock")
    with locked(lock, f"{out} is being trained; wait until that ends, or give another --out"):
        history = _train(trained, GradientConfig(instances=instances, seed=seed), iterations, begun)
        validation = DrawnInstances("validation")
        with bar("comparing", draws) as advance:
            played = [validation[number] for number in range(draws)]
            rows = compare(rule, trained, SPECS, played, advance)
        _print(rows, len(history), draws)
        _export(out, trained, rows)
        shutil.rmtree(begun, ignore_errors=True)
        lock.unlink()
    return {
        "iterations": len(history),
        "instances": instances,
        "draws": draws,
        "tier": "analytic",
        "rows": [asdict(row) for row in rows],
        "history": history,
        "bundle": str(out),
    }


def _train(
    indicator: AdvancedIndicator, config: GradientConfig, iterations: int, begun: Path
) -> list[dict[str, float]]:
    """Train in place, or go on with what lies in `begun`; return a row an iteration."""
    with bar("meta-training on tier 0", iterations) as advance:
        if has_checkpoint(begun):
            try:
                advance(len(load_checkpoint(begun)["history"]), replayed=True)
            except UserError as error:
                raise UserError(f"{error}: delete {begun} to do so") from error
        try:
            return train_on_tier0(
                indicator, config, iterations, checkpoint=begun, on_iteration=advance
            )
        except UserError as error:
            raise UserError(f"{begun}: {error}") from error


def _print(rows: list[Compared], iterations: int, draws: int) -> None:
    table = numbers_table(
        f"Simulated runs of tier 0: {draws} draws of the validation split, after {iterations} "
        "iterations",
        "strategy",
        "runs",
        "gain over fp32's",
        f"below {SLOWER:g}",
        "trained over it",
        "95% interval",
    )
    for row in rows:
        bounds = [rounded(bound) for bound in (row.low, row.high) if bound is not None]
        interval = " to ".join(bounds)
        own = row.strategy == TRAINED
        ratio, interval = ("", "") if own else (rounded(row.ratio), interval)
        numbers = (str(row.runs), rounded(row.gain), f"{row.slower:.0%}", ratio, interval)
        table.add_row(row.strategy, *numbers)
    console.print(table)
    paragraph(
        f"Gains are discounted areas under learning curves, {OFFSET:g} of a game's scale added; "
        "ratios are geometric means. No reinforcement learning was run."
    )


def _export(out: Path, trained: AdvancedIndicator, rows: list[Compared]) -> None:
    played = [DrawnInstances("train")[number] for number in range(SCHEDULED)]
    longest = max(played, key=lambda item: item.horizon_seconds)
    horizon, interval, first = longest.lengths
    meta = BundleMeta(
        horizon_seconds=horizon,
        interval_seconds=interval,
        first_interval_seconds=first,
        tier="analytic",
        instances=(  # draws, which have no seeds that a later run could share
            TrainedOn(
                game=PLAYED,
                seeds=(),
                horizon_seconds=horizon,
                interval_seconds=interval,
                first_interval_seconds=first,
            ),
        ),
        results=tuple(
            Result(
                instance=f"validation draws of {PLAYED}",
                metric=METRIC,
                against=row.strategy,
                ratio=row.ratio,
                low=row.low,
                high=row.high,
                n=row.runs,
            )
            for row in rows
            if row.strategy != TRAINED
        ),
    )
    export_bundle(out, trained, meta, _schedules(trained, played))
    say(f"bundle: {out}")


def _schedules(trained: AdvancedIndicator, instances: Sequence[Instance]) -> dict[str, Schedule]:
    """Return what it usually did on machines of every family, and on all."""
    actions = PresetActions(trained.settings.specs)
    episodes: dict[str, list[list[tuple[int, ...]]]] = {}
    lengths: dict[str, tuple[float, ...]] = {}
    for seed, instance in enumerate(instances):
        machine = machine_of(instance.profile)
        assert machine is not None  # of a family, as all that are drawn
        decisions = play(trained, instance, seed).decisions
        episodes.setdefault(machine[0], []).append([actions.indices(d.main) for d in decisions])
        lengths[machine[0]] = max(instance.lengths, lengths.get(machine[0], instance.lengths))
    return median_schedules(actions, episodes, lengths)
