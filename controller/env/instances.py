"""Instances of the outer problem: which game, on which machine, from which seed; and their splits.

A controller is to be good at games and on machines that it was not trained on: no game and no seed
is in two splits, the test's latency profiles are in no other, and one of validation's not in train.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Protocol

from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.errors import UserError, did_you_mean
from accerl.presets import load_preset
from accerl.runtime.latency.predict import uncompressed_seconds_per_step
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import InnerRun
from accerl.seeds import Role, generator
from accerl.spec import CompressionSpec
from controller.analytic.model import AnalyticConfig, sample_config
from controller.analytic.run import AnalyticRun
from controller.env.compatibility import incompatibility
from controller.env.references import load_reference
from controller.objective import GameReference, num_intervals

ANALYTIC_HORIZON_SECONDS = 60.0
ANALYTIC_INTERVAL_SECONDS = 3.0


def _any_spec(spec: CompressionSpec) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One outer task: a game on a machine, with everything an episode needs.

    Picklable if its functions are, so that copies of an environment can live in other processes.

    Raises:
        UserError: horizon and interval do not fit.
    """

    name: str
    make_run: Callable[[int], InnerRun] = field(repr=False)
    """returns the inner run of a seed"""
    reference: GameReference
    """the game's scale of scores"""
    horizon_seconds: float
    """length of an episode on the run's clock"""
    interval_seconds: float
    """length of one step"""
    seed: int | None = None
    """of the inner run; None: whatever seed the environment is reset with"""
    has: Callable[[CompressionSpec], bool] = field(default=_any_spec, repr=False)
    """whether its actors can act with a spec"""

    def __post_init__(self) -> None:
        num_intervals(self.horizon_seconds, self.interval_seconds)


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
        seeds=range(100, 120),
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
INTERVALS = 12
"""decisions per episode"""
TIERS = ("analytic", "virtual", "real")


def find_split(name: str) -> Split:
    """Return a split by name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in SPLITS:
        raise UserError(f"split {name!r} does not exist; {did_you_mean(name, list(SPLITS))}")
    return SPLITS[name]


def choose_horizon(
    config: RunConfig, profile: LatencyProfile, env_steps: int, intervals: int = INTERVALS
) -> tuple[float, float]:
    """Return horizon and interval: the seconds that `env_steps` take without compression.

    The interval is rounded to two digits, and the horizon is `intervals` of them.

    Args:
        config: the inner run.
        profile: of its machine, as any learner's (`LatencyProfile.for_network` is applied here).
        env_steps: environment steps of the whole run.
        intervals: decisions of the whole run.
    """
    per_step = uncompressed_seconds_per_step(profile.for_network(config.network), config)
    interval = float(f"{env_steps * per_step / intervals:.2g}")
    return interval * intervals, interval


def game_instance(
    config: RunConfig,
    profile: LatencyProfile,
    *,
    reference: GameReference,
    horizon_seconds: float,
    interval_seconds: float,
    tier: str = "virtual",
    seed: int | None = None,
) -> Instance:
    """Return the outer task of a real game.

    Args:
        config: the inner run; its seed, length and interval are replaced.
        profile: charges the virtual clock.
        reference: the game's scale of scores.
        horizon_seconds: length of an episode.
        interval_seconds: length of one step.
        tier: virtual (serial runtime, virtual clock) or real (process runtime, real clock).
        seed: see `Instance.seed`.
    """
    config = replace(config, seconds=horizon_seconds)
    config = config.with_runtime(interval_seconds=interval_seconds)
    real = tier == "real"
    config = config.with_runtime(
        runtime="process" if real else "serial", clock="real" if real else "virtual"
    )
    name = f"{config.game}-{profile.name}"
    return Instance(
        name=name if seed is None else f"{name}-{seed}",
        make_run=partial(_run_game, config, None if real else profile),
        reference=reference,
        horizon_seconds=horizon_seconds,
        interval_seconds=interval_seconds,
        seed=seed,
        has=partial(can_act, config.network, None if real else profile.for_network(config.network)),
    )


def _run_game(config: RunConfig, profile: LatencyProfile | None, seed: int) -> InnerRun:
    from accerl.training import make_run  # brings torch and ONNX, which tier 0 does without

    return make_run(replace(config, seed=seed), profile)


def can_act(network: str, profile: LatencyProfile | None, spec: CompressionSpec) -> bool:
    """Whether actors beside a learner of `network` can act with `spec`, and it has a price."""
    return incompatibility(network, profile, spec) is None


@cache
def num_actions(game: str) -> int:
    """Return the number of actions of a game."""
    envs = make_envs(game, 1)
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
    config, latency = load_preset(game), load_profile(profile)
    horizon, interval = choose_horizon(config, latency, ENV_STEPS[game])
    return game_instance(
        config,
        latency,
        reference=load_reference(game),
        horizon_seconds=horizon,
        interval_seconds=interval,
        tier=tier,
        seed=seed,
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
            name = instance.name.removesuffix(f"-{first}")
            instances.append(instance)
            instances += [replace(instance, name=f"{name}-{seed}", seed=seed) for seed in others]
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


def analytic_instance(
    config: AnalyticConfig, name: str = "analytic", seed: int | None = None
) -> Instance:
    """Return the outer task of an analytic game; every spec can act in it."""
    return Instance(
        name=name,
        make_run=partial(AnalyticRun, config),
        reference=config.reference,
        horizon_seconds=ANALYTIC_HORIZON_SECONDS,
        interval_seconds=ANALYTIC_INTERVAL_SECONDS,
        seed=seed,
    )


class Instances(Protocol):
    """What an environment picks from: a list, or instances that are made when asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Instance: ...


class AnalyticInstances:
    """The instances of a split on tier 0: 2^31 random games and machines, made when asked for.

    Number i is drawn from the seed sequence (split, i), so splits have no game in common.

    Raises:
        UserError: the split does not exist.
    """

    def __init__(self, split: str) -> None:
        find_split(split)
        self.split = split

    def __len__(self) -> int:
        return 2**31

    def __getitem__(self, number: int, /) -> Instance:
        if not 0 <= number < len(self):
            raise IndexError(f"analytic instance {number} is not in 0..{len(self) - 1}")
        rng = generator(number, Role.ANALYTIC_GAME, list(SPLITS).index(self.split))
        return analytic_instance(sample_config(rng), f"analytic-{self.split}-{number}", number)
