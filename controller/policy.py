"""ControllerPolicy: a factored categorical policy of a few hundred parameters, and its Strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION, Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import Actions
from controller.normalise import FeatureNormaliser


class Action(NamedTuple):
    """One joint action: a level index per head, its log-probability and the policy's entropy."""

    indices: tuple[int, ...]
    log_prob: float
    entropy: float


class ControllerPolicy(nn.Module):
    """Features [..., F] -> one hidden tanh layer -> one slope per head -> logits per head.

    The levels of a head are ordered from mild to hard, and its logits are ordinal:

        logit_j = slope(features) * level_j + offset_j,    level_j evenly spaced in [-1, 1].

    With concave offsets this is a bump whose centre the slope moves, so evidence about one level
    is evidence about its neighbours, and a head costs one output however many levels it has.

    Raises:
        UserError: a head has no level.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        generator: torch.Generator,
        num_features: int = len(FEATURE_NAMES),
        hidden: int = 8,
    ) -> None:
        """Start from the uniform policy: slopes near zero, offsets zero."""
        super().__init__()
        if not sizes or min(sizes) < 1:
            raise UserError(f"controller policy: every head needs a level, got sizes {list(sizes)}")
        self.sizes = tuple(int(size) for size in sizes)
        self.normaliser = FeatureNormaliser(num_features)
        self.body = nn.Linear(num_features, hidden)
        self.slopes = nn.Linear(hidden, len(self.sizes))
        self.offsets = nn.Parameter(torch.zeros(sum(self.sizes)))
        self.levels: Tensor
        self.register_buffer("levels", _level_matrix(self.sizes), persistent=False)
        with torch.no_grad():
            nn.init.orthogonal_(self.body.weight, 1.0, generator=generator)
            nn.init.orthogonal_(self.slopes.weight, 0.01, generator=generator)
            nn.init.zeros_(self.body.bias)
            nn.init.zeros_(self.slopes.bias)

    def forward(self, vectors: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of each head, [..., size], for feature vectors [..., F]."""
        hidden = torch.tanh(self.body(self.normaliser(vectors)))
        logits = self.slopes(hidden) @ self.levels + self.offsets
        return torch.split(logits, list(self.sizes), dim=-1)

    def evaluate(self, vectors: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, both [N] and summed over heads, in nats.

        Args:
            vectors: feature vectors [N, F].
            indices: level indices [N, heads].
        """
        log_prob, entropy = torch.zeros(len(vectors)), torch.zeros(len(vectors))
        for head, logits in enumerate(self(vectors)):
            log_probs = torch.log_softmax(logits, dim=-1)
            log_prob = log_prob + log_probs.gather(-1, indices[:, head : head + 1]).squeeze(-1)
            entropy = entropy - (log_probs.exp() * log_probs).sum(-1)
        return log_prob, entropy

    def act(self, vector: np.ndarray, generator: np.random.Generator | None = None) -> Action:
        """Draw an action for one feature vector [F]; without a generator, the most likely one."""
        if generator is None:
            return self._choose(vector, None)
        return self.sample(vector, generator.random(len(self.sizes)))

    def sample(self, vector: np.ndarray, uniforms: np.ndarray) -> Action:
        """Draw by inverse CDF from one uniform in [0, 1) per head; 1 - u mirrors the draw."""
        return self._choose(vector, uniforms)

    @torch.no_grad()
    def _choose(self, vector: np.ndarray, uniforms: np.ndarray | None) -> Action:
        features = torch.as_tensor(np.asarray(vector, dtype=np.float32))
        indices, log_prob, entropy = [], 0.0, 0.0
        for head, logits in enumerate(self(features)):
            log_probs = torch.log_softmax(logits, dim=-1).double().numpy()
            probs = np.exp(log_probs)
            if uniforms is None:
                index = int(np.argmax(probs))
            else:
                # The last edge may round to just under 1; it stays a valid index all the same.
                index = int(np.searchsorted(np.cumsum(probs)[:-1], uniforms[head], side="right"))
            indices.append(index)
            log_prob += float(log_probs[index])
            entropy -= float(probs @ log_probs)
        return Action(tuple(indices), log_prob, entropy)

    def num_parameters(self) -> int:
        """Return the number of trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    def to_json(self) -> dict[str, Any]:
        """Return sizes and weights as plain numbers: what a worker process needs to act."""
        weights = {name: value.tolist() for name, value in self.state_dict().items()}
        return {"sizes": list(self.sizes), "hidden": self.body.out_features, "weights": weights}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ControllerPolicy:
        """Read a policy written by `to_json`.

        Raises:
            UserError: the weights do not fit the sizes.
        """
        weights = {name: torch.tensor(value) for name, value in data["weights"].items()}
        return cls.from_weights(data["sizes"], weights)

    @classmethod
    def from_weights(cls, sizes: Sequence[int], weights: Mapping[str, Tensor]) -> ControllerPolicy:
        """Make a policy with these head sizes from named tensors.

        Raises:
            UserError: a tensor is missing, unknown or has the wrong shape.
        """
        body = weights.get("body.weight", torch.empty(0))
        hidden, num_features = body.shape if body.ndim == 2 else (1, 1)
        policy = cls(sizes, generator=torch.Generator(), num_features=num_features, hidden=hidden)
        try:
            policy.load_state_dict(dict(weights))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"controller policy: the weights do not fit: {reason}") from error
        return policy


def _level_matrix(sizes: Sequence[int]) -> Tensor:
    """Return [heads, sum of sizes]: row h holds the levels of head h in its own columns."""
    rows = [torch.linspace(-1.0, 1.0, size) if size > 1 else torch.zeros(1) for size in sizes]
    return torch.block_diag(*rows)


class LearnedStrategy:
    """A Strategy that asks a controller policy, and holds each decision for a minimum time.

    Args:
        policy: the controller's weights.
        actions: the levels its heads stand for.
        sample_seed: draws decisions with dice that every reset starts anew; None takes the most
            likely decision. Features that are not a number give the mildest one either way.
        min_dwell_intervals: how long a decision is held at least.

    Raises:
        UserError: heads and action space do not fit, or the dwell is below 1.
    """

    def __init__(
        self,
        policy: ControllerPolicy,
        actions: Actions,
        *,
        sample_seed: int | None = None,
        min_dwell_intervals: int = 1,
    ) -> None:
        """Check that policy and action space belong together."""
        if policy.sizes != actions.sizes:
            raise UserError(
                f"learned strategy: the policy has heads of {list(policy.sizes)} levels, "
                f"the action space {list(actions.sizes)}"
            )
        if min_dwell_intervals < 1:
            raise UserError(f"min_dwell_intervals must be 1 or more, got {min_dwell_intervals}")
        self.policy = policy
        self.actions = actions
        self.sample_seed = sample_seed
        self.min_dwell_intervals = min_dwell_intervals
        self.reset()

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec of the action space."""
        return self.actions.all_specs

    def reset(self) -> None:
        """Forget the decision that is being held and pick up the first dice again."""
        seed = self.sample_seed
        self._dice = None if seed is None else np.random.default_rng(seed)
        self._held: Decision | None = None
        self._age = 0

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval.

        Raises:
            UserError: the features are of another version than the policy was trained on.
        """
        if features.version != FEATURES_VERSION:
            raise UserError(
                f"learned strategy: it reads features of version {FEATURES_VERSION}, "
                f"got version {features.version}"
            )
        if self._held is None or self._age >= self.min_dwell_intervals:
            decision = self.actions.decision(self.policy.act(features.vector, self._dice).indices)
            self._age = 0 if decision != self._held else self._age
            self._held = decision
        self._age += 1
        return self._held
