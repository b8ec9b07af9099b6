"""Clocks of the serial runtime: what an operation is charged."""

from __future__ import annotations

from typing import Protocol

from accerl.runtime.latency import LatencyProfile
from accerl.spec import CompressionSpec


class Clock(Protocol):
    """Says how many seconds an operation took on the clock of a run.

    Each method is given what really happened and the seconds this process measured for it.
    """

    def act(
        self, spec: CompressionSpec, steps: int, batch: int, measured: ActSeconds
    ) -> ActSeconds:
        """Charge one rollout: `steps` steps of `batch` environments."""
        ...

    def learn(self, samples: int, measured_seconds: float) -> float:
        """Charge one learner update that processed `samples` samples (reuse counted)."""
        ...

    def distill(self, spec: CompressionSpec, states: int, measured_seconds: float) -> float:
        """Charge one distillation update on `states` states."""
        ...

    def publish(
        self, spec: CompressionSpec, warmup_states: int, measured_seconds: float
    ) -> tuple[float, float]:
        """Charge one publication; return seconds of distilling beforehand, and of the rest."""
        ...


class ActSeconds(tuple[float, float, float]):
    """Seconds of one rollout in (env, infer, write)."""

    __slots__ = ()


class VirtualClock:
    """Charges every operation from a latency profile: the same seconds on every machine."""

    def __init__(self, profile: LatencyProfile, infer_batch: int = 0) -> None:
        """Charge from `profile`; `infer_batch` is that of `RuntimeConfig`."""
        self.profile = profile
        self.infer_batch = infer_batch

    def act(
        self, spec: CompressionSpec, steps: int, batch: int, measured: ActSeconds
    ) -> ActSeconds:
        """See `Clock.act`."""
        env, infer, write = self.profile.act_seconds(spec, batch, self.infer_batch)
        return ActSeconds((env * steps, infer * steps, write * steps))

    def learn(self, samples: int, measured_seconds: float) -> float:
        """See `Clock.learn`."""
        return self.profile.learn_seconds(samples)

    def distill(self, spec: CompressionSpec, states: int, measured_seconds: float) -> float:
        """See `Clock.distill`."""
        return self.profile.distill_seconds(spec, states)

    def publish(
        self, spec: CompressionSpec, warmup_states: int, measured_seconds: float
    ) -> tuple[float, float]:
        """See `Clock.publish`."""
        warmup = self.profile.distill_seconds(spec, warmup_states) if warmup_states else 0.0
        return warmup, self.profile.publish_seconds(spec)


class RealClock:
    """Charges what was measured, as if actors and learner had overlapped."""

    def act(
        self, spec: CompressionSpec, steps: int, batch: int, measured: ActSeconds
    ) -> ActSeconds:
        """See `Clock.act`."""
        return measured

    def learn(self, samples: int, measured_seconds: float) -> float:
        """See `Clock.learn`."""
        return measured_seconds

    def distill(self, spec: CompressionSpec, states: int, measured_seconds: float) -> float:
        """See `Clock.distill`."""
        return measured_seconds

    def publish(
        self, spec: CompressionSpec, warmup_states: int, measured_seconds: float
    ) -> tuple[float, float]:
        """See `Clock.publish`; what was measured includes the warm-up."""
        return 0.0, measured_seconds
