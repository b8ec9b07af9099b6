"""Presets: tuned configurations by name, as plain objects."""

from __future__ import annotations

from dataclasses import replace

from accerl.compress.compressor import CompressionConfig
from accerl.config import RunConfig, RuntimeConfig
from accerl.errors import UserError, did_you_mean
from accerl.learner import LearnerConfig

_ATARI_LEARNER = LearnerConfig(
    unroll=32,
    learning_rate=5e-4,
    policy_loss="clipped",
    proximal="pass",
    normalise_advantages=True,
    reuse=3,
    minibatches=4,
    precision="bf16",
)
_ATARI_COMPRESSION = CompressionConfig(calibration_states=128, distill_updates=2, distill_batch=64)
_ATARI_RUNTIME = RuntimeConfig(
    runtime="process",
    clock="real",
    # An update is twelve gradient steps on 1,024 samples: actors must not lag many of those.
    queue_rollouts=1,
    publish_every=1,
    interval_seconds=5.0,
    eval_episodes=0,
)

_SMALL_RUNTIME = RuntimeConfig(
    num_envs=32, queue_rollouts=1, publish_every=2, interval_seconds=1.0, eval_episodes=64
)
# A student must follow a small network that changes fast: one update is not enough.
_SMALL_COMPRESSION = CompressionConfig(
    distill_updates=4, distill_learning_rate=1e-2, distill_sync_every=1
)

PRESETS = {
    "catch": RunConfig(
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
        compression=_SMALL_COMPRESSION,
    ),
    "cartpole": RunConfig(
        preset="cartpole",
        game="cartpole",
        seconds=90.0,
        learner=LearnerConfig(
            unroll=32,
            learning_rate=1e-3,
            policy_loss="clipped",
            clip_ratio=0.1,
            minibatches=4,
            normalise_advantages=True,
            lambda_=0.98,
            value_cost=0.5,
            # Episodes of up to 500 points: keeps values near 10, where one learning rate fits all.
            reward_scale=0.1,
        ),
        runtime=replace(_SMALL_RUNTIME, interval_seconds=5.0, eval_episodes=16),
        compression=_SMALL_COMPRESSION,
    ),
    "pong": RunConfig(
        preset="pong",
        game="pong",
        network="net1",
        pixel_centre=87,
        pixel_unit=47.0,
        seconds=1200.0,
        learner=_ATARI_LEARNER,
        runtime=_ATARI_RUNTIME,
        compression=_ATARI_COMPRESSION,
    ),
    "breakout": RunConfig(
        preset="breakout",
        game="breakout",
        network="net1",
        pixel_centre=0,
        pixel_unit=60.0,
        seconds=3600.0,
        learner=_ATARI_LEARNER,
        runtime=_ATARI_RUNTIME,
        compression=_ATARI_COMPRESSION,
    ),
}


def load_preset(name: str) -> RunConfig:
    """Return a preset by name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in PRESETS:
        raise UserError(f"preset {name!r} does not exist; {did_you_mean(name, list(PRESETS))}")
    return PRESETS[name]
