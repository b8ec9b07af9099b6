"""Clocks of the serial runtime: what an operation is charged, and on which machine."""

from __future__ import annotations

from typing import NamedTuple

from accerl.config import RuntimeConfig
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.wiring import Wiring
from accerl.spec import IDENTITY, CompressionSpec


class ActSeconds(NamedTuple):
    """Seconds of one rollout."""

    env: float
    infer: float
    write: float


class RealClock:
    """Says how many core-seconds an operation took: as measured, as if processes had overlapped.

    What does not happen in one process (copying, sending) is not charged.
    """

    def wiring(self, runtime: RuntimeConfig) -> Wiring:
        """Return the processes that are modelled: actors beside a learner that compresses."""
        return Wiring.of(runtime)

    def act(
        self, spec: CompressionSpec, steps: int, batch: int, measured: ActSeconds
    ) -> ActSeconds:
        """Charge one rollout: `steps` steps of `batch` environments."""
        return measured

    def load(self, spec: CompressionSpec, measured_seconds: float) -> float:
        """Charge what an actor needs to begin to act with one spec of a publication."""
        return measured_seconds

    def learn(self, samples: int, measured_seconds: float) -> float:
        """Charge one learner update that processed `samples` samples (reuse counted)."""
        return measured_seconds

    def copy(self) -> float:
        """Charge the learner's copying of its weights for whoever compresses."""
        return 0.0

    def distill(self, spec: CompressionSpec, states: int, measured_seconds: float) -> float:
        """Charge one distillation update on `states` states."""
        return measured_seconds

    def publish(
        self, spec: CompressionSpec, warmup_states: int, measured_seconds: float
    ) -> tuple[float, float]:
        """Charge one publication; return seconds of distilling beforehand, and of the rest.

        What was measured includes the warm-up.
        """
        return 0.0, measured_seconds

    def compare(self, spec: CompressionSpec, states: int) -> float:
        """Charge comparing an engine with the learner on `states` states.

        What was measured of a publication includes it.
        """
        return 0.0

    def send(self, spec: CompressionSpec) -> float:
        """Return how long a publication is on its way; nobody computes meanwhile."""
        return 0.0

    def upload(self, env_steps: int) -> float:
        """Return how long a rollout of so many env steps takes a link."""
        return 0.0


class VirtualClock:
    """Charges every operation from a latency profile: the same seconds on every machine."""

    def __init__(self, profile: LatencyProfile, infer_batch: int = 0) -> None:
        """Charge from `profile`; `infer_batch` is that of `RuntimeConfig`."""
        self.profile = profile
        self.infer_batch = infer_batch

    def wiring(self, runtime: RuntimeConfig) -> Wiring:
        """Return the profile's wiring; the configuration says whether compressing is apart."""
        return Wiring.of(runtime, self.profile)

    def act(
        self, spec: CompressionSpec, steps: int, batch: int, measured: ActSeconds
    ) -> ActSeconds:
        """See `RealClock.act`."""
        env, infer, write = self.profile.act_seconds(spec, batch, self.infer_batch)
        return ActSeconds(env * steps, infer * steps, write * steps)

    def load(self, spec: CompressionSpec, measured_seconds: float) -> float:
        """See `RealClock.load`."""
        return self.profile.load_seconds(spec)

    def learn(self, samples: int, measured_seconds: float) -> float:
        """See `RealClock.learn`."""
        return self.profile.learn_seconds(samples)

    def copy(self) -> float:
        """See `RealClock.copy`."""
        return self.profile.copy_seconds()

    def distill(self, spec: CompressionSpec, states: int, measured_seconds: float) -> float:
        """See `RealClock.distill`."""
        return self.profile.distill_seconds(spec, states)

    def publish(
        self, spec: CompressionSpec, warmup_states: int, measured_seconds: float
    ) -> tuple[float, float]:
        """See `RealClock.publish`."""
        warmup = self.profile.distill_seconds(spec, warmup_states) if warmup_states else 0.0
        return warmup, self.profile.publish_seconds(spec)

    def compare(self, spec: CompressionSpec, states: int) -> float:
        """See `RealClock.compare`.

        No profile says what a learner's passes forward alone take. They take less than distilling
        on these states does; and where the learner's own network acts, about what it takes to
        infer with both, if that is less.
        """
        seconds = self.profile.distill_seconds(spec, states)
        if spec.student_key is not None:
            return seconds
        pair = (self.profile.infer_seconds(each, states) for each in (IDENTITY, spec))
        return min(seconds, sum(pair))

    def send(self, spec: CompressionSpec) -> float:
        """See `RealClock.send`."""
        return self.profile.send_seconds(spec)

    def upload(self, env_steps: int) -> float:
        """See `RealClock.upload`."""
        return self.profile.upload_seconds(env_steps)


Clock = RealClock | VirtualClock
