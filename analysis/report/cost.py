"""The section about cost: what each strategy was given before the test, and when training pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accerl.spec import CompressionSpec
from analysis import formats
from analysis.figures.costs import meta_training_curves
from analysis.formats import listed
from analysis.records.entrants import EACH, best_score, tuning_rows
from analysis.records.load import StudyRecord
from analysis.records.plan import StrategyInfo
from analysis.report.blocks import Block, Section, Text, fold, listing, section
from analysis.report.provenance import RUN_FILES
from analysis.report.table import Cell, Table, count, number, rows_table, strategy_cell

UNTOLD = "cannot be told"
"""where no run of either side reached its target"""


def cost(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What tuning and meta-training cost, and how many later runs pay for it."""
    chosen = chosen_table(study)
    walls = tuple(
        (Cell(name.replace("_", " ")), number(value, formats.duration(value)))
        for name, value in study.info["wall_seconds"].items()
    )
    blocks: list[Block | None] = [
        listing(budget_sentences(study)),
        tuning_table(study),
        fold(chosen) if chosen.rows else None,
        *_pays(study, contest),
        Table("Wall time of the study", ("Phase", "#Wall time"), walls),
    ]
    if study.meta_training:
        table = rows_table("Meta-training, every iteration", study.meta_training)
        blocks += [meta_training_curves(study.meta_training), fold(table)]
    files = ("study.json", "tuning.jsonl", "meta_training.jsonl", RUN_FILES)
    lead = "What tuning and training cost, and after how many runs that has paid off."
    return section("Cost", lead, blocks, files)


def _pays(study: StudyRecord, contest: Mapping[str, Any]) -> list[Block | None]:
    """What meta-training took, and how many later runs save as many seconds."""
    found = contest["break_even"]
    if not found["rows"]:
        return [Text("No test run is shared with a comparator, so break-even is unknown.")]
    processes = formats.counted(study.info["accounting"]["processes"], "worker")
    return [
        Text(
            f"Meta-training of {study.labels[study.subject]} took "
            f"about {formats.duration(found['meta_wall_seconds'])}: "
            f"{formats.duration(found['meta_cpu_seconds'])} of processor time on {processes}, "
            f"including the checks of its candidates. {found['inner_runs']:,} inner runs were its "
            f"own. The comparators' own tuning is not subtracted."
        ),
        pays_table(study, contest),
        fold(
            break_even_table(study, contest, by_game=True),
            break_even_table(study, contest),
            Text(_two_clocks(study), "small"),
            title="Seconds saved, by instance and over all",
        ),
    ]


def _two_clocks(study: StudyRecord) -> str:
    """Say which seconds are which: those of different machines are never added up."""
    return (
        f"Saved is the mean paired difference of seconds to target on one instance, in seconds of "
        f"the {study.tier} clock of its machine. Runs that missed the target count as arriving at "
        f"the horizon: so too little is saved where the comparator missed it, and too much where "
        f"the subject did. Training took seconds of the machine that did it. "
        f"These are two clocks: the number of runs holds only where a second of either costs the "
        f"same. The mean over the instances mixes seconds of {study.machines}; it describes a "
        f"user who runs each instance equally often."
    )


def budget_sentences(study: StudyRecord) -> list[str]:
    """Say what each strategy was given before the test, and whether that was the same."""
    tuned = [item for item in study.strategies if item.inner_runs > 0]
    shared = [item for item in tuned if item.scope != EACH]
    each = [item for item in tuned if item.scope == EACH]
    untuned = [item.label for item in study.strategies if item.inner_runs == 0]
    sentences = _shared(study, shared, bool(each)) if shared else []
    sentences += _own(each)
    if not tuned:
        sentences.append("No inner runs were spent on tuning.")
    else:
        sentences.append(_validation(tuned))
    if untuned:
        sentences.append(f"Nothing was tuned for {listed(untuned)}.")
    return sentences


def _validation(tuned: Sequence[StrategyInfo]) -> str:
    """Count the runs of the budgets that chose among proposals."""
    by_count: dict[int, list[str]] = {}
    for item in tuned:
        by_count.setdefault(item.validation_runs, []).append(item.label)
    parts = [f"{runs:,} for {listed(by_count[runs])}" for runs in sorted(by_count, reverse=True)]
    return (
        "Runs on the validation seeds are among them: they choose among the best few of every "
        f"tuned strategy, and among the candidates of trained ones: {'; '.join(parts)}."
    )


def _shared(study: StudyRecord, items: Sequence[StrategyInfo], others: bool) -> list[str]:
    """What the strategies with one set of parameters for all instances were given."""
    which = "Every strategy that is one for all instances" if others else "Every tuned strategy"
    spent = {item.label: item.inner_runs for item in items}
    if len(set(spent.values())) == 1:
        return [f"{which} was given the same {next(iter(spent.values())):,} inner runs."]
    planned = study.info["plan"]["budget"]["inner_runs"]
    if max(spent.values()) > planned:
        parts = ", ".join(f"{label} {runs:,}" for label, runs in spent.items())
        return [f"The budgets were NOT equal, read the contest with that in mind: {parts}."]
    sentences = [f"{which} was given the same {planned:,} inner runs."]
    # A grid has an end, which the others have not.
    grids = {x.label: x.inner_runs for x in items if x.kind == "static" and x.inner_runs < planned}
    if grids:
        parts = listed([f"{label} after {runs:,}" for label, runs in grids.items()])
        sentences.append(f"Ended when every spec had been tried: {parts}.")
    rounds = [f"{k} {v:,}" for k, v in spent.items() if v < planned and k not in grids]
    if rounds:
        sentences.append(f"Spent less, in whole rounds: {listed(rounds)}.")
    return sentences


def _own(items: Sequence[StrategyInfo]) -> list[str]:
    """What those were given that were tuned on each instance by itself."""
    groups: dict[str, list[str]] = {}
    for item in items:
        text = f"{item.runs_per_instance:,} inner runs on each, {item.inner_runs:,} in all"
        groups.setdefault(text, []).append(item.label)
    return [
        f"Tuned on each instance by itself, with {text}: {listed(labels)}."
        for text, labels in groups.items()
    ]


def tuning_table(study: StudyRecord) -> Table:
    """What each strategy was given before the test."""
    rows = []
    for item in study.strategies:
        trials = tuning_rows(study, item)
        each = "by instance: see below" if _by_instance(study, item) else ""
        rows.append(
            (
                strategy_cell(study, item.name),
                Cell(item.kind),
                Cell(item.scope or formats.NOTHING),
                number(item.cpu_seconds, formats.duration(item.cpu_seconds)),
                count(item.inner_runs),
                count(len(trials)),
                number(best_score(trials)),
                Cell(each or in_words(item.tuned_params) or "nothing"),
            )
        )
    columns = ("Strategy", "Kind", "Chosen for", "#Processor time", "#Inner runs")
    columns += ("#Tuning trials", "#Best score", "Chosen")
    return Table("Budget before the test", columns, tuple(rows))


def chosen_table(study: StudyRecord) -> Table:
    """What was chosen on each instance for those that were tuned there."""
    each = [item for item in study.strategies if _by_instance(study, item)]
    rows = tuple(
        (Cell(game), *(Cell(in_words(item.tuned_params.get(game, {}))) for item in each))
        for game in study.games
        if each
    )
    return Table("Chosen on each instance", ("Instance", *(item.label for item in each)), rows)


def _by_instance(study: StudyRecord, item: StrategyInfo) -> bool:
    return item.scope == EACH and bool(study.games.keys() & item.tuned_params.keys())


def in_words(value: Any) -> str:
    """Parameters without JSON's punctuation; specs by their label."""
    if isinstance(value, Mapping):
        if {"student", "bits", "sparsity"} <= set(value):
            return CompressionSpec.from_json(value).label
        return ", ".join(f"{key} {in_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return f"[{'; '.join(in_words(item) for item in value)}]"
    return formats.compact(value)


def break_even_table(
    study: StudyRecord, contest: Mapping[str, Any], *, by_game: bool = False
) -> Table:
    """What a later run saves, and how many of them pay for the meta-training."""
    rows = []
    for item in contest["break_even"]["rows"]:
        if (item["env"] is not None) != by_game:
            continue
        bounds = f"{_runs(item['runs_low'])} to {_runs(item['runs_high'])}"
        bounds = "unknown" if item["low"] is None or not item["tells"] else bounds
        runs = _runs(item["runs"]) if item["tells"] else UNTOLD
        rows.append(
            (
                *((Cell(item["env"]),) if by_game else ()),
                strategy_cell(study, item["b"]),
                number(item["saved_seconds"]),
                Cell(formats.interval(item["low"], item["high"], 1)),
                number(item["runs"], runs),
                Cell("never" if bounds == "never to never" else bounds),
            )
        )
    clock = f"{study.tier} s"
    columns = ("Comparator", f"#Saved a run ({clock})", f"#95% interval ({clock})")
    columns += ("#Runs that save as many", "#95% interval")
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
    if not item["tells"]:
        return number(None, UNTOLD)
    text, low, high = (
        "never" if item[key] is None else f"{item[key]:,}"
        for key in ("runs", "runs_low", "runs_high")
    )
    if item["low"] is not None and (low, high) != ("never", "never"):
        text += f" ({low} to {high})"
    return number(item["runs"], text)


def _runs(count: int | None) -> str:
    return "never" if count is None else formats.counted(count, "run")
