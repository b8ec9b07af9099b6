"""The page of ablations: what the indicator loses without each of its parts, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.figures.studies.ablations import ablation_figures
from analysis.report.blocks import Block, Code, Section, Text, listing, section
from analysis.report.table import Cell, Table, count, estimate, fixed, number

ABLATIONS = "ablations.json"


def ablation_sections(result: Mapping[str, Any]) -> list[Section]:
    """Return the sections of an ablations.json."""
    parts = result["parts"]
    blocks: list[Block | None] = [
        *ablation_figures(result),
        parts_table(parts),
        listing([f"{row['label']}: {row['what']}" for row in parts]),
        _by(parts),
    ]
    seeds = result["seeds"]
    how: list[Block | None] = [
        Text(
            "Every run learns for real; a latency profile charges its seconds. All ways to decide "
            "have the same seeds, games, machines and changes of conditions. A run that misses its "
            "target counts with its horizon, which makes differences look smaller. Pairs of one "
            "game and one seed begin alike on all machines, and count as one in the intervals."
        ),
        Text(
            f"Seeds {formats.listed([*map(str, seeds)])}{_early(result)}; targets "
            + formats.listed([f"{game} {score:.3g}" for game, score in result["targets"].items()])
            + f"; {result['core_hours']:.2g} core-hours. Final returns are shares of "
            "the way from random play to long runs without compression."
        ),
        Code((result["command"],)),
    ]
    lead = "What the Advanced Indicator that ships loses without each of its parts."
    return [
        section("Ablations", lead, blocks if parts else [], (ABLATIONS,), empty="No run was made."),
        section("Method", "What was compared.", how, (ABLATIONS, "plan.json")),
    ]


def _early(result: Mapping[str, Any]) -> str:
    made, planned = len(result["seeds"]), len(result["planned_seeds"])
    return f", {made} of {planned} planned ones: it ended early" if made < planned else ""


def parts_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    """Return every part's seconds over those of the whole, and its final return."""
    rows = tuple(
        (
            Cell(row["label"]),
            *estimate(row),
            fixed(row["final"]["difference"]),
            Cell(formats.interval(row["final"]["low"], row["final"]["high"])),
            number(row["alike"], f"{row['alike']} of {row['pairs']}"),
            count(row["independent"]),
            count(row["missed"]),
            count(row["missed_whole"]),
        )
        for row in parts
    )
    columns = (
        "", "#Seconds / whole", "95% interval", "#Final return, difference",
        "95% interval", "#Decided alike", "#Independent pairs", "#Missed", "#Whole missed",
    )  # fmt: skip
    return Table("Seconds to target and final return without each part", columns, rows)


def _by(parts: list[Mapping[str, Any]]) -> Table:
    names = [(each["by"], each["name"]) for each in parts[0]["by"]] if parts else []
    rows = tuple(
        (Cell(row["label"]), *(fixed(each["ratio"]) for each in row["by"])) for row in parts
    )
    titles = tuple(f"#{name}" for _, name in names)
    return Table("The same by machines, conditions and games", ("", *titles), rows)
