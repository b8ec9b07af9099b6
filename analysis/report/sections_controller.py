"""The sections about the controller: what it chose and why, and how it transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import real
from analysis.figures import bench as figures_bench
from analysis.figures import forest as figures_forest
from analysis.figures import policy as figures_policy
from analysis.figures.costs import phase_bars
from analysis.figures.learning_curves import (
    exploratory_strategies,
    planned_strategies,
    study_colours,
)
from analysis.figures.story import schedule_story
from analysis.figures.strips import study_strips
from analysis.records.load import StudyRecord
from analysis.report import formats, tables, tables_real, tables_study
from analysis.report.blocks import Block, Folded, Heading, Section, Text, listing, section
from analysis.report.sections_records import RUN_FILES


def schedules(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What was chosen when, by everybody; and the subject's choices below reward and KL."""
    has_subject = any(key[0] == study.subject for key in study.runs)
    others = exploratory_strategies(study)
    blocks: list[Block | None] = [
        schedule_story(study) if has_subject else None,
        *study_strips(study, planned_strategies(study)),
    ]
    if others:
        blocks.append(Text("The exploratory strategies beside the subject, closed at first:"))
        blocks += map(Folded, study_strips(study, others, "-exploratory"))
    return section("Schedules", "What was chosen when.", blocks, (RUN_FILES,), empty="")


def policy(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """Which features matter, what each does, and every way of training that was tried."""
    blocks: list[Block | None] = []
    if shown := study.info.get("shown"):
        listed = ", ".join(f"{spec} on {machine}" for machine, spec in shown.items())
        blocks.append(
            Text(f"In training it was shown the best static spec of each machine: {listed}.")
        )
    features = study.effects.get("features") or []
    if features:
        texts = [
            {"feature": item["name"], "made of": item.get("text", "")}
            | {"importance": float(item["importance"])}
            for item in figures_policy.by_importance(features)
        ]
        blocks += [
            figures_policy.feature_importance(features),
            figures_policy.policy_effects(study.effects),
            tables.rows_table("The features; accerl/monitor/README.md says what each is", texts),
        ]
    if study.variants:
        tried = any(row.get("ratio") is not None for row in study.variants)
        blocks += [
            Heading("Ways of training that were tried"),
            figures_forest.variants_forest(study.variants) if tried else None,
            tables_study.variant_table(study.variants),
        ]
    if study.checks:
        blocks += [
            tables_study.check_table(study.checks),
            Text(
                "Gain: mean difference to the incumbent of its time in the normalised, discounted "
                "gain of J, paired by instance and seed. A candidate is accepted only where the "
                "interval lies above zero.",
                "small",
            ),
        ]
    return section(
        "Policy",
        "What the policy looks at.",
        blocks,
        ("effects.json", "variants.json", "checks.json"),
        empty="Nothing is recorded of what the policy looks at: effects.json (features, their "
        "importance, and the choices as each moves) would fill this section.",
    )


def transfer(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """From trained to new games and machines, and from the virtual clock to the real one."""
    blocks: list[Block | None] = []
    if contest["transfer"]:
        blocks += [
            Text(
                f"Trained on: {tables_study.trained_on(study)}. The p values in the table are not "
                f"corrected, and no group by itself decides anything."
            ),
            figures_forest.transfer_forest(study, contest),
            tables_study.transfer_table(study, contest),
        ]
    if rows := study.real.get("rows"):
        blocks += _real(study, rows)
    if study.replays:
        blocks += [
            Heading("Real-clock replay"),
            Text(
                "The exported schedule was loaded into the process runtime and run on the real "
                "clock beside fp32. This checks that the bundle runs and shows where its seconds "
                "go. No score is claimed: the runs are far too short to learn the game."
            ),
            Text(replay_sentence(study)),
            tables.replay_table(study.replays),
            phase_bars(study.replays, next(iter(study.replays)), "replay-phases"),
        ]
    return section(
        "Transfer",
        "From what it was trained on to what it was tested on.",
        blocks,
        ("contest.json", "real.json", "replay/*/summary.json"),
        empty="The study's instances are in no groups and nothing ran on the real clock: a "
        "contest with trained and new games and machines would fill this section.",
    )


def _real(study: StudyRecord, rows: Sequence[Mapping[str, Any]]) -> list[Block | None]:
    """Speed on the real clock: against the others, and against the prediction."""
    known = any(row.get("predicted_env_steps_per_second") for row in rows)
    rng = np.random.default_rng(int(study.info.get("seed", 0)))
    contrasts = real.speed_contrasts(rows, study.subject, rng)
    note = (
        "Geometric mean over pairs of one seed with a 95% interval over seeds; above 1 the "
        "controller does more env steps per second. Uncorrected; few seeds make a rough interval."
    )
    return [
        Heading("From the virtual clock to the real one"),
        listing(real.speed_sentences(study, contrasts)),
        tables_real.speed_table(study, contrasts) if contrasts else None,
        Text(note, "small") if contrasts else None,
        figures_bench.real_against_predicted(rows, study.labels, study_colours(study))
        if known
        else None,
        tables_real.real_table(study, rows),
        listing(study.real.get("notes")),
    ]


def replay_sentence(study: StudyRecord) -> str:
    """Say how fast the schedule ran beside the others on the real clock."""
    speeds = {
        name: float(run.summary["env_steps_per_second"])
        for name, run in study.replays.items()
        if run.summary.get("env_steps_per_second")
    }
    if len(speeds) < 2:
        return "Only one run is there, so there is no speed to compare it with."
    (first, speed), *others = speeds.items()
    parts = [f"{speed / other:.2f}x the speed of the {name} run" for name, other in others]
    return (
        f"The {first} run did {formats.significant(speed)} env steps per second, "
        f"{', '.join(parts)}. "
        f"One short run each: an observation, without an interval."
    )
