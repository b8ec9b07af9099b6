"""Tables of a study beyond its contrasts: reach, transfer, break-even, oracle gap, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.verdict import format_p
from analysis.figures.theme import Figure
from analysis.records.load import StudyRecord
from analysis.report import formats
from analysis.report.tables import Cell, Table, number, rows_table, strategy_cell

EVERY = "all"
NAMED = 3
"""so many names fit into a cell; of more, it tells the number"""
ROOM_WORDS = {
    "none": "none: no win can be claimed",
    "little": "little",
    "some": "yes",
    "unknown": "unknown: nothing was learned",
}


def reach_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How many runs reached the target: a row a strategy, a column a game."""
    counts: dict[tuple[str, str], list[int]] = {}
    for row in contest["rows"]:
        for game in (row["env"], EVERY):
            found = counts.setdefault((row["strategy"], game), [0, 0])
            found[0] += not row["censored"]
            found[1] += 1
    games = [EVERY, *study.games]
    rows = []
    for strategy in study.strategies:
        cells = []
        for game in games:
            reached, runs = counts.get((strategy.name, game), (0, 0))
            cells.append(number(reached, f"{reached} of {runs}") if runs else Cell(formats.NOTHING))
        rows.append((strategy_cell(study, strategy.name), *cells))
    columns = ("Strategy", "#All games", *(f"#{game}" for game in study.games))
    return Table("Runs that reached the target before the horizon", columns, tuple(rows))


def transfer_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """Seconds to target against each planned comparator, by group of games."""
    trained = trained_on(study, short=True)
    rows = tuple(
        (
            Cell(trained),
            Cell(item["group"]),
            Cell(_few(list(item["ratio_by_game"]), "instance")),
            strategy_cell(study, item["b"]),
            number(item["ratio"], formats.fixed(item["ratio"])),
            Cell(formats.interval(item["low"], item["high"])),
            number(item.get("p"), format_p(item.get("p"))),
            number(item["n"], str(item["n"])),
        )
        for item in contest["transfer"]
    )
    columns = ("Trained on", "Tested on", "Instances", "Comparator", "#Ratio", "#95% interval")
    columns += ("#p, uncorrected", "#Pairs")
    return Table("Seconds to target by what the controller had met in training", columns, rows)


def trained_on(study: StudyRecord, *, short: bool = False) -> str:
    """Return games and machines of the trained instances: "catch, cartpole on edge".

    If `short`, more than three of a kind are only counted.
    """
    own = [study.games[name] for name in study.groups.get("trained", ())]
    games = dict.fromkeys(game.game or game.name for game in own)
    machines = dict.fromkeys(game.profile for game in own if game.profile)
    if not own:
        return "none of these instances"
    told = [
        _few(list(names), noun) if short else ", ".join(names)
        for names, noun in ((games, "game"), (machines, "machine"))
        if names
    ]
    return " on ".join(told)


def _few(names: Sequence[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} {noun}s"


def break_even_table(
    study: StudyRecord, contest: Mapping[str, Any], *, by_game: bool = False
) -> Table:
    """What a later run saves, and how many of them pay for the meta-training."""
    found = [item for item in contest["break_even"]["rows"] if (item["env"] is not None) == by_game]
    rows = []
    for item in found:
        many = _runs(item["runs_high"])
        bounds = f"{_runs(item['runs_low'])} to {many}" if item["low"] is not None else "unknown"
        rows.append(
            (
                *((Cell(item["env"]),) if by_game else ()),
                strategy_cell(study, item["b"]),
                number(item["saved_seconds"]),
                Cell(formats.interval(item["low"], item["high"], 1)),
                number(item["runs"], _runs(item["runs"])),
                Cell("never" if bounds == "never to never" else bounds),
            )
        )
    clock = f"{study.tier} s"
    columns = (
        "Comparator",
        f"#Saved a run ({clock})",
        f"#95% interval ({clock})",
        "#Runs that save as many",
        "#95% interval",
    )
    title = "Break-even by instance" if by_game else "Break-even, mean over the instances"
    title += ": seconds that a later run saves, and runs that save as many as training took"
    return Table(title, (*(("Instance",) if by_game else ()), *columns), tuple(rows))


def pays_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How many later runs save what training took: a row an instance, a column a comparator."""
    found = {(item["env"], item["b"]): item for item in contest["break_even"]["rows"]}
    others = list(dict.fromkeys(item["b"] for item in contest["break_even"]["rows"]))
    rows = tuple(
        (Cell(game), *(_pays_cell(found.get((game, other))) for other in others))
        for game in study.games
    )
    title = "Later runs that save as many seconds as training took, against each comparator"
    columns = ("Instance", *(f"#{study.labels[name]}" for name in others))
    return Table(f"{title} (95% interval)", columns, rows)


def _pays_cell(item: Mapping[str, Any] | None) -> Cell:
    if item is None:
        return Cell(formats.NOTHING)
    low, high = (
        "never" if item[key] is None else f"{item[key]:,}" for key in ("runs_low", "runs_high")
    )
    text = "never" if item["runs"] is None else f"{item['runs']:,}"
    if item["low"] is not None and (low, high) != ("never", "never"):
        text += f" ({low} to {high})"
    return number(item["runs"], text)


def _runs(count: int | None) -> str:
    return "never" if count is None else f"{count:,} run" + "s" * (count != 1)


def gap_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How much there was to win on each game of the contest, and how much of it was won."""
    labels = study.labels
    with_lengths = any(item.get("oracle_horizon_seconds") for item in contest["oracle_gap"])
    rows = tuple(
        (
            Cell(item["env"]),
            number(item["gap"], _signed(item["gap"])),
            Cell(_signed_interval(item["low"], item["high"])),
            Cell(ROOM_WORDS[item["room"]]),
            Cell(labels[item["static"]] if item["static"] else formats.NOTHING),
            number(item["closed"], formats.percent(item["closed"])),
            Cell(
                formats.NOTHING
                if item["closed_low"] is None
                else f"{item['closed_low']:.0%} to {item['closed_high']:.0%}"
            ),
            *(_length_cells(item) if with_lengths else ()),
        )
        for item in contest["oracle_gap"]
    )
    columns = ("Instance", "#Oracle gap", "#95% interval", "Room to win", "Best static")
    columns += ("#Closed", "#95% interval")
    columns += ("#Oracle's run (s)", "#Test run (s)") if with_lengths else ()
    return Table(
        "Oracle gap closed: (subject - best static) / (oracle - best static)",
        columns,
        rows,
    )


def _length_cells(item: Mapping[str, Any]) -> tuple[Cell, ...]:
    return tuple(number(item.get(key)) for key in ("oracle_horizon_seconds", "horizon_seconds"))


def machine_gap_table(rows: Sequence[Mapping[str, Any]], subject: str) -> Table:
    """What choosing a static spec by instance is worth, and how much of that the subject won."""

    def told(row: Mapping[str, Any], name: str) -> tuple[Cell, Cell]:
        bounds = formats.interval(row[f"{name}_low"], row[f"{name}_high"])
        return number(row[name], formats.fixed(row[name])), Cell(bounds)

    body = tuple(
        (
            Cell(row["env"]),
            *told(row, "own"),
            *told(row, "subject"),
            number(row["closed"], formats.percent(row["closed"])),
            Cell(
                formats.NOTHING
                if row["closed_low"] is None
                else f"{row['closed_low']:.0%} to {row['closed_high']:.0%}"
            ),
            number(row["n"], str(row["n"])),
        )
        for row in rows
    )
    columns = ("Instance", "#Best static of the instance", "#95% interval", f"#{subject}")
    columns += ("#95% interval", "#Closed", "#95% interval", "#Pairs")
    return Table("Seconds to target over those of one static spec for all", columns, body)


def oracle_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The oracle-gap study: gain of each schedule over the best static spec."""
    schedules = {"fp32": "fp32", "two_phase": "two phases", "oracle": "oracle"}
    schedules["placebo"] = "placebo"
    body = []
    for row in rows:
        cells = []
        for name in schedules:
            ratio = row[name]["ratio"]
            cells.append(number(ratio, _signed(None if ratio is None else ratio - 1.0)))
        seeds = number(len(row["seeds"]), str(len(row["seeds"])))
        what = (Cell(row["game"]), Cell(row["profile"]), Cell(row["best_static"]))
        body.append((*what, *cells, seeds))
    columns = ("Game", "Machine", "Best static", *(f"#{text}" for text in schedules.values()))
    return Table("Gain over the best static spec", (*columns, "#Seeds"), tuple(body))


def _signed(share: float | None) -> str:
    return formats.NOTHING if share is None else f"{share:+.1%}"


def _signed_interval(low: float | None, high: float | None) -> str:
    return formats.NOTHING if low is None or high is None else f"{low:+.1%} to {high:+.1%}"


def event_table(study: StudyRecord) -> Table:
    """What strategies and processes reported going wrong, counted by cause."""
    counts: Counter[tuple[str, str, str]] = Counter()
    runs: dict[tuple[str, str, str], set[tuple[str, int]]] = {}
    for (strategy, game, seed), run in study.runs.items():
        events = [("strategy", event) for event in run.summary.get("strategy_events") or ()]
        events += [(str(e.get("role", "process")), e) for r in run.reports for e in r.events]
        for source, event in events:
            key = (strategy, source, str(event.get("cause", "unknown")))
            counts[key] += 1
            runs.setdefault(key, set()).add((game, seed))
    rows = tuple(
        (
            strategy_cell(study, key[0]),
            Cell(key[1]),
            Cell(key[2]),
            number(count, str(count)),
            number(len(runs[key]), str(len(runs[key]))),
        )
        for key, count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1]))
    )
    columns = ("Strategy", "Reported by", "Cause", "#Events", "#In runs")
    return Table("Shields, fallbacks and dead processes", columns, rows)


def variant_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every way of training that was tried, and what came of it."""
    body = tuple(
        (
            Cell(str(row["name"])),
            Cell(str(row.get("what") or formats.NOTHING)),
            number(row.get("ratio"), formats.fixed(row.get("ratio"))),
            Cell(formats.interval(row.get("low"), row.get("high"))),
            Cell(str(row.get("note") or formats.NOTHING)),
        )
        for row in rows
    )
    columns = ("Name", "What", "#Ratio", "#95% interval", "Note")
    return Table("Ways of training", columns, body)


def check_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Every candidate of meta-training, what it gained over the incumbent, and the verdict."""
    body = tuple(
        (
            Cell(str(row["variant"])),
            Cell(str(row["candidate"])),
            number(row["gain"], formats.fixed(row["gain"], 3)),
            Cell(formats.interval(row["low"], row["high"], 3)),
            Cell("accepted" if row["accepted"] else "kept out"),
        )
        for row in rows
    )
    columns = ("Training", "Candidate", "#Gain", "#95% interval", "Verdict")
    return Table("Candidates on the validation seeds", columns, body)


def figure_table(figure: Figure, limit: int) -> Table:
    """The table behind a figure, at most `limit` rows of it."""
    title = f"Data of this figure ({len(figure.table):,} rows"
    title += f", the first {limit:,} shown)" if len(figure.table) > limit else ")"
    return rows_table(title, figure.table[:limit])
