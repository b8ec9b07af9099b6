"""The section of the comparisons: a forest plot, one small table, then everything behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis import formats
from analysis.comparison.bars import bar_words, found_words
from analysis.comparison.contrasts import LOWER_IS_BETTER, METRICS, PRIMARY, nobody_arrived
from analysis.comparison.verdict import ALPHA, comparison_sentences, lean, outcome, quality
from analysis.figures import forest
from analysis.records.load import StudyRecord
from analysis.report.blocks import Block, Section, Text, fold, listing, section
from analysis.report.provenance import RUN_FILES
from analysis.report.table import (
    Cell,
    Table,
    count,
    estimate,
    fixed,
    number,
    share_cell,
    strategy_cell,
)

NAMES = {
    "seconds_to_target": "seconds to target",
    "gain_per_second": "gain per second",
    "auc": "area under the learning curve",
    "final_return": "final return",
    "cpu_seconds": "CPU-seconds",
    "publication_bytes": "bytes published",
}


def contrasts(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """The planned comparisons first; what the plan does not name is closed at first."""
    families = {item["family"] for item in contest["contrasts"]}
    planned = "primary" in families
    blocks: list[Block | None] = []
    if planned:
        blocks += [forest.time_forest(study, contest), answer_table(study, contest)]
        blocks += [_numbers(study, contest), _secondary(study, contest)]
    if contest["bars"]:
        blocks += [bar_table(study, contest), *_by_instance(study, contest)]
    if "exploratory" in families:
        blocks.append(_exploratory(study, contest))
    if blocks:
        blocks.append(fold(Text(_method(study)), title="How intervals and p values are computed"))
    return section(
        "Contrasts",
        "How much faster or slower than each comparator, and how certain that is.",
        blocks,
        ("contest.json", RUN_FILES),
        empty="No two strategies share a test run, so there is nothing to compare: a second "
        "strategy's test runs on the same games and seeds would fill this section.",
    )


def answer_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """Seconds to target, the ratio to the subject's, and runs: the subject and its comparators."""
    ratios = {item["b"]: item for item in contest["contrasts"] if item["metric"] == PRIMARY}
    levels = {item["strategy"]: item for item in contest["levels"]}
    alone = next(iter(study.games.values())).horizon_seconds if len(study.games) == 1 else None
    rows = []
    for level in (levels[name] for name in study.planned if name in levels):
        name, time = level["strategy"], fixed(level["time_fraction"])
        if alone is not None:
            time = number(alone * level["time_fraction"])
        own = name == study.subject
        ratio = (Cell("1"), Cell(formats.NOTHING)) if own else estimate(ratios.get(name, {}))
        reached = share_cell(level["reached"], level["runs"])
        rows.append((strategy_cell(study, name), time, *ratio, reached))
    shown = "#Seconds to target" if alone is not None else "#Time to target / horizon"
    subject = study.labels[study.subject]
    title = "Seconds to target (a ratio below 1: faster than the strategy)"
    if (compared := len(study.primary_games)) < len(study.games):
        title += f"; ratios over {compared} of the {len(study.games)} instances, all else over all"
    seeds = {item.name: len(item.test_seeds) for item in study.strategies}
    if len({seeds[name] for name in study.planned}) > 1:
        title += "; ratios over the seeds that both have, all else over each strategy's own"
    columns = ("Strategy", shown, f"#{subject} / strategy", "#95% interval", "#Target reached")
    return Table(title, columns, (*rows,))


def _numbers(study: StudyRecord, contest: Mapping[str, Any]) -> Block | None:
    """The planned comparisons in words and with p values, and every strategy by itself."""
    names = [study.labels[name] for name in study.primary_against]
    return fold(
        listing([formats.sentence(text) for text in comparison_sentences(study, contest)]),
        Text(f"The planned family, corrected together by Holm: {formats.listed(names)}."),
        contrast_table(study, contest, PRIMARY),
        level_table(study, contest),
        title="The same in words, with p values, and each strategy by itself",
    )


def _secondary(study: StudyRecord, contest: Mapping[str, Any]) -> Block | None:
    tables = [contrast_table(study, contest, metric) for metric in METRICS if metric != PRIMARY]
    figure = forest.secondary_forest(study, contest)
    return fold(
        figure if figure.table else None,
        *(table for table in tables if table.rows),
        title="Other metrics of the plan",
    )


def _exploratory(study: StudyRecord, contest: Mapping[str, Any]) -> Block | None:
    """Strategies and metrics that the plan does not name."""
    tables = [contrast_table(study, contest, metric, exploratory=True) for metric in METRICS]
    drawn = tables[0].rows
    return fold(
        Text("The plan does not name these comparisons: uncorrected, and no winner is claimed."),
        forest.time_forest(study, contest, exploratory=True) if drawn else None,
        *(table for table in tables if table.rows),
        title="Exploratory comparisons",
    )


def _by_instance(study: StudyRecord, contest: Mapping[str, Any]) -> list[Block | None]:
    """The subject against the comparators of the bars, on every instance."""
    blocks = []
    for name, rows in contest["by_instance"].items():
        telling = [row for row in rows if row["tells"]]
        other = study.labels[name]
        us = study.labels[study.subject]
        blocks.append(
            fold(
                forest.instance_forest(telling, us, other, name) if telling else None,
                instance_table(study, name, rows),
                title=f"Instance by instance against {other}",
            )
        )
    return blocks


def _method(study: StudyRecord) -> str:
    return (
        f"Intervals of comparisons: Student's t times the standard deviation of a bootstrap over "
        f"independent pairs (10,000 resamples). Pairs of one game and seed on several machines "
        f"share their random numbers and are drawn together as one. A stratum is the instances "
        f"that share such pairs; of its n independent pairs n - 1 are drawn. Where a stratum or an "
        f"instance has only one, all are one stratum. Degrees of freedom are the independent pairs "
        f"less the strata; there is no interval below three independent pairs. Those of each "
        f"strategy by itself: likewise, of interquartile means, with 2,000 resamples of n. p "
        f"values: sign flips of the paired differences, two-sided, corrected by Holm within a "
        f"metric; shared pairs flip together. P(better run): the chance that a random run of "
        f"{study.labels[study.subject]} beats a random run of the comparator on a random instance."
    )


def level_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """How each strategy did by itself."""
    rows = tuple(
        (
            strategy_cell(study, item["strategy"]),
            share_cell(item["reached"], item["runs"]),
            *estimate(item, "time_fraction"),
            *estimate(item, "auc", 3),
            *estimate(item, "final_normalised"),
        )
        for item in contest["levels"]
    )
    what = f"all {len(study.games)} instances"
    if len(study.primary_games) < len(study.games):
        what += f" (the comparisons are over {len(study.primary_games)} of them)"
    columns = ("Strategy", "#Target reached", "#Time / horizon", "#95%", "#Curve area", "#95%")
    title = f"Each strategy by itself over {what}: interquartile mean over test runs, 95% interval"
    return Table(title, (*columns, "#Final return", "#95%"), rows)


def contrast_table(
    study: StudyRecord, contest: Mapping[str, Any], metric: str, *, exploratory: bool = False
) -> Table:
    """The planned comparisons of one metric, or those that the plan does not name."""
    rows = []
    scale = "Ratio"
    shared = any(item["clusters"] < item["n"] for item in contest["contrasts"])
    for item in contest["contrasts"]:
        if item["metric"] != metric or (item["family"] == "exploratory") != exploratory:
            continue
        scale, digits = ("Difference", 3) if item["ratio"] is None else ("Ratio", 2)
        better = item["probability_of_improvement"]
        rows.append(
            (
                strategy_cell(study, item["b"]),
                *estimate(item, scale.lower(), digits),
                *(number(item[key], formats.p_value(item[key])) for key in ("p", "p_holm")),
                count(item["n"]),
                *((count(item["clusters"]),) if shared else ()),
                number(better, formats.percent(better)),
                Cell(_result(item)),
            )
        )
    title = f"{study.labels[study.subject]} against each comparator: {NAMES[metric]}"
    if exploratory:
        title = f"{study.labels[study.subject]}, exploratory comparisons: {NAMES[metric]}"
    columns = ("Comparator", f"#{scale}", "#95% interval", "#p", "#p (Holm)", "#Pairs")
    columns += ("#Independent",) if shared else ()
    return Table(title, (*columns, "#P(better run)", "Result"), tuple(rows))


def _result(item: Mapping[str, Any]) -> str:
    """What a contrast decides, in words."""
    if item["same_policy"]:
        return "the same policy: no contrast"
    if item["metric"] == PRIMARY and nobody_arrived(item):
        return "no run of either arrived"
    better, worse = "better", "worse"
    if item["metric"] in LOWER_IS_BETTER:
        better, worse = ("faster", "slower") if item["metric"] == PRIMARY else ("less", "more")
    words = {"better": better, "worse": worse, "undecided": "not distinguishable"}
    result, leaning = words[outcome(item)], lean(item)
    if item["family"] == "exploratory" and leaning != "undecided":
        result = f"no claim ({words[leaning]} in this sample)"
    elif outcome(item) != leaning:
        how = "before correction" if item["p"] < ALPHA else "by the interval alone"
        result = f"not confirmed ({words[leaning]} {how})"
    if item["metric"] != "final_return":
        return result
    margins = {"safe": "non-inferior", "worse": "inferior by over 5%", "open": "within 5%: open"}
    return f"{result}; {margins[quality(item)]}"


def bar_table(study: StudyRecord, contest: Mapping[str, Any]) -> Table:
    """A row for every bar of the plan: what was found, and whether that is enough."""
    words = {None: "cannot be told", True: "met", False: "missed"}
    rows = []
    for bar in contest["bars"]:
        pairs = formats.counted(bar["n"], "pair")
        if bar["clusters"] < bar["n"]:
            pairs += f", {bar['clusters']} of them independent"
        found = found_words(bar) + (f", {pairs}" if bar["n"] else "")
        rows.append((Cell(bar_words(bar, study.labels)), Cell(found), Cell(words[bar["met"]])))
    title = "The bars of the plan, on instances that were not used in training"
    return Table(title, ("Bar", "Found", "Met"), tuple(rows))


def instance_table(study: StudyRecord, name: str, found: Sequence[Mapping[str, Any]]) -> Table:
    """Seconds to target over those of a comparator, a row an instance."""
    rows = tuple(
        (
            Cell(item["env"]),
            Cell(item["group"]),
            Cell(study.games[item["env"]].limit),
            *(estimate(item) if item["tells"] else (Cell(formats.NOTHING),) * 2),
            count(item["n"]),
        )
        for item in found
    )
    columns = ("Instance", "Group", "Limited by", "#Ratio", "#95% interval", "#Pairs")
    title = f"{study.labels[study.subject]} / {study.labels[name]}"
    return Table(f"Seconds to target by instance: {title}", columns, rows)
