"""The model card of a bundle: the same facts as bundle.json, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from accerl.spec import Decision

TEMPLATE = """---
library_name: accerl
tags:
- reinforcement-learning
- model-compression
- dynamic-algorithm-configuration
---

# Compression schedule learned by AcceRL

A controller that decides, every {interval_seconds:g} seconds of a reinforcement learning run, how
hard to compress the policy that the actors use. It reads {num_features} unitless features of the
run (KL between actors and learner, entropy, return, speed, time) and picks one level per knob:

- bits: {bits}
- sparsity, the fraction of channels removed: {sparsities}
- student network: {students}

## Use it

    accerl schedule verify THIS_FOLDER
    accerl train PRESET --strategy THIS_FOLDER

or from Python:

    from controller.bundle import load_bundle
    strategy = load_bundle("THIS_FOLDER")                     # reacts to the run
    strategy = load_bundle("THIS_FOLDER", mode="schedule")    # replays the schedules below

`controller.onnx` maps features [N, {num_features}] to logits per knob in any ONNX runtime.

## Where it comes from

- tier: {tier} ({tier_note})
- games: {games}
- inner seeds: {seeds}
- inner runs spent on training: {inner_runs}
- horizon: {horizon_seconds:g} s; latency profile: {profile}
- AcceRL {accerl_version}, features version {features_version}

## What it reached

{results}

## What it usually does

{schedules}

## Limits

The seconds above belong to the machine, or the latency profile, that they were measured on: where
inference is cheap or the learner is the bottleneck, compression buys little. Games that were not
trained on are extrapolation; compare with a static baseline before relying on it.
"""

TIER_NOTES = {
    "analytic": "a closed-form learning curve, no reinforcement learning was run",
    "virtual": "real reinforcement learning, seconds charged from a latency profile",
    "real": "real reinforcement learning on the wall clock",
}


def describe(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a schedule in words: one line per stretch of the same decision."""
    labels = [Decision.from_json(point["decision"]).label for point in points]
    starts = [point["fraction"] for point in points] + [1.0]
    lines = []
    for label, stretch in groupby(range(len(points)), key=lambda index: labels[index]):
        stretch = list(stretch)
        lines.append(f"{starts[stretch[0]]:.0%} to {starts[stretch[-1] + 1]:.0%}: {label}")
    return lines


def card(manifest: Mapping[str, Any], games: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return README.md for a manifest and its schedules per game."""
    meta, actions = manifest["meta"], manifest["actions"]
    schedules = [
        f"**{game}**\n\n" + "\n".join(f"- {line}" for line in describe(points))
        for game, points in games.items()
    ]
    results = json.dumps(meta["results"], indent=2, sort_keys=True)
    return TEMPLATE.format(
        **{key: actions[key] for key in ("bits", "sparsities", "students")},
        num_features=len(manifest["feature_names"]),
        features_version=manifest["features_version"],
        accerl_version=manifest["versions"]["accerl"],
        interval_seconds=meta["interval_seconds"],
        horizon_seconds=meta["horizon_seconds"],
        inner_runs=meta["inner_runs"],
        tier=meta["tier"],
        tier_note=TIER_NOTES[meta["tier"]],
        games=", ".join(meta["games"]) or "none",
        seeds=", ".join(map(str, meta["seeds"])) or "none",
        profile=meta["profile_hash"] or "none",
        results=f"```json\n{results}\n```" if meta["results"] else "Not evaluated yet.",
        schedules="\n\n".join(schedules) or "No schedule was recorded.",
    )
