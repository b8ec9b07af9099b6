"""What a controller is worth: when its training has paid off, and how much there was to win."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.comparison import curves, stats
from analysis.comparison.contrasts import find_pairs, paired_values
from analysis.records.entrants import EACH
from analysis.records.load import StudyRecord
from analysis.records.plan import Game

NO_ROOM = 0.03
"""an oracle that gains less than this over the best static spec has found nothing to win"""
ROOM = 0.05
"""from this gap on, the share of it that the subject closes means something"""
SAME_HORIZON = 0.03
"""by how much two lengths of a run may differ and still be compared: a contest's first interval may
be a tenth of one of its forty"""


def break_even(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
) -> dict[str, Any]:
    """Return what meta-training cost, and after how many later runs it has paid off.

    `rows` hold {b, env, saved_seconds, low, high, n, runs, runs_low, runs_high}: the mean paired
    difference of seconds to target, b minus subject, over a game (`env`) or over all (None), and
    meta-training's wall seconds divided by it and by its bounds. None is "never". Runs that were
    censored count as arriving at the horizon, so that a comparator's make too little of what is
    saved, and the subject's too much; where all were, `tells` is false.
    """
    accounting = study.info["accounting"]
    wall = accounting["meta_wall_seconds"]
    against = dict.fromkeys([*study.of_kind("fp32"), *study.primary_against])
    result = []
    for other in against:
        for env in (None, *study.games) if other != study.subject else ():
            own = [row for row in rows if env in (None, row["env"])]
            if pairs := find_pairs(own, study.subject, other):
                subject, theirs, games = paired_values(pairs)
                clusters = study.clusters([row for row, _ in pairs])
                saved = stats.paired_mean(theirs - subject, games, rng, clusters=clusters)
                tells = not all(row["censored"] for pair in pairs for row in pair)
                found = {"b": other, "env": env, "n": len(pairs), "tells": tells}
                result.append(found | _payback(saved, wall))
    return {
        "meta_wall_seconds": wall,
        "meta_cpu_seconds": accounting["meta_cpu_seconds"],
        "inner_runs": accounting["inner_runs"],
        "rows": result,
    }


def _payback(saved: stats.Interval, wall_seconds: float) -> dict[str, Any]:
    def runs(seconds: float) -> int | None:
        pays = math.isfinite(seconds) and seconds > 0.0
        return math.ceil(wall_seconds / seconds) if pays else None

    return {
        "saved_seconds": saved.estimate,
        **saved.bounds(),
        "runs": runs(saved.estimate),
        "runs_low": runs(saved.high),
        "runs_high": runs(saved.low),
    }


def gap_rows(study: StudyRecord, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return, for every game that the oracle gap was measured on, how much of it was closed.

    `gap` is the oracle's discounted gain over the best static spec's, minus 1, with its interval.
    `closed` is (subject - best static) / (oracle - best static) in the same measure, where the
    contest has the best static spec of each instance, and the gap is at least ROOM and was measured
    over the contest's length of the run: `horizon_seconds` and
    `oracle_horizon_seconds` agree within SAME_HORIZON. Its interval resamples test pairs and the
    oracle's seeds, and is None where the gap's own sign is uncertain. `room` is none (below
    NO_ROOM), little, some, or unknown (nothing was learned).
    """
    # The one that is best for all would count knowing the game and the machine as closing the gap.
    statics = [
        item.name
        for item in study.strategies
        if (item.kind, item.scope) == ("static", EACH) and item.name != study.subject
    ]
    hashes = study.info.get("profile_hashes", {})
    result = []
    for game in study.games.values():
        if game.changing:
            continue  # the gap is that of conditions that stay
        for found in study.oracle_gap:
            if (found["game"], found["profile"]) != (game.game, game.profile):
                continue
            if found.get("profile_hash") != hashes.get(game.profile):
                continue  # another machine of that name, such as "measured"
            oracle = found["oracle"]
            gap, low, high = (
                None if oracle.get(key) is None else oracle[key] - 1.0
                for key in ("ratio", "low", "high")
            )
            row: dict[str, Any] = {"env": game.name, "game": game.game, "profile": game.profile}
            row |= {"gap": gap, "low": low, "high": high, "room": _room(gap)}
            row |= {"static": None, "closed": None, "closed_low": None, "closed_high": None}
            length, measured = game.horizon_seconds, float(found["horizon_seconds"])
            row |= {"horizon_seconds": length, "oracle_horizon_seconds": measured}
            comparable = abs(measured / length - 1.0) <= SAME_HORIZON
            if gap is not None and gap >= ROOM and statics and comparable:
                row |= _closed(study, game, statics[0], found, rng)
            result.append(row)
    return result


def gap_missing(study: StudyRecord, gaps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the games for which there is no number of the oracle gap."""
    known = {row["env"] for row in gaps if row["gap"] is not None}
    return [name for name in study.games if name not in known]


def _room(gap: float | None) -> str:
    if gap is None:
        return "unknown"
    return "none" if gap < NO_ROOM else "little" if gap < ROOM else "some"


def _closed(
    study: StudyRecord,
    game: Game,
    static: str,
    found: Mapping[str, Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    horizon = game.horizon_seconds
    pairs = np.array(
        [
            [_gain(study, name, game, seed, horizon) for name in (study.subject, static)]
            for seed in study.test_seeds
            if all((name, game.name, seed) in study.runs for name in (study.subject, static))
        ]
    )
    row: dict[str, Any] = {"static": static, "n": len(pairs)}
    if len(pairs) == 0 or pairs[:, 1].mean() <= 0.0:
        return row
    branches = np.array([found["oracle"]["values"], found["statics"][found["best_static"]]]).T
    won, there = (_relative(values, None) for values in (pairs, branches))
    row["closed"] = float(won[0] / there[0])
    freedom = stats.degrees_of_freedom([""] * min(len(pairs), len(branches)))
    if freedom > 0:
        wins, gaps = (_relative(values, rng) for values in (pairs, branches))
        if gaps.min() > 0.0 and np.isfinite(wins).all():
            row |= stats.bootstrap_interval(row["closed"], wins / gaps, freedom).bounds("closed")
    return row


def _gain(
    study: StudyRecord, strategy: str, game: Game, seed: int, horizon_seconds: float
) -> float:
    curve = curves.learning_curve(study.runs[strategy, game.name, seed].reports, game.random_return)
    values = curves.normalise(curve.returns, game.random_return, game.reference_return)
    return curves.discounted_gain(curve.seconds, values, horizon_seconds)


def _relative(values: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """Mean of the first column of [N, 2] over that of the second, minus 1; resampled with `rng`."""
    games = [""] * len(values)
    if rng is None:
        weights = stats.game_weights(games)[None, :]
    else:
        weights = stats.bootstrap_weights(games, rng)
    means = weights @ values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(means[:, 1] > 0.0, means[:, 0] / means[:, 1] - 1.0, np.nan)
