"""Contrasts -> sentences. A winner is named only when the data exclude "no difference"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison.bars import bar_sentences
from analysis.comparison.contrasts import LOWER_IS_BETTER, PRIMARY, nobody_arrived
from analysis.comparison.stats import smallest_p
from analysis.comparison.worth import NO_ROOM
from analysis.formats import counted, listed, p_value, sentence
from analysis.records.load import StudyRecord

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
    """Return the verdict of a contest: headline, the comparisons one by one, then the limits."""
    sentences = [
        headline(study, contest),
        *comparison_sentences(study, contest),
        *limit_sentences(study, contest),
    ]
    return [sentence(text) for text in sentences]


def headline(study: StudyRecord, contest: Mapping[str, Any]) -> str:
    """Return the verdict in one sentence."""
    subject = study.labels[study.subject]
    if not _planned(contest, PRIMARY):
        return f"{subject} shares no test run with a planned comparator: nothing to compare."
    claims = _claims(contest, PRIMARY)
    if not claims:
        return f"{subject} is the same policy as every planned comparator: nothing to compare."
    groups: dict[str, list[str]] = {"better": [], "worse": [], "undecided": []}
    unreached = [study.labels[item["b"]] for item in claims if nobody_arrived(item)]
    if len(unreached) == len(claims):
        return f"No run of {subject} or its comparators reached the target: nothing to compare."
    for contrast in claims:
        if not nobody_arrived(contrast):
            groups[outcome(contrast)].append(study.labels[contrast["b"]])
    ends = _ends(contest, [item["b"] for item in claims if outcome(item) == "better"])
    compared = {item["b"] for item in _planned(contest, PRIMARY)}
    lacking = [study.labels[name] for name in study.primary_against if name not in compared]
    if len(groups["better"]) == len(claims) and not lacking:
        return (
            f"{subject} reaches the target faster than every comparator "
            f"({len(claims)} of {len(claims)}){ends}."
        )
    words = {
        "better": "faster than",
        "worse": "slower than",
        "undecided": "not distinguishable from",
    }
    parts = [f"{words[key]} {listed(names)}" for key, names in groups.items() if names]
    start = "" if groups["better"] or groups["worse"] else "No winner: "
    text = f"{start}{subject} is {'; '.join(parts)} (seconds to target){ends}"
    text += f"; no run arrived to compare it with {listed(unreached)}" if unreached else ""
    text += f"; planned, but without a pair of runs: {listed(lacking)}" if lacking else ""
    return f"{text}."


def _ends(contest: Mapping[str, Any], better: Sequence[str]) -> str:
    """Say where what is faster may end lower, if the plan asks for both."""
    found = {item["b"]: quality(item) for item in _claims(contest, "final_return")}
    safe = sum(found.get(name) == "safe" for name in better)
    if not found or safe == len(better):
        return ""
    return f"; that it ends at most 5% lower is shown against {safe} of {len(better)}"


def comparison_sentences(study: StudyRecord, contest: Mapping[str, Any]) -> list[str]:
    """Return one sentence a planned comparison, on final returns, and on the plan's bars."""
    claims = _claims(contest, PRIMARY)
    labels = study.labels
    subject = labels[study.subject]
    # The strongest comparators first: what the subject does worst against decides the question.
    sentences = [
        _time_sentence(subject, labels[item["b"]], item)
        for item in sorted(claims, key=lambda item: -(item["ratio"] or 0.0))
    ]
    if claims:
        sentences += [
            f"{labels[item['b']]} is the same policy: no contrast."
            for item in _planned(contest, PRIMARY)
            if item["same_policy"]
        ]
        sentences += _final_sentences(subject, labels, _claims(contest, "final_return"))
    sentences.append(f"Meta-training ended with: {study.info['accounting']['accepted']}.")
    return sentences + (bar_sentences(contest, labels) if claims else [])


def limit_sentences(study: StudyRecord, contest: Mapping[str, Any]) -> list[str]:
    """Return what limits the evidence; nothing where there is none."""
    if not _claims(contest, PRIMARY):
        return []
    return [
        *_exploratory(contest),
        *_unchanging(study),
        *room_sentences(contest),
        *_conditions(study, contest, _planned(contest, PRIMARY)),
    ]


def _planned(contest: Mapping[str, Any], metric: str) -> list[Mapping[str, Any]]:
    return [
        item
        for item in contest["contrasts"]
        if item["metric"] == metric and item["family"] != "exploratory"
    ]


def _claims(contest: Mapping[str, Any], metric: str) -> list[Mapping[str, Any]]:
    """The planned comparisons of different policies.

    A comparator that is the same network says nothing; it still counts in the correction.
    """
    return [item for item in _planned(contest, metric) if not item["same_policy"]]


def _time_sentence(subject: str, other: str, contrast: Mapping[str, Any]) -> str:
    count, clusters = contrast["n"], contrast["clusters"]
    pairs = counted(count, "pair")
    if nobody_arrived(contrast):
        return f"No run of {subject} or {other} reached the target ({pairs}): it cannot be told."
    pairs += f", {clusters} of them independent" if clusters < count else ""
    text = f"{subject} reaches the target in {contrast['ratio']:.2f}x the seconds of {other}"
    if contrast["low"] is None:
        return f"{text} ({pairs}): too little data for an interval, so not distinguishable."
    text += f" (95% interval {contrast['low']:.2f} to {contrast['high']:.2f}, {pairs}"
    text += f", corrected p {p_value(contrast['p_holm'])})"
    decided, leaning = outcome(contrast), lean(contrast)
    if decided == "better":
        return f"{text}: faster."
    if decided == "worse":
        return f"{text}: slower."
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
    texts = {
        "safe": "Final return of {} is non-inferior (within 5% of the reference range) to {}.",
        "worse": "{} gives up more than 5% of the reference range in final return against {}: it "
        "trades quality for speed.",
        "open": "These runs do not decide whether the final return of {} stays within 5% of {}.",
    }
    names = {
        key: [labels[item["b"]] for item in contrasts if quality(item) == key] for key in texts
    }
    return [text.format(subject, listed(names[key])) for key, text in texts.items() if names[key]]


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
    further = counted(count, "comparison")
    return [f"Exploratory, not in the plan, no winner claimed: {further}."]


def _unchanging(study: StudyRecord) -> list[str]:
    """Name the strategies that could change the spec, and in most test runs never decided to."""
    found = []
    for item in study.strategies:
        runs = [run for (name, *_), run in study.runs.items() if name == item.name]
        kept = sum(len({each.decision.without_shadow for each in run.reports}) == 1 for run in runs)
        if item.kind not in ("fp32", "static") and 2 * kept > len(runs):
            found.append(f"{study.labels[item.name]} ({kept} of {len(runs)})")
    return [f"Kept to one spec in most of their test runs: {listed(found)}."] if found else []


def room_sentences(contest: Mapping[str, Any]) -> list[str]:
    """Return `no_room_sentences`, and say on how many instances the oracle was run."""
    missing = len(contest["oracle_gap_missing"])
    known = [row for row in contest["oracle_gap"] if row["gap"] is not None]
    total = missing + len(known)
    if not known:
        return [
            f"The oracle gap was measured on none of the {total} instances, so it is "
            f"unknown how much there was to win."
        ]
    text = f"The oracle gap was measured on {len(known)} of the {total} instances"
    text += "; it is unknown on the others." if missing else "."
    return [*no_room_sentences(contest), text]


def no_room_sentences(contest: Mapping[str, Any]) -> list[str]:
    """Name the instances on which the oracle found nothing."""
    none = [row["env"] for row in contest["oracle_gap"] if row["room"] == "none"]
    if not none:
        return []
    return [
        f"On {listed(none)} the oracle, which looks one interval ahead, gains less than "
        f"{NO_ROOM:.0%} over the best static spec: it found nothing to win there."
    ]


def _conditions(
    study: StudyRecord, contest: Mapping[str, Any], primary: Sequence[Mapping[str, Any]]
) -> list[str]:
    rows = contest["rows"]
    games = study.primary_games
    sentences = []
    if len(games) < len(study.games):
        sentences.append(
            f"The comparisons cover {len(games)} instances, as planned; the other "
            f"{len(study.games) - len(games)} were used in training (see Transfer)."
        )
    missed = sum(bool(row["censored"]) for row in rows)
    if missed:
        sentences.append(
            f"{missed} of {len(rows)} test runs did not reach the target before the horizon; they "
            "count as arriving there: differences look smaller than they are, which favours the "
            "one that misses it more often."
        )
    late = starved(study)
    if late:
        sentences.append(
            f"On {listed(late)} fp32 makes less than half of the env steps that were planned for "
            "it, as where its weights are long on their way: being faster says little there."
        )
    if any(item["clusters"] < item["n"] for item in primary):
        sentences.append(
            "Pairs of one game and seed on several machines share their random numbers: they are "
            "resampled together, as one independent pair."
        )
    most = max(contrast["clusters"] for contrast in primary)
    lowest = smallest_p(most) * len(primary)
    if lowest >= ALPHA:
        what = "independent pairs" if any(c["clusters"] < c["n"] for c in primary) else "pairs"
        sentences.append(
            f"This is a small study: with {most} {what} and {len(primary)} comparisons no "
            f"corrected p value could fall below {min(lowest, 1.0):.2g}."
        )
    sentences.append(
        "Intervals resample seeds of these instances; they do not cover games and machines that "
        "are not in the contest."
    )
    if contest["warnings"]:
        sentences.append(f"See {counted(len(contest['warnings']), 'warning')} on the runs.")
    clock = f"the {study.tier} tier"
    if study.tier == "virtual":
        clock = f"the virtual clock (latency profile: {study.machines})"
    sentences.append(
        f"Seconds are those of {clock}, on {len(study.games)} instances and {_seeds(study)}."
    )
    return sentences


def starved(study: StudyRecord) -> list[str]:
    """Return the instances on which no compression acts for less than half of what was planned."""
    planned = study.info["plan"].get("budget", {}).get("env_steps", {})
    baseline = study.of_kind("fp32")
    made: dict[str, list[int]] = {}
    for (strategy, name, _), run in study.runs.items():
        if strategy in baseline and study.games[name].game in planned:
            made.setdefault(name, []).append(run.reports[-1].total_env_steps)
    return [
        name
        for name, steps in made.items()
        if sum(steps) / len(steps) < 0.5 * planned[study.games[name].game]
    ]


def _seeds(study: StudyRecord) -> str:
    """Return how many test seeds there were, and which strategies had fewer."""
    planned = {study.subject, *study.primary_against}
    fewer = {
        item.name: len(item.test_seeds)
        for item in study.strategies
        if len(item.test_seeds) < len(study.test_seeds)
    }
    text = counted(len(study.test_seeds), "test seed")
    if not fewer:
        return text
    low, high = min(fewer.values()), max(fewer.values())
    count = f"{low}" if low == high else f"{low} to {high}"
    others = {item.name for item in study.strategies} - planned
    names = listed([study.labels[name] for name in fewer])
    return f"{text} ({count} for {'the exploratory ones' if set(fewer) == others else names})"
