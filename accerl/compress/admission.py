"""Admission: when a student or pruned network may take over from what acts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from accerl.compress.artifact import Artifact
from accerl.compress.check import kl_nats
from accerl.compress.distillation.state_ring import StateRing
from accerl.compress.engine import make_engine
from accerl.networks.graph_policy import Policy
from accerl.spec import CompressionSpec

ADMISSION_STATES = 192
"""newest held-out states that something is compared on, at most; a checkpoint holds so many"""
PLAYED_SHARE = 0.5
"""of the ring that must have been filled before anything learns or is admitted: all games begin
alike, and a student that has seen their first second alone is far off in the next"""


@dataclass(frozen=True)
class Verdict:
    """What became of a spec that was compared with the learner before it may act."""

    admitted: bool = True
    kl_nats: float | None = None
    """KL(learner || engine) on held-out states; None: it was not compared"""
    states: int = 0
    """on how many"""


class Admission:
    """Admits what was distilled once it is close to the learner on states that it never saw.

    A spec with a student or a pruned network takes over when the mean

        KL(learner || its engine) <= bound

    over the newest held-out states of the `StateRing`. That is asked when it takes over, not while
    it acts: it acts on until another decision sends it away, and is asked anew when it returns.
    With a bound of 0, or without a ring, everything acts at once. So does a copy of a learner that
    has learned nothing yet, which cannot be far from it: on a slow link the weights that would
    stand in for it take longer than the run.
    """

    def __init__(self, bound_nats: float, ring: StateRing | None) -> None:
        self.bound_nats = bound_nats
        self._ring = ring
        self._acted: tuple[CompressionSpec, ...] = ()  # at the last publication

    @property
    def enabled(self) -> bool:
        """Whether anything may have to wait."""
        return self.bound_nats > 0.0 and self._ring is not None

    @property
    def has_states(self) -> bool:
        """Whether enough states were played to learn from some and to compare on others."""
        ring = self._ring
        if ring is None or ring.total < PLAYED_SHARE * ring.capacity:
            return False
        return ring.held_out(1) is not None

    def concerns(self, spec: CompressionSpec, version: int) -> bool:
        """Whether `spec` must be admitted before it acts: it is distilled, and did not act last.

        Args:
            spec: what was decided for.
            version: learner updates of what it copies.
        """
        is_distilled = spec.student_key is not None
        return self.enabled and is_distilled and version > 0 and spec not in self._acted

    def judge(self, artifact: Artifact, policy: Policy) -> Verdict:
        """Compare an engine with the learner's policy; only where there are states.

        Raises:
            ValueError: there are not enough.
        """
        batch = self._ring.held_out(ADMISSION_STATES) if self._ring is not None else None
        if batch is None or not self.has_states:
            raise ValueError("too few states were played to admit anything")
        with torch.no_grad():
            states = torch.from_numpy(batch.obs).to(policy.device)
            logits = policy(states)[0].float().cpu().numpy()
        kl = float(kl_nats(logits, make_engine(artifact).infer(batch.obs)[0]).mean())
        return Verdict(kl <= self.bound_nats, kl, len(batch.obs))

    def stand_in(self, spec: CompressionSpec) -> CompressionSpec:
        """Return what acts while `spec` waits: the nearest to it that is milder and may act.

        That is one of what acted last, or the learner's own network in the bits and graph of
        `spec`.
        """
        milder = [other for other in self._acted if other.mildness < spec.mildness]
        return max([spec.undistilled, *milder], key=lambda other: other.mildness)

    def acted(self, specs: Iterable[CompressionSpec]) -> None:
        """Note what a publication holds."""
        self._acted = tuple(specs)

    def state_dict(self) -> list[dict[str, Any]]:
        """Return what acted last."""
        return [spec.to_json() for spec in self._acted]

    def load_state_dict(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._acted = tuple(map(CompressionSpec.from_json, state))
