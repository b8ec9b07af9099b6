"""The sections about the controller: what it chose and why, how it transfers, what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis import figures_bench, figures_forest, figures_policy, formats, tables, tables_study
from analysis.blocks import Block, Folded, Heading, Section, Text, listing, section
from analysis.figures_costs import meta_training_curves, phase_bars
from analysis.figures_story import schedule_story
from analysis.figures_strips import study_strips
from analysis.load import StudyRecord
from analysis.sections_records import RUN_FILES


def schedules(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What was chosen when, by everybody; and the subject's choices below reward and KL."""
    has_subject = any(key[0] == study.subject for key in study.runs)
    blocks: list[Block | None] = [
        schedule_story(study) if has_subject else None,
        *study_strips(study),
    ]
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
            {"feature": item["name"], "what it is": item.get("text", "")}
            | {"importance": float(item["importance"])}
            for item in figures_policy.by_importance(features)
        ]
        blocks += [
            figures_policy.feature_importance(features),
            figures_policy.policy_effects(study.effects),
            tables.rows_table("The features", texts),
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
        trained = ", ".join(study.groups.get("trained", ())) or "none of these instances"
        blocks += [
            Text(f"Trained on: {trained}. p values are not corrected here, and no group decides."),
            figures_forest.transfer_forest(study, contest),
            tables_study.transfer_table(study, contest),
        ]
    if rows := study.real.get("rows"):
        known = any(row.get("predicted_env_steps_per_second") for row in rows)
        blocks += [
            Heading("From the virtual clock to the real one"),
            figures_bench.real_against_predicted(rows) if known else None,
            tables_study.real_table(rows),
            listing(study.real.get("notes")),
        ]
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


def break_even(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What tuning and meta-training cost, and how many later runs pay for it."""
    found = contest["break_even"]
    wall, inner = found["meta_wall_seconds"], found["inner_runs"]
    subject = study.labels[study.subject]
    blocks: list[Block | None] = [Text(budget_sentence(study)), tables.tuning_table(study)]
    if wall is not None and found["rows"]:
        cpu = found["meta_cpu_seconds"]
        parts = [f"Meta-training of {subject} took {formats.duration(wall)} of wall time"]
        parts += [f"{formats.duration(cpu)} of processor time"] if cpu is not None else []
        parts += [f"{inner:,} inner runs"] if inner is not None else []
        blocks += [
            Text(f"{', '.join(parts)}."),
            tables_study.break_even_table(study, contest),
            Folded(tables_study.break_even_table(study, contest, by_game=True)),
            Text(
                "Saved is the mean paired difference of seconds to target; runs that missed the "
                "target count as arriving at the horizon, which understates it. Saved seconds are "
                "those of the run's own clock, meta-training's those of the machine that did it: "
                "the count says how soon training pays if a later run's seconds cost the same.",
                "small",
            ),
        ]
    else:
        blocks.append(
            Text(
                "When training pays cannot be told: accounting.meta_wall_seconds in study.json and "
                "test runs beside fp32 or a planned comparator would fill this part."
            )
        )
    walls = study.info.get("wall_seconds") or {}
    rows = tuple(
        (tables.Cell(name.replace("_", " ")), tables.number(value, formats.duration(value)))
        for name, value in walls.items()
    )
    if rows:
        blocks.append(tables.Table("What the study itself took", ("Phase", "#Wall time"), rows))
    meta = [row for row in study.meta_training if "iteration" in row]
    if meta:
        table = tables.rows_table("Meta-training, every iteration", meta)
        blocks += [meta_training_curves(meta), Folded(table)]
    files = ("study.json", "tuning.jsonl", "meta_training.jsonl", RUN_FILES)
    lead = "What it cost to find, and when that has paid off."
    return section("Break-even", lead, blocks, files, empty="")


def budget_sentence(study: StudyRecord) -> str:
    """Say whether the tuned strategies had the same number of inner runs."""
    spent = {item.label: item.inner_runs for item in study.strategies if item.inner_runs > 0}
    untuned = [item.label for item in study.strategies if item.inner_runs == 0]
    rest = f" Nothing was tuned for {', '.join(untuned)}." if untuned else ""
    if not spent:
        return f"No inner runs were spent on tuning.{rest}"
    if len(set(spent.values())) == 1:
        count = next(iter(spent.values()))
        return f"Every tuned strategy was given the same {count:,} inner runs.{rest}"
    listed = ", ".join(f"{label} {count:,}" for label, count in spent.items())
    planned = ((study.info.get("plan") or {}).get("budget") or {}).get("inner_runs")
    if planned and max(spent.values()) <= planned:
        return (
            f"Everybody was given {planned:,} inner runs; in whole rounds they spent: "
            f"{listed}.{rest}"
        )
    return f"The budgets were NOT equal, read the contest with that in mind: {listed}.{rest}"
