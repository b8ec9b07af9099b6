"""The section about transfer: new games and machines, and the real clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.runtime.run import PHASES
from analysis import formats
from analysis.comparison import real
from analysis.figures import bench, forest
from analysis.figures.costs import phase_bars
from analysis.figures.parts import study_colours
from analysis.records.load import RunRecord, StudyRecord
from analysis.report.blocks import Block, Heading, Section, Text, listing, section
from analysis.report.table import Cell, Table, count, estimate, fixed, number, strategy_cell

NAMES_SHOWN = 3
"""so many names fit into a cell; more are only counted"""
SPECS_SHOWN = 3


def transfer(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """From trained to new games and machines, and from the virtual clock to the real one."""
    blocks: list[Block | None] = []
    if contest["transfer"]:
        blocks += [
            Text(
                f"Trained on: {trained_on(study)}. The p values in the table are not corrected, "
                f"and no single group decides anything."
            ),
            forest.transfer_forest(study, contest),
            transfer_table(study, contest),
        ]
    if study.real:
        blocks += _real(study, study.real["rows"])
    if study.replays:
        blocks += [
            Heading("The bundle on the real clock"),
            Text(
                "The process runtime loads the exported bundle, which decides on the real clock, "
                "beside fp32. This checks that the bundle runs, and shows where its seconds go. "
                "No score is claimed: the runs are far too short to learn the game."
            ),
            Text(replay_sentence(study)),
            speed_and_phases(study.replays),
            phase_bars(study.replays, next(iter(study.replays)), "replay-phases"),
        ]
    return section(
        "Transfer",
        "From the instances of training to those of the test.",
        blocks,
        ("contest.json", "real.json", "replay/*/summary.json"),
        empty="The study has no test runs of the subject to group and no runs on the real clock; "
        "either would fill this section.",
    )


def _real(study: StudyRecord, rows: Sequence[Mapping[str, Any]]) -> list[Block | None]:
    """Speed on the real clock: against the others, and against the prediction."""
    rng = np.random.default_rng(study.info["seed"])
    moved = [row for row in rows if row["env_steps_per_second"] > 0.0]
    both = [row for row in moved if row["predicted_env_steps_per_second"] > 0.0]
    still = (
        f"{formats.counted(len(rows) - len(moved), 'run')} made no env step and cannot be compared."
    )
    contrasts = real.speed_contrasts(moved, study.subject, rng)
    return [
        Heading("From the virtual clock to the real one"),
        listing([still], warning=True) if len(moved) < len(rows) else None,
        listing(real.speed_sentences(study, contrasts)),
        speed_table(study, contrasts),
        Text(
            "Geometric mean over pairs of one seed with a 95% interval over seeds; above 1 the "
            "controller does more env steps per second. Uncorrected; few seeds make a rough "
            "interval.",
            "small",
        ),
        bench.real_against_predicted(both, study.labels, study_colours(study)) if both else None,
        real_table(study, rows),
    ]


def transfer_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """Seconds to target against each planned comparator, by group of games."""
    trained = trained_on(study, short=True)
    rows = tuple(
        (
            Cell(trained),
            Cell(item["group"]),
            Cell(_few(list(item["ratio_by_game"]), "instance")),
            strategy_cell(study, item["b"]),
            *estimate(item),
            number(item["p"], formats.p_value(item["p"])),
            number(item["n"], f"{item['n']}, {item['clusters']} independent"),
        )
        for item in contest["transfer"]
    )
    columns = ("Trained on", "Tested on", "Instances", "Comparator", "#Ratio", "#95% interval")
    columns += ("#p, uncorrected", "#Pairs")
    return Table("Seconds to target by what training had covered", columns, rows)


def trained_on(study: StudyRecord, *, short: bool = False) -> str:
    """Return games and machines of the trained instances: "catch, cartpole on edge".

    If `short`, more than three of a kind are only counted.
    """
    own = [study.games[name] for name in study.groups.get("trained", ())]
    if not own:
        return "none of these instances"
    games = list(dict.fromkeys(game.game for game in own))
    machines = list(dict.fromkeys(game.profile for game in own))
    if not short:
        return f"{', '.join(games)} on {', '.join(machines)}"
    return f"{_few(games, 'game')} on {_few(machines, 'machine')}"


def _few(names: Sequence[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= NAMES_SHOWN else formats.counted(len(names), noun)


def replay_sentence(study: StudyRecord) -> str:
    """Say how fast the bundle's run was beside the others on the real clock."""
    found = {name: run.summary["env_steps_per_second"] for name, run in study.replays.items()}
    speeds = {name: float(speed) for name, speed in found.items() if speed}
    if len(speeds) < 2:
        return "Fewer than two runs made env steps, so there are no speeds to compare."
    (first, speed), *others = speeds.items()
    parts = [f"{speed / other:.2f}x the speed of the {name} run" for name, other in others]
    return (
        f"The {first} run did {formats.significant(speed)} env steps per second, "
        f"{', '.join(parts)}. One short run each: an observation, without an interval."
    )


def speed_and_phases(
    runs: Mapping[str, RunRecord], title: str = "Speed and seconds by phase"
) -> Table:
    """Speed of runs and seconds per phase; on purpose without scores."""
    phases = [
        name for name in PHASES if any(name in run.summary["phases"] for run in runs.values())
    ]
    rows = tuple(
        (
            Cell(label),
            Cell(run.clock),
            number(run.summary["seconds"]),
            number(run.summary["env_steps"], formats.compact(run.summary["env_steps"])),
            number(run.summary["env_steps_per_second"]),
            *(number(run.summary["phases"].get(name)) for name in phases),
        )
        for label, run in runs.items()
    )
    columns = ("Run", "Clock", "#Seconds", "#Env steps", "#Steps / s")
    return Table(title, columns + tuple(f"#{name} (s)" for name in phases), rows)


def real_table(study: StudyRecord, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Runs on the real clock beside the prediction of the virtual one."""
    body = tuple(
        (
            Cell(row["game"]),
            strategy_cell(study, row["strategy"]),
            count(row["seed"]),
            number(row["env_steps_per_second"]),
            number(row["predicted_env_steps_per_second"]),
            fixed(_over(row["env_steps_per_second"], row["predicted_env_steps_per_second"])),
            number(row["final_return"]),
            number(row["cpu_seconds"]),
            number(row["publication_bytes"]),
            Cell(spec_shares(row["spec_seconds"])),
        )
        for row in rows
    )
    columns = ("Game", "Strategy", "#Seed", "#Env steps / s", "#Predicted", "#Real / predicted")
    columns += ("#Final return", "#CPU-seconds", "#Bytes published", "Share of seconds by spec")
    return Table("Runs on the real clock", columns, body)


def _over(real: float, predicted: float) -> float | None:
    return real / predicted if predicted > 0.0 else None


def speed_table(study: StudyRecord, contrasts: Sequence[Mapping[str, Any]]) -> Table:
    """Env steps per second of the subject over those of every other, paired by seed."""
    body = tuple(
        (
            Cell(item["game"]),
            strategy_cell(study, item["b"]),
            *estimate(item),
            count(item["n"]),
            Cell(real.speed_result(item)),
        )
        for item in contrasts
    )
    title = f"Env steps per second on the real clock: {study.labels[study.subject]} / comparator"
    return Table(title, ("Game", "Comparator", "#Ratio", "#95% interval", "#Pairs", "Result"), body)


def spec_shares(seconds: Mapping[str, float]) -> str:
    """Return "net3 INT8 62%, original fp32 38%", the most used first."""
    total = sum(seconds.values())
    if total <= 0.0:
        return formats.NOTHING
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    shown = [f"{label} {value / total:.0%}" for label, value in ranked[:SPECS_SHOWN]]
    rest = sum(value for _, value in ranked[SPECS_SHOWN:])
    return ", ".join(shown + ([f"others {rest / total:.0%}"] if rest else []))
