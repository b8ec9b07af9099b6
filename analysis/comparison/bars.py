"""The bars that the plan of a contest sets, and which are met: by how much, where, how surely.

A bar bounds the subject's seconds to target over those of one kind of comparator, over all
instances that the contrasts are over, some of them, or each by itself; one more asks which share
of the room there is, as the study of room measured it, the subject takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis import formats
from analysis.comparison import stats
from analysis.comparison.contrasts import (
    PRIMARY,
    Pairs,
    find_pairs,
    nobody_arrived,
    paired_values,
)
from analysis.records.entrants import stronger_static
from analysis.records.load import StudyRecord

ALPHA = 0.05
PLANNED, CHANGING, EACH = "held out", "changing conditions", "every instance"
"""where a bar is set; another word is a family of machines, such as laptop"""
ROOM = "of the room"
"""where the bar on the share of the room is set"""
NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("name", "found", "low", "high", "p", "env", "met")),
    **{"n": 0, "clusters": 0, "silent": 0, "missed": 0, "same_policy": False},
}


def find_bars(
    study: StudyRecord, contest: Mapping[str, Any], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Return a row for each bar of the plan, as it says, with what was found.

    `name` is the comparator, of several of the kind the one against which the subject does worst;
    `found` the ratio of seconds (of the room, the share) with its interval and `p`, corrected by
    Holm where the plan's contrast is meant; of a bar on every instance they are those of the worst,
    `env`, and `silent` counts the instances on which no run reached its target. `met` is None where
    that cannot be told: no runs, none that reached its target, or the same network on both sides.
    """
    found = []
    for bar in study.info["plan"].get("bars", ()):
        name = _comparator(study, contest, bar)
        result = {**NOTHING, "name": name}
        if name is not None and study.shares_policy(name):
            result["same_policy"] = True
        elif name is not None:
            result |= _find(study, contest, bar, name, rng)
        found.append({**bar, **result})
    return found


def find_instances(
    study: StudyRecord, contest: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, list[dict[str, Any]]]:
    """Return the ratios on each instance, against fp32 and the comparators that bars name.

    A row has {env, group, ratio, low, high, n, tells}; `tells` is false if no run reached its
    target, as the ratio of two horizons is 1 whatever was done.
    """
    names = dict.fromkeys(
        bar["name"] for bar in contest["bars"] if bar["name"] and bar["where"] in (EACH, PLANNED)
    )
    return {name: _by_instance(study, contest["rows"], name, rng) for name in names}


def weak_rules(study: StudyRecord, contest: Mapping[str, Any]) -> dict[str, str]:
    """Return the static spec that outdid a threshold rule of the bars on the validation seeds."""
    found = {}
    for bar in contest["bars"]:
        if bar["kind"] == "threshold" and bar["name"] and bar["scope"] == "one for all":
            static = stronger_static(study, bar["name"])
            found |= {} if static is None else {bar["name"]: static.name}
    return found


def _comparator(
    study: StudyRecord, contest: Mapping[str, Any], bar: Mapping[str, Any]
) -> str | None:
    """Return the planned comparator of a bar's kind against which the subject does worst."""
    names = [
        item.name
        for item in study.strategies
        if (item.kind, item.scope) == (bar["kind"], bar["scope"])
        and item.name in study.primary_against
    ]
    ratios = {
        item["b"]: item["ratio"] for item in contest["contrasts"] if item["metric"] == PRIMARY
    }
    return max(names, key=lambda name: ratios.get(name, 0.0), default=None)


def _find(
    study: StudyRecord,
    contest: Mapping[str, Any],
    bar: Mapping[str, Any],
    name: str,
    rng: np.random.Generator,
) -> dict[str, Any]:
    where, rows = bar["where"], contest["rows"]
    if where == EACH:
        return _worst(study, rows, bar, name, rng)
    if where == PLANNED:
        return _planned(study, contest, bar, name)
    games = [game for game in study.primary_games if _lies_in(study, game, where)]
    pairs = find_pairs([row for row in rows if row["env"] in games], study.subject, name)
    empty = {**NOTHING, "name": name}
    if not pairs:
        return empty
    clusters = study.clusters([row for row, _ in pairs])
    ratio = stats.paired_log_ratio(*paired_values(pairs), rng, clusters=clusters)
    if where == ROOM:
        ratio = _share_of_room(ratio, bar["room"])
    found = {**empty, "found": ratio.estimate, **ratio.bounds()}
    found |= {"n": len(pairs), "clusters": len(set(clusters)), "missed": _missed(pairs)}
    if not _tells(pairs):  # all are at the horizon: an interval of no width knows nothing
        return {**found, "low": None, "high": None}
    return {**found, "met": _is_met(bar, found)}


def _share_of_room(ratio: stats.Interval, room: float) -> stats.Interval:
    """Return log(seconds of the comparator over the subject's) / log(1 + room), by their ratio."""
    # A small ratio is a large share, so the bounds change places.
    sides = (ratio.estimate, ratio.high, ratio.low)
    return stats.Interval(*(-math.log(each) / math.log1p(room) for each in sides))


def _lies_in(study: StudyRecord, game: str, where: str) -> bool:
    found = study.games[game]
    if where == ROOM:
        return True
    return found.changing if where == CHANGING else found.profile.startswith(f"{where}-")


def _planned(
    study: StudyRecord, contest: Mapping[str, Any], bar: Mapping[str, Any], name: str
) -> dict[str, Any]:
    for item in contest["contrasts"]:
        if (item["b"], item["metric"]) == (name, PRIMARY):
            found = {
                **{**NOTHING, "name": name, "found": item["ratio"], "p": item["p_holm"]},
                **{key: item[key] for key in ("low", "high", "n", "clusters")},
                "missed": item["censored_a"],
            }
            return {**found, "met": None if nobody_arrived(item) else _is_met(bar, found)}
    return {**NOTHING, "name": name}


def _worst(
    study: StudyRecord,
    rows: Sequence[Mapping[str, Any]],
    bar: Mapping[str, Any],
    name: str,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Find the instance with the highest ratio, of those that tell something.

    Met if the intervals of all lie below the bar, missed if one ratio lies above, else unknown, as
    it also is where the subject's runs that never arrived would have to be above it.
    """
    found = [
        row for row in _by_instance(study, rows, name, rng) if row["env"] in study.primary_games
    ]
    telling = [row for row in found if row["tells"]]
    result = {**NOTHING, "name": name, "silent": len(found) - len(telling)}
    if not telling:
        return result
    worst = max(telling, key=lambda row: row["ratio"])
    highest = max(math.inf if row["high"] is None else row["high"] for row in telling)
    met = None if worst["ratio"] <= bar["at_most"] < highest else highest <= bar["at_most"]
    missed = sum(row["missed"] for row in telling)
    if met and missed and bar["at_most"] > 1.0:
        met = None
    kept = {key: worst[key] for key in ("env", "low", "high", "n")} | {"missed": missed}
    clusters = {"clusters": worst["n"], "found": worst["ratio"]}
    return {**result, **kept, **clusters, "met": met}


def _is_met(bar: Mapping[str, Any], found: Mapping[str, Any]) -> bool | None:
    """Return whether a ratio is low enough, and below 1 as surely as the bar asks.

    A share of the room is enough or too little if it is so however large the room is, within its
    interval, and if there surely is any: else None.
    """
    if bar["where"] == ROOM:
        gain = found["found"] * math.log1p(bar["room"])
        least, most = (
            gain / math.log1p(max(bar.get(side, bar["room"]), 1e-9))
            for side in ("room_high", "room_low")
        )
        if gain <= 0.0 or most < bar["at_least"]:
            return False
        return True if least >= bar["at_least"] and (found["low"] or 0.0) > 0.0 else None
    if not bar["below_one"]:
        met = bool(found["found"] <= bar["at_most"])
        if met and found["high"] is None:
            return None  # of so few pairs
        # Who never arrives counts with the horizon, which is nearest to 1 where both do so: that
        # no run is slower by more than a little cannot be told from such runs.
        return None if met and found["missed"] and bar["at_most"] > 1.0 else met
    sure = found["high"] is not None and found["high"] < 1.0
    corrected = found["p"] is None or found["p"] < ALPHA
    return bool(sure and corrected and found["found"] <= bar["at_most"])


def _by_instance(
    study: StudyRecord, rows: Sequence[Mapping[str, Any]], name: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    found = []
    for game in study.games.values():
        own = [row for row in rows if row["env"] == game.name]
        if pairs := find_pairs(own, study.subject, name):
            ratio = stats.paired_log_ratio(*paired_values(pairs), rng)
            row = {"env": game.name, "group": game.group, "ratio": ratio.estimate}
            counts = {"n": len(pairs), "tells": _tells(pairs), "missed": _missed(pairs)}
            found.append({**row, **ratio.bounds(), **counts})
    return found


def _missed(pairs: Pairs) -> int:
    """Return how many runs of the subject count with less than they would have taken."""
    return sum(bool(own["censored"]) for own, _ in pairs)


def _tells(pairs: Pairs) -> bool:
    """Return whether any run reached its target."""
    return not all(row["censored"] for pair in pairs for row in pair)


def bar_words(bar: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return what a bar asks for, in words."""
    other = labels[bar["name"]] if bar["name"] else bar["against"]
    if bar["where"] == ROOM:
        room = f"{bar['room']:.1%}"
        if "room_low" in bar:
            room += f" ({bar['room_low']:.1%} to {bar['room_high']:.1%})"
        room += f" over {other}, as the study of room measured it"
        return f"at least {bar['at_least']:.0%} of the room ({room})"
    text = f"at most {bar['at_most']:.2f}x the seconds of {other}"
    if bar["at_most"] == 1.0 and bar["below_one"]:
        text = f"fewer seconds than {other}"
    places = {PLANNED: "", CHANGING: " under changing conditions", EACH: " on every instance"}
    text += places.get(bar["where"], f" on {bar['where']} machines")
    if not bar["below_one"]:
        return text
    corrected = " and a corrected p below 0.05" if bar["where"] == PLANNED else ""
    return f"{text}, with the interval below 1{corrected}"


def found_words(bar: Mapping[str, Any]) -> str:
    """Return what was found of a bar, in words."""
    if bar["name"] is None:
        return "no such comparator is in the plan"
    if bar["same_policy"]:
        return "it is the same policy"
    if bar["found"] is None:
        return "no run reached its target" if bar["silent"] else "no test runs in common"
    digits = "{:.0%}" if bar["where"] == ROOM else "{:.2f}"
    text = digits.format(bar["found"]) + ("" if bar["where"] == ROOM else "x")
    if bar["low"] is not None and bar["high"] is not None:
        low, high = (digits.format(bar[side]) for side in ("low", "high"))
        known = ", the room taken as known" if bar["where"] == ROOM else ""
        text += f" ({low} to {high}{known})"
    if bar["env"]:
        text += f" on {bar['env']}, the worst"
    if bar["silent"]:
        text += f"; no run reached its target on {formats.counted(bar['silent'], 'other')}"
    if bar["p"] is not None:
        text += f", corrected p {formats.p_value(bar['p'])}"
    if bar["missed"]:
        missed = formats.counted(bar["missed"], "run")
        text += f"; counted with the horizon: {missed} that never arrived"
    return text


def bar_sentences(contest: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Return a sentence for every bar, as plainly when missed as when met."""
    words = {None: "cannot be told", True: "met", False: "missed"}
    sentences = [
        f"Bar, {bar_words(bar, labels)}: {words[bar['met']]}, {found_words(bar)}."
        for bar in contest["bars"]
    ]
    return sentences + [
        f"{labels[rule]} took longer to the target on the validation seeds than {labels[static]}. "
        "A rule that never switches is a static spec, so its search was too short, or did not hold "
        "that spec; a longer or wider one could make it harder to beat."
        for rule, static in contest["weak_rules"].items()
    ]
