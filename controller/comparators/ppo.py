"""PPO of Stable-Baselines3 on the control environment: what anybody would train there first.

Trained it is plain numbers: it acts, and is saved as JSON, without Stable-Baselines3 and without a
pickle. `sb3_training` trains it, and is imported only then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION, Features
from accerl.spec import CompressionSpec, Decision
from controller.actions import PresetActions
from controller.env.instances import Instance, Instances
from controller.env.play import Played, play

Layer = tuple[np.ndarray, np.ndarray]
"""weight [out, in] and bias [out]"""


@dataclass(frozen=True, eq=False)
class PPOStrategy:
    """A Strategy that takes the most likely spec of PPO's actor, of those that exist.

    Features that are not a number give the first spec that exists.

    Raises:
        UserError: no spec exists, or the layers do not lead from the features to the specs.
    """

    name: ClassVar[str] = "sb3-ppo"
    actions: PresetActions
    """the specs, a logit each"""
    layers: tuple[Layer, ...]
    """of the actor; tanh between them"""
    exists: tuple[bool, ...]
    """which of the specs actors can act with"""

    def __post_init__(self) -> None:
        sizes = [len(FEATURE_NAMES), *(len(bias) for _, bias in self.layers)]
        shapes = [weight.shape for weight, _ in self.layers]
        fits = shapes == list(zip(sizes[1:], sizes[:-1], strict=True))
        if not fits or sizes[-1] != len(self.actions.specs):
            raise UserError(
                f"{self.name}: layers of {shapes} do not lead from {len(FEATURE_NAMES)} features "
                f"to {len(self.actions.specs)} specs"
            )
        if len(self.exists) != len(self.actions.specs) or not any(self.exists):
            raise UserError(f"{self.name}: none of its specs exists; it has {self.actions.levels}")

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Those that exist."""
        pairs = zip(self.actions.specs, self.exists, strict=True)
        return tuple(spec for spec, exists in pairs if exists)

    def reset(self) -> None:
        """Nothing to forget."""

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval."""
        values = features.vector.astype(np.float32)
        for place, (weight, bias) in enumerate(self.layers):
            values = weight @ (np.tanh(values) if place else values) + bias
        best = np.argmax(np.where(self.exists, np.nan_to_num(values), -np.inf))
        return Decision.of(self.actions.specs[best])

    def where(self, has: Callable[[CompressionSpec], bool]) -> PPOStrategy:
        """Return it for a run in which only some specs exist."""
        exists = tuple(map(has, self.actions.specs))
        return PPOStrategy(self.actions, self.layers, exists)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"name": ..., "policy": {...}}``, as a study's jobs describe it."""
        layers = [{"weight": w.tolist(), "bias": b.tolist()} for w, b in self.layers]
        specs = [spec.to_json() for spec in self.actions.specs]
        policy = {"features_version": FEATURES_VERSION, "specs": specs, "layers": layers}
        return {"name": self.name, "policy": policy}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PPOStrategy:
        """Read what `to_json` wrote; all specs exist.

        Raises:
            UserError: it was trained on features of another version, or is damaged.
        """
        try:
            policy = data["policy"]
            version = policy["features_version"]
            specs = tuple(map(CompressionSpec.from_json, policy["specs"]))
            pairs = [(item["weight"], item["bias"]) for item in policy["layers"]]
            layers = [(np.array(w, dtype=np.float32), np.array(b, np.float32)) for w, b in pairs]
            if version == FEATURES_VERSION:
                return cls(PresetActions(specs), tuple(layers), (True,) * len(specs))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{cls.name}: its JSON is incomplete or mistyped ({error!r})"
            ) from error
        raise UserError(
            f"{cls.name}: it was trained on features of version {version}, these are of version "
            f"{FEATURES_VERSION}"
        )

    def play(self, instance: Instance, seed: int) -> Played:
        """Return what one inner run comes to."""
        return play(self.where(instance.has), instance, seed)


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """How PPO is trained; what is not here is as Stable-Baselines3 has it.

    Raises:
        UserError: a count is below 1.
    """

    episodes: int = 8
    """inner runs of each update"""
    epochs: int = 10
    minibatches: int = 4
    learning_rate: float = 1e-3
    target_kl_nats: float = 0.03
    """from the policy that collected; an update that has come so far takes no further epoch"""
    entropy: float = 0.01
    """weight of the policy's entropy"""
    hidden: tuple[int, ...] = (64, 64)
    """widths of the actor's hidden layers, and of the critic's"""
    checks: int = 3
    """how often, evenly spread, the policy is validated; the best one is the result"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name in ("episodes", "epochs", "minibatches", "checks"):
            if getattr(self, name) < 1:
                raise UserError(f"{PPOStrategy.name}: {name} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class TrainedPPO:
    """What training brought, and what it cost."""

    strategy: PPOStrategy
    inner_runs: int
    """that it learned from"""
    simulated_runs: int
    """of tier 0, that it learned from before"""
    validation_runs: int
    """that chose among its states"""
    scores: tuple[float, ...]
    """mean score of the validation runs, at every check"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            **vars(self),
            "strategy": self.strategy.to_json(),
            "scores": list(self.scores),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainedPPO:
        """Read what `to_json` wrote."""
        strategy = PPOStrategy.from_json(data["strategy"])
        return cls(**{**data, "strategy": strategy, "scores": tuple(data["scores"])})


Score = Callable[[Instance, Played], float]
"""of a run"""


def in_units(instance: Instance, played: Played) -> float:
    """Return the discounted gain of a run, in the instance's unit of gains."""
    return played.gain(instance) / instance.fp32_gain


def check_installed() -> None:
    """Refuse to train where that cannot be done.

    Raises:
        UserError: Stable-Baselines3 is not installed.
    """
    if find_spec("stable_baselines3") is None:
        raise UserError(
            f"training {PPOStrategy.name} needs Stable-Baselines3: pip install stable-baselines3"
        )


def train_ppo(
    instances: Sequence[Instance],
    specs: Sequence[CompressionSpec],
    *,
    seeds: Sequence[int],
    validation: Sequence[tuple[Instance, int]],
    inner_runs: int,
    seed: int,
    config: PPOConfig | None = None,
    simulated: Instances | None = None,
    simulated_runs: int = 0,
    score: Score = in_units,
) -> TrainedPPO:
    """Train PPO with at most so many inner runs, those of validation among them.

    It maximises the outer objective itself: rewards are discounted by the clock and end at the
    horizon, in units of the instance's fp32 gain. Specs that do not exist are masked. Equal
    arguments give equal strategies on tiers analytic and virtual.

    Args:
        instances: what it is trained on.
        specs: what it chooses from.
        seeds: of the inner runs; turns are passes over instances and seeds in random order.
        validation: instances and seeds of one check.
        inner_runs: of training and validation together; where instances have different numbers of
            intervals, about so many.
        seed: of PPO's own random numbers.
        config: None: `PPOConfig()`.
        simulated: instances of tier 0, drawn from the seed, that it is trained on first; what it
            is then is validated too, if there is more than one check.
        simulated_runs: how many runs of them, each beside one without compression, if they have
            as many intervals as `instances`.
        score: by whose mean a check is judged; more is better.

    Raises:
        UserError: Stable-Baselines3 is not installed, or there are too few inner runs.
    """
    check_installed()
    from controller.comparators.sb3_training import Training

    config = config or PPOConfig()
    if not instances or not seeds or not validation:
        raise UserError(f"{PPOStrategy.name}: give instances, seeds and validation runs")
    validated = config.checks * len(validation)
    updates = (inner_runs - validated) // config.episodes
    if updates < config.checks:
        raise UserError(
            f"{PPOStrategy.name}: {inner_runs} inner runs are too few for {config.checks} checks "
            f"of {len(validation)} runs and as many updates of {config.episodes}; "
            f"{validated + config.checks * config.episodes} is the least"
        )
    actions = PresetActions(tuple(specs))
    rehearsed = 0 if simulated is None else simulated_runs // config.episodes
    training = Training(instances, actions, seeds, seed, config, simulated if rehearsed else None)
    if rehearsed:
        training.rehearse(rehearsed)
    first = int(rehearsed == 0 or config.checks == 1)  # else what it is then is checked as well
    last = config.checks - 1 + first
    done = 0
    checked: list[tuple[float, PPOStrategy]] = []
    for check in range(first, last + 1):
        due = updates * check // last
        if due > done:
            training.learn(due - done)
        done = due
        strategy = training.strategy()
        scores = [score(instance, strategy.play(instance, own)) for instance, own in validation]
        checked.append((float(np.mean(scores)), strategy))
    training.close()
    _, best = max(checked, key=lambda item: item[0])
    return TrainedPPO(
        strategy=best,
        inner_runs=training.inner_runs,
        simulated_runs=rehearsed * config.episodes,
        validation_runs=validated,
        scores=tuple(mean for mean, _ in checked),
    )
