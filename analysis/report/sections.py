"""The sections of a study's report, the same for HTML and W&B: what was asked and what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.comparison.contrasts import METRICS, PRIMARY
from analysis.comparison.verdict import listed, room_sentences
from analysis.comparison.worth import NO_ROOM, ROOM, SAME_HORIZON
from analysis.figures import bench as figures_bench
from analysis.figures import forest as figures_forest
from analysis.figures import learning_curves as figures
from analysis.figures import reach as figures_reach
from analysis.figures.costs import infer_rows, latency_bars, phase_bars
from analysis.figures.theme import Figure
from analysis.records.load import RunRecord, StudyRecord
from analysis.report import machines, tables, tables_goal, tables_study
from analysis.report.blocks import (
    Block,
    Folded,
    Listing,
    Section,
    Text,
    listing,
    section,
)
from analysis.report.sections_controller import policy, schedules, transfer
from analysis.report.sections_cost import break_even
from analysis.report.sections_question import question
from analysis.report.sections_records import RUN_FILES, failures, provenance

EXPLORATORY = "-exploratory"
OTHERS = "The exploratory strategies beside the subject, closed at first:"


def study_sections(study: StudyRecord, contest: Mapping[str, Any]) -> list[Section]:
    """Return all sections in order; one without data says what would fill it."""
    builders: Sequence[Callable[[StudyRecord, Mapping[str, Any]], Section]] = (
        question,
        _latency,
        _oracle_gap,
        _contrasts,
        _reach,
        _curves,
        schedules,
        policy,
        transfer,
        break_even,
        failures,
    )
    found = [build(study, contest) for build in builders]
    return [*found, provenance(study, found)]


def study_figures(sections: Sequence[Section]) -> list[Figure]:
    """Return all figures of a report in order."""
    return [figure for part in sections for figure in part.figures]


def _latency(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    profiles = study.profiles
    fp32 = _one_run_each(study, next(iter(study.of_kind("fp32")), None))
    limits = any(game.limit for game in study.games.values())
    first = next(iter(profiles.values()), {})
    infer = infer_rows(first) if len(profiles) == 1 else []
    blocks: list[Block | None] = [
        Text(_charged(study)) if profiles and study.tier == "virtual" else None,
        latency_bars(infer) if infer else None,
        machines.machine_figure(profiles) if len(profiles) > 1 else None,
        machines.machine_table(profiles) if len(profiles) > 1 else None,
        machines.limit_table(study) if limits else None,
        *map(Folded, machines.profile_tables(profiles) if profiles else []),
        phase_bars(fp32) if fp32 and limits else None,
        tables.replay_table(fp32, "Speed and busy seconds without compression")
        if fp32 and limits
        else None,
    ]
    return section(
        "Latency",
        "What each variant costs, and what limits each machine.",
        blocks,
        ("profile.json", "profiles/*.json", "real/profile-*.json", RUN_FILES),
        empty="The study holds no latency profile: profile.json, written by accerl "
        "profile measure, would fill this section.",
    )


def _charged(study: StudyRecord) -> str:
    """Say which latency profiles the seconds follow from, and which of them are not shown."""
    used = dict.fromkeys(game.profile for game in study.games.values() if game.profile)
    shown = list(study.profiles)
    text = "The virtual clock charges every operation from the latency profile of the instance's "
    text += "machine, and all seconds below follow from these. "
    text += f"Shown: {', '.join(shown)}."
    missing = [name for name in used if name not in study.profiles]
    return text + (f" The study's folder keeps none of {', '.join(missing)}." if missing else "")


def _one_run_each(study: StudyRecord, strategy: str | None) -> dict[str, RunRecord]:
    """The first test run of a strategy on each machine: enough to see where its seconds go."""
    found: dict[str, RunRecord] = {}
    for (name, game, _), run in study.runs.items():
        if name == strategy:
            machine = study.games[game].profile
            found.setdefault(f"{study.labels[name]}, {machine or game}", run)
    return found


def _oracle_gap(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    blocks: list[Block | None] = []
    if rows := contest["machine_gap"]:
        blocks += [
            Text(
                "What knowing the machine is worth: the best static spec of each instance, tuned "
                "there, against the one that is best for all trained instances. Closed: how much "
                "of that, on a log scale, the subject won, where it is at least "
                f"{ROOM:.0%}."
            ),
            tables_study.machine_gap_table(rows, study.labels[study.subject]),
        ]
    if study.oracle_gap:
        gaps = contest["oracle_gap"]
        blocks += [
            Text(
                "Nobody can win more than a greedy oracle that tries every spec from a snapshot "
                "and keeps the best. The placebo is the same oracle with one spec and other dice: "
                "what it gains is luck."
            ),
            listing(room_sentences(contest), warning=True),
            figures_bench.oracle_gap(study.oracle_gap),
            tables_study.oracle_table(study.oracle_gap),
            tables_study.gap_table(study, contest) if gaps else None,
            Text(
                f"Shares are told where the gap is at least {ROOM:.0%}; below {NO_ROOM:.0%} "
                f"nothing can be won. Both sides are measured by the discounted gain (the "
                f"controller's objective) over the oracle's length of the run; the interval "
                f"resamples test pairs and the oracle's few seeds, and is left out where the "
                f"gap's own sign is uncertain."
            )
            if gaps
            else None,
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
    """Say on which instances the oracle was not run, and over how much of each run it was."""
    missing: Sequence[str] = contest["oracle_gap_missing"]
    text = f"The oracle gap was measured on {len(study.games) - len(missing)} of the "
    text += f"{len(study.games)} instances"
    text += f"; it is not known on {listed(missing)}." if missing else "."
    shorter = [
        f"{row['env']} {row['oracle_horizon_seconds']:g} s of {row['horizon_seconds']:g} s"
        for row in contest["oracle_gap"]
        if abs(row["oracle_horizon_seconds"] / row["horizon_seconds"] - 1.0) > SAME_HORIZON
    ]
    if shorter:
        text += f" Its figure is over another length than the test runs on: {', '.join(shorter)}."
    return text


def _exploratory(study: StudyRecord, contest: Mapping[str, Any]) -> list[Block | None]:
    """Strategies and metrics that the plan does not name; all but seconds closed at first."""
    found = {
        metric: table
        for metric in METRICS
        if (table := tables.contrast_table(study, contest, metric, exploratory=True)).rows
    }
    first = found.pop(PRIMARY, None)
    forest = figures_forest.time_forest(study, contest, exploratory=True) if first else None
    return [forest, first, *map(Folded, found.values())]


def _goal_blocks(study: StudyRecord, contest: Mapping[str, Any]) -> list[Block | None]:
    """What the plan set out to reach, and the subject against that rule on every instance."""
    goal = contest["goal"]
    if goal["against"] is None:
        return []
    rows = goal["by_instance"]
    against = study.labels[goal["against"]]
    return [
        tables_goal.goal_table(study, goal),
        figures_forest.instance_forest(rows, study.labels[study.subject], against)
        if rows
        else None,
        tables_goal.instance_table(study, goal) if rows else None,
    ]


def _contrasts(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    families = {item["family"] for item in contest["contrasts"]}
    blocks = _goal_blocks(study, contest)
    if "primary" in families:
        names = [study.labels[name] for name in study.primary_against]
        secondary = [
            table
            for metric in METRICS
            if metric != PRIMARY and (table := tables.contrast_table(study, contest, metric)).rows
        ]
        blocks += [
            Text(f"The plan's family, corrected together by Holm: {', '.join(names)}."),
            figures_forest.time_forest(study, contest),
            tables.contrast_table(study, contest, PRIMARY),
            figures_forest.secondary_forest(study, contest),
            *secondary,
        ]
    if "exploratory" in families:
        blocks += [
            Listing(
                (
                    "What follows was not in the plan's family: exploratory, uncorrected, and no "
                    "winner is claimed.",
                ),
                warning=True,
            ),
            *_exploratory(study, contest),
        ]
    if blocks:
        blocks.append(
            Text(
                f"Intervals: percentile bootstrap over independent pairs within games (10,000 "
                f"resamples, n - 1 draws a game); pairs of one game and seed on several machines "
                f"share their dice, and are drawn together as one. p values: sign flips of the "
                f"paired differences, of those together likewise, two-sided, corrected by Holm "
                f"within a metric. P(better run): chance that a random run of "
                f"{study.labels[study.subject]} beats a random run of the comparator on a random "
                f"game.",
                "small",
            )
        )
    return section(
        "Contrasts",
        "Who was faster, by how much, and how surely.",
        blocks,
        ("contest.json", RUN_FILES),
        empty="No two strategies share a test run, so there is nothing to compare: a second "
        "strategy's test runs on the same games and seeds would fill this section.",
    )


def _reach(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    planned = figures.planned_strategies(study)
    others = figures.exploratory_strategies(study)
    blocks: list[Block | None] = [
        figures_reach.reach_curves(study, contest, planned),
        tables_study.reach_table(study, contest),
        figures_reach.reach_by_game(study, contest, planned) if len(study.games) > 1 else None,
        figures_reach.time_strip(study, contest, planned),
    ]
    if others:
        more = [
            figures_reach.reach_curves(study, contest, others, EXPLORATORY),
            figures_reach.time_strip(study, contest, others, EXPLORATORY),
        ]
        if len(study.games) > 1:
            more.insert(1, figures_reach.reach_by_game(study, contest, others, EXPLORATORY))
        blocks += [Text(OTHERS), *map(Folded, more)]
    blocks.append(Folded(tables.test_run_table(study, contest)))
    lead = "How many runs had reached the target by when."
    return section("Reach", lead, blocks, (RUN_FILES,), empty="")


def _curves(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    planned = figures.planned_strategies(study)
    others = figures.exploratory_strategies(study)
    blocks: list[Block | None] = [
        Text(
            "Over seconds a strategy gains by collecting more experience; over environment steps "
            "it usually loses a little by acting with a worse copy of the policy. Both are shown, "
            "because the first is bought with the second."
        ),
        *(figures.learning_curves(study, axis, planned) for axis in ("seconds", "env_steps")),
    ]
    if others:
        curves = figures.learning_curves(study, "seconds", others, EXPLORATORY)
        blocks += [Text(OTHERS), Folded(curves)]
    lead = "Learning curves over seconds and over environment steps."
    return section("Curves", lead, blocks, (RUN_FILES,), empty="")
