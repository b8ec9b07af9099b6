"""The page of the study of room: the gate's outcome first, then where the room is and is not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from accerl.spec import CompressionSpec
from analysis import formats
from analysis.comparison.room.kl_cost import LEAST_NATS, MILD, kl_and_cost
from analysis.figures.parts import values_of
from analysis.figures.studies.events import event_figures
from analysis.figures.studies.room import cost_by_kl, gains, heat_map
from analysis.records.load import EVENTS
from analysis.report.blocks import Block, Code, Section, Text, fold, listing, section
from analysis.report.cost import in_words
from analysis.report.provenance import provenance_tables
from analysis.report.studies.room_tables import (
    COLUMNS,
    choices_table,
    families_table,
    gain_cells,
    groups_table,
    specs_of,
    strategies_table,
    unseen_table,
)
from analysis.report.table import Cell, Table, count, number

FILES = ("room.json", "plan.json")
CHOSEN = (
    "Intervals are about the specs that were chosen on other seeds: that still others would choose "
    "differently is not in them."
)
UNFINISHED = (
    "The study was interrupted: controls, placebos, rules and schedules that are not shown here "
    "are not there yet. The same command goes on."
)
LEAST_SHARE = 0.005
"""of the time, that a spec is named for"""
WORST = 4
"""instances on which a strategy is slower than no compression that are named"""
FINALS = "Final return: share of the way from random play to long runs without compression"
SCALES = "How far the games are learned, and how far chance moves J from one measurement to another"


def room_sections(
    result: Mapping[str, Any],
    plan: Mapping[str, Any],
    events: Mapping[str, Any] | None = None,
) -> list[Section]:
    """Return the sections of a room.json.

    Args:
        result: room.json.
        plan: of plan.json.
        events: bench-events.json; None: it is not there.
    """
    return [
        _answer(result, plan),
        section(
            "Matrix",
            "Which spec is how far from the fastest, game by game.",
            [
                families_table(result),
                _finals(result),
                *(heat_map(result["means"], game) for game in values_of(result["means"], "game")),
            ],
            FILES,
        ),
        _kl(result),
        section(
            "Rules and schedules",
            "What changes its spec during a run, tuned on other seeds.",
            _strategy_blocks(result),
            FILES,
            empty="Nothing was tuned in this budget.",
        ),
        _events(events),
        _plan(result, plan),
    ]


def _kl(result: Mapping[str, Any]) -> Section:
    """Whether what monitors bound is what costs env steps."""
    found = kl_and_cost(result["means"])
    within, across = (formats.fixed(found[name]) for name in ("within_games", "across_games"))
    noise = "No spec was without a KL: how much of it is noise is not known."
    if found["noise"] is not None:
        noise = (
            f"Specs below {LEAST_NATS:g} nats, which act as {MILD} does, need "
            f"{math.expm1(found['noise']):.0%} more or fewer env steps than it (root mean square). "
            "That is one standard deviation of noise."
        )
    rows = tuple(
        (Cell(row["game"]), Cell(row["label"]), number(row["kl_nats"]), number(row["steps_ratio"]))
        for row in found["rows"]
    )
    columns = ("Game", "Spec", "#KL (nats)", f"#Env steps over {MILD}'s")
    blocks: list[Block | None] = [
        cost_by_kl(found),
        Text(
            "Rank correlation of KL and env steps, 1 where what is farther away always needs more: "
            f"{within} among the specs of a game (mean over games), {across} among the games of a "
            f"spec (mean over specs). {noise}"
        ),
        fold(Table("KL and cost by game and spec", columns, rows)),
    ]
    return section(
        "KL and cost",
        "Do specs that are farther from the learner need more env steps?",
        blocks if rows else [],
        FILES,
        empty="No KL was kept.",
    )


def _events(events: Mapping[str, Any] | None) -> Section:
    """The virtual clock, on which all of this was run, held against the real one under events."""
    blocks: list[Block | None] = []
    if events is not None:
        spec = CompressionSpec.from_json(events["spec"]).label
        rows = [
            (
                Cell(row["event"]),
                Cell(row["window"]),
                *(number(row[name]) for name in ("real", "virtual")),
                number(row["ratio"], formats.fixed(row["ratio"])),
            )
            for row in events["rows"]
        ]
        columns = ("Event", "Window", "#Real", "#Virtual", "#Ratio")
        title = f"Env steps per second, {events['game']}, {events['actors']} actors with {spec}"
        error = "Error not measured: no window has env steps on both clocks"
        if events["error_median"] is not None:
            error = f"Median error {events['error_median']:.1%}, largest {events['error_max']:.1%} "
            error += "(to be at most 10% and 20%)"
        blocks = [
            Text(f"{error}; {formats.counted(len(events['seeds']), 'seed')}."),
            *event_figures(events),
            fold(Table(title, columns, tuple(rows))),
            *map(fold, provenance_tables(events)),
        ]
    return section(
        "Clocks",
        "The same events on the real clock of a machine, and on the virtual clock.",
        blocks,
        (EVENTS,),
        empty="`accerl bench events --out FOLDER`, with this folder, would fill this section.",
    )


def _answer(result: Mapping[str, Any], plan: Mapping[str, Any]) -> Section:
    single = result["chosen"]["one for all"]
    blocks: list[Block | None] = [
        Text(result["gate"]["reason"], "headline"),
        None if result["finished"] else listing([UNFINISHED], warning=True),
        Text(
            f"The one spec for all is {single}. The naive minimum, chosen on the runs that are "
            f"reported, would claim {result['room']['naive'] - 1.0:+.1%}."
        ),
        gains(result),
        groups_table(result),
        Text(note, "small") if (note := parts_note(result["room"])) else None,
        Text(CHOSEN, "small"),
        choices_table(result),
        *_unseen(result),
        _targets(result),
        _scales(result),
    ]
    return section("Answer", plan["question"], blocks, FILES)


def _finals(result: Mapping[str, Any]) -> Table:
    specs = specs_of(result["families"], "final")
    rows = tuple(
        (
            Cell(row["family"]),
            *(number(row["final"].get(s), formats.percent(row["final"].get(s))) for s in specs),
        )
        for row in result["families"]
    )
    return Table(FINALS, ("Machines", *(f"#{spec}" for spec in specs)), rows)


def _targets(result: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            Cell(f"{row['target']:.0%} of the way"),
            *gain_cells(row),
            number(row["reached"], formats.percent(row["reached"])),
        )
        for row in result["targets"]
    )
    return Table("Room by target", ("Target", *COLUMNS, "#Runs that reach it"), rows)


def _scales(result: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            Cell(row["game"]),
            number(row["random_return"]),
            number(row["reference_return"]),
            number(row["noise_share"], formats.percent(row["noise_share"])),
        )
        for row in result["games"]
    )
    columns = ("Game", "#Random play", "#Long runs without compression")
    return Table(SCALES, (*columns, "#Chance moves J, of the way between"), rows)


def _unseen(result: Mapping[str, Any]) -> list[Block | None]:
    """What a controller can know that comes to a game for the first time, and what it is worth."""
    found = result["unseen"]
    if not found:
        return []
    filled = max(row["filled"] for row in found)
    note = (
        "Each spec's cost in env steps and the price of KL are those that suit the other games, "
        f"on other seeds. Of runs that were stopped, at most {filled:.0%} of a choice's, seconds "
        "are filled in."
    )
    return [unseen_table(result), Text(note, "small")]


def _strategy_blocks(result: Mapping[str, Any]) -> list[Block | None]:
    """What each takes less than other choices, in all, by its parts, and what it decided for."""
    strategies = result["strategies"]
    if not strategies:
        return []
    return [
        strategies_table(result),
        listing([f"{row['label']}: {beside(row)}" for row in strategies]),
        fold(_tuned(strategies)),
        *(fold(_by_part(row)) for row in strategies),
    ]


def beside(row: Mapping[str, Any]) -> str:
    """Return how fast a strategy is beside no compression, where slower, and its decisions."""
    found = row["over_uncompressed"]
    gain = formats.gain_with_interval(found["ratio"], found["low"], found["high"])
    worst = [f"{each['instance']} {each['ratio']:.2f}" for each in row["slower"]]
    slower = f"slower on {formats.counted(len(worst), 'instance')}"
    if worst:
        more = ", ..." if worst[WORST:] else ""
        slower += f" (times its seconds: {', '.join(worst[:WORST])}{more})"
    shares = sorted(row["acted"].items(), key=lambda item: -item[1])
    decided = ", ".join(f"{share:.0%} {label}" for label, share in shares if share >= LEAST_SHARE)
    return f"over no compression {gain}, {slower}; decided for {decided}."


def _by_part(row: Mapping[str, Any]) -> Table:
    names = ("over_single", "over_elsewhere", "over_virtual", "over_uncompressed")
    rows = tuple(
        (
            Cell(part["by"]),
            Cell(part["name"]),
            *(number(part[name], formats.gain(part[name], None, None)[0]) for name in names),
            count(part["pairs"]),
        )
        for part in row["by"]
    )
    against = ("#Over one spec", "#Over that of other games", "#Over the virtual best")
    columns = ("By", "Part", *against, "#Over no compression", "#Pairs")
    return Table(f"Gain of {row['label']} by part, without intervals", columns, rows)


def _tuned(strategies: Sequence[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (
            Cell(row["label"]),
            count(row["inner_runs"]),
            count(row["sets"]),
            count(len(row["tuned_on"])),
            Cell(in_words(row["params"]) or "nothing"),
        )
        for row in strategies
    )
    columns = ("Strategy", "#Tuning runs", "#Best of (sets)", "#Tuned on (instances)", "Found")
    return Table("What tuning found", columns, rows)


def _plan(result: Mapping[str, Any], plan: Mapping[str, Any]) -> Section:
    rows = tuple(
        (
            Cell(row["name"]),
            Cell(row["group"]),
            number(row["horizon_seconds"]),
            Cell("; ".join(event["kind"] for event in row["events"])),
        )
        for row in plan["instances"]
    )
    stopped = [
        f"{row['label']} on {row['instance']}, {formats.counted(row['seeds_saved'], 'seed')} saved"
        for row in result["stopped"]
    ]
    left_out = [f"{n}: no times on {', '.join(m)}" for n, m in plan["specs_left_out"].items()]
    blocks: list[Block | None] = [
        listing([f"{name}: {text}" for name, text in plan["rules"].items()]),
        listing(left_out),
        Table("Instances", ("Instance", "Group", "#Horizon (s)", "Events"), rows),
        Text("Stopped after two seeds:") if stopped else None,
        listing(stopped),
        Text(f"It took {result['core_hours']:.1f} core-hours; plan {result['plan_hash']}."),
        Code((result["command"],)),
        *map(fold, provenance_tables(result)),
    ]
    return section("Plan", "What was fixed before the first run.", blocks, FILES)


def parts_note(room: Mapping[str, Any]) -> str | None:
    """Return from how many runs speed and fidelity are, where some had not made any env step."""
    known = room["parts_pairs"]
    if known == room["pairs"]:
        return None
    return (
        f"Speed and fidelity are those of {known} of {formats.counted(room['pairs'], 'run')}: in "
        "the others a spec had not made a single env step by the horizon."
    )
