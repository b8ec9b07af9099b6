"""Presets: tuned configurations by name, as plain objects."""

from __future__ import annotations

from dataclasses import replace

from accerl.compress.config import CompressionConfig
from accerl.config import RunConfig, RuntimeConfig
from accerl.envs.minatar import MINATAR_GAMES
from accerl.errors import require_choice
from accerl.learner.config import LearnerConfig

_SMALL_RUNTIME = RuntimeConfig(
    num_envs=32, queue_rollouts=1, publish_every=2, interval_seconds=1.0, eval_episodes=64
)
# A student must follow a small network that changes fast: one update is not enough.
_SMALL_COMPRESSION = CompressionConfig(
    distill_updates=4, distill_learning_rate=1e-2, distill_sync_every=1
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
# The same for all five games; 10x10 boards need no pixel statistics.
_MINATAR_LEARNER = LearnerConfig(
    unroll=32,
    learning_rate=1e-3,
    policy_loss="clipped",
    minibatches=4,
    normalise_advantages=True,
    value_cost=0.5,
    entropy_cost=0.02,  # with 0.01, one run of Breakout in three soon had no entropy left
)
_MINATAR_RUNTIME = replace(_SMALL_RUNTIME, interval_seconds=30.0, eval_episodes=16)
_MINATAR_COMPRESSION = replace(_SMALL_COMPRESSION, distill_learning_rate=3e-3)


def _minatar(game: str) -> RunConfig:
    """Return the preset of a MinAtar game."""
    return RunConfig(
        preset=game,
        game=game,
        seconds=900.0,
        learner=_MINATAR_LEARNER,
        runtime=_MINATAR_RUNTIME,
        compression=_MINATAR_COMPRESSION,
    )


_ATARI_LEARNER = LearnerConfig(
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
)
_ATARI_COMPRESSION = CompressionConfig(calibration_states=128, distill_updates=2, distill_batch=64)
_ATARI_RUNTIME = RuntimeConfig(
    runtime="process",
    clock="real",
    num_actors=0,
    # An update is twelve gradient steps on 1,024 samples: actors must not lag many of those.
    queue_rollouts=0,
    publish_every=1,
    interval_seconds=5.0,
    eval_episodes=0,
)


def _atari(
    game: str,
    *,
    pixel_centre: int,
    pixel_unit: float,
    seconds: float = 3600.0,
    anneal_updates: int = _ATARI_LEARNER.anneal_updates,
) -> RunConfig:
    """Return the preset of an Atari game; its pixels were measured with `measure_pixels`."""
    return RunConfig(
        preset=game,
        game=game,
        network="net1",
        pixel_centre=pixel_centre,
        pixel_unit=pixel_unit,
        seconds=seconds,
        learner=replace(_ATARI_LEARNER, anneal_updates=anneal_updates),
        runtime=_ATARI_RUNTIME,
        compression=_ATARI_COMPRESSION,
    )


# Table 5 of the paper: n-steps 5, learning rate 3e-4, discount 0.99, entropy 0.02, value 0.25, and
# batches of 160, which are 32 environments here: an update learns from one rollout of one actor.
# NA = 12 agents are 12 actors, but each steps 32 environments where the paper's had one. Table 5
# does not print the length of a run, the clipping of gradients, or how values are scaled. The paper
# acts one state at a time (infer_batch) in plain torch: add --spec '{"graph": "eager"}' for that.
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
    runtime=replace(_ATARI_RUNTIME, num_actors=12, num_distillers=4, num_envs=32, infer_batch=1),
    compression=CompressionConfig(),
)

# Actor-Learner Distillation (Parisotto and Salakhutdinov 2021), without its transformers: the large
# network learns and never acts, a small one acts and is distilled without pause from the learner as
# it is now, by processes of its own; the learner is drawn to where it can be followed. Choose the
# actors' network with --spec '{"student": "net2"}'. The divergence is that of equation 1 here.
_ALD_PONG = replace(
    _atari("pong", pixel_centre=87, pixel_unit=47.0, seconds=1200.0, anneal_updates=0),
    preset="ald-pong",
    network="original",
    learner=replace(_ATARI_LEARNER, anneal_updates=0, actor_kl_cost=0.01),
    runtime=replace(_ATARI_RUNTIME, num_distillers=1),
    compression=replace(
        _ATARI_COMPRESSION, distill_sync_every=1, distill_updates=8, distill_entropy_cost=0.0
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
        compression=_SMALL_COMPRESSION,
    ),
    RunConfig(
        preset="cartpole",
        game="cartpole",
        seconds=90.0,
        learner=_CARTPOLE_LEARNER,
        runtime=replace(_SMALL_RUNTIME, interval_seconds=5.0, eval_episodes=16),
        compression=_SMALL_COMPRESSION,
    ),
    RunConfig(
        preset="acrobot",
        game="acrobot",
        seconds=300.0,
        learner=replace(_CARTPOLE_LEARNER, learning_rate=1e-3, clip_ratio=0.2),
        runtime=replace(_SMALL_RUNTIME, interval_seconds=15.0, eval_episodes=16),
        compression=_SMALL_COMPRESSION,
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


def load_preset(name: str) -> RunConfig:
    """Return a preset by name.

    Raises:
        UserError: there is none of that name.
    """
    require_choice("preset", name, PRESETS)
    return PRESETS[name]
