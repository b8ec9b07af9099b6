"""Presets: tuned configurations by name, as plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from accerl.compress.config import CompressionConfig
from accerl.config import RunConfig, RuntimeConfig
from accerl.envs.minatar import MINATAR_GAMES
from accerl.families import PIXELS, SMALL_COMPRESSION, SMALL_IMAGE, family_defaults
from accerl.learner.config import LearnerConfig

_SMALL_RUNTIME = RuntimeConfig(
    num_envs=32, queue_rollouts=1, publish_every=2, interval_seconds=1.0, eval_episodes=64
)
_CARTPOLE_LEARNER = LearnerConfig(
    unroll=32,
    learning_rate=1e-3,
    policy_loss="clipped",
    clip_ratio=0.1,
    minibatches=4,
    normalise_advantages=True,
    lam=0.98,
    value_cost=0.5,
    # Episodes of up to 500 points: keeps values near 10, where one learning rate fits all.
    reward_scale=0.1,
)
_MINATAR_RUNTIME = replace(_SMALL_RUNTIME, interval_seconds=30.0, eval_episodes=16)


def _minatar(game: str) -> RunConfig:
    """Return the preset of a MinAtar game; 10x10 boards need no pixel statistics."""
    return RunConfig(
        preset=game,
        game=game,
        seconds=SMALL_IMAGE.seconds,
        learner=SMALL_IMAGE.learner,
        runtime=_MINATAR_RUNTIME,
        compression=SMALL_IMAGE.compression,
    )


def _atari(
    game: str,
    *,
    pixel_centre: int,
    pixel_unit: float,
    seconds: float = PIXELS.seconds,
    anneal_updates: int = PIXELS.learner.anneal_updates,
) -> RunConfig:
    """Return the preset of an Atari game; its pixels were measured with `measure_pixels`."""
    return RunConfig(
        preset=game,
        game=game,
        network=PIXELS.network,
        pixel_centre=pixel_centre,
        pixel_unit=pixel_unit,
        seconds=seconds,
        learner=replace(PIXELS.learner, anneal_updates=anneal_updates),
        runtime=PIXELS.runtime,
        compression=PIXELS.compression,
    )


# Table 5 of the paper: n-steps 5, learning rate 3e-4, discount 0.99, entropy 0.02, value 0.25, and
# batches of 160, which are 32 environments here: an update learns from one rollout of one actor.
# NA = 12 agents are 12 actors, but each steps 32 environments where the paper's had one. Table 5
# does not print the length of a run, the clipping of gradients, or how values are scaled. The paper
# acts one state at a time (infer_batch) in plain torch: add --spec '{"graph": "eager"}' for that.
# Updates of a student are limited (distill_updates), so one distiller works on each: where one
# student acts, as in the paper's Figures 8 and 9, three of the ND = 4 have nothing to do.
_PAPER_PONG = RunConfig(
    preset="paper-pong",
    game="pong",
    network="original",
    seconds=14_400.0,
    learner=LearnerConfig(
        unroll=5,
        learning_rate=3e-4,
        discount=0.99,
        entropy_cost=0.02,
        value_cost=0.25,
        policy_loss="importance",  # equation 3, on the targets of equation 4 (lambda is 1 there)
        lam=1.0,
        precision="fp32",  # as its GTX 1080 Ti had to
    ),
    runtime=replace(PIXELS.runtime, num_actors=12, num_distillers=4, num_envs=32, infer_batch=1),
    compression=CompressionConfig(distill_value_cost=1.0),  # equation 1
)

# Actor-Learner Distillation (Parisotto and Salakhutdinov 2021), without its transformers: the large
# network learns and never acts, a small one acts and is distilled without pause from the learner as
# it is now, by processes of its own; the learner is drawn to where it can be followed. Choose the
# actors' network with --spec '{"student": "net2"}'. The divergence is that of equation 1 here.
_ALD_PONG = replace(
    _atari("pong", pixel_centre=87, pixel_unit=47.0, seconds=1200.0),
    preset="ald-pong",
    network="original",
    learner=replace(
        PIXELS.learner, corrector="vtrace+importance", anneal_updates=0, actor_kl_cost=0.01
    ),
    runtime=replace(PIXELS.runtime, num_distillers=1),
    compression=replace(
        PIXELS.compression,
        distill_start="random",
        distill_renew_every=0,
        distill_learning_rate=1e-3,
        distill_sync_every=1,
        distill_updates=8,
        distill_rest_kl_nats=0.0,
        distill_entropy_cost=0.0,
    ),
)

_PRESETS = [
    RunConfig(
        preset="catch",
        game="catch",
        seconds=20.0,
        learner=LearnerConfig(
            unroll=18,
            learning_rate=3e-3,
            policy_loss="clipped",
            minibatches=4,
            entropy_cost=0.003,
        ),
        runtime=_SMALL_RUNTIME,
        compression=SMALL_COMPRESSION,
    ),
    RunConfig(
        preset="cartpole",
        game="cartpole",
        seconds=90.0,
        learner=_CARTPOLE_LEARNER,
        runtime=replace(_SMALL_RUNTIME, interval_seconds=5.0, eval_episodes=16),
        compression=SMALL_COMPRESSION,
    ),
    RunConfig(
        preset="acrobot",
        game="acrobot",
        seconds=300.0,
        learner=replace(_CARTPOLE_LEARNER, clip_ratio=0.2),
        runtime=replace(_SMALL_RUNTIME, interval_seconds=15.0, eval_episodes=16),
        compression=SMALL_COMPRESSION,
    ),
    *map(_minatar, MINATAR_GAMES),
    # The twelve games of the paper's Table 4.
    _atari("alien", pixel_centre=64, pixel_unit=25.0),
    _atari("amidar", pixel_centre=0, pixel_unit=27.0),
    _atari("bank_heist", pixel_centre=88, pixel_unit=65.0),
    _atari("beam_rider", pixel_centre=0, pixel_unit=27.0),
    _atari("hero", pixel_centre=67, pixel_unit=62.0),
    _atari("name_this_game", pixel_centre=41, pixel_unit=57.0),
    _atari("riverraid", pixel_centre=132, pixel_unit=46.0),
    _atari("road_runner", pixel_centre=94, pixel_unit=82.0),
    _atari("seaquest", pixel_centre=32, pixel_unit=42.0),
    _atari("space_invaders", pixel_centre=0, pixel_unit=28.0),
    _atari("pong", pixel_centre=87, pixel_unit=47.0, seconds=1200.0, anneal_updates=0),
    _atari("breakout", pixel_centre=0, pixel_unit=60.0, seconds=3600.0),
    _PAPER_PONG,
    _ALD_PONG,
]
PRESETS = {config.preset: config for config in _PRESETS}


def load_preset(name: str, env: Mapping[str, Any] | None = None) -> RunConfig:
    """Return a preset by name, or the configuration of any other game, see `family_defaults`.

    Args:
        name: a preset, an Atari game in snake case, or an id of Gymnasium's registry.
        env: settings of `EnvConfig` that are given.

    Raises:
        UserError: there is none of that name, or the game cannot be made or learned.
    """
    if name not in PRESETS:
        return family_defaults(name, env or {})
    preset = PRESETS[name]
    return replace(preset, env=replace(preset.env, **env)) if env else preset
