"""KLProbe: what the actors' KL is made of, measured on sampled states beside a publication."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np
import torch
from torch import nn

from accerl.compress.admission import Verdict
from accerl.compress.artifact import Artifact
from accerl.compress.check import kl_nats
from accerl.compress.engine import make_engine
from accerl.monitor.divergence import updates_between
from accerl.runtime.publishing.delivery import KLSplit
from accerl.spec import CompressionSpec
from accerl.weights import Publication


class KLProbe:
    """Samples a publication now and then, and again the one that follows it.

    The engine that is published is compared with the learner's weights of that moment, so nothing
    but compression makes them differ: rounding, and of students and pruned networks what distilling
    has not made up for. At the next publication the same states show how far the learner itself has
    moved meanwhile. Each costs one pass of `STATES` states, and nobody waits for it.
    """

    STATES = 32
    SAMPLES_BETWEEN = 4_096
    """samples that the learner uses between two checks: their passes forwards and backwards cost
    a hundred times as much as a check's"""
    SPARSER = 8
    """times as many for the smallest networks, whose passes cost next to nothing"""

    @classmethod
    def check_every(cls, samples: int, macs: float) -> int:
        """Return the updates that lie between two checks.

        Args:
            samples: of an update.
            macs: multiply-accumulates of one of them.
        """
        small = updates_between(macs * samples) > 1
        return max(1, round(cls.SAMPLES_BETWEEN * (cls.SPARSER if small else 1) / samples))

    def __init__(self) -> None:
        self._states: np.ndarray | None = None
        self._logits: np.ndarray | None = None
        self._version = 0

    def measure(
        self, policy: nn.Module, publication: Publication, states: np.ndarray, *, check: bool
    ) -> KLSplit:
        """Compare what can be compared at this publication.

        Args:
            policy: the learner's policy, as it was when the publication was made of it.
            publication: what was made.
            states: recorded states [N, *shape].
            check: whether to sample this publication.
        """
        before = thread_time()
        version = max(artifact.version for artifact in publication.artifacts)
        staleness, updates = None, 0
        if self._states is not None and self._logits is not None:
            staleness = float(kl_nats(_logits(policy, self._states), self._logits).mean())
            updates = version - self._version
            self._states = self._logits = None
        compression: dict[CompressionSpec, float] = {}
        if check:
            sampled = self._sample(states)
            logits = _logits(policy, sampled)
            for artifact in publication.artifacts:
                compression[artifact.spec] = _compared(logits, artifact, sampled)
            self._states, self._logits, self._version = sampled, logits, version
        return KLSplit(
            compression_nats=compression,
            staleness_nats=staleness,
            staleness_updates=updates,
            cpu_seconds=thread_time() - before,
        )

    @classmethod
    def compare(cls, policy: nn.Module, artifact: Artifact, states: np.ndarray) -> Verdict:
        """Compare what does not act with the learner, as `measure` does what acts.

        Args:
            policy: the learner's policy.
            artifact: what was made of it.
            states: recorded states [N, *shape].
        """
        sampled = cls._sample(states)
        kl = _compared(_logits(policy, sampled), artifact, sampled)
        return Verdict(kl_nats=kl, states=len(sampled))

    @classmethod
    def _sample(cls, states: np.ndarray) -> np.ndarray:
        chosen = np.linspace(0, len(states) - 1, min(cls.STATES, len(states)))
        return states[chosen.round().astype(int)]

    def state_dict(self) -> dict[str, Any]:
        """Return what was sampled last."""
        return {"states": self._states, "logits": self._logits, "version": self._version}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._states, self._logits = state["states"], state["logits"]
        self._version = state["version"]


def _compared(logits: np.ndarray, artifact: Artifact, states: np.ndarray) -> float:
    """Return the mean KL(learner || engine), of the learner's logits [N, A] for the states."""
    return float(kl_nats(logits, make_engine(artifact).infer(states)[0]).mean())


def _logits(policy: nn.Module, states: np.ndarray) -> np.ndarray:
    """Return the logits [N, A] of a policy on the CPU or a GPU."""
    device = next(policy.parameters()).device
    with torch.no_grad():
        return policy(torch.from_numpy(states).to(device))[0].float().cpu().numpy()
