"""RecurrentIndicator: memory in place of beliefs, to see what beliefs are worth.

    features of the run -> GRU -> what it makes of bits, sparsity, size ... -> a score of every spec

It is told nothing of the machine and reads what any strategy sees (`accerl.monitor.features`). It
knows a spec by what the spec is, not by what is predicted or was measured of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION, Features
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import IDENTITY, STUDENTS, CompressionSpec, Decision
from controller.env.compatibility import possible
from controller.training.module import PolicyModule

DESCRIBED: Mapping[str, Callable[[CompressionSpec], float]] = {
    "int8": lambda spec: float(spec.bits == 8),
    "bf16": lambda spec: float(spec.bits == 16),
    "rank": lambda spec: 1.0 - spec.rank,
    "sparsity": lambda spec: spec.sparsity,
    "size": lambda spec: spec.size_rank / (len(STUDENTS) - 1),
    "uncompressed": lambda spec: float(spec == IDENTITY),
}
"""what is read of a spec, by name; besides, whether it acts now"""
START = {"uncompressed": 0.3, "acts": 0.3}
"""weights of the rule that it starts from: no compression"""
HIDDEN = 6


class SpecMemory(PolicyModule):
    """A GRU over the run's features, and what its state h says of every feature of a spec.

        h' = GRU(features of the run, h),    score = (a + W h') . (features of the spec)

    At first W = 0 and a is `START`.

    Args:
        hidden: size of h.
        generator: of its initial weights.
    """

    owner = "recurrent"

    def __init__(self, hidden: int = HIDDEN, *, generator: torch.Generator | None = None) -> None:
        super().__init__(hidden)
        names = (*DESCRIBED, "acts")
        self.cell = nn.GRUCell(len(FEATURE_NAMES), hidden)
        with torch.no_grad():
            for weights in self.cell.parameters():
                weights.copy_(0.3 * torch.randn(weights.shape, generator=generator))
        self.linear = nn.Parameter(torch.tensor([START.get(name, 0.0) for name in names]))
        self.recalled = nn.Parameter(torch.zeros(len(names), hidden))

    def forward(self, vector: Tensor, state: Tensor, specs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores [N] of specs, and the next state [H].

        Args:
            vector: features of the run, [F].
            state: [H].
            specs: their features, [N, S].
        """
        state = self.cell(vector.unsqueeze(0), state.unsqueeze(0)).squeeze(0)
        return specs @ (self.linear + self.recalled @ state), state

    def to_json(self) -> dict[str, Any]:
        """Return its weights, and the version of the features that it reads."""
        return {**super().to_json(), "features_version": FEATURES_VERSION}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            UserError: as in `PolicyModule`, or it was trained on features of another version.
        """
        version = data.get("features_version")
        if version != FEATURES_VERSION:
            raise UserError(f"recurrent: it reads features of version {version!r}")
        return super().from_json(data)


class RecurrentIndicator:
    """Acts with the spec that `SpecMemory` scores highest; nothing is drawn at random.

    Args:
        memory: its policy.
        specs: that it may act with, as far as the run can; no compression is always among them.
    """

    name = "recurrent"

    def __init__(self, memory: SpecMemory, specs: Sequence[CompressionSpec]) -> None:
        self.memory = memory
        self._offered = tuple(dict.fromkeys((IDENTITY, *specs)))
        self.specs = self._offered
        """what it may act with in this run"""
        self._bound = self.specs
        """what it began to choose from; some may have turned out not to be built"""
        self.reset()

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Leave out what the run cannot act with.

        Raises:
            UserError: it can act with nothing.
        """
        self.specs = possible(config, times, self._offered)
        if not self.specs:
            raise UserError("recurrent: this run can act with none of its specs")
        self._bound = self.specs

    def reset(self) -> None:
        """Forget the last run."""
        self.specs = self._bound
        self._state = torch.zeros(self.memory.hidden)
        self._acting: Decision | None = None

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval."""
        rows = [
            [*(read(spec) for read in DESCRIBED.values()), self._acting == Decision.of(spec)]
            for spec in self.specs
        ]
        vector, specs = torch.from_numpy(features.vector).float(), torch.tensor(rows).float()
        with torch.no_grad():
            scores, state = self.memory(vector, self._state, specs)
        if not scores.isfinite().all():
            raise ValueError("recurrent: its scores are not numbers; are its weights damaged?")
        self._state = state
        self._acting = Decision.of(self.specs[int(scores.argmax())])
        return self._acting

    def overruled(self, decision: Decision) -> None:
        """Know that something else acts than was decided."""
        self._acting = decision.without_shadow

    def rejected(self, spec: CompressionSpec) -> None:
        """Choose among the others from now on: it cannot be built in this run."""
        if spec != IDENTITY:
            self.specs = tuple(other for other in self.specs if other != spec)

    @property
    def policy(self) -> SpecMemory:
        """See `trainable.Trainable`."""
        return self.memory

    def with_policy(self, state: Mapping[str, Any]) -> RecurrentIndicator:
        """See `trainable.Trainable`."""
        return RecurrentIndicator(SpecMemory.from_json(state), self._offered)

    def to_json(self) -> dict[str, Any]:
        """Return its name, and as parameters all that it is made of."""
        specs = [spec.to_json() for spec in self._offered]
        return {"name": self.name, "params": {"memory": self.memory.to_json(), "specs": specs}}

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> RecurrentIndicator:
        """Make one of the parameters that `to_json` returned.

        Raises:
            UserError: a part is missing or does not fit.
        """
        try:
            specs = [CompressionSpec.from_json(spec) for spec in params["specs"]]
            return cls(SpecMemory.from_json(params["memory"]), specs)
        except KeyError as error:
            raise UserError(f"recurrent: its parameters lack {error}") from error
        except (AttributeError, TypeError) as error:
            raise UserError(f"recurrent: its parameters are not of its kind ({error})") from error
