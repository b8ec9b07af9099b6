"""A case's numbers as tables that a terminal of 80 columns can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from studies.progress import numbers_table


def case_tables(case: Mapping[str, Any]) -> list[Table]:
    """Return what `case_result` says: how near the actors are, and what each score took."""
    tables = [_nearness(case), *(_to_score(case, index) for index in range(len(case["scores"])))]
    machines = [name for name in case["variants"][0]["predicted_pace"] if name != case["profile"]]
    tables += [_elsewhere(case, machines)] if machines else []
    return tables + ([_fleet(case)] if case.get("fleet") else [])


def _nearness(case: Mapping[str, Any]) -> Table:
    columns = ("KL", "live KL", "cores that\ndistil", "actors\nscore", "learner\nscores")
    table = numbers_table(case["title"], "actors", *columns)
    for row in case["variants"]:
        table.add_row(
            row["label"],
            _number(row["compression_kl_nats"], ".3f"),
            _number(row["kl_nats"], ".3f"),
            f"{row['distill_cores']:.2f}",
            _number(row["last_score"], ".1f"),
            _number(row["learner_score"], ".1f"),
        )
    return table


def _to_score(case: Mapping[str, Any], index: int) -> Table:
    columns = ("reached", "env steps", "ratio", "seconds", "ratio")
    table = numbers_table(f"to a score of {case['scores'][index]:g}", "actors", *columns)
    for row in case["variants"]:
        found, missed = row["to_score"][index], _missed(row, index)
        table.add_row(
            row["label"],
            f"{found['reached']}/{row['seeds']}",
            f"{missed}{found['env_steps']:,.0f}",
            found["bound"] + _number(found["env_steps_ratio"], ".2f"),
            f"{missed}{found['seconds']:,.1f}",
            found["bound"] + _number(found["seconds_ratio"], ".2f"),
        )
    return table


def _elsewhere(case: Mapping[str, Any], machines: list[str]) -> Table:
    """Return how long the env steps to each score would take on other machines, as predicted.

    That the same number of env steps is needed there, where weights have another age and students
    are distilled at another pace, is assumed.
    """
    columns = [f"{name}\nto {score:g}" for name in machines for score in case["scores"]]
    table = numbers_table(
        "seconds on other machines, calculated from env steps", "actors", *columns
    )
    for row in case["variants"]:
        cells = [
            f"{_missed(row, index)}{found['env_steps'] / row['predicted_pace'][name]:,.1f}"
            for name in machines
            for index, found in enumerate(row["to_score"])
        ]
        table.add_row(row["label"], *cells)
    return table


def _fleet(case: Mapping[str, Any]) -> Table:
    fleet = case["fleet"]
    title = (
        f"times as soon as {case['baseline']} to {case['scores'][-1]:g} on {fleet['draws']} drawn "
        "machines of each family, calculated (and on how many it is the soonest)"
    )
    columns = [row["family"] for row in fleet["families"]]
    table = numbers_table(title, "actors", *columns)
    for place, label in enumerate(fleet["labels"]):
        cells = [
            f"{fleet['bounds'][place]}{row['speedups'][place]:.2f} ({row['soonest'][place]})"
            for row in fleet["families"]
        ]
        table.add_row(label, *cells)
    unsure = "~" if any(fleet["bounds"]) else ""
    left = [f"{unsure}{row['left']:.1%}" for row in fleet["families"]]
    table.add_row(f"the best of each, over {fleet['best']}", *left)
    return table


def _missed(row: Mapping[str, Any], index: int) -> str:
    """Return the mark of means to which runs that did not reach the score have contributed."""
    return ">" if row["to_score"][index]["reached"] < row["seeds"] else ""


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
