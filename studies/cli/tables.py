"""Tables that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from accerl.runtime.run import PHASES


def print_pipeline(result: Mapping[str, Any], console: Console) -> None:
    """Print the pipeline benchmark: speeds and phases of each configuration, then the ratios."""
    phases = [
        name
        for name in PHASES
        if any(config["phases"][name] >= 5e-4 for config in result["configs"].values())
    ]
    table = Table(
        title=f"bench pipeline: {result['game']}, network {result['network']}",
        title_justify="left",
    )
    table.add_column("configuration", no_wrap=True)
    for name in ("steps/s", "spread", "CPU-s / 1,000", "samples/s", "fill", "lag", "RSS MB"):
        table.add_column(name, justify="right")
    for name in phases:
        table.add_column(f"{name} ms", justify="right")
    for name, config in result["configs"].items():
        memory = " ".join(f"{held:,.0f}" for held in config["rss_mb"].values())
        table.add_row(
            name,
            f"{config['env_steps_per_second']:,.0f}",
            f"{config['spread']:,.0f}",
            f"{config['cpu_seconds_per_1000_steps']:.3f}",
            f"{config['learner_samples_per_second']:,.0f}",
            f"{config['queue_fill']:.2f}",
            f"{config['policy_lag']:.1f}",
            memory,
            *(f"{config['phases'][phase]:.3f}" for phase in phases),
        )
    console.print(table)
    ratios = Table(title="Ratios of env steps per second", title_justify="left")
    ratios.add_column("fast / slow", no_wrap=True)
    for name in ("median", "spread", "bound"):
        ratios.add_column(name, justify="right")
    for name, ratio in result["ratios"].items():
        spread, bound = result["ratio_spread"][name], result["bounds"][name]
        ratios.add_row(name, f"{ratio:.2f}", f"{spread:.2f}", f"{bound:.2f}")
    if result["ratios"]:
        console.print(ratios)
    console.print(
        f"Phases are milliseconds per env step, summed over actors. Medians of "
        f"{result['repeats']} interleaved runs of {result['seconds']:g} s (seeds "
        f"{', '.join(map(str, result['seeds']))}); spread: interquartile range. bound: what the "
        "ratio would be if the faster side's inference cost nothing and all cores were always "
        "busy: seconds per step >= max((env + write) / actors, learn, (env + write + learn) / "
        f"cores). RSS: learner, then the others. Machine: {result['fingerprint']['cpu']}, "
        f"{result['fingerprint']['cores']} cores."
    )
