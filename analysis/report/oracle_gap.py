"""The section of how much there is to win: the oracle gap, and the worth of knowing the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.comparison.verdict import no_room_sentences
from analysis.comparison.worth import NO_ROOM, ROOM, SAME_HORIZON
from analysis.figures import bench
from analysis.records.load import StudyRecord
from analysis.report.blocks import Block, Section, Text, listing, section
from analysis.report.provenance import RUN_FILES
from analysis.report.table import Cell, Table, count, estimate, number

ROOM_WORDS = {
    "none": "none that this oracle found",
    "little": "little",
    "some": "yes",
    "unknown": "unknown: nothing was learned",
}


def oracle_gap(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What the best static spec of each instance gains, and what an oracle gains beyond that."""
    blocks: list[Block | None] = []
    if rows := contest["machine_gap"]:
        blocks += [
            Text(
                "What knowing the machine is worth: the best static spec of each instance, tuned "
                "there, against the one spec that is best for all trained instances. Closed is "
                "the subject's share of that, on a log scale, where it is at least "
                f"{ROOM:.0%}."
            ),
            machine_gap_table(rows, study.labels[study.subject]),
        ]
    if study.oracle_gap:
        blocks += [
            Text(
                "A greedy oracle tries every spec from a snapshot and keeps what is best an "
                "interval later; a schedule that looks further, such as the best of two phases, "
                "may gain more. The placebo is the same oracle with one spec and other random "
                "numbers: what it gains is luck."
            ),
            listing(no_room_sentences(contest), warning=True),
            bench.oracle_gap(study.oracle_gap),
            oracle_table(study.oracle_gap),
        ]
    if contest["oracle_gap"]:
        blocks += [
            gap_table(study, contest),
            Text(
                f"Shares are shown where the gap is at least {ROOM:.0%} and the oracle's run is as "
                f"long as the test runs (within {SAME_HORIZON:.0%}); below {NO_ROOM:.0%} there is "
                f"nothing to win. Each side is measured by the discounted gain (the controller's "
                f"objective) over the length of its own runs. The interval resamples test pairs "
                f"and the oracle's few seeds; it is left out where the sign of the gap is "
                f"uncertain."
            ),
        ]
    if blocks:
        blocks.append(Text(_measured(study, contest)))
    return section(
        "Oracle gap",
        "How much there is to win on each game and machine.",
        blocks,
        ("oracle-gap.json", RUN_FILES),
        empty="The gap was not measured: oracle-gap.json, written by accerl study run oracle-gap, "
        "would fill this section.",
    )


def _measured(study: StudyRecord, contest: Mapping[str, Any]) -> str:
    """Say on which instances the oracle was not run."""
    missing: Sequence[str] = contest["oracle_gap_missing"]
    text = f"The oracle gap was measured on {len(study.games) - len(missing)} of the "
    text += f"{len(study.games)} instances"
    return text + (f"; it is unknown on {formats.listed(missing)}." if missing else ".")


def gap_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How much there was to win on each game of the contest, and how much of it was won."""
    rows = tuple(
        (
            Cell(item["env"]),
            _gain(item["gap"]),
            Cell(_signed_interval(item["low"], item["high"])),
            Cell(ROOM_WORDS[item["room"]]),
            Cell(study.labels[item["static"]] if item["static"] else formats.NOTHING),
            *_closed(item),
            *(number(item[key]) for key in ("oracle_horizon_seconds", "horizon_seconds")),
        )
        for item in contest["oracle_gap"]
    )
    columns = ("Instance", "#Oracle gap", "#95% interval", "Room to win", "Best static")
    columns += ("#Closed", "#95% interval", "#Oracle's run (s)", "#Test run (s)")
    title = "Oracle gap closed: (subject - best static) / (oracle - best static)"
    return Table(title, columns, rows)


def machine_gap_table(rows: Sequence[Mapping[str, Any]], subject: str) -> Table:
    """What choosing a static spec by instance is worth, and how much of that the subject won."""
    body = tuple(
        (
            Cell(row["env"]),
            *estimate(row, "own"),
            *estimate(row, "subject"),
            *_closed(row),
            number(row["n"], f"{row['n']}, {row['clusters']} independent"),
        )
        for row in rows
    )
    columns = ("Instance", "#Best static of the instance", "#95% interval", f"#{subject}")
    columns += ("#95% interval", "#Closed", "#95% interval", "#Pairs")
    return Table("Seconds to target over those of one static spec for all", columns, body)


def oracle_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The oracle-gap study: gain of each schedule over the best static spec."""
    schedules = ("fp32", "two_phase", "oracle", "placebo")
    body = tuple(
        (
            Cell(row["game"]),
            Cell(row["profile"]),
            Cell(row["best_static"]),
            *(
                _gain(None if row[name]["ratio"] is None else row[name]["ratio"] - 1.0)
                for name in schedules
            ),
            count(len(row["seeds"])),
        )
        for row in rows
    )
    columns = ("Game", "Machine", "Best static", "#fp32", "#two phases", "#oracle", "#placebo")
    return Table("Gain over the best static spec", (*columns, "#Seeds"), body)


def _closed(row: Mapping[str, Any]) -> tuple[Cell, Cell]:
    bounds = formats.NOTHING
    if row["closed_low"] is not None:
        bounds = f"{row['closed_low']:.0%} to {row['closed_high']:.0%}"
    return number(row["closed"], formats.percent(row["closed"])), Cell(bounds)


def _gain(share: float | None) -> Cell:
    return number(share, formats.NOTHING if share is None else f"{share:+.1%}")


def _signed_interval(low: float | None, high: float | None) -> str:
    return formats.NOTHING if low is None or high is None else f"{low:+.1%} to {high:+.1%}"
