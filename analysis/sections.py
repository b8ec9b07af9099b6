"""The sections of a study's report, the same for HTML and W&B: what was asked and what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis import (
    figures,
    figures_bench,
    figures_forest,
    figures_reach,
    formats,
    tables,
    tables_study,
)
from analysis.blocks import (
    Block,
    Definitions,
    Folded,
    Listing,
    Section,
    Text,
    listing,
    section,
)
from analysis.contrasts import METRICS, PRIMARY
from analysis.figures_costs import infer_rows, latency_bars, phase_bars
from analysis.load import RunRecord, StudyRecord
from analysis.sections_controller import break_even, policy, schedules, transfer
from analysis.sections_records import RUN_FILES, failures, provenance
from analysis.theme import Figure
from analysis.verdict import room_sentences
from analysis.worth import NO_ROOM, ROOM

PLAN_TITLES = {
    "question": "Question",
    "primary": "Primary comparison",
    "secondary": "Secondary comparisons",
    "rule": "Rule of choosing instances",
    "budgets": "Budgets",
    "seeds": "Seeds",
}


def study_sections(study: StudyRecord, contest: Mapping[str, Any]) -> list[Section]:
    """Return all sections in order; one without data says what would fill it."""
    builders: Sequence[Callable[[StudyRecord, Mapping[str, Any]], Section]] = (
        _question,
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


def _question(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    headline, *rest = contest["verdict"]
    plan: Mapping[str, Any] = study.info.get("plan") or {}
    keys: list[str] = [
        *(key for key in PLAN_TITLES if key in plan),
        *sorted(set(plan) - set(PLAN_TITLES)),
    ]
    told = {PLAN_TITLES.get(key, key.replace("_", " ")): _in_words(plan[key]) for key in keys}
    subject = study.labels[study.subject]
    count = len(contest["warnings"])
    seeds = ", ".join(map(str, study.test_seeds))
    blocks: list[Block | None] = [
        Text(headline, "headline"),
        Listing(tuple(rest)),
        _warnings(count),
        tables.level_table(study, contest),
        Text(
            f"Which way of choosing the actors' compression reaches a fixed return in the fewest "
            f"seconds? {subject} and {len(study.strategies) - 1} other strategies steer the same "
            f"inner runs: same learner, same games, same seeds. Runs are paired by (game, seed), "
            f"and games weigh the same."
        ),
        Definitions(told) if told else None,
        Text(f"Plan hash: {study.info['plan_hash']}") if study.info.get("plan_hash") else None,
        Text(
            f"Seeds of tuning, validation and test are disjoint, and test seeds ({seeds}) choose "
            f"nothing. A comparison has a winner only if its 95% interval excludes no difference "
            f"and its Holm-corrected p value lies below 0.05."
        ),
        Definitions(
            {tables.NAMES[name]: text for name, text in METRICS.items()},
            (tables.NAMES[PRIMARY],),
            "primary",
        ),
        Text(
            "Normalised return is (J - random) / (reference - random) with J the return of the "
            "learner's full-precision policy, measured off the clock. Curves start at the random "
            "return.",
            "small",
        ),
        tables.game_table(study),
        listing(study.info.get("notes"), style="small"),
    ]
    files = ("study.json", "contest.json")
    return section("Question", "The answer first, then the fixed plan.", blocks, files, empty="")


def _warnings(count: int) -> Block | None:
    if not count:
        return None
    what = "1 run is" if count == 1 else f"{count} runs or files are"
    return Listing((f"{what} missing, cut short or not comparable: see Failures.",), warning=True)


def _latency(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    infer = infer_rows(study.profile)
    clock = (
        "The virtual clock charges every operation from a latency profile, so all seconds below "
        "follow from it."
    )
    fp32 = _one_run_each(study, next(iter(study.of_kind("fp32")), None))
    limits = any(game.limit for game in study.games.values())
    blocks: list[Block | None] = [
        Text(clock) if infer and study.tier == "virtual" else None,
        latency_bars(infer) if infer else None,
        *(Folded(table) for table in tables.object_tables(study.profile)),
        _limit_table(study) if limits else None,
        phase_bars(fp32) if fp32 and limits else None,
        tables.replay_table(fp32, "Speed and busy seconds without compression")
        if fp32 and limits
        else None,
    ]
    return section(
        "Latency",
        "What each variant costs, and what limits each machine.",
        blocks,
        ("profile.json", RUN_FILES),
        empty="The study holds no latency profile: profile.json, written by accerl "
        "profile measure, would fill this section.",
    )


def _limit_table(study: StudyRecord) -> tables.Table:
    found: dict[tuple[str, str], list[str]] = {}
    for game in study.games.values():
        found.setdefault((game.profile, game.limit), []).append(game.game or game.name)
    rows = tuple(
        (
            tables.Cell(profile or formats.NOTHING),
            tables.Cell(limit or formats.NOTHING),
            tables.Cell(", ".join(games)),
        )
        for (profile, limit), games in found.items()
    )
    return tables.Table("What limits each machine", ("Machine", "Limited by", "Games"), rows)


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
        known = {row["env"] for row in gaps}
        missing = [game for game in study.games if game not in known]
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
            Text(f"Not measured for: {', '.join(missing)}.", "small") if missing else None,
        ]
    return section(
        "Oracle gap",
        "How much there is to win on each game and machine.",
        blocks,
        ("oracle-gap.json", RUN_FILES),
        empty="The gap was not measured: oracle-gap.json, written by accerl study run oracle-gap, "
        "would fill this section.",
    )


def _contrasts(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    families = {item["family"] for item in contest["contrasts"]}
    blocks: list[Block | None] = []
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
            figures_forest.time_forest(study, contest, exploratory=True),
            tables.contrast_table(study, contest, PRIMARY, exploratory=True),
        ]
    if blocks:
        blocks.append(
            Text(
                f"Intervals: percentile bootstrap over pairs within games (10,000 resamples, n - 1 "
                f"draws a game). p values: sign flips of the paired differences, two-sided, "
                f"corrected by Holm within a metric. P(better run): chance that a random run of "
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
    blocks: list[Block | None] = [
        figures_reach.reach_curves(study, contest),
        tables_study.reach_table(study, contest),
        figures_reach.reach_by_game(study, contest) if len(study.games) > 1 else None,
        figures_reach.time_strip(study, contest),
        Folded(tables.test_run_table(study, contest)),
    ]
    lead = "How many runs had reached the target by when."
    return section("Reach", lead, blocks, (RUN_FILES,), empty="")


def _curves(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    planned = figures.planned_strategies(study)
    others = [item.name for item in study.strategies if item.name not in planned]
    blocks: list[Block | None] = [
        Text(
            "Over seconds a strategy gains by collecting more experience; over environment steps "
            "it usually loses a little by acting with a worse copy of the policy. Both are shown, "
            "because the first is bought with the second."
        ),
        *(figures.learning_curves(study, axis, planned) for axis in ("seconds", "env_steps")),
    ]
    if others:
        blocks.append(Text("The exploratory strategies beside the subject:"))
        shown = [item.name for item in study.strategies if item.name in {*others, study.subject}]
        blocks.append(figures.learning_curves(study, "seconds", shown, "-exploratory"))
    lead = "Learning curves over seconds and over environment steps."
    return section("Curves", lead, blocks, (RUN_FILES,), empty="")


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(
            f"{key.replace('_', ' ')}: {_in_words(item)}" for key, item in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(_in_words(item) for item in value)
    return str(value)
