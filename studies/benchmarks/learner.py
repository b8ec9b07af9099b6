"""`accerl bench learner`: what an update of the learner takes in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.learner.config import LearnerConfig
from accerl.learner.learner import Learner
from accerl.networks.policy_net import make_policy
from accerl.runtime.machine.cores import usable_cores
from studies.benchmarks.pong import ACTIONS, PIXELS
from studies.benchmarks.repeats import SPREAD, interleaved, per_item, result_of, torch_threads

ENVS, UNROLL = 32, 5
BATCH = ENVS * UNROLL
"""the paper's 160 samples"""
SEED = 0
"""of the weights and of the rollout"""


def bench_learner(
    students: Sequence[str] = ("original", "net1"), repeats: int = 5
) -> dict[str, Any]:
    """Measure learning: microseconds per sample of one update on the paper's batch of 160."""
    rows = []
    for threads in sorted({1, usable_cores()}):
        with torch_threads(threads):
            calls: dict[tuple[str, str], Callable[[], object]] = {
                (student, precision): _learner_call(student, precision)
                for student in students
                for precision in ("fp32", "bf16")
            }
            seconds = interleaved(calls, repeats, 0.0)
        for (student, precision), measured in seconds.items():
            rows.append(
                {
                    "student": student,
                    "precision": precision,
                    "batch": BATCH,
                    **per_item(measured / BATCH, "us_per_sample"),
                    "threads": threads,
                }
            )
    return result_of("learner", spread_is=SPREAD, rows=rows)


def _learner_call(student: str, precision: str) -> Callable[[], object]:
    policy = make_policy(student, PIXELS, ACTIONS, torch.Generator().manual_seed(SEED))
    learner = Learner(policy, LearnerConfig(unroll=UNROLL, precision=precision))
    rollout = _random_rollout(np.random.default_rng(SEED))
    return lambda: learner.update(rollout)


def _random_rollout(generator: np.random.Generator) -> Rollout:
    """Return a rollout of noise, as acted by a uniform policy: time does not depend on content."""
    shape = RolloutShape(unroll=UNROLL, num_envs=ENVS, num_actions=ACTIONS, observation=PIXELS)
    rollout = Rollout.allocate(shape)
    rollout.obs[:] = generator.integers(0, 256, rollout.obs.shape)
    rollout.action[:] = generator.integers(ACTIONS, size=rollout.action.shape)
    rollout.log_prob[:] = -np.log(ACTIONS)
    rollout.reward[:] = generator.normal(size=rollout.reward.shape)
    return rollout
