"""The plan of a contest: all that is fixed before its first run, written and hashed.

Instances are chosen by a rule that looks at latency profiles alone (`latency/predict.py`) and at no
result: actors, learner, emulator and network must each limit at least one of them, and those that
nobody trains on are new games on new machines.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import json_hash, write_json
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import IDENTITY, CompressionSpec
from analysis.formats import listed
from analysis.records.read import read_list
from controller.bundle.meta import git_revision
from controller.env.instances import SPLITS, Instance, keeping_pace, make_instance
from controller.env.machine_instances import drawn_conditions
from controller.indicator.prior import SET_ON
from studies.contest.bars import SPREAD, expected_half_width, planned_bars
from studies.contest.budget import (
    REFERENCE_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
    Budget,
    Pair,
)
from studies.contest.tuning.spaces import SPACES_BY_NAME
from studies.study_folder import OPENED

QUESTION = (
    "Does a controller that is trained by policy gradient on some games and machines reach a "
    "game's target sooner, in seconds of the machine, than hand-set strategies tuned with the "
    "same number of inner runs, those of validation included (but the grid of static specs, which "
    "is tried as a whole, and what is tuned for each instance by itself); also on games and "
    "machines that it never saw?"
)
QUESTION_ON_TRAINED = (
    "Does a controller that is trained by policy gradient reach a game's target sooner, in seconds "
    "of the machine, than hand-set strategies tuned with the same number of inner runs, those of "
    "validation included (the grid of static specs, which is tried as a whole, with more); on new "
    "seeds of the games and machines that all were tuned on?"
)
RULE = (
    "Every trained game on machines of its own, as many of each family; then new games on new "
    "machines, three of each family (tiny: one of two families). What limits an instance is worked "
    "out from its latency profile without a run; actors, learner, emulator and network must each "
    "limit at least one. At least two games and two machines are held out whole; none of these "
    "games is one that the controller's prior was set on."
)
RULE_ON_TRAINED = "Every pair of a trained game and a trained machine; nothing is held out."
LIMITS = {
    "emulator": "emulator",
    "inference": "actors",
    "learner": "learner",
    "cores": "cores",
    "publication": "network",
    "network": "network",
    "upload": "network",
}
"""what limits an instance: the names of `latency.predict.LIMITS`, in the contest's words"""
PLANNED = (
    "game", "profile", "horizon_seconds", "interval_seconds", "first_interval_seconds",
    "limit", "group",
)  # fmt: skip
"""what a plan fixes of an instance"""
TRAINED = "trained"
NEW_MACHINE, NEW_GAME, NEW_BOTH = "new machine", "new game", "new game and machine"
HELD_OUT = (NEW_MACHINE, NEW_GAME, NEW_BOTH)


def left_out(budget: Budget) -> str:
    """Return which strategies that can be tuned a budget does not."""
    names = [name for name in SPACES_BY_NAME if name not in {*budget.entrants, "fixed"}]
    return f"Strategies that are not tuned here: {', '.join(names)}."


def check_specs(instances: Sequence[Instance], specs: Sequence[CompressionSpec]) -> None:
    """Refuse a machine without times of what searches choose from: before hours of runs, not after.

    Raises:
        UserError: with what to do.
    """
    for item in instances:
        missing = [spec.label for spec in specs if not item.has(spec)]
        if missing:
            raise UserError(
                f"latency profile {item.profile!r} has no times of {listed(missing)} for "
                f"{item.game}; choose another, or measure them (`accerl profile measure`)"
            )


def find_instances(budget: Budget, profiles: Mapping[str, LatencyProfile]) -> list[Instance]:
    """Return the instances of a budget, with horizons and without references."""
    found = []
    for game, name in budget.pairs:
        latency, config = profiles[name], load_preset(game)
        limit = LIMITS[predict(times_of_run(latency, config), config, IDENTITY).limit]
        group = find_group((game, name), budget.trained)
        made = play_on(budget, game, latency)
        found.append(replace(made, profile=name, limit=limit, group=group))
    if not budget.changing:
        return found
    # Those of a family, which stand four apart, take turns.
    odd = [bool((place + place // 4) % 2) for place in range(len(found))]
    return [with_events(item) if own else item for item, own in zip(found, odd, strict=True)]


def play_on(budget: Budget, game: str, latency: LatencyProfile) -> Instance:
    """Return a game on a machine, with the lengths and the precision of a budget."""
    made = make_instance(game, latency, budget.env_steps[game])
    interval = float(f"{made.horizon_seconds / budget.intervals:.3g}")
    first = budget.first_share * interval if budget.first_share < 1.0 else 0.0
    config = made.config(0)
    if budget.precision is not None:
        config = config.with_precision(budget.precision)
    if budget.keeps_pace:
        config = keeping_pace(config)
    return replace(
        made,
        base=config,
        interval_seconds=interval,
        first_interval_seconds=first,
        horizon_seconds=first + (budget.intervals - (first > 0.0)) * interval,
    )


def with_events(instance: Instance) -> Instance:
    """Return an instance whose conditions change: drawn once, the same with all seeds."""
    latency, config = instance.latency, instance.config(0)
    assert latency is not None
    times, horizon = times_of_run(latency, config), instance.horizon_seconds
    seed = int(json_hash([instance.game, latency.hash, horizon])[:12], 16)
    conditions = drawn_conditions(seed, horizon, config, times)
    return replace(instance, base=replace(config, conditions=conditions))


def find_group(pair: Pair, trained: Collection[Pair]) -> str:
    """Return whether a pair is trained on, and if not, what of it is new."""
    if pair in trained:
        return TRAINED
    if pair[0] in {game for game, _ in trained}:
        return NEW_MACHINE
    return NEW_GAME if pair[1] in {profile for _, profile in trained} else NEW_BOTH


def planned_instances(instances: Sequence[Instance]) -> list[dict[str, Any]]:
    """Return what a plan fixes of its instances, their machines' times included."""
    return [
        {
            "name": item.name,
            "profile_hash": item.latency.hash if item.latency else None,
            "config_hash": item.config(0).hash,
            **{name: getattr(item, name) for name in PLANNED},
            "events": [event.to_json() for event in item.config(0).conditions.events],
        }
        for item in instances
    ]


def make_plan(
    budget: Budget,
    instances: Sequence[Instance],
    *,
    seed: int,
    primary: Sequence[str],
) -> dict[str, Any]:
    """Return the plan as JSON; equal plans have equal hashes (`accerl.records.json_hash`).

    Args:
        budget: of the contest.
        instances: all of them.
        seed: of samplers, controller and action noise.
        primary: names of the entrants that the controller is compared with first of all.
    """
    spent = asdict(budget) | {"actions": budget.actions.to_json()}
    return {
        "question": QUESTION if budget.held_out else QUESTION_ON_TRAINED,
        "rule": RULE if budget.held_out else RULE_ON_TRAINED,
        "left_out": left_out(budget),
        "instances": planned_instances(instances),
        "budget": spent,
        "seed": seed,
        "seeds": {
            "tune": list(TUNE_SEEDS)[: budget.tune_seeds],
            "train": list(SPLITS["train"].seeds),
            "validate": list(VALIDATE_SEEDS)[: budget.validate_seeds],
            "candidates": list(VALIDATE_SEEDS)[: budget.validate_seeds],
            "test": budget.test,
            "reference": list(REFERENCE_SEEDS)[: budget.reference_runs],
        },
        "prior_set_on": list(SET_ON),
        "target": (
            f"{budget.target_share:.0%} of the way from random play to a game's median final "
            f"return of {budget.reference_runs} fp32 runs on the paper's machine; a run that has "
            "not reached it at the horizon is censored there"
        ),
        "primary": {
            "metric": "seconds_to_target",
            "contrast": "geometric mean over pairs (instance, seed) of controller / comparator",
            "groups": list(HELD_OUT) if budget.held_out else [TRAINED],
            "against": list(primary),
            "correction": "Holm over the comparators",
        },
        "precision": _precision(instances, budget),
        "co_primary": ["final_return (non-inferior within 5%)"],
        "secondary": ["auc", "cpu_seconds", "bytes"],
        "bars": planned_bars(primary) if budget.held_out else [],
    }


def _precision(instances: Sequence[Instance], budget: Budget) -> str:
    """Say how narrow the primary intervals are to be expected."""
    groups = HELD_OUT if budget.held_out else (TRAINED,)
    games = len({item.game for item in instances if item.group in groups})
    half = expected_half_width(games, len(budget.test))
    width = f"so 95% intervals are to be some +-{half:.1%} wide"
    fewer = budget.other_seeds
    if math.isinf(half):
        width = "but these are too few seeds for an interval"
    elif fewer is not None and fewer < len(budget.test):
        half = expected_half_width(games, fewer)
        width += f" (+-{half:.1%} against those with {fewer} seeds)"
    return (
        f"{games} games with {len(budget.test)} seeds are {games * len(budget.test)} independent "
        f"pairs; in a contest before, such pairs differed by a factor of {math.exp(SPREAD):.2f} "
        f"(standard deviation), {width}"
    )


def check_rule(instances: Sequence[Instance]) -> None:
    """Hold the instances against the rule.

    Raises:
        UserError: something limits none of them, too little is held out, or what is held out is
            known to the controller's prior.
    """
    known = [item for item in instances if item.group == TRAINED]
    games = {item.game for item in instances} - {item.game for item in known}
    if seen := sorted(games.intersection(SET_ON)):
        raise UserError(
            f"contest: the indicator's prior was set on {listed(seen)}; hold out other games"
        )
    machines = {item.profile for item in instances} - {item.profile for item in known}
    if min(len(games), len(machines)) < 2:
        raise UserError(
            f"contest: {len(games)} games and {len(machines)} machines are held out whole; name at "
            "least two of each that nobody is trained on"
        )
    missing = {"actors", "learner", "emulator", "network"} - {item.limit for item in instances}
    if missing:
        raise UserError(
            f"contest: no instance is limited by {', '.join(sorted(missing))}; "
            "add one on another latency profile (`accerl profile advise` says what limits)"
        )


def open_test(out: Path, digest: str) -> list[Mapping[str, Any]]:
    """Note that the test seeds are opened, under which plan and by which code; return all notes.

    More than one note of a folder says that the code changed while test runs were being made.
    """
    path = out / OPENED
    notes = [*read_list(path)]
    now = {"plan_hash": digest, "git_revision": git_revision()}
    if not any(now.items() <= note.items() for note in notes):
        notes.append({**now, "at": datetime.now(UTC).isoformat(timespec="seconds")})
        write_json(path, notes)
    return notes
