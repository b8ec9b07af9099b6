"""The model card of a bundle: the same facts as bundle.json, for people and for model hubs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from controller.bundle.content import GRAPH_IN_WORDS, Content
from controller.bundle.files import Manifest
from controller.bundle.meta import HELD_OUT, BundleMeta, Result
from controller.bundle.schedule import POOLED, Schedule

TEMPLATE = """---
{front_matter}
---

# Compression schedule learned by AcceRL

A controller that decides {decisions} times in a reinforcement learning run (on the longest that it
was recorded on, every {interval_seconds:g} seconds) how hard to compress the policy that the actors
use. {introduction}

{in_words}

{tables}## Use it

    accerl schedule verify THIS_FOLDER
    accerl train GAME --strategy THIS_FOLDER
    accerl train GAME --strategy THIS_FOLDER --bundle-mode schedule

or from Python:

    import accerl
    strategy = accerl.load_bundle("THIS_FOLDER")                     # reacts to the run
    strategy = accerl.load_bundle("THIS_FOLDER", mode="schedule")    # replays a schedule below
    accerl.train("catch", strategy=strategy)

`controller.onnx` {graph} in any ONNX runtime; `bundle.json` says what each feature is.

## Where it comes from

- shield: {shield}
- tier: {tier} ({tier_note})
- trained on: {instances}
- inner runs spent on training: {inner_runs}
- training ended with: {ended_with}
- latency profiles: {profiles}
- contest plan: {contest}
- AcceRL {accerl_version}, git revision {git_revision}

## What it reached

{results}

## What it usually does

The combination nearest to the median of its runs, and the smallest share of them that chose it.

{schedules}

## Limits

The seconds above belong to the machine, or the latency profile, that they were measured on: where
inference is cheap or the learner is the bottleneck, compression buys little. Games that were not
trained on are extrapolation; compare with a static baseline before relying on it.
"""

SHARED = (
    "Runs of one game and seed begin alike on all machines: intervals count their pairs as one."
)
NO_SEEDS = {
    "analytic": "none: drawn anew",
    "virtual": "none: no run on real learning",
    "real": "none: no run on real learning",
}
"""what to say, by tier, of instances without seeds"""
TIER_NOTES = {
    "analytic": "simulated: learning curves in closed form, no reinforcement learning was run",
    "virtual": "real reinforcement learning, seconds charged from a latency profile",
    "real": "real reinforcement learning on the wall clock",
}


def seeds_text(seeds: Sequence[int], validated: Sequence[int], tier: str) -> str:
    """Return the seeds of an instance: what was learned from, and by what it was chosen."""
    text = ", ".join(map(str, seeds)) or NO_SEEDS[tier]
    return f"{text}; chosen by {', '.join(map(str, validated))}" if validated else text


def schedule_rows(schedule: Schedule) -> list[dict[str, Any]]:
    """Return a schedule as a table: one row per stretch in which nothing changes.

    Each row has ``from`` and ``to`` (fractions of the horizon), ``label``, ``agreement`` (the
    smallest of the stretch) and ``levels`` per head, at `schedule.QUANTILES`.
    """
    points = schedule.points
    ends = [point.fraction for point in points[1:]] + [1.0]
    rows = []
    for (label, levels), stretch in groupby(
        zip(points, ends, strict=True), key=lambda item: (item[0].decision.label, item[0].levels)
    ):
        stretch = list(stretch)
        rows.append(
            {
                "from": stretch[0][0].fraction,
                "to": stretch[-1][1],
                "label": label,
                "agreement": min(point.agreement for point, _ in stretch),
                "levels": {head: list(values) for head, values in levels.items()},
            }
        )
    return rows


def describe_schedule(schedule: Schedule) -> list[str]:
    """Return a schedule in words: one line per stretch of the same decision."""
    lines = []
    for label, rows in groupby(schedule_rows(schedule), key=lambda row: row["label"]):
        rows = list(rows)
        agreed = min(row["agreement"] for row in rows)
        stretch = f"{rows[0]['from']:.0%} to {rows[-1]['to']:.0%}"
        lines.append(f"{stretch}: {label}, chosen by {agreed:.0%}")
    return lines


def describe_result(result: Result) -> str:
    """Return a result in words."""
    pairs = f"{result.n} pair{'s' if result.n > 1 else ''} of runs"
    spread = (
        f"{pairs}, too few for an interval"
        if result.low is None
        else f"95% interval {result.low:.3g} to {result.high:.3g}, {pairs}"
    )
    metric = result.metric.replace("_", " ")
    return (
        f"{result.instance}: {metric} {result.ratio:.3g} times that of {result.against} ({spread})"
    )


def card(
    manifest: Manifest,
    content: Content,
    meta: BundleMeta,
    schedules: Mapping[str, Schedule],
) -> str:
    """Return README.md of a bundle.

    Args:
        manifest: bundle.json; `files` is not used.
        content: the indicator.
        meta: where the controller comes from.
        schedules: per game.
    """
    described = [
        f"**{game}**\n\n" + "\n".join(f"- {line}" for line in describe_schedule(schedule))
        for game, schedule in schedules.items()
    ]
    trained = [
        f"{item.name} (seeds {seeds_text(item.seeds, item.validated, meta.tier)})"
        for item in meta.instances
    ]
    profiles = [f"{item.name} ({item.hash})" for item in meta.profiles]
    pooled = _pooled(meta)
    first = [*pooled, *(result for result in meta.results if result not in pooled)]
    results = "\n".join(f"- {describe_result(result)}" for result in first)
    if meta.results and meta.tier == "virtual":
        results += f"\n\n{SHARED}"
    return TEMPLATE.format(
        front_matter=_front_matter(meta),
        introduction=content.introduction(),
        in_words="\n".join(f"- {line}" for line in content.in_words()),
        tables="".join(
            f"## {title}\n\n{_table(rows)}\n\n" for title, rows in content.tables().items()
        ),
        graph=GRAPH_IN_WORDS,
        accerl_version=manifest.versions["accerl"],
        git_revision=manifest.git_revision or "unknown",
        interval_seconds=meta.interval_seconds,
        decisions=meta.decisions,
        shield=meta.shield_in_words,
        inner_runs=meta.inner_runs,
        ended_with=meta.ended_with or "not recorded",
        tier=meta.tier,
        tier_note=TIER_NOTES[meta.tier],
        instances=", ".join(trained) or "not recorded",
        profiles=", ".join(profiles) or "none",
        contest=meta.contest or "none",
        results=results or "Not evaluated yet.",
        schedules="\n\n".join(described) or "No schedule was recorded.",
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as a table in Markdown."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pooled(meta: BundleMeta) -> list[Result]:
    """Return the results over several instances."""
    return [result for result in meta.results if result.instance in (POOLED, HELD_OUT)]


def _front_matter(meta: BundleMeta) -> str:
    """Return the YAML that model hubs read, with the results as `model-index`.

    Where there are results over several instances, those alone: editors show it above the rest.
    Strings are written as JSON, which YAML contains: no name of a game can break it.
    """
    lines = [
        "library_name: accerl",
        "license: apache-2.0",
        "pipeline_tag: reinforcement-learning",
        "tags:",
        "- reinforcement-learning",
        "- model-compression",
        "- dynamic-algorithm-configuration",
    ]
    if meta.results:  # a model-index without results is not valid
        name = f"compression schedule for {', '.join(meta.games) or 'unknown games'}"
        lines += ["model-index:", f"- name: {json.dumps(name)}", "  results:"]
    for result in _pooled(meta) or meta.results:
        words = f"{result.metric}, ratio to {result.against}"
        lines += [
            "  - task:",
            "      type: reinforcement-learning",
            "      name: reinforcement learning with compressed actors",
            "    dataset:",
            f"      type: {json.dumps(result.instance)}",
            f"      name: {json.dumps(result.instance)}",
            "    metrics:",
            f"    - type: {json.dumps(result.metric)}",
            f"      name: {json.dumps(words)}",
            f"      value: {json.dumps(result.ratio)}",
        ]
        if result.low is not None:
            lines.append(f"      confidence_interval: [{result.low!r}, {result.high!r}]")
    return "\n".join(lines)
