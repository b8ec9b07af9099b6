"""Tables of the runs on the real clock: every run, and the subject's speed over the others'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.real import speed_result
from analysis.records.load import StudyRecord
from analysis.report import formats
from analysis.report.tables import Cell, Table, number, strategy_cell

SPECS_SHOWN = 3
EXTRA = {
    "cpu_seconds": "#CPU-seconds",
    "publication_bytes": "#Bytes published",
    "seconds_to_target": "#Seconds to target",
}
"""columns that are there only where a run recorded them"""


def real_table(study: StudyRecord, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Runs on the real clock beside the prediction of the virtual one."""
    extra = [key for key in EXTRA if any(key in row for row in rows)]
    body = []
    for row in rows:
        speed = row.get("env_steps_per_second")
        predicted = row.get("predicted_env_steps_per_second")
        ratio = speed / predicted if speed and predicted else None
        body.append(
            (
                Cell(str(row["game"])),
                named_cell(study, str(row["strategy"])),
                number(row.get("seed"), formats.compact(row.get("seed"))),
                number(speed),
                number(predicted),
                number(ratio, formats.fixed(ratio)),
                number(row.get("final_return")),
                *(_extra_cell(key, row) for key in extra),
                Cell(spec_shares(row.get("spec_seconds") or {})),
            )
        )
    columns = ("Game", "Strategy", "#Seed", "#Env steps / s", "#Predicted", "#Real / predicted")
    columns += ("#Final return", *(EXTRA[key] for key in extra), "Share of seconds by spec")
    return Table("Runs on the real clock", columns, tuple(body))


def speed_table(study: StudyRecord, contrasts: Sequence[Mapping[str, Any]]) -> Table:
    """Env steps per second of the subject over those of every other, paired by seed."""
    body = tuple(
        (
            Cell(item["game"]),
            named_cell(study, item["b"]),
            number(item["ratio"], formats.fixed(item["ratio"])),
            Cell(formats.interval(item["low"], item["high"])),
            number(item["n"], str(item["n"])),
            Cell(speed_result(item)),
        )
        for item in contrasts
    )
    title = f"Env steps per second on the real clock: {study.labels[study.subject]} / comparator"
    return Table(title, ("Game", "Comparator", "#Ratio", "#95% interval", "#Pairs", "Result"), body)


def named_cell(study: StudyRecord, name: str) -> Cell:
    """Return a strategy's label in its colour; a run may be of one that the study does not know."""
    return strategy_cell(study, name) if name in study.labels else Cell(name)


def spec_shares(seconds: Mapping[str, float]) -> str:
    """Return "net3 INT8 62%, original fp32 38%", the most used first."""
    total = sum(seconds.values())
    if total <= 0.0:
        return formats.NOTHING
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    shown = [f"{label} {value / total:.0%}" for label, value in ranked[:SPECS_SHOWN]]
    rest = sum(value for _, value in ranked[SPECS_SHOWN:])
    return ", ".join(shown + ([f"others {rest / total:.0%}"] if rest else []))


def _extra_cell(key: str, row: Mapping[str, Any]) -> Cell:
    value = row.get(key)
    if key == "seconds_to_target" and value is None and key in row:
        return Cell("not reached")
    return number(value)
