"""Contrasts -> sentences. A winner is named only when the data exclude "no difference"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.contrasts import LOWER_IS_BETTER, PRIMARY
from analysis.comparison.goal import goal_sentences
from analysis.comparison.stats import smallest_p
from analysis.comparison.worth import NO_ROOM
from analysis.records.load import StudyRecord
from analysis.report import formats

ALPHA = 0.05
NON_INFERIORITY_MARGIN = 0.05
"""of the reference range: how much final return a faster strategy may give up"""


def outcome(contrast: Mapping[str, Any]) -> str:
    """Return better | worse | undecided for side `a` of a contrast.

    Decided only if the 95% interval excludes no difference AND the Holm-corrected p value lies
    below 0.05; an exploratory contrast has none and decides nothing.
    """
    direction = lean(contrast)
    corrected = contrast["p_holm"]
    decided = direction != "undecided" and corrected is not None and corrected < ALPHA
    return direction if decided else "undecided"


def lean(contrast: Mapping[str, Any]) -> str:
    """Return better | worse | undecided from the interval alone, before any correction."""
    if contrast["low"] is None or contrast["high"] is None:
        return "undecided"
    none = 1.0 if contrast["ratio"] is not None else 0.0
    if contrast["low"] <= none <= contrast["high"]:
        return "undecided"
    above = contrast["low"] > none
    return "better" if above != (contrast["metric"] in LOWER_IS_BETTER) else "worse"


def verdict_sentences(study: StudyRecord, contest: Mapping[str, Any]) -> list[str]:
    """Return the verdict of a contest: headline, one sentence a comparison, then the conditions."""
    labels = study.labels
    subject = labels[study.subject]
    planned: dict[str, list[Mapping[str, Any]]] = {}
    for contrast in contest["contrasts"]:
        if contrast["family"] != "exploratory":
            planned.setdefault(contrast["metric"], []).append(contrast)
    primary = planned.get(PRIMARY, [])
    # A comparator that is the same network says nothing; it still counts in the correction.
    claims = [item for item in primary if not item["same_policy"]]
    if not claims:
        if primary:
            what = "ended with the same policy as every planned comparator: nothing to compare."
            return [f"{subject} {what}", *_accepted(study)]
        what = "has no test run in common with a planned comparator: nothing to compare."
        return [f"{subject} {what}"]
    sentences = [_headline(subject, labels, claims)]
    # The strongest comparators first: what the subject does worst against decides the question.
    for contrast in sorted(claims, key=lambda item: -(item["ratio"] or 0.0)):
        sentences.append(_time_sentence(subject, labels[contrast["b"]], contrast))
    sentences += [
        f"{labels[item['b']]} ended with the same policy: no contrast."
        for item in primary
        if item["same_policy"]
    ]
    final = [item for item in planned.get("final_return", []) if not item["same_policy"]]
    sentences += _final_sentences(subject, labels, final)
    sentences += _accepted(study)
    sentences += goal_sentences(contest, labels)
    sentences += _exploratory(contest)
    sentences += room_sentences(contest)
    sentences += _conditions(study, contest, primary)
    return sentences


def _headline(subject: str, labels: Mapping[str, str], primary: Sequence[Mapping[str, Any]]) -> str:
    groups: dict[str, list[str]] = {"better": [], "undecided": [], "worse": []}
    for contrast in primary:
        groups[outcome(contrast)].append(labels[contrast["b"]])
    total = len(primary)
    if len(groups["better"]) == total:
        return f"{subject} reached the target sooner than every comparator ({total} of {total})."
    parts = []
    if groups["better"]:
        parts.append(f"was faster than {listed(groups['better'])}")
    if groups["worse"]:
        parts.append(f"lost to {listed(groups['worse'])}")
    if groups["undecided"]:
        parts.append(f"could not be told apart from {listed(groups['undecided'])}")
    start = "No winner: " if not groups["better"] and not groups["worse"] else ""
    return f"{start}{subject} {listed(parts)} in seconds to target."


def _time_sentence(subject: str, other: str, contrast: Mapping[str, Any]) -> str:
    count, clusters = contrast["n"], contrast["clusters"]
    pairs = f"{count} pair" if count == 1 else f"{count} pairs"
    pairs += f", {clusters} of them independent" if clusters < count else ""
    text = f"{subject} reaches the target in {contrast['ratio']:.2f}x the seconds of {other}"
    if contrast["low"] is None:
        return f"{text} ({pairs}): too little data for an interval, so not distinguishable."
    text += f" (95% interval {contrast['low']:.2f} to {contrast['high']:.2f}, {pairs}"
    text += f", corrected p {format_p(contrast['p_holm'])})"
    decided, leaning = outcome(contrast), lean(contrast)
    if decided == "better":
        return f"{text}: faster."
    if decided == "worse":
        return f"{text}: slower, it lost to this comparator."
    if leaning != "undecided":
        word = "faster" if leaning == "better" else "slower"
        why = f"the corrected p value is not below {ALPHA}"
        if smallest_p(clusters) >= ALPHA:
            few = f"{clusters} independent pairs" if clusters < count else pairs
            why = f"{few} cannot give a p value below {smallest_p(clusters):.2g}"
        return f"{text}: {word} in this sample, but not distinguishable ({why})."
    return f"{text}: not distinguishable."


def _final_sentences(
    subject: str, labels: Mapping[str, str], contrasts: Sequence[Mapping[str, Any]]
) -> list[str]:
    safe, worse, open_ = [], [], []
    for contrast in contrasts:
        found = {"safe": safe, "worse": worse, "open": open_}[quality(contrast)]
        found.append(labels[contrast["b"]])
    sentences = []
    if safe:
        sentences.append(
            f"Final return of {subject} is non-inferior (within 5% of the reference range) to "
            f"{listed(safe)}."
        )
    if worse:
        sentences.append(
            f"{subject} gives up more than 5% of the reference range in final return against "
            f"{listed(worse)}: speed was bought with quality."
        )
    if open_:
        sentences.append(
            f"Whether the final return of {subject} stays within 5% of {listed(open_)} cannot be "
            f"told from these runs."
        )
    return sentences


def quality(contrast: Mapping[str, Any]) -> str:
    """Return safe | worse | open: whether final return is non-inferior by the whole interval."""
    if contrast["low"] is None or contrast["high"] is None:
        return "open"
    if contrast["low"] > -NON_INFERIORITY_MARGIN:
        return "safe"
    return "worse" if contrast["high"] < -NON_INFERIORITY_MARGIN else "open"


def _exploratory(contest: Mapping[str, Any]) -> list[str]:
    """Say that what the plan does not name decides nothing."""
    count = sum(
        item["metric"] == PRIMARY and item["family"] == "exploratory"
        for item in contest["contrasts"]
    )
    if not count:
        return []
    verb = "comparison is" if count == 1 else "comparisons are"
    return [f"{count} further {verb} exploratory: not in the plan's family, no winner is claimed."]


def _accepted(study: StudyRecord) -> list[str]:
    """Say what meta-training ended with: it may be what it began with."""
    own = next(item for item in study.strategies if item.name == study.subject)
    told = (study.info.get("accounting") or {}).get("accepted") or own.tuned_params.get("accepted")
    return [f"The controller that was accepted: {told}."] if told else []


def room_sentences(contest: Mapping[str, Any]) -> list[str]:
    """Name the instances on which no controller could have won, and say how many were measured."""
    missing = len(contest["oracle_gap_missing"])
    known = [row for row in contest["oracle_gap"] if row["gap"] is not None]
    total = missing + len(known)
    if not known:
        return [
            f"The oracle gap was measured on none of the {total} instances: how much there was to "
            f"win is not known."
        ]
    none = [row["env"] for row in known if row["room"] == "none"]
    sentences = []
    if none:
        sentences.append(
            f"On {listed(none)} even the oracle gains less than {NO_ROOM:.0%} over the best static "
            f"spec: no win can be claimed there."
        )
    told = f"The oracle gap was measured on {len(known)} of the {total} instances"
    sentences.append(f"{told}; of the others nothing is known." if missing else f"{told}.")
    return sentences


def _conditions(
    study: StudyRecord, contest: Mapping[str, Any], primary: Sequence[Mapping[str, Any]]
) -> list[str]:
    rows = contest["rows"]
    games = study.primary_games
    sentences = []
    if len(games) < len(study.games):
        sentences.append(
            f"All this is over {len(games)} instances, as planned; the other "
            f"{len(study.games) - len(games)}, which were trained on, are in the table of transfer."
        )
    missed = sum(bool(row["censored"]) for row in rows)
    if missed:
        sentences.append(
            f"{missed} of {len(rows)} test runs did not reach the target before the horizon; they "
            f"count as arriving at the horizon, which makes differences look smaller than they are."
        )
    if any(item["clusters"] < item["n"] for item in primary):
        sentences.append(
            "Pairs of one game and seed on several machines share their dice: they are resampled "
            "together, as one independent pair."
        )
    fewest = min(contrast["clusters"] for contrast in primary)
    lowest = smallest_p(fewest) * len(primary)
    if lowest >= ALPHA:
        what = "independent pairs" if any(c["clusters"] < c["n"] for c in primary) else "pairs"
        sentences.append(
            f"This is a small study: with {fewest} {what} and {len(primary)} comparisons no "
            f"corrected p value could fall below {min(lowest, 1.0):.2g}."
        )
    sentences.append(
        "Intervals resample seeds of these instances; they say nothing of games and machines that "
        "are not in the contest."
    )
    if study.warnings:
        count = len(study.warnings)
        told = "1 warning" if count == 1 else f"{count} warnings"
        sentences.append(f"See {told} about missing or cut runs.")
    more = contest["warnings"][len(study.warnings) :]
    sentences += [f"{text}." for text in more]
    clock = f"the {study.tier} tier"
    if study.tier == "virtual":
        clock = f"the virtual clock (latency profile: {study.machines})"
    sentences.append(
        f"Seconds are those of {clock}, on {len(study.games)} instances and {_seeds(study)}."
    )
    return sentences


def _seeds(study: StudyRecord) -> str:
    """Return how many test seeds there were, and who had fewer."""
    planned = {study.subject, *study.primary_against}
    fewer = {
        item.name: len(item.test_seeds)
        for item in study.strategies
        if item.test_seeds is not None and len(item.test_seeds) < len(study.test_seeds)
    }
    text = f"{len(study.test_seeds)} test seeds"
    if not fewer:
        return text
    low, high = min(fewer.values()), max(fewer.values())
    count = f"{low}" if low == high else f"{low} to {high}"
    others = {item.name for item in study.strategies} - planned
    who = listed([study.labels[name] for name in fewer])
    return f"{text} ({count} of {'the exploratory ones' if set(fewer) == others else who})"


def format_p(p: float | None) -> str:
    """Return a p value for people; never 0."""
    if p is None:
        return formats.NOTHING
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def listed(items: Sequence[str]) -> str:
    """Return "a, b and c"."""
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} and {items[-1]}"
