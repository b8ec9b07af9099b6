"""The section of the machines: what acting costs on each, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis import formats
from analysis.figures import costs
from analysis.records.load import RunRecord, StudyRecord
from analysis.report.blocks import Block, Section, Text, fold, section
from analysis.report.provenance import RUN_FILES
from analysis.report.table import Cell, Table, number, rows_table
from analysis.report.transfer import speed_and_phases

WIRING = {
    "env_step_us": "#Env step (µs)",
    "learner_us_per_sample": "#Learner (µs a sample)",
    "num_actors": "#Actors",
    "cores": "#Cores",
    "down_bytes_per_second": "#To each actor's machine (MB/s)",
    "up_bytes_per_second": "#From it (MB/s)",
}
FREE = {"down_bytes_per_second": "no limit", "up_bytes_per_second": "no limit"}
"""what 0 means"""
COUNTS = ("num_actors", "cores")

Profiles = Mapping[str, Mapping[str, Any]]


def latency(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What each variant costs on each machine, and where the seconds go without compression."""
    profiles = study.profiles
    fp32 = _one_run_each(study, next(iter(study.of_kind("fp32")), None))
    only = next(iter(profiles.values())) if len(profiles) == 1 else None
    blocks: list[Block | None] = [
        Text(_charged(study)) if profiles else None,
        costs.latency_bars(only) if only else None,
        costs.machine_figure(profiles) if len(profiles) > 1 else None,
        machine_table(profiles) if len(profiles) > 1 else None,
        limit_table(study),
        fold(*profile_tables(profiles), title="All settings of the latency profiles"),
    ]
    if fp32:
        title = "Speed and seconds by phase without compression"
        blocks += [costs.phase_bars(fp32), speed_and_phases(fp32, title)]
    return section(
        "Latency",
        "What each variant costs, and what limits each machine.",
        blocks,
        ("profiles/*.json", "real/profile-*.json", RUN_FILES),
    )


def _charged(study: StudyRecord) -> str:
    """Say which latency profiles the seconds follow from, and which of them are not shown."""
    text = "The virtual clock charges every operation from the latency profile of the instance's "
    text += "machine; a run's seconds follow from these, but not the wall seconds of training. "
    text += f"Shown: {', '.join(study.profiles)}."
    used = dict.fromkeys(game.profile for game in study.games.values())
    missing = [name for name in used if name not in study.profiles]
    return text + (f" The study's folder holds none of {', '.join(missing)}." if missing else "")


def _one_run_each(study: StudyRecord, strategy: str | None) -> dict[str, RunRecord]:
    """The first test run of a strategy on each machine: enough to see where its seconds go."""
    found: dict[str, RunRecord] = {}
    for (name, game, _), run in study.runs.items():
        if name == strategy:
            found.setdefault(f"{study.labels[name]}, {study.games[game].profile}", run)
    return found


def machine_table(profiles: Profiles) -> Table:
    """A row a machine: what acting, emulating and learning cost there."""
    rows = []
    for name, profile in profiles.items():
        found = costs.acting_costs(profile)
        acting = [
            number(found.get(spec.label, {}).get(batch))
            for spec in costs.SPECS
            for batch in (costs.ONE, costs.MANY)
        ]
        rows.append((Cell(name), *acting, *(_wiring_cell(key, profile[key]) for key in WIRING)))
    short = [spec.label.removeprefix("original ") for spec in costs.SPECS]
    batches = [f"#{label}{end}" for label in short for end in ("", ", batch")]
    title = "Machines: acting in µs a state, one at a time and in the largest batch measured"
    return Table(title, ("Machine", *batches, *WIRING.values()), tuple(rows))


def limit_table(study: StudyRecord) -> Table:
    """Which instances each machine has, and what limits them."""
    found: dict[tuple[str, str], list[str]] = {}
    for game in study.games.values():
        found.setdefault((game.profile, game.limit), []).append(game.game)
    rows = tuple(
        (Cell(machine), Cell(limit), Cell(", ".join(games)))
        for (machine, limit), games in found.items()
    )
    return Table("What limits each machine", ("Machine", "Limited by", "Games"), rows)


def profile_tables(profiles: Profiles) -> list[Table]:
    """Everything that the profiles hold: a table of all their settings, then those of each."""
    if not profiles:
        return []
    plain = [
        {"machine": name}
        | {key: value for key, value in profile.items() if not isinstance(value, list | Mapping)}
        for name, profile in profiles.items()
    ]
    return [rows_table("Settings of the latency profiles", plain)] + [
        rows_table(f"{name}: {key.replace('_', ' ')}", value)
        for name, profile in profiles.items()
        for key, value in profile.items()
        if value and isinstance(value, list) and isinstance(value[0], Mapping)
    ]


def _wiring_cell(key: str, value: float) -> Cell:
    if not value and key in FREE:
        return Cell(FREE[key], value)
    if key in FREE:
        value /= 1e6
    return number(value, formats.plain(value) if key in COUNTS else None)
