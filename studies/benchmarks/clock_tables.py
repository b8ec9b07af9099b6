"""How `accerl bench clock` is printed and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from accerl.records import make_out_dir
from studies.benchmarks.clock_cases import LEARNED


def print_clock(result: Mapping[str, Any], console: Console) -> None:
    """Print one line a case, then how well the clocks agree, and where they do not."""
    for game in result["games"]:
        table = Table(
            title=f"bench clock: {game}, {len(result['seeds'])} seeds of "
            f"{result['seconds'][game]:g} s on each clock",
            title_justify="left",
        )
        table.add_column("actors", no_wrap=True)
        learned = game in LEARNED
        for name in ("real steps/s", "virtual", "error", "real lag", "virtual", "apart"):
            table.add_column(name, justify="right")
        for name in ("real mean J", "virtual") if learned else ():
            table.add_column(name, justify="right")
        for row in result["rows"]:
            if row["game"] != game:
                continue
            lag = row["lag"]
            cells = [
                f"{row['real']:,.0f}",
                f"{row['virtual']:,.0f}",
                f"{row['error']:+.1%}",
                f"{lag['real_mean']:.1f}",
                f"{lag['virtual_mean']:.1f}",
                f"{lag['distance_updates']:.2f}",
            ]
            if learned:
                cells += [
                    f"{np.median(row[name]):.2f}"
                    for name in ("return_real_all", "return_virtual_all")
                ]
            table.add_row(row["label"], *cells)
        console.print(table)
    console.print(
        f"Env steps/s: error {result['time_error_median']:.1%} in the median, "
        f"{result['time_error_max']:.1%} at worst. Medians over seeds; the first intervals are "
        "left out. lag: learner updates; apart: area between the two distributions of lag."
    )
    if result["spearman"] is not None:
        console.print(
            f"Rank correlation of the return per second (the mean of J over a run) between the "
            f"clocks: {result['spearman']:.2f} (95% {result['spearman_low']:.2f} to "
            f"{result['spearman_high']:.2f}, bootstrap over cases and seeds)."
        )
    for game, found in result["by_game"].items():
        console.print(
            f"{game}: error {found['time_error_median']:.1%} median, {found['time_error_max']:.1%} "
            f"worst; rank correlation of env steps/s {_told(found['spearman_speed'])}."
        )
    for game, ratios in result["drift"].items():
        console.print(
            f"{game}: over the real runs the machine's latencies drifted by "
            + ", ".join(f"{name} {ratio - 1.0:+.0%}" for name, ratio in ratios.items())
        )
    unlearned = [game for game in result["games"] if game not in LEARNED]
    if unlearned:
        console.print(
            f"{', '.join(unlearned)}: speed and lag only; nothing is learned in that time."
        )
    for line in result["disagreements"] or ["Nothing disagrees by more than 8% or one update."]:
        console.print(line, markup=False)


def _told(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def draw_clock(result: Mapping[str, Any], out: Path) -> list[Path]:
    """Draw predictions against measurements; return the picture's path.

    Raises:
        UserError: `out` cannot be written.
    """
    from analysis.figures.bench import clock_fidelity
    from analysis.figures.export import write_pngs

    make_out_dir(out)
    figure = clock_fidelity(result)
    return write_pngs({figure.name: figure}, out)
