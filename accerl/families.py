"""Families: default configurations for any game, chosen by what its observations are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from accerl.compress.config import CompressionConfig
from accerl.config import RunConfig, RuntimeConfig
from accerl.envs import make_envs, measure_pixels
from accerl.envs.config import EnvConfig
from accerl.learner.config import LearnerConfig
from accerl.networks.observation import ObservationSpec

SMALL_SIDE = 16
"""images with a longer side are shown like Atari's, unless `env` says otherwise"""
ATARI_VIEW = {"grayscale": True, "resize": 84, "frame_stack": 4}


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
        policy_loss="clipped",
        proximal="pass",
        normalise_advantages=True,
        reuse=3,
        minibatches=4,
        precision="bf16",
        life_loss_ends=True,
        anneal_updates=4000,  # 4.1M samples; Pong is learned in fewer, and better without (README)
    ),
    runtime=_BESIDE,
    compression=CompressionConfig(
        calibration_states=128,
        distill_states=16_384,
        distill_updates=2,
        distill_batch=128,
        distill_precision="bf16",
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
        # Scores are recorded raw; learned values of a few hundred points stay near 10.
        reward_clip=0.0,
        reward_scale=0.05,
    ),
    runtime=_BESIDE,
    compression=SMALL_COMPRESSION,
)


@dataclass(frozen=True)
class _View:
    """A game as its networks see it."""

    env: EnvConfig
    observation: ObservationSpec
    num_actions: int
    pixel_centre: int
    pixel_unit: float


def family_of(observation: ObservationSpec) -> Family:
    """Return the family of a game that shows `observation`."""
    if observation.is_pixels:
        return PIXELS
    return SMALL_IMAGE if len(observation.shape) == 3 else VECTOR


def family_defaults(game: str, env: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a game without a preset, under the game's own name.

    Large images are shown like Atari's unless `env` says otherwise. What pixels are centred at and
    divided by is measured under random play.

    Args:
        game: an Atari game in snake case, or an id of Gymnasium's registry.
        env: settings of `EnvConfig` that are given.

    Raises:
        UserError: the game cannot be made, or nothing here can learn it.
    """
    view = _look(game, EnvConfig(**env), frozenset(env))
    family = family_of(view.observation)
    return RunConfig(
        preset=game,
        game=game,
        network=family.network,
        pixel_centre=view.pixel_centre,
        pixel_unit=view.pixel_unit,
        seconds=family.seconds,
        env=view.env,
        learner=family.learner,
        runtime=family.runtime,
        compression=family.compression,
    )


def describe_game(config: RunConfig) -> str:
    """Say in one line what a game shows, and which family's defaults it has."""
    view = _look(config.game, config.env, frozenset(vars(config.env)))
    observation = view.observation
    shape = "x".join(map(str, observation.shape))
    return (
        f"{config.game}: observations {shape} {observation.dtype}, {view.num_actions} actions; "
        f"defaults of the family {family_of(observation).name!r} (--print-config lists them, "
        "--set changes them)"
    )


def shown(config: RunConfig) -> ObservationSpec:
    """Return what a game shows with the configuration's settings of `env`."""
    return _look(config.game, config.env, frozenset(vars(config.env))).observation


@cache
def _look(game: str, env: EnvConfig, given: frozenset[str]) -> _View:
    """Make the game once to see what it shows; `given` are the settings that must stay."""
    envs = make_envs(game, 1, env)
    envs.close()
    shape = envs.observation.shape
    if len(shape) == 3 and shape[1:] != (84, 84) and max(shape[1:]) > SMALL_SIDE:
        colours = shape[0] == 3 * env.frame_stack
        view = {
            name: value
            for name, value in ATARI_VIEW.items()
            if name not in given and (name != "grayscale" or colours)
        }
        if view:
            return _look(game, replace(env, **view), given | frozenset(view))
    centre, unit = 0, 255.0
    if envs.observation.dtype == "uint8":
        centre, unit = measure_pixels(game, env)
    return _View(env, envs.observation, envs.num_actions, centre, round(unit, 2))
