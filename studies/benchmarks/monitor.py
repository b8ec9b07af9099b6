"""What `accerl bench monitor` measures: what watching a run costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from time import thread_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from accerl.errors import UserError
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.records import fingerprint, versions
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from accerl.train import train
from studies.progress import bar

SPEC = CompressionSpec(bits=8)
"""what acts: the harder actors are compressed, the larger a share the monitor is of what is left"""


def bench_monitor(
    presets: Sequence[str], *, seconds: float, repeats: int, seed: int = 0
) -> dict[str, Any]:
    """Run each preset in the process runtime; return the share of its CPU that indicators take.

    Counted are the measures of every rollout and publication, in whichever process makes them,
    and features once per interval; start-up and evaluation are not part of the whole.

    Raises:
        UserError: a preset does not exist, or a number is not allowed.
    """
    if repeats < 1:
        raise UserError(f"--repeats must be at least 1, got {repeats}")
    if not seconds > 0.0:
        raise UserError(f"--seconds must be positive, got {seconds:g}")
    configs = {
        name: replace(load_preset(name), seconds=seconds).with_runtime(
            runtime="process", clock="real", eval_episodes=0
        )
        for name in presets
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in configs}
    with bar("monitor", repeats * len(configs), unit="share") as advance:
        for repeat in range(repeats):
            for name, config in configs.items():
                reports = train(replace(config, seed=seed + repeat), FixedStrategy(SPEC)).reports
                found[name].append(_costs(reports, seconds))
                advance(1, name)
    rows = [{"preset": name, **_median(costs)} for name, costs in found.items()]
    return {
        "spec": SPEC.to_json(),
        "seconds": seconds,
        "repeats": repeats,
        "seeds": [seed + repeat for repeat in range(repeats)],
        "rows": rows,
        "fingerprint": fingerprint(),
        "versions": versions(),
    }


def _costs(reports: list[IntervalReport], horizon_seconds: float) -> dict[str, float]:
    """Return CPU-seconds of the run and of its monitor, and the monitor's share."""
    spent: Counter[str] = Counter()
    total = 0.0
    for report in reports:
        spent.update(report.monitor_cpu_seconds)
        total += sum(report.cpu_seconds.values())
    monitor = Monitor(num_actions=6, horizon_seconds=horizon_seconds)
    before = thread_time()
    for report in reports:
        monitor.update(report)
    features = thread_time() - before
    updates = sum(report.learner_updates for report in reports)
    watching = sum(spent.values()) + features
    return {
        "run_cpu_seconds": total,
        "learner_cpu_seconds": spent.pop("learner", 0.0),
        "compressor_cpu_seconds": sum(spent.values()),
        "features_cpu_seconds": features,
        "share": watching / total,
        "us_per_update": 1e6 * watching / max(updates, 1),
        "updates": float(updates),
    }


def _median(costs: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians over repeats, and how far the share spreads (largest minus smallest)."""
    medians = {name: float(np.median([cost[name] for cost in costs])) for name in costs[0]}
    shares = [cost["share"] for cost in costs]
    return {**medians, "share_spread": max(shares) - min(shares)}


def print_monitor(result: dict[str, Any], console: Console) -> None:
    """Print one line per preset."""
    table = Table(title="bench monitor: processor time of the run and of watching it")
    table.add_column("preset", no_wrap=True)
    for name in ("share", "spread", "run CPU-s", "learner", "compressor", "features", "us/update"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        table.add_row(
            row["preset"],
            f"{row['share']:.2%}",
            f"{row['share_spread']:.2%}",
            f"{row['run_cpu_seconds']:.1f}",
            f"{row['learner_cpu_seconds']:.3f}",
            f"{row['compressor_cpu_seconds']:.3f}",
            f"{row['features_cpu_seconds']:.3f}",
            f"{row['us_per_update']:.0f}",
        )
    console.print(table)
