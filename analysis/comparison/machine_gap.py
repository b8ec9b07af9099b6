"""What knowing the machine is worth: from one static spec for all to the best of each instance.

The oracle gap tells whether changing the spec within a run can win; this one whether choosing it
by game and machine can, and how much of that the subject did without having been there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import stats
from analysis.comparison.contrasts import PRIMARY
from analysis.comparison.worth import ROOM
from analysis.records.load import StudyRecord

HELD_OUT, ALL = "held out", "all"


def machine_gap(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return a row for every instance, and one for all that the plan's contrasts are over.

    `own` and `subject` are geometric means of seconds to target over those of the best static spec
    that is one for all, with intervals: of the best static spec of the instance, and of the
    subject. `closed` is log(subject) / log(own), where `own` is better by at least ROOM; its
    interval is None where the sign of that gap is uncertain. No rows where either is missing.
    """
    statics = {
        item.scope: item.name for item in reversed(study.strategies) if item.kind == "static"
    }
    if not {"one for all", "per instance"} <= statics.keys():
        return []
    names = (statics["one for all"], statics["per instance"], study.subject)
    times = {(row["strategy"], row["env"], row["seed"]): row[PRIMARY] for row in rows}
    late = {(row["strategy"], row["env"], row["seed"]) for row in rows if row["censored"]}
    trained = all(study.games[name].group == "trained" for name in study.primary_games)
    members: dict[str, Sequence[str]] = {name: (name,) for name in study.games}
    members[ALL if trained else HELD_OUT] = study.primary_games
    found = []
    for place, games in members.items():
        pairs = [
            (game, seed)
            for game in games
            for seed in study.test_seeds
            if all((name, game, seed) in times for name in names)
        ]
        if pairs:
            seconds = np.array([[times[name, *pair] for name in names] for pair in pairs])
            clusters = [study.games[game].cluster(seed) for game, seed in pairs]
            row = _row(seconds, [game for game, _ in pairs], clusters, rng)
            if all((name, *pair) in late for name in names for pair in pairs):
                row |= {key: None for key in row if key.endswith(("_low", "_high"))}
            found.append({"env": place, **row})
    return found


def _row(
    seconds: np.ndarray,
    games: Sequence[str],
    clusters: Sequence[tuple[str, int]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return one row of [pairs, (one for all, per instance, subject)]."""
    logs = np.log(seconds[:, 1:] / seconds[:, :1])
    own, subject = stats.game_weights(games) @ logs
    row: dict[str, Any] = {"own": float(np.exp(own)), "subject": float(np.exp(subject))}
    row |= {"closed": None, "closed_low": None, "closed_high": None}
    row |= {"n": len(logs), "clusters": len(set(clusters))}
    row |= {f"{name}_{side}": None for name in ("own", "subject") for side in ("low", "high")}
    has_room = own <= -np.log1p(ROOM)
    if has_room:
        row["closed"] = float(subject / own)
    freedom = stats.degrees_of_freedom(games, clusters)
    if freedom > 0:
        drawn = stats.bootstrap_weights(games, rng, clusters=clusters) @ logs
        for name, mean, values in zip(("own", "subject"), (own, subject), drawn.T, strict=True):
            row |= stats.bootstrap_interval(mean, values, freedom, of_logs=True).bounds(name)
        if has_room and row["own_high"] < 1.0 and (drawn[:, 0] < 0.0).all():
            shares = drawn[:, 1] / drawn[:, 0]
            row |= stats.bootstrap_interval(row["closed"], shares, freedom).bounds("closed")
    return row
