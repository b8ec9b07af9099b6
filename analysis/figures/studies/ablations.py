"""What the parts of the indicator are worth: seconds to target without each, over the whole's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.figures.forest import WHOLE, estimated, ratio_layers
from analysis.figures.parts import make_figure
from analysis.figures.theme import Figure


def ablation_figures(result: Mapping[str, Any]) -> list[Figure]:
    """Return the figure of an ablations.json; small ticks are single games."""
    table: list[dict[str, Any]] = []
    for row in result["parts"]:
        table.append({**WHOLE, "part": row["label"], **estimated(row)})
        table += [
            {"kind": "one game", "part": row["label"], "ratio": each["ratio"], "game": each["name"]}
            for each in row["by"]
            if each["by"] == "game"
        ]
    if not table:
        return []
    title = "Seconds to target without it / with all parts (log; right: the part helps)"
    return [
        make_figure(
            "ablations",
            "What the indicator loses without a part",
            "Right of 1 it is slower without. Point and bar: geometric mean over pairs of instance "
            "and seed, and 95% interval. Small ticks: each game by itself.",
            ratio_layers(table, title, "part", step=34),
            table,
        )
    ]
