"""Instances of the outer problem: which game, on which machine, from which seed; and their splits.

A controller is to be good at games and on machines that it was not trained on: no game and no seed
is in two splits, the test's latency profiles are in no other, and one of validation's not in train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Protocol

from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.errors import UserError, did_you_mean
from accerl.families import PIXELS
from accerl.presets import load_preset
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import uncompressed_seconds_per_step
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import InnerRun
from accerl.spec import CompressionSpec
from controller.env.compatibility import incompatibility
from controller.env.references import load_reference
from controller.objective import TIERS, GameReference, num_intervals


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A game on a machine: one task of the outer problem.

    Seconds are those of the run's clock. `to_json` leaves out `latency` and `base`, which a job
    or a study stores once for all its instances.

    Raises:
        UserError: horizon and interval do not fit.
    """

    not_in_json: ClassVar[tuple[str, ...]] = ("latency", "base")
    """fields that are no plain data"""
    game: str
    profile: str = ""
    """name of the latency profile"""
    horizon_seconds: float
    """length of an episode"""
    interval_seconds: float
    """length of one step"""
    first_interval_seconds: float = 0.0
    """length of the first step, at most that of the others; 0: as long as they are"""
    random_return: float = 0.0
    """score of random play"""
    reference_return: float = 1.0
    """score of uncompressed training"""
    target_return: float = 1.0
    """score that seconds to target are counted to"""
    fp32_gain: float = 1.0
    """discounted gain of uncompressed runs on this machine: the unit of gains"""
    limit: str = ""
    """what limits it without compression: actors, learner, emulator, network or cores"""
    group: str = ""
    """trained, new machine, new game, or new game and machine"""
    fp32_returns: tuple[float, ...] = ()
    """final returns of the reference runs"""
    seed: int | None = None
    """of the inner run; None: whatever seed the environment is reset with"""
    tier: str = "virtual"
    """virtual (serial runtime, virtual clock) or real (process runtime, real clock)"""
    latency: LatencyProfile | None = field(default=None, repr=False, compare=False)
    """charges the virtual clock"""
    base: RunConfig | None = field(default=None, repr=False, compare=False)
    """the inner run, but for seed, length and clock; None: the game's preset"""

    def __post_init__(self) -> None:
        num_intervals(*self.lengths)

    @property
    def lengths(self) -> tuple[float, float, float]:
        """Horizon, interval and first interval, in seconds; see `objective.num_intervals`."""
        return self.horizon_seconds, self.interval_seconds, self.first_interval_seconds

    @property
    def num_intervals(self) -> int:
        """Steps of an episode."""
        return num_intervals(*self.lengths)

    @property
    def name(self) -> str:
        """A name for folders, rows and figures."""
        parts = (self.game, self.profile, "" if self.seed is None else str(self.seed))
        return "-".join(part for part in parts if part)

    @property
    def reference(self) -> GameReference:
        """The game's scale of scores."""
        return GameReference(self.random_return, self.reference_return)

    def config(self, seed: int) -> RunConfig:
        """Return the inner run of `seed`."""
        real = self.tier == "real"
        base = self.base or load_preset(self.game)
        return replace(base, seed=seed, seconds=self.horizon_seconds).with_runtime(
            interval_seconds=self.interval_seconds,
            first_interval_seconds=self.first_interval_seconds,
            runtime="process" if real else "serial",
            clock="real" if real else "virtual",
        )

    def make_run(self, seed: int) -> InnerRun:
        """Start the inner run of `seed`."""
        from accerl.training.run import make_run  # brings torch and ONNX, which tier 0 does without

        return make_run(self.config(seed), None if self.tier == "real" else self.latency)

    def has(self, spec: CompressionSpec) -> bool:
        """Whether actors can act with `spec` beside this learner, and it has a price."""
        config = self.base or load_preset(self.game)
        latency = None if self.tier == "real" else self.latency
        times = latency and times_of_run(latency, config)
        return incompatibility(config.network, times, spec) is None

    def to_json(self) -> dict[str, Any]:
        """Return all that is plain data."""
        names = [item.name for item in fields(self) if item.name not in self.not_in_json]
        data = {name: getattr(self, name) for name in names}
        if not self.first_interval_seconds:  # the results that studies have saved know of none
            del data["first_interval_seconds"]
        return {**data, "fp32_returns": list(self.fp32_returns)}


@dataclass(frozen=True, kw_only=True)
class Split:
    """Games, latency profiles and inner seeds that belong together; an instance is one of each."""

    games: tuple[str, ...]
    profiles: tuple[str, ...]
    seeds: range


SPLITS = {
    "train": Split(
        games=("catch", "cartpole"),
        profiles=("paper-1080ti", "slow-env", "learner-bound"),
        seeds=range(10),
    ),
    "validation": Split(
        games=("minatar-breakout",),
        profiles=("two-core", "paper-1080ti"),
        seeds=range(50, 60),
    ),
    "test": Split(
        games=("acrobot", "minatar-space-invaders"),
        profiles=("gpu-learner", "edge"),
        seeds=range(100, 200),
    ),
}
ENV_STEPS = {
    "catch": 30_000,
    "cartpole": 100_000,
    "acrobot": 150_000,
    "minatar-breakout": 200_000,
    "minatar-freeway": 200_000,
    "minatar-space-invaders": 200_000,
}
"""by game: environment steps that uncompressed actors make within the horizon"""
EVAL_EPISODES = 8
"""of each measurement of J, in games whose configuration measures none: they cost more than the run
itself where episodes are long, and what is saved pays for seeds, which tell more"""
INTERVALS = 12
"""decisions per episode"""


def find_split(name: str) -> Split:
    """Return a split by name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in SPLITS:
        raise UserError(f"split {name!r} does not exist; {did_you_mean(name, list(SPLITS))}")
    return SPLITS[name]


def choose_horizon(
    config: RunConfig, profile: LatencyProfile, env_steps: int
) -> tuple[float, float]:
    """Return horizon and interval: the seconds that `env_steps` take without compression.

    The interval is rounded to two digits, and the horizon is `INTERVALS` of them.

    Args:
        config: the inner run.
        profile: of its machine, as any learner's (`times_of_run` is applied here).
        env_steps: environment steps of the whole run.
    """
    per_step = uncompressed_seconds_per_step(times_of_run(profile, config), config)
    interval = float(f"{env_steps * per_step / INTERVALS:.2g}")
    return interval * INTERVALS, interval


def measured_preset(game: str) -> RunConfig:
    """Return a game's preset; one that measures no J does so here: rewards are its differences."""
    return _measured(load_preset(game))


def _measured(config: RunConfig) -> RunConfig:
    if config.runtime.eval_episodes:
        return config
    return config.with_runtime(eval_episodes=EVAL_EPISODES)


def keeping_pace(config: RunConfig) -> RunConfig:
    """Return a run whose students follow and take over as Atari's do, measured by the learner.

    Atari's preset distils on as many states, and in as many steps, as its learner takes gradient
    steps on, at most: 12 x 256 an update; what is close to the learner rests. Its students and
    pruned networks begin as fitted copies of the learner, and act once they are admitted. Small
    games are content with half of the distilling or less, and their students act from random
    weights after a short warm-up. Where they stand in for real games and are charged the times of
    real networks, students would look cheaper than they are while they act, and changing to one
    dearer.
    """
    learner = config.learner
    samples = config.runtime.num_envs * learner.unroll
    compression = replace(
        config.compression,
        distill_updates=learner.reuse * learner.minibatches,
        distill_batch=samples // learner.minibatches,
        **{name: getattr(PIXELS.compression, name) for name in _TAKING_OVER},
    )
    return replace(config, compression=compression)


_TAKING_OVER = (
    "distill_rest_kl_nats",
    "distill_start",
    "distill_renew_every",
    "distill_renew_share",
    "prune_compensate",
    "admit_kl_nats",
)
"""how Atari's students rest, begin, begin anew, and are admitted"""


def make_instance(
    game: str,
    latency: LatencyProfile,
    env_steps: int,
    *,
    base: RunConfig | None = None,
    **fields: Any,
) -> Instance:
    """Return a game on a machine for as long as uncompressed actors take for `env_steps`.

    Args:
        game: a preset, or any other game, see `load_preset`.
        latency: of the machine.
        env_steps: environment steps of the whole run.
        base: its configuration, such as one with a network of your own; None: the game's preset. J
            is measured in either.
        fields: others of `Instance`.

    Raises:
        UserError: the profile has no times for the network or the game.
    """
    config = _measured(base or load_preset(game))
    if base is not None or config != load_preset(game):
        fields["base"] = config
    horizon, interval = choose_horizon(config, latency, env_steps)
    lengths = {"horizon_seconds": horizon, "interval_seconds": interval}
    return Instance(game=game, profile=latency.name, latency=latency, **lengths, **fields)


@cache
def num_actions(game: str) -> int:
    """Return the number of actions of a game."""
    config = load_preset(game)
    envs = make_envs(config.game, 1, config.env)
    envs.close()
    return envs.num_actions


def find_instance(game: str, profile: str, seed: int, tier: str = "virtual") -> Instance:
    """Return the instance of a game, a latency profile (by name or path) and an inner seed.

    On tier real the profile sets the horizon alone: a machine's own makes its seconds comparable.

    Raises:
        UserError: tier, game or profile does not exist.
    """
    if tier not in TIERS[1:]:
        raise UserError(f"tier {tier!r} plays no games; {did_you_mean(tier, list(TIERS[1:]))}")
    if game not in ENV_STEPS:
        raise UserError(f"game {game!r} has no instances; {did_you_mean(game, list(ENV_STEPS))}")
    scale = load_reference(game).to_json()
    return make_instance(
        game, load_profile(profile), ENV_STEPS[game], tier=tier, seed=seed, **scale
    )


def split_instances(
    split: str,
    games: Sequence[str] | None = None,
    profiles: Sequence[str] | None = None,
    tier: str = "virtual",
) -> list[Instance]:
    """Return the instances of a split, by game, then profile, then seed.

    Args:
        split: train, validation or test.
        games: only these games of the split; None: all.
        profiles: only these latency profiles of the split; None: all.
        tier: virtual or real.

    Raises:
        UserError: the split does not exist, or has no such game or profile.
    """
    found = find_split(split)
    chosen_games = _chosen("game", split, found.games, games)
    chosen_profiles = _chosen("profile", split, found.profiles, profiles)
    first, *others = found.seeds
    instances = []
    for game in chosen_games:
        for profile in chosen_profiles:
            instance = find_instance(game, profile, first, tier)
            instances += [instance, *(replace(instance, seed=seed) for seed in others)]
    return instances


def _chosen(
    kind: str, split: str, allowed: tuple[str, ...], names: str | Sequence[str] | None
) -> Sequence[str]:
    if names is None:
        return allowed
    names = (names,) if isinstance(names, str) else names
    if not names:
        raise UserError(f"split {split!r}: no {kind} is left; allowed: {', '.join(allowed)}")
    for name in names:
        if name not in allowed:
            hint = did_you_mean(name, list(allowed))
            raise UserError(f"split {split!r} has no {kind} {name!r}; {hint}")
    return names


class Instances(Protocol):
    """What an environment picks from: a list, or instances that are made when asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Instance: ...
