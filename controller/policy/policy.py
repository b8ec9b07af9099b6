"""ControllerPolicy: a factored categorical policy of a few hundred parameters, and its Strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from accerl.errors import UserError, one_line
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION, Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import Actions
from controller.policy.dwell import Dwell
from controller.policy.joint import draw, joint_matrix, masked_log_softmax
from controller.policy.module import PolicyModule
from controller.policy.normalise import FeatureNormaliser


class Action(NamedTuple):
    """One joint action: a level index per head, and its log-probability."""

    indices: tuple[int, ...]
    log_prob: float


class ControllerPolicy(PolicyModule):
    """Features [..., F] -> one hidden tanh layer -> one slope per head -> logits per head.

    The levels of a head are ordered from mild to hard, and its logits are ordinal:

        logit_j = slope(features) * level_j + offset_j,    level_j evenly spaced in [-1, 1].

    With concave offsets this is a bump whose centre the slope moves, so evidence about one level
    is evidence about its neighbours, and a head costs one output however many levels it has.
    Probabilities are joint, over the combinations that exist (`controller.policy.joint`).

    Args:
        sizes: levels per head.
        generator: of the initial weights.
        num_features: F.
        hidden: width of the hidden layer.

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
        self.num_features = num_features
        self.hidden = hidden
        self.normaliser = FeatureNormaliser(num_features)
        self.body = nn.Linear(num_features, hidden)
        self.slopes = nn.Linear(hidden, len(self.sizes))
        self.offsets = nn.Parameter(torch.zeros(sum(self.sizes)))
        self.levels: Tensor
        self.joint: Tensor
        self.register_buffer("levels", _level_matrix(self.sizes), persistent=False)
        self.register_buffer("joint", joint_matrix(self.sizes), persistent=False)
        for layer, gain in ((self.body, 1.0), (self.slopes, 0.01)):
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
            nn.init.zeros_(layer.bias)

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the logits of all heads side by side, [..., sum of sizes]."""
        hidden = torch.tanh(self.body(self.normaliser(vectors)))
        return self.slopes(hidden) @ self.levels + self.offsets

    def forward(self, vectors: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of each head, [..., size], for feature vectors [..., F]."""
        return torch.split(self.logits(vectors), list(self.sizes), dim=-1)

    def log_probs(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return joint log-probabilities [..., N] in the order of `Actions.all_indices`.

        Args:
            vectors: feature vectors [..., F].
            mask: which combinations exist, bool, of a shape that broadcasts; None: all.
        """
        return masked_log_softmax(self.logits(vectors) @ self.joint, mask)

    @torch.no_grad()
    def act(
        self,
        vector: np.ndarray,
        uniforms: np.ndarray | None = None,
        *,
        mask: np.ndarray | None = None,
    ) -> Action:
        """Choose an action for one feature vector [F].

        Args:
            vector: the features.
            uniforms: one number in [0, 1) per head, drawn by inverse CDF; 1 - u mirrors the draw.
                None takes the most likely action.
            mask: which combinations exist, bool [N]; None: all.
        """
        features = torch.as_tensor(np.asarray(vector, dtype=np.float32))
        exists = np.ones(self.joint.shape[1], dtype=bool) if mask is None else mask
        log_probs = self.log_probs(features.unsqueeze(0), torch.from_numpy(exists))[0]
        values = log_probs.double().numpy()
        if np.isnan(values).any() and bool(torch.isfinite(features).all()):
            raise ValueError("controller policy: its weights give logits that are not numbers")
        if uniforms is None:
            indices = tuple(int(i) for i in np.unravel_index(values.argmax(), self.sizes))
        else:
            indices = draw(np.exp(values), self.sizes, exists, uniforms)
        return Action(indices, float(values[np.ravel_multi_index(indices, self.sizes)]))

    def to_json(self) -> dict[str, Any]:
        """Return sizes and weights as plain numbers: what a worker process needs to act."""
        weights = {name: value.tolist() for name, value in self.state_dict().items()}
        return {"sizes": list(self.sizes), "hidden": self.hidden, "weights": weights}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a policy written by `to_json`.

        Raises:
            UserError: a weight is missing, unknown or has the wrong shape.
        """
        weights = {name: torch.tensor(value) for name, value in data["weights"].items()}
        try:
            policy = cls(
                data["sizes"],
                generator=torch.Generator(),
                num_features=weights["normaliser.mean"].numel(),
                hidden=data["hidden"],
            )
            policy.load_state_dict(weights)
        except (KeyError, RuntimeError) as error:
            raise UserError(
                f"controller policy: the weights do not fit: {one_line(error)}"
            ) from error
        return policy


def _level_matrix(sizes: Sequence[int]) -> Tensor:
    """Return [heads, sum of sizes]: row h holds the levels of head h in its own columns."""
    rows = [torch.linspace(-1.0, 1.0, size) if size > 1 else torch.zeros(1) for size in sizes]
    return torch.block_diag(*rows)


class LearnedStrategy:
    """A Strategy that takes a policy's most likely action, and holds it for a minimum time.

    Features that are not a number give the mildest decision.

    Args:
        policy: the controller's weights.
        actions: what its heads stand for.
        min_dwell_intervals: how long a decision is held at least.

    Raises:
        UserError: heads and action space do not fit, or the dwell is below 1.
    """

    def __init__(
        self, policy: ControllerPolicy, actions: Actions, *, min_dwell_intervals: int = 1
    ) -> None:
        """Check that policy and action space belong together."""
        if policy.sizes != actions.sizes:
            raise UserError(
                f"learned strategy: the policy has heads of {list(policy.sizes)} levels, "
                f"the action space {list(actions.sizes)}"
            )
        self.policy = policy
        self.actions = actions
        self._dwell = Dwell[Decision](min_dwell_intervals)

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec of the action space."""
        return self.actions.all_specs

    def reset(self) -> None:
        """Forget the decision that is being held."""
        self._dwell.reset()

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
        action = self.policy.act(features.vector)
        return self._dwell.settle(self.actions.decision(action.indices))[0]
