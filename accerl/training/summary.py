"""summary.json: what came of a run, made of its reports."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import METRICS, SUMMARY
from accerl.runtime.machine.usage import growth_per_minute
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, by_label
from accerl.training.score import SCORED_EPISODES

IDLE_SHARE = 0.02
"""of its time that the learner may wait where it limits"""
BUSY_SHARE = 0.85
"""of their time that actors can be counted on to be busy"""
_FROM_CONFIG = {
    "env": "game",
    "preset": "preset",
    "seed": "seed",
    "strategy": "strategy",
    "config_hash": "hash",
}
"""entry of the summary -> of config.json"""

SUMMARY_FIELDS: Mapping[str, str] = {
    "env": "the game",
    "preset": "settings that the run began with",
    "seed": "seed of all random numbers",
    "strategy": "who decided",
    "config_hash": "hash of all settings",
    "runtime": "serial, process or ray",
    "tier": "virtual or real, as its clock",
    "profile": "latency profile that charged a virtual clock; null: the clock was real",
    "seconds": "length of the run on its own clock",
    "env_steps": "env steps that the learner has used",
    "env_steps_per_second": "env steps that the learner has used, per second",
    "learner_updates": "number of learner updates",
    "final_return": f"last J where it was measured, else the mean of the last {SCORED_EPISODES} "
    "episodes, or of all if fewer ended",
    "best_return": f"best J, else the best mean of {SCORED_EPISODES} episodes in a row, or of all "
    "if fewer ended",
    "phases": "busy seconds by phase: env, infer and write of all actors together",
    "spec_seconds": "seconds by the spec that really acted",
    "decisions": "each with the second from which it was in effect",
    "takeovers": "how long each decision took until it acted, and its KL",
    "events": "processes that were started again and the like, counted by role",
    "conditions": "what happened to the machine meanwhile",
    "publications": "how often the policy was compressed for actors",
    "publications_unchanged": "those that would have acted as what acts, and were not sent",
    "publication_bytes": "bytes that publications sent",
    "rss_bytes_max": "most memory of each process",
    "rss_bytes_per_minute": "by how much that of each process grew",
    "cpu_seconds": "processor seconds of each process, modelled ones on a virtual clock",
    "monitor_cpu_share": "share of the processor time that monitoring took; null: not measured",
    "strategy_events": "what the strategy says of what it did",
    "fingerprint": "the machine: processor, cores, instructions",
    "versions": "versions of AcceRL and of the libraries that ran",
}
"""what a summary holds, for people"""


def summarise(config: Mapping[str, Any], reports: Sequence[IntervalReport]) -> dict[str, Any]:
    """Return the summary of a run, finished or not; what config.json lacks is left out.

    `final_return` and `best_return` are J where it was measured; otherwise the mean of the last 20
    episodes, and the best mean of 20 episodes in a row; of all, if fewer ended. `events` counts
    those of processes, such as restarts, by role; `spec_seconds` shares out the seconds of each
    interval among the specs that acted in it, and what passes without a rollout among those of the
    next; `conditions` has what happened to the machine, first to begin first.

    Args:
        config: the content of config.json.
        reports: of all intervals so far.
    """
    seconds = reports[-1].total_seconds if reports else 0.0
    env_steps = reports[-1].total_env_steps if reports else 0
    phases: Counter[str] = Counter()
    cpu_seconds: Counter[str] = Counter()
    decisions: list[dict[str, Any]] = []
    events = Counter(str(event["role"]) for report in reports for event in report.events)
    takeovers = [
        {**vars(taken), "spec": taken.spec.to_json()}
        for report in reports
        for taken in report.takeovers
    ]
    for report in reports:
        phases.update(report.phase_seconds)
        cpu_seconds.update(report.cpu_seconds)
        entry = report.decision.without_shadow.to_json()
        if not decisions or decisions[-1]["decision"] != entry:
            started = report.total_seconds - report.seconds
            decisions.append({"seconds": started, "decision": entry})
    final, best = _returns(reports)
    runtime = config.get("runtime")
    known = {name: config[key] for name, key in _FROM_CONFIG.items() if key in config}
    if runtime is not None:
        known["runtime"] = runtime["runtime"]
        known["tier"] = "virtual" if runtime["clock"] == "virtual" else "real"
    return {
        **known,
        "seconds": seconds,
        "env_steps": env_steps,
        "env_steps_per_second": env_steps / seconds if seconds else 0.0,
        "learner_updates": reports[-1].total_learner_updates if reports else 0,
        "final_return": final,
        "best_return": best,
        "phases": dict(phases),
        "spec_seconds": by_label(_spec_seconds(reports)),
        "decisions": decisions,
        "takeovers": takeovers,
        "events": dict(events),
        "conditions": _conditions(reports),
        "publications": sum(report.publications for report in reports),
        "publications_unchanged": sum(report.publications_unchanged for report in reports),
        "publication_bytes": sum(report.publication_bytes for report in reports),
        **_memory(reports),
        "cpu_seconds": dict(cpu_seconds),
        "monitor_cpu_share": _monitor_share(reports),
    }


def require_whole(
    path: Path, summary: Mapping[str, Any], reports: Sequence[IntervalReport]
) -> None:
    """Refuse a run directory whose metrics.jsonl has lost its end.

    Raises:
        UserError: its summary has more seconds than its intervals.
    """
    told, there = summary.get("seconds", 0.0), reports[-1].total_seconds
    if told > there * (1.0 + 1e-6):
        raise UserError(
            f"{path / METRICS} was cut off: it has {there:g} s of the {told:g} s that {SUMMARY} "
            f"has; restore it, or delete {SUMMARY} to see what is left"
        )


def note_on_actors(summary: Mapping[str, Any], actors: int) -> str | None:
    """Say so if the learner was always busy, and fewer actors would have filled as many rollouts.

    What they fill beyond that waits for the learner, and makes nothing faster.

    Args:
        summary: of a run on the real clock, see `summarise`.
        actors: that it had.
    """
    phases, seconds = summary["phases"], summary["seconds"]
    learner = phases.get("learn", 0.0) + phases.get("wait", 0.0)
    if not learner or phases.get("wait", 0.0) > IDLE_SHARE * learner:
        return None
    busy = sum(phases.get(name, 0.0) for name in ("env", "infer", "write")) / seconds
    enough = max(math.ceil(busy / BUSY_SHARE), 1)
    if 3 * enough > 2 * actors:
        return None
    return (
        f"the learner was busy all the time, and the {actors} actors {busy / actors:.0%} of it; "
        f"{enough} would do: --set runtime.num_actors={enough}"
    )


def _spec_seconds(reports: Sequence[IntervalReport]) -> dict[CompressionSpec, float]:
    """Return the run's seconds by what acted; empty where no rollout was learned from."""
    found: defaultdict[CompressionSpec, float] = defaultdict(float)
    unshared = 0.0
    shares: dict[CompressionSpec, float] = {}
    for report in reports:
        unshared += report.seconds
        acting = math.fsum(report.spec_seconds.values())  # a resumed run reads them sorted
        if acting:  # of all actors, without what they wait
            shares = {spec: busy / acting for spec, busy in report.spec_seconds.items()}
            for spec, share in shares.items():
                found[spec] += share * unshared
            unshared = 0.0
    for spec, share in shares.items():
        found[spec] += share * unshared
    return dict(found)


def _conditions(reports: Sequence[IntervalReport]) -> list[Mapping[str, Any]]:
    """Return the events that the run met, also those of reports read from a file.

    Each stands there once, or as often as an interval has met equal ones.
    """
    most: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for report in reports:
        alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for event in report.conditions:
            alike.setdefault(tuple(sorted(event.items())), []).append(event)
        for key, events in alike.items():
            if len(events) > len(most.get(key, ())):
                most[key] = events
    return [event for events in most.values() for event in events]


def _monitor_share(reports: Sequence[IntervalReport]) -> float | None:
    """Return which share of the run's processor time its indicators took; None: not measured."""
    whole = sum(sum(report.cpu_seconds.values()) for report in reports)
    spent = sum(sum(report.monitor_cpu_seconds.values()) for report in reports)
    return spent / whole if spent else None


def _memory(reports: Sequence[IntervalReport]) -> dict[str, dict[str, Any]]:
    """Return the largest resident memory of each process, and how fast it grew in the end."""
    held: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for report in reports:
        for name, rss in report.rss_bytes.items():
            held[name].append((report.total_seconds, rss))
    return {
        "rss_bytes_max": {name: max(rss for _, rss in found) for name, found in held.items()},
        "rss_bytes_per_minute": {
            name: growth_per_minute(*zip(*found, strict=True)) for name, found in held.items()
        },
    }


def _returns(reports: Sequence[IntervalReport]) -> tuple[float | None, float | None]:
    measured = [r.learner_return for r in reports if r.learner_return is not None]
    if measured:
        return measured[-1], max(measured)
    episodes = [score for report in reports for score in report.episode_returns]
    if not episodes:
        return None, None
    many = min(SCORED_EPISODES, len(episodes))
    ends = range(many, len(episodes) + 1)  # one after the other: there may be millions
    best = max(math.fsum(episodes[end - many : end]) for end in ends)
    return math.fsum(episodes[-many:]) / many, best / many
