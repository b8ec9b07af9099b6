"""The section about cost: what everybody was given before the test, and when training pays off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.verdict import listed
from analysis.figures.costs import meta_training_curves
from analysis.records.entrants import EACH, runs_per_instance
from analysis.records.load import StudyRecord
from analysis.records.plan import StrategyInfo
from analysis.report import formats, tables, tables_study
from analysis.report.blocks import Block, Folded, Section, Text, listing, section
from analysis.report.sections_records import RUN_FILES

LEARNERS = ("controller", "evolution", "ablation")
"""kinds that are trained, from a clone of the best threshold rule on"""


def break_even(study: StudyRecord, contest: Mapping[str, Any]) -> Section:
    """What tuning and meta-training cost, and how many later runs pay for it."""
    found = contest["break_even"]
    wall, inner = found["meta_wall_seconds"], found["inner_runs"]
    subject = study.labels[study.subject]
    chosen = tables.chosen_table(study)
    blocks: list[Block | None] = [
        listing(budget_sentences(study)),
        tables.tuning_table(study),
        Folded(chosen) if chosen.rows else None,
    ]
    if wall is not None and found["rows"]:
        cpu = found["meta_cpu_seconds"]
        told = f"Meta-training of {subject} took {formats.duration(wall)}"
        if cpu is not None:
            processes = (study.info.get("accounting") or {}).get("processes") or 1
            spread = "1 process" if processes == 1 else f"{processes} processes side by side"
            told += f", which is {formats.duration(cpu)} of processor time on {spread}"
            told += ", tuning the rule that it begins with and checking its candidates included"
        told += f"; {inner:,} of its inner runs were its own" if inner is not None else ""
        blocks += [
            Text(f"{told}. What the comparators' tuning took is not set against it."),
            tables_study.pays_table(study, contest),
            Folded(tables_study.break_even_table(study, contest, by_game=True)),
            Folded(tables_study.break_even_table(study, contest)),
            Text(_two_clocks(study), "small"),
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


def _two_clocks(study: StudyRecord) -> str:
    """Say which seconds are whose: those of different machines are never added up."""
    return (
        f"Saved is the mean paired difference of seconds to target on one instance, in seconds of "
        f"the {study.tier} clock of its machine; runs that missed the target count as arriving at "
        f"the horizon, which understates it. Training took seconds of the machine that did it. "
        f"These are two clocks: the number of runs says when training pays only for someone "
        f"to whom a second of either costs the same. The mean over the instances takes seconds of "
        f"{study.machines} together, and stands for someone who runs each instance equally often."
    )


def budget_sentences(study: StudyRecord) -> list[str]:
    """Say what everybody was given before the test, and whether that was the same."""
    tuned = [item for item in study.strategies if item.inner_runs > 0]
    shared = [item for item in tuned if item.scope != EACH]
    each = [item for item in tuned if item.scope == EACH]
    untuned = [item.label for item in study.strategies if item.inner_runs == 0]
    sentences = _shared(study, shared, bool(each)) if shared else []
    sentences += _own(study, each)
    if not tuned:
        sentences.append("No inner runs were spent on tuning.")
    elif study.info.get("validate_seeds"):
        sentences.append(_validation(tuned))
    learners = [item.label for item in tuned if item.kind in LEARNERS]
    if learners:
        verb = "begins" if len(learners) == 1 else "begin"
        sentences.append(
            f"The runs that tuned the best threshold rule are not counted for {listed(learners)}, "
            f"which {verb} with a clone of it."
        )
    if untuned:
        sentences.append(f"Nothing was tuned for {listed(untuned)}.")
    return sentences


def _validation(tuned: Sequence[StrategyInfo]) -> str:
    """Tell the runs that chose among proposals; they are on top of everybody's budget."""
    text = (
        "Runs on the validation seeds come on top: the best few of every tuned strategy are run "
        "there, and trained ones have their candidates checked there"
    )
    by_count: dict[int, list[str]] = {}
    for item in tuned:
        by_count.setdefault(item.validation_runs, []).append(item.label)
    if set(by_count) == {0}:
        return f"{text}; how many is not known."
    told = [f"{count:,} for {listed(by_count[count])}" for count in sorted(by_count, reverse=True)]
    return f"{text}: {'; '.join(told)}."


def _shared(study: StudyRecord, items: Sequence[StrategyInfo], others: bool) -> list[str]:
    """What those were given that have one set of parameters for all instances."""
    who = "Every strategy that is one for all instances" if others else "Every tuned strategy"
    spent = {item.label: item.inner_runs for item in items}
    if len(set(spent.values())) == 1:
        return [f"{who} was given the same {next(iter(spent.values())):,} inner runs."]
    planned = ((study.info.get("plan") or {}).get("budget") or {}).get("inner_runs")
    if not planned or max(spent.values()) > planned:
        told = ", ".join(f"{label} {count:,}" for label, count in spent.items())
        return [f"The budgets were NOT equal, read the contest with that in mind: {told}."]
    sentences = [f"{who} was given the same {planned:,} inner runs."]
    # A grid has an end, which the others have not.
    grids = {x.label: x.inner_runs for x in items if x.kind == "static" and x.inner_runs < planned}
    if grids:
        told = listed([f"{label} after {count:,}" for label, count in grids.items()])
        sentences.append(f"Ended when every spec had been tried: {told}.")
    rounds = [f"{k} {v:,}" for k, v in spent.items() if v < planned and k not in grids]
    if rounds:
        sentences.append(f"Spent less, in whole rounds: {listed(rounds)}.")
    return sentences


def _own(study: StudyRecord, items: Sequence[StrategyInfo]) -> list[str]:
    """What those were given that were tuned on each instance by itself."""
    groups: dict[str, list[str]] = {}
    for item in items:
        runs = runs_per_instance(study, item.name)
        told = f"{item.inner_runs:,} inner runs"
        if runs is not None:
            told = f"{runs:,} inner runs on each, {item.inner_runs:,} in all"
        groups.setdefault(told, []).append(item.label)
    return [
        f"Tuned on each instance by itself, with {told}: {listed(labels)}."
        for told, labels in groups.items()
    ]
