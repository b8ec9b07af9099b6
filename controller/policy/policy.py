"""ControllerPolicy: a factored categorical policy of a few hundred parameters, and its Strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from accerl.errors import UserError, one_line
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION, Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import Actions
from controller.policy.dwell import Dwell
from controller.policy.joint import draw, entropy_nats, joint_matrix, masked_log_softmax
from controller.policy.normalise import FeatureNormaliser, features_seen


class Action(NamedTuple):
    """One joint action: a level index per head, its log-probability and the policy's entropy."""

    indices: tuple[int, ...]
    log_prob: float
    entropy: float
    state: Tensor | None = None
    """what a recurrent policy remembers: to be given back at the next step of the episode"""


class ControllerPolicy(nn.Module):
    """Features [..., F] -> one hidden tanh layer -> one slope per head -> logits per head.

    The levels of a head are ordered from mild to hard, and its logits are ordinal:

        logit_j = slope(features) * level_j + offset_j,    level_j evenly spaced in [-1, 1].

    With concave offsets this is a bump whose centre the slope moves, so evidence about one level
    is evidence about its neighbours, and a head costs one output however many levels it has.
    Probabilities are joint, over the combinations that exist (`controller.policy.joint`).

    With `recurrent`, a GRU takes the place of the hidden layer. The last axis but one of feature
    vectors is then time within an episode, which starts with an empty memory; without, every
    vector stands for itself.

    Args:
        sizes: levels per head.
        generator: of the initial weights.
        num_features: F.
        hidden: width of the hidden layer; None: 8, or 4 if recurrent.
        features: the set of features it sees (`normalise.FEATURE_SETS`); the others change nothing.
        recurrent: whether it remembers.

    Raises:
        UserError: a head has no level, or there is no such set of features.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        generator: torch.Generator,
        num_features: int = len(FEATURE_NAMES),
        hidden: int | None = None,
        features: str = "all",
        recurrent: bool = False,
    ) -> None:
        """Start from the uniform policy: slopes near zero, offsets zero."""
        super().__init__()
        if not sizes or min(sizes) < 1:
            raise UserError(f"controller policy: every head needs a level, got sizes {list(sizes)}")
        self.sizes = tuple(int(size) for size in sizes)
        self.num_features = num_features
        self.hidden = (4 if recurrent else 8) if hidden is None else hidden
        seen = None if features == "all" else features_seen(features)
        self.normaliser = FeatureNormaliser(num_features, seen)
        self.body: nn.Linear | nn.GRU
        if recurrent:
            self.body = nn.GRU(num_features, self.hidden, batch_first=True)
        else:
            self.body = nn.Linear(num_features, self.hidden)
        self.slopes = nn.Linear(self.hidden, len(self.sizes))
        self.offsets = nn.Parameter(torch.zeros(sum(self.sizes)))
        self.levels: Tensor
        self.joint: Tensor
        self.strides: Tensor
        self.register_buffer("levels", _level_matrix(self.sizes), persistent=False)
        self.register_buffer("joint", joint_matrix(self.sizes), persistent=False)
        self.register_buffer("strides", _strides(self.sizes), persistent=False)
        with torch.no_grad():
            for parameter in self.body.parameters():
                if parameter.ndim == 2:
                    nn.init.orthogonal_(parameter, 1.0, generator=generator)
                else:
                    nn.init.zeros_(parameter)
            nn.init.orthogonal_(self.slopes.weight, 0.01, generator=generator)
            nn.init.zeros_(self.slopes.bias)

    @property
    def recurrent(self) -> bool:
        """Whether it remembers earlier steps of the episode."""
        return isinstance(self.body, nn.GRU)

    def unroll(self, vectors: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the logits of all heads side by side, [..., sum of sizes], and the new state.

        Args:
            vectors: feature vectors [..., F]; of a recurrent policy [K, F] or [episodes, K, F].
            state: what a recurrent policy remembers from before; None: nothing.
        """
        inputs = self.normaliser(vectors)
        if isinstance(self.body, nn.GRU):
            hidden, state = self.body(inputs, state)
        else:
            hidden = torch.tanh(self.body(inputs))
        return self.slopes(hidden) @ self.levels + self.offsets, state

    def forward(self, vectors: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of each head, [..., size], for feature vectors [..., F]."""
        return torch.split(self.unroll(vectors, None)[0], list(self.sizes), dim=-1)

    def log_probs(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return joint log-probabilities [..., N] in the order of `Actions.all_indices`.

        Args:
            vectors: feature vectors [..., F] as in `unroll`.
            mask: which combinations exist, bool, of a shape that broadcasts; None: all.
        """
        return masked_log_softmax(self.unroll(vectors, None)[0] @ self.joint, mask)

    def positions(self, indices: Tensor) -> Tensor:
        """Return the places [...] in `Actions.all_indices` of level indices [..., heads]."""
        return (indices * self.strides).sum(-1)

    def evaluate(
        self, vectors: Tensor, indices: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return joint log-probabilities and entropies, both [...], in nats.

        Args:
            vectors: feature vectors [..., F] as in `unroll`.
            indices: level indices [..., heads].
            mask: which combinations exist; see `log_probs`.
        """
        log_probs = self.log_probs(vectors, mask)
        place = self.positions(indices).unsqueeze(-1)
        return log_probs.gather(-1, place).squeeze(-1), entropy_nats(log_probs)

    def act(
        self,
        vector: np.ndarray,
        generator: np.random.Generator | None = None,
        *,
        mask: np.ndarray | None = None,
        state: Tensor | None = None,
    ) -> Action:
        """Draw an action for one feature vector [F]; without a generator, the most likely one.

        Args:
            vector: what it sees.
            generator: the dice.
            mask: which combinations exist, bool [N]; None: all.
            state: of the last `Action` of this episode; None at its start.
        """
        uniforms = None if generator is None else generator.random(len(self.sizes))
        return self._choose(vector, uniforms, mask, state)

    def sample(
        self,
        vector: np.ndarray,
        uniforms: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        state: Tensor | None = None,
    ) -> Action:
        """Draw by inverse CDF from one uniform in [0, 1) per head; 1 - u mirrors the draw."""
        return self._choose(vector, uniforms, mask, state)

    @torch.no_grad()
    def _choose(
        self,
        vector: np.ndarray,
        uniforms: np.ndarray | None,
        mask: np.ndarray | None,
        state: Tensor | None,
    ) -> Action:
        features = torch.as_tensor(np.asarray(vector, dtype=np.float32))
        logits, state = self.unroll(features.unsqueeze(0), state)
        exists = np.ones(self.joint.shape[1], dtype=bool) if mask is None else mask
        log_probs = masked_log_softmax((logits @ self.joint)[0], torch.from_numpy(exists))
        values = log_probs.double().numpy()
        if np.isnan(values).any() and bool(torch.isfinite(features).all()):
            raise ValueError("controller policy: its weights give logits that are not numbers")
        if uniforms is None:
            indices = tuple(int(i) for i in np.unravel_index(values.argmax(), self.sizes))
        else:
            indices = draw(np.exp(values), self.sizes, exists, uniforms)
        place = np.ravel_multi_index(indices, self.sizes)
        return Action(indices, float(values[place]), float(entropy_nats(log_probs)), state)

    def num_parameters(self) -> int:
        """Return the number of trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    def to_json(self) -> dict[str, Any]:
        """Return sizes and weights as plain numbers: what a worker process needs to act."""
        weights = {name: value.tolist() for name, value in self.state_dict().items()}
        return {"sizes": list(self.sizes), "hidden": self.hidden, "weights": weights}

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

        They tell the rest: whether it is recurrent, its width, and which features it sees.

        Raises:
            UserError: a tensor is missing, unknown or has the wrong shape.
        """
        recurrent = "body.weight_ih_l0" in weights
        body = weights.get("body.weight_ih_l0" if recurrent else "body.weight", torch.empty(0))
        rows, num_features = body.shape if body.ndim == 2 else (3, 1)
        policy = cls(
            sizes,
            generator=torch.Generator(),
            num_features=num_features,
            hidden=max(rows // 3, 1) if recurrent else rows,
            recurrent=recurrent,
        )
        try:
            policy.load_state_dict(dict(weights))
        except RuntimeError as error:
            raise UserError(
                f"controller policy: the weights do not fit: {one_line(error)}"
            ) from error
        return policy


def _level_matrix(sizes: Sequence[int]) -> Tensor:
    """Return [heads, sum of sizes]: row h holds the levels of head h in its own columns."""
    rows = [torch.linspace(-1.0, 1.0, size) if size > 1 else torch.zeros(1) for size in sizes]
    return torch.block_diag(*rows)


def _strides(sizes: Sequence[int]) -> Tensor:
    """Return [heads]: how many combinations one level of each head is away from the next."""
    return torch.tensor([int(np.prod(sizes[head + 1 :])) for head in range(len(sizes))])


class LearnedStrategy:
    """A Strategy that asks a controller policy, and holds each decision for a minimum time.

    Args:
        policy: the controller's weights.
        actions: what its heads stand for.
        sample_seed: draw decisions with this seed, the same dice for every run; None takes the
            most likely decision. Features that are not a number give the mildest one either way.
        min_dwell_intervals: how long a decision is held at least.
        mask: which combinations exist, bool [N] (`Actions.mask`); None: all.

    Raises:
        UserError: heads, mask and action space do not fit, or the dwell is below 1.
    """

    def __init__(
        self,
        policy: ControllerPolicy,
        actions: Actions,
        *,
        sample_seed: int | None = None,
        min_dwell_intervals: int = 1,
        mask: np.ndarray | None = None,
    ) -> None:
        """Check that policy and action space belong together."""
        if policy.sizes != actions.sizes:
            raise UserError(
                f"learned strategy: the policy has heads of {list(policy.sizes)} levels, "
                f"the action space {list(actions.sizes)}"
            )
        count = len(actions.all_specs)
        if mask is not None and (mask.shape != (count,) or not mask.any()):
            raise UserError(
                f"learned strategy: the mask must have one flag for each of {count} combinations, "
                f"and one of them set; got {int(mask.sum())} set in shape {list(mask.shape)}"
            )
        self.policy = policy
        self.actions = actions
        self.sample_seed = sample_seed
        self.mask = mask
        self._dwell = Dwell[Decision](min_dwell_intervals)
        self.reset()

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec of the action space that exists."""
        specs = self.actions.all_specs
        if self.mask is None:
            return specs
        return tuple(spec for spec, exists in zip(specs, self.mask, strict=True) if exists)

    def reset(self) -> None:
        """Forget the decision that is being held and pick up the first dice again."""
        seed = self.sample_seed
        self._dice = None if seed is None else np.random.default_rng(seed)
        self._dwell.reset()
        self._state: Tensor | None = None

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
        # Asked also while a decision is held: what remembers must see every interval.
        action = self.policy.act(features.vector, self._dice, mask=self.mask, state=self._state)
        self._state = action.state
        return self._dwell.settle(self.actions.decision(action.indices))[0]
