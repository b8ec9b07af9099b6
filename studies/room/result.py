"""What the runs say: the room, apart for its groups and parts, and whether the gate is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.seeds import Role, generator
from accerl.spec import CompressionSpec
from analysis.comparison.families import by_family
from analysis.comparison.room.matrix import (
    CHOICES,
    SINGLE,
    VIRTUAL,
    Bootstrap,
    Matrix,
    cross_fit,
    expected_steps,
    gate,
    room_of,
    taken,
)
from analysis.comparison.room.unseen import unseen_games
from controller.env.instances import Instance
from studies.room.plan import CHANGING, DRAWN, TARGETS
from studies.room.runs import Rows, at_target, make_matrix, reached_share
from studies.room.tuned import SCHEDULE, switches

Runs = Mapping[tuple[str, str, int], Rows]
"""rows of the matrix by name of the instance, label of the spec, and seed"""


def dice(seed: int, comparison: int) -> np.random.Generator:
    """Return the generator of one comparison's bootstrap."""
    return generator(seed, Role.BOOTSTRAP, comparison)


def drawn_room(
    matrix: Matrix, instances: Sequence[Instance], runs: Runs, seed: int
) -> dict[str, Any]:
    """Return the room in all and by group, the gate, what was chosen, and what unseen games leave.

    Args:
        matrix: of the drawn instances.
        instances: the same, in its order.
        runs: of the matrix.
        seed: of the bootstraps.
    """
    overall = room_of(matrix, dice(seed, 0))
    groups = []
    for place, name in enumerate(DRAWN):
        keep = np.array([item.group == name for item in instances])
        if keep.any():
            groups.append({"name": name, **room_of(matrix, dice(seed, 1 + place), keep)})
    changing = next((each for each in groups if each["name"] == CHANGING), None)
    means = means_of(matrix, instances, runs)
    return {
        "room": overall,
        "groups": groups,
        "gate": gate(overall, changing),
        "chosen": chosen(matrix),
        "means": means,
        "families": by_family(means),
        "unseen": unseen_games(matrix, means, dice(seed, 60)),
    }


def by_target(
    matrix: Matrix,
    instances: Sequence[Instance],
    runs: Runs,
    seed: int,
) -> list[dict[str, Any]]:
    """Return, for each target alone, the room and the share of runs that reached it.

    Specs are those that are chosen by both targets together. Where few runs reach a target, most
    pairs are ties at the horizon, and the room is understated.
    """
    picks = [cross_fit(matrix, CHOICES[name]) for name in (SINGLE, VIRTUAL)]
    names = {item.name for item in instances}
    found = []
    for place, share in enumerate(TARGETS):
        own = {key: rows for key, rows in at_target(runs, share).items() if key[0] in names}
        values = make_matrix(instances, matrix.specs, matrix.seeds, own).log_seconds
        single, virtual = (taken(values, each) for each in picks)
        bootstrap = Bootstrap(matrix, np.isfinite(single - virtual), dice(seed, 50 + place))
        reached = reached_share([row for rows in own.values() for row in rows])
        found.append({"target": share, "reached": reached, **bootstrap.ratio(single - virtual)})
    return found


def chosen(matrix: Matrix) -> dict[str, Any]:
    """Return what each choice takes with all seeds: the one spec for all, others by instance."""
    known = matrix.filled()
    found: dict[str, Any] = {}
    for name, choose in CHOICES.items():
        labels = [matrix.specs[place] for place in choose(known)]
        found[name] = dict(zip(matrix.instances, labels, strict=True))
    found[SINGLE] = next(iter(found[SINGLE].values()))
    return found


def means_of(matrix: Matrix, instances: Sequence[Instance], runs: Runs) -> list[dict[str, Any]]:
    """Return, by instance and spec, what its runs took and reached: means over seeds.

    They are there to be looked at, and nothing is concluded from them. Seconds and env steps to
    target are geometric means with gaps filled, env steps as `expected_steps` has them (None: not
    every run had made one). `over_best` are the seconds over those of the instance's fastest spec,
    which is so on the very seeds that are shown. `final_return` and its share of the way from
    random play to long runs without compression (`final_share`) are those of the runs that were
    made, as are `censored`, the share that missed a target, and `compression_kl_nats`, where it
    was sampled.
    """
    known = matrix.filled()
    expected = expected_steps(known)
    rows = []
    for n, item in enumerate(instances):
        seconds, steps = known.log_seconds[n].mean(axis=1), expected[n].mean(axis=1)
        for s, spec in enumerate(matrix.specs):
            if np.isnan(seconds[s]):
                continue
            made = np.isfinite(matrix.log_seconds[n, s])
            has_steps = not matrix.made_none[n, s].any()
            own = [runs.get((item.name, spec, seed)) for seed in matrix.seeds]
            final = float(np.mean([rows[0]["final_return"] for rows in own if rows]))
            kls = [rows[0].get("compression_kl_nats") for rows in own if rows]
            kls = [kl for kl in kls if kl is not None]
            rows.append(
                {
                    "game": item.game,
                    "machine": item.profile,
                    "group": item.group,
                    "label": spec,
                    "spec": CompressionSpec.from_label(spec).to_json(),
                    "seconds_to_target": float(np.exp(seconds[s])),
                    "env_steps_to_target": float(np.exp(steps[s])) if has_steps else None,
                    "over_best": float(np.exp(seconds[s] - seconds.min())),
                    "seeds": int(made.sum()),
                    "censored": float(matrix.is_bound[n, s][made].mean()),
                    "final_return": final,
                    "final_share": item.reference.normalise(final),
                    "compression_kl_nats": float(np.mean(kls)) if kls else None,
                }
            )
    return rows


def decomposition(
    room: Mapping[str, Any], strategies: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what the virtual best gains by speed and by fidelity, and switching on top of it.

    A static may have won the search for schedules: where it always did, nothing switches.
    """
    parts = [
        {"name": "speed (seconds per env step)", **room["speed"]},
        {"name": "fidelity (env steps to target)", **room["fidelity"]},
    ]
    schedule = next((row for row in strategies if row["name"] == SCHEDULE), None)
    if schedule is not None and any(map(switches, schedule["params"].values())):
        parts.append({"name": "switching (best schedule)", **schedule["over_virtual"]})
    return parts
