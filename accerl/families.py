"""Families: default configurations for any game, chosen by what its observations are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from accerl.compress.config import CompressionConfig
from accerl.config import RunConfig, RuntimeConfig
from accerl.envs import make_envs
from accerl.envs.config import EnvConfig
from accerl.envs.random_play import (
    measure_pixels,
    measure_returns,
    reaches,
)
from accerl.learner.config import LearnerConfig
from accerl.networks.observation import ATARI_STACK, ObservationSpec

SMALL_SIDE = 16
"""images with a longer side are shown like Atari's, unless `env` says otherwise"""
DARKEST = 32
"""an image of three channels that never reaches this holds codes, as of MiniGrid's cells, not red,
green and blue, and grey would mix them"""
LARGEST_VALUE = 20.0
"""that learning begins with: scores are recorded raw, but values of hundreds are learned slowly"""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What games with observations of one kind are trained with."""

    name: str
    network: str
    seconds: float
    learner: LearnerConfig
    runtime: RuntimeConfig
    compression: CompressionConfig


_BESIDE = RuntimeConfig(
    runtime="process",
    clock="real",
    num_actors=0,
    # An update is twelve gradient steps on 1,024 samples: actors must not lag many of those.
    queue_rollouts=0,
    publish_every=1,
    interval_seconds=5.0,
    eval_episodes=0,
)
PIXELS = Family(
    name="Atari pixels",
    network="net1",
    seconds=3600.0,
    learner=LearnerConfig(
        unroll=32,
        learning_rate=5e-4,
        # With V-trace the learner falls behind where small actors act, and is slow on Pong; that
        # its traces are cut where the two differ may be why (accerl/correct/README.md).
        corrector="importance",
        policy_loss="clipped",
        proximal="pass",
        normalise_advantages=True,
        # The paper's. With 0.01 Breakout may stay at 2.5 for 0.5M env steps, with 0.03 it leaves
        # that soonest and is slower later.
        entropy_cost=0.02,
        reuse=3,
        minibatches=4,
        precision="auto",
        life_loss_ends=True,
        anneal_updates=4000,  # 4.1M samples; Pong is learned in fewer, and better without (README)
    ),
    runtime=_BESIDE,
    compression=CompressionConfig(
        calibration_states=128,
        distill_states=16_384,
        distill_updates=12,
        # MinAtar Breakout: students follow at 0.06 to 0.08, with 0.5 at 0.10 to 0.13, and with 0 at
        # 0.04 to 0.08 for twenty times the distilling on the paper's machine.
        distill_rest_kl_nats=0.25,
        distill_batch=256,
        # With 1e-3 Net3 is slower to follow; networks pruned by half do not mind either.
        distill_learning_rate=2e-3,
        distill_precision="auto",
        distill_start="learner",
        # While the learner moves, a new copy is closer to it than what few updates can follow.
        distill_renew_every=16,
        distill_renew_share=0.0,
        prune_compensate=True,
        # Breakout: students that begin as copies take over at 0.03 (Net2) to 0.2 (Net3); one from
        # random weights stayed at 0.8, and scored a third of INT8 when it acted.
        admit_kl_nats=0.5,
    ),
)
# A student must follow a small network that changes fast: one update is not enough.
SMALL_COMPRESSION = CompressionConfig(
    distill_updates=4, distill_learning_rate=1e-2, distill_sync_every=1
)
SMALL_IMAGE = Family(
    name="small image",
    network="original",
    seconds=900.0,
    learner=LearnerConfig(
        unroll=32,
        learning_rate=1e-3,
        policy_loss="clipped",
        minibatches=4,
        normalise_advantages=True,
        value_cost=0.5,
        entropy_cost=0.02,  # with 0.01, one run of Breakout in three soon had no entropy left
    ),
    runtime=_BESIDE,
    compression=replace(SMALL_COMPRESSION, distill_learning_rate=3e-3),
)
VECTOR = Family(
    name="vector",
    network="original",
    seconds=300.0,
    learner=LearnerConfig(
        unroll=32,
        learning_rate=1e-3,
        policy_loss="clipped",
        normalise_advantages=True,
        reuse=4,  # with 2, LunarLander took twice as many env steps
        minibatches=4,
        discount=0.995,
        lam=0.98,
        value_cost=0.5,
        reward_clip=0.0,
        reward_scale=0.05,  # where random play earns nothing, see `_reward_scale`
    ),
    runtime=_BESIDE,
    compression=SMALL_COMPRESSION,
)


def family_of(observation: ObservationSpec) -> Family:
    """Return the family of a game that shows `observation`."""
    if observation.is_pixels:
        return PIXELS
    return SMALL_IMAGE if len(observation.shape) == 3 else VECTOR


def family_defaults(game: str, env: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a game without a preset, under the game's own name.

    Large images are shown like Atari's unless `env` says otherwise, or they hold codes in place of
    colours. What pixels are centred at and divided by, and what rewards that are not clipped count,
    is measured under random play.

    Args:
        game: an Atari game in snake case, or an id of Gymnasium's registry.
        env: settings of `EnvConfig` that are given.

    Raises:
        UserError: the game cannot be made, or nothing here can learn it.
    """
    view = _default_view(game, env)
    observation, _ = _look(game, view)
    family = family_of(observation)
    centre, unit = _pixels(game, view) if observation.dtype == "uint8" else (0, 255.0)
    return RunConfig(
        preset=game,
        game=game,
        network=family.network,
        pixel_centre=centre,
        pixel_unit=unit,
        seconds=family.seconds,
        env=view,
        learner=_scaled(game, view, family.learner, family),
        runtime=family.runtime,
        compression=family.compression,
    )


def with_reward_scale(config: RunConfig) -> RunConfig:
    """Return the configuration of a game without a preset, its rewards scaled as they count in it.

    Clipping and discounting decide how large values are, and may have been set since the game's
    defaults were measured.
    """
    family = family_of(shown(config))
    return replace(config, learner=_scaled(config.game, config.env, config.learner, family))


def describe_game(config: RunConfig) -> str:
    """Say in one line what a game shows, and which family's defaults it has."""
    observation, num_actions = _look(config.game, config.env)
    shape = "x".join(map(str, observation.shape))
    clip = config.learner.reward_clip
    rewards = f", rewards learned from are clipped to +-{clip:g}" if clip else ""
    return (
        f"{config.game}: observations {shape} {observation.dtype}, {num_actions} actions{rewards}; "
        f"defaults of the family {family_of(observation).name!r} (--print-config lists them, "
        "--set changes them)"
    )


def shown(config: RunConfig) -> ObservationSpec:
    """Return what a game shows with the configuration's settings of `env`."""
    return _look(config.game, config.env)[0]


def _default_view(game: str, given: Mapping[str, Any]) -> EnvConfig:
    """Return how a game is shown: large images like Atari's, but for what is given."""
    env = EnvConfig(**given)
    alone, stack = (_look(game, each)[0] for each in (replace(env, frame_stack=1), env))
    if len(alone.shape) != 3:
        return env
    # Not those of `alone`: without any setting ale-py shows small grey stacks, with one its frames.
    frame = (stack.shape[0] // env.frame_stack, *stack.shape[1:])
    if ATARI_STACK in (frame, stack.shape) or max(frame[1:]) <= SMALL_SIDE:
        return env
    colours = frame[0] == 3
    if colours and stack.dtype == "uint8" and not _has_colours(game, env):
        return env
    view = {"resize": ATARI_STACK[1], "grayscale": colours, "frame_stack": 4}
    return EnvConfig(**{**view, **given})


@cache
def _look(game: str, env: EnvConfig) -> tuple[ObservationSpec, int]:
    """Make the game once; return what it shows, and how many actions it has."""
    envs = make_envs(game, 1, env)
    envs.close()
    return envs.observation, envs.num_actions


@cache
def _has_colours(game: str, env: EnvConfig) -> bool:
    return reaches(game, env, DARKEST)


@cache
def _pixels(game: str, env: EnvConfig) -> tuple[int, float]:
    """Return what `measure_pixels` does, to two decimals or digits."""
    centre, unit = measure_pixels(game, env)
    return centre, round(unit, 2) if unit >= 1.0 else float(f"{unit:.2g}")


def _scaled(game: str, env: EnvConfig, learner: LearnerConfig, family: Family) -> LearnerConfig:
    if learner.reward_clip:
        return replace(learner, reward_scale=1.0 / learner.reward_clip)
    scale = _reward_scale(game, env, learner.discount)
    return replace(learner, reward_scale=scale or family.learner.reward_scale)


@cache
def _reward_scale(game: str, env: EnvConfig, discount: float) -> float | None:
    """Return 1, 2 or 5 times a power of ten, at most 1: values begin below `LARGEST_VALUE`.

    None: random play earns nothing. With rewards far below 1, what an untrained network says of the
    states at which an episode was cut off drowns them, and policies learn to be cut off.
    """
    largest = measure_returns(game, env, discount=discount)
    if largest == 0.0:
        return None
    most = LARGEST_VALUE / largest
    if most >= 1.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    # Just below a power of ten, the logarithm may be rounded to it.
    step = max((step for step in (1, 2, 5) if step * power <= most), default=1)
    return float(f"{power * step:.0e}")
