"""IntervalRecorder: gathers what passes by during one interval and reports it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any

from accerl.learner.learner import UpdateStats
from accerl.monitor.indicator_pool import IndicatorPool
from accerl.rollout import Rollout
from accerl.runtime.events import RunEvent
from accerl.runtime.machine.usage import Memory
from accerl.runtime.publishing.delivery import Delivery
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import CompressionSpec, Decision, by_label, by_spec


class IntervalRecorder:
    """Sums of one interval; totals since the start of the run."""

    def __init__(self, num_actions: int, *, times_itself: bool = True) -> None:
        """Start at nothing; a virtual clock's reports do not say what measuring took here."""
        self.times_itself = times_itself
        self._pool = IndicatorPool(initial_entropy_nats=math.log(num_actions))
        self._index = 0
        self._total_env_steps = 0
        self._total_updates = 0
        self._clear()

    def _clear(self) -> None:
        self._env_steps = 0
        self._updates = 0
        self._phases = dict.fromkeys(PHASES, 0.0)
        self._returns: list[float] = []
        self._fill = 0.0
        self._spec_seconds: defaultdict[CompressionSpec, float] = defaultdict(float)
        self._losses: defaultdict[str, float] = defaultdict(float)
        self._loss_counts: defaultdict[str, int] = defaultdict(int)
        self._lags: Counter[int] = Counter()
        self._publications = 0
        self._unchanged = 0
        self._publication_bytes = 0
        self._student_kl_nats: dict[CompressionSpec, float] = {}
        self._compression_kl_nats: dict[CompressionSpec, float] = {}
        self._staleness: tuple[float | None, int] = (None, 0)
        self._monitor_cpu_seconds: defaultdict[str, float] = defaultdict(float)

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Book seconds under one of PHASES."""
        self._phases[phase] += seconds

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
        env, infer, write = (float(value) for value in rollout.header[2:5])
        for phase, seconds in (("env", env), ("infer", infer), ("write", write)):
            self._phases[phase] += seconds
        self._spec_seconds[spec] += env + infer + write
        self._env_steps += rollout.action.size
        self._updates += 1
        self._fill += queue_fill
        self._lags[lag] += 1
        for name, value in stats.losses.items():
            self._losses[name] += value
            self._loss_counts[name] += 1  # not every update measures all of them
        before = thread_time()
        self._returns += rollout.returns()
        self._pool.add_rollout(stats.kl_nats, stats.entropy_nats, lag, rollout.action.size)
        self._add_monitoring("learner", stats.monitor_cpu_seconds + thread_time() - before)

    def _add_monitoring(self, process: str, seconds: float) -> None:
        if self.times_itself:
            self._monitor_cpu_seconds[process] += seconds

    def add_publication(self, delivery: Delivery, *, by: str = "learner") -> None:
        """Book a publication: its bytes, and how far what acts is from the learner, and why.

        Args:
            delivery: what was published.
            by: the process that made it.
        """
        split = delivery.split
        self._publications += 1
        self._unchanged += delivery.unchanged
        self._publication_bytes += delivery.size_bytes
        self._student_kl_nats.update(delivery.student_kl_nats)
        self._compression_kl_nats.update(split.compression_nats)
        if split.staleness_nats is not None:
            self._staleness = (split.staleness_nats, split.staleness_updates)
        self._add_monitoring(by, split.cpu_seconds)

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
    ) -> IntervalReport:
        """End the interval and report it."""
        indicators = self._pool.reset()
        updates = max(self._updates, 1)
        self._total_env_steps += self._env_steps
        self._total_updates += self._updates
        report = IntervalReport(
            index=self._index,
            seconds=seconds,
            total_seconds=total_seconds,
            env_steps=self._env_steps,
            total_env_steps=self._total_env_steps,
            learner_updates=self._updates,
            total_learner_updates=self._total_updates,
            phase_seconds=self._phases,
            queue_fill=self._fill / updates,
            policy_lag=indicators.policy_lag,
            kl_mean_nats=indicators.kl_mean_nats,
            kl_var=indicators.kl_var,
            kl_max_nats=indicators.kl_max_nats,
            entropy_nats=indicators.entropy_nats,
            episode_returns=tuple(self._returns),
            learner_return=learner_return,
            decision=decision,
            spec_seconds=dict(self._spec_seconds),
            switch_seconds=switch_seconds,
            losses={name: sums / self._loss_counts[name] for name, sums in self._losses.items()},
            events=tuple(event.to_json() for event in events),
            rss_bytes={name: held.rss for name, held in (memory or {}).items()},
            private_bytes={name: held.private for name, held in (memory or {}).items()},
            cpu_seconds=cpu_seconds or {},
            publications=self._publications,
            publications_unchanged=self._unchanged,
            publication_bytes=self._publication_bytes,
            student_kl_nats=self._student_kl_nats,
            compression_kl_nats=self._compression_kl_nats,
            staleness_kl_nats=self._staleness[0],
            staleness_updates=self._staleness[1],
            monitor_cpu_seconds=dict(self._monitor_cpu_seconds),
            lag_rollouts={str(lag): count for lag, count in sorted(self._lags.items())},
        )
        self._index += 1
        self._clear()
        return report

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly, as plain numbers and lists."""
        return {
            "pool": self._pool.state_dict(),
            "index": self._index,
            "total_env_steps": self._total_env_steps,
            "total_updates": self._total_updates,
            "env_steps": self._env_steps,
            "updates": self._updates,
            "phases": dict(self._phases),
            "returns": list(self._returns),
            "fill": self._fill,
            "spec_seconds": by_label(self._spec_seconds),
            "losses": dict(self._losses),
            "loss_counts": dict(self._loss_counts),
            "lags": sorted(self._lags.items()),
            "publications": self._publications,
            "unchanged": self._unchanged,
            "publication_bytes": self._publication_bytes,
            "student_kl_nats": by_label(self._student_kl_nats),
            "compression_kl_nats": by_label(self._compression_kl_nats),
            "staleness": list(self._staleness),
            "monitor_cpu_seconds": dict(self._monitor_cpu_seconds),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._pool.load_state_dict(state["pool"])
        self._index = state["index"]
        self._total_env_steps = state["total_env_steps"]
        self._total_updates = state["total_updates"]
        self._env_steps = state["env_steps"]
        self._updates = state["updates"]
        self._phases = dict(state["phases"])
        self._returns = list(state["returns"])
        self._fill = state["fill"]
        self._spec_seconds = defaultdict(float, by_spec(state["spec_seconds"]))
        self._losses = defaultdict(float, state["losses"])
        self._loss_counts = defaultdict(int, state["loss_counts"])
        self._lags = Counter(dict(state["lags"]))
        self._publications = state["publications"]
        self._unchanged = state["unchanged"]
        self._publication_bytes = state["publication_bytes"]
        self._student_kl_nats = by_spec(state["student_kl_nats"])
        self._compression_kl_nats = by_spec(state["compression_kl_nats"])
        nats, updates = state["staleness"]
        self._staleness = (nats, updates)
        self._monitor_cpu_seconds = defaultdict(float, state["monitor_cpu_seconds"])
