"""Tables that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from accerl.runtime.run import PHASES
from accerl.spec import CompressionSpec


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


def print_training(result: Mapping[str, Any], console: Console) -> None:
    """Print what training with each compression showed."""
    table = Table(
        title=f"bench training: {result['game']}, {result['network']}, "
        f"{len(result['seeds'])} seeds of {result['seconds']:g} s from {result['start']}",
        title_justify="left",
    )
    table.add_column("spec", no_wrap=True)
    for name in (
        "steps/s",
        "ratio",
        "lag",
        "KL",
        "student KL",
        "kB",
        "first score",
        "last score",
        "learner",
    ):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        student = row["student_kl_nats"]
        table.add_row(
            CompressionSpec.from_json(row["spec"]).label,
            f"{row['env_steps_per_second']:,.0f}",
            f"{row['env_steps_per_second_ratio']:.2f}",
            f"{row['policy_lag']:.2f}",
            f"{row['kl_mean_nats']:.2g}",
            "" if student is None else f"{student:.2g}",
            f"{row['publication_kb']:,.0f}",
            _scores(row["return_first_all"]),
            _scores(row["return_last_all"]),
            _scores(row["learner_return_all"]),
        )
    console.print(table)
    console.print(
        "Medians over seeds. lag: learner updates between the weights that acted and the update "
        "that used them; KL (nats): learner at that update from what acted, lag included; student "
        "KL: learner from student or pruned network at its publication; kB: of a publication; "
        "scores: mean of the first and last 20 episodes that the compressed policy played, of each "
        "seed; learner: what the learner's own policy scores after the run."
    )
    if result["start_return"] is not None:
        console.print(f"The learner that all began with scores {result['start_return']:.1f}.")


def _scores(values: list[float | None]) -> str:
    return " ".join("-" if value is None else f"{value:.1f}" for value in values)
