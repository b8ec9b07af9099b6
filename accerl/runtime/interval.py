"""IntervalRecorder: gathers what passes by during one interval and reports it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import thread_time
from typing import Any

from accerl.acting.rollout import ACTING_SECONDS, CORE_SECONDS, Rollout
from accerl.json_fields import JsonFields
from accerl.learner.learner import UpdateStats
from accerl.monitor.indicator_pool import IndicatorPool
from accerl.runtime.events import RunEvent
from accerl.runtime.machine.usage import Memory
from accerl.runtime.publishing.delivery import Delivery, Shadow
from accerl.runtime.run import PHASES, IntervalReport, Takeover
from accerl.spec import CompressionSpec, Decision


@dataclass
class _Sums(JsonFields):
    """What one interval has seen so far."""

    env_steps: int = 0
    updates: int = 0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    actor_core_seconds: float = 0.0
    returns: list[float] = field(default_factory=list)
    fill: float = 0.0
    spec_seconds: defaultdict[CompressionSpec, float] = field(
        default_factory=partial(defaultdict, float)
    )
    kl_nats: defaultdict[CompressionSpec, float] = field(
        default_factory=partial(defaultdict, float)
    )
    kl_states: defaultdict[CompressionSpec, int] = field(default_factory=partial(defaultdict, int))
    losses: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    loss_counts: defaultdict[str, int] = field(default_factory=partial(defaultdict, int))
    lags: defaultdict[int, int] = field(default_factory=partial(defaultdict, int))
    distill_updates: int = 0
    distill_core_seconds: float = 0.0
    publications: int = 0
    unchanged: int = 0
    publication_bytes: int = 0
    student_kl_nats: dict[CompressionSpec, float] = field(default_factory=dict)
    compression_kl_nats: dict[CompressionSpec, float] = field(default_factory=dict)
    shadow_kl_nats: dict[CompressionSpec, float] = field(default_factory=dict)
    waiting_kl_nats: dict[CompressionSpec, float | None] = field(default_factory=dict)
    takeovers: tuple[Takeover, ...] = ()
    staleness: tuple[float | None, int] = (None, 0)
    monitor_cpu_seconds: defaultdict[str, float] = field(
        default_factory=partial(defaultdict, float)
    )


class IntervalRecorder:
    """Sums of one interval; totals since the start of the run."""

    def __init__(self, num_actions: int, *, times_itself: bool = True) -> None:
        """Start at nothing; a virtual clock's reports do not say what measuring took here."""
        self.times_itself = times_itself
        self._pool = IndicatorPool(initial_entropy_nats=math.log(num_actions))
        self._index = 0
        self._total_env_steps = 0
        self._total_updates = 0
        self._sums = _Sums()

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Book seconds under one of PHASES."""
        self._sums.phases[phase] += seconds

    def add_distillation(self, updates: int, core_seconds: float) -> None:
        """Book distillation updates, and what the processors were busy with them."""
        self._sums.distill_updates += updates
        self._sums.distill_core_seconds += core_seconds

    def add_rollout(
        self,
        rollout: Rollout,
        spec: CompressionSpec,
        stats: UpdateStats,
        *,
        lag: int,
        queue_fill: float,
    ) -> None:
        """Book a rollout when the learner has used it."""
        env, infer, write = (float(value) for value in rollout.header[ACTING_SECONDS])
        self._sums.actor_core_seconds += float(rollout.header[CORE_SECONDS])
        for phase, seconds in (("env", env), ("infer", infer), ("write", write)):
            self._sums.phases[phase] += seconds
        self._sums.spec_seconds[spec] += env + infer + write
        self._sums.env_steps += rollout.action.size
        self._sums.updates += 1
        self._sums.fill += queue_fill
        self._sums.lags[lag] += 1
        for name, value in stats.losses.items():
            self._sums.losses[name] += value
            self._sums.loss_counts[name] += 1  # not every update measures all of them
        before = thread_time()
        self._sums.returns += rollout.returns()
        if count := stats.kl_nats.numel():
            self._sums.kl_nats[spec] += stats.kl_nats.sum().item()
            self._sums.kl_states[spec] += count
        self._pool.add_rollout(stats.kl_nats, stats.entropy_nats, lag, rollout.action.size)
        self._add_monitoring("learner", stats.monitor_cpu_seconds + thread_time() - before)

    def _add_monitoring(self, process: str, seconds: float) -> None:
        if self.times_itself:
            self._sums.monitor_cpu_seconds[process] += seconds

    def add_publication(
        self, delivery: Delivery, takeovers: Sequence[Takeover] = (), *, by: str = "learner"
    ) -> None:
        """Book a publication: its bytes, and how far what acts is from the learner, and why.

        Args:
            delivery: what was published.
            takeovers: what began to act with it.
            by: the process that made it.
        """
        split = delivery.split
        self._sums.publications += 1
        self._sums.unchanged += delivery.unchanged
        self._sums.publication_bytes += delivery.size_bytes
        self._sums.waiting_kl_nats = dict(delivery.waiting)  # as it is at the end
        self._sums.takeovers += tuple(takeovers)
        self._sums.student_kl_nats.update(delivery.student_kl_nats)
        self._sums.compression_kl_nats.update(split.compression_nats)
        if split.staleness_nats is not None:
            self._sums.staleness = (split.staleness_nats, split.staleness_updates)
        self._add_monitoring(by, split.cpu_seconds)

    def add_shadow(self, shadow: Shadow) -> None:
        """Book how far something is from the learner that does not act."""
        if shadow.kl_nats is not None:
            self._sums.shadow_kl_nats[shadow.spec] = shadow.kl_nats

    def report(
        self,
        *,
        seconds: float,
        total_seconds: float,
        learner_return: float | None,
        decision: Decision,
        switch_seconds: float,
        events: Sequence[RunEvent] = (),
        memory: Mapping[str, Memory] | None = None,
        cpu_seconds: Mapping[str, float] | None = None,
        conditions: Sequence[Mapping[str, Any]] = (),
    ) -> IntervalReport:
        """End the interval and report it."""
        sums = self._sums
        indicators = self._pool.reset()
        updates = max(sums.updates, 1)
        self._total_env_steps += sums.env_steps
        self._total_updates += sums.updates
        report = IntervalReport(
            index=self._index,
            seconds=seconds,
            total_seconds=total_seconds,
            env_steps=sums.env_steps,
            total_env_steps=self._total_env_steps,
            learner_updates=sums.updates,
            total_learner_updates=self._total_updates,
            phase_seconds=sums.phases,
            queue_fill=sums.fill / updates,
            policy_lag=indicators.policy_lag,
            kl_mean_nats=indicators.kl_mean_nats,
            kl_var=indicators.kl_var,
            kl_max_nats=indicators.kl_max_nats,
            entropy_nats=indicators.entropy_nats,
            episode_returns=tuple(sums.returns),
            learner_return=learner_return,
            decision=decision,
            spec_seconds=dict(sums.spec_seconds),
            switch_seconds=switch_seconds,
            acted_kl_nats={spec: kl / sums.kl_states[spec] for spec, kl in sums.kl_nats.items()},
            losses={name: loss / sums.loss_counts[name] for name, loss in sums.losses.items()},
            events=tuple(event.to_json() for event in events),
            rss_bytes={name: held.rss for name, held in (memory or {}).items()},
            private_bytes={name: held.private for name, held in (memory or {}).items()},
            cpu_seconds=cpu_seconds or {},
            conditions=tuple(conditions),
            actor_core_seconds=sums.actor_core_seconds,
            distill_updates=sums.distill_updates,
            distill_core_seconds=sums.distill_core_seconds,
            publications=sums.publications,
            publications_unchanged=sums.unchanged,
            publication_bytes=sums.publication_bytes,
            student_kl_nats=sums.student_kl_nats,
            compression_kl_nats=sums.compression_kl_nats,
            shadow_kl_nats=sums.shadow_kl_nats,
            waiting_kl_nats=sums.waiting_kl_nats,
            takeovers=sums.takeovers,
            staleness_kl_nats=sums.staleness[0],
            staleness_updates=sums.staleness[1],
            monitor_cpu_seconds=dict(sums.monitor_cpu_seconds),
            lag_rollouts={str(lag): count for lag, count in sorted(sums.lags.items())},
        )
        self._index += 1
        self._sums = _Sums(waiting_kl_nats=dict(sums.waiting_kl_nats))  # until it is known better
        return report

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly, as plain numbers and lists."""
        return {
            "pool": self._pool.state_dict(),
            "index": self._index,
            "total_env_steps": self._total_env_steps,
            "total_updates": self._total_updates,
            **self._sums.to_json(),
            "lags": sorted(self._sums.lags.items()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._pool.load_state_dict(state["pool"])
        self._index = state["index"]
        self._total_env_steps = state["total_env_steps"]
        self._total_updates = state["total_updates"]
        sums = {name: state[name] for name in vars(self._sums)}
        self._sums = _Sums.from_json({**sums, "lags": dict(state["lags"])})
