"""Seeds: every stream of random numbers has a seed, a role and indices of its own."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from accerl.errors import UserError

if TYPE_CHECKING:
    import torch


class Role(IntEnum):
    """What a stream is for, and what its indices are.

    A number is never given to another role: those that are missing had one.
    """

    LEARNER = 1
    """initial weights, masks of sparse layers; those of a copy that checks a network: 1"""
    COMPRESSOR = 2
    DISTILLER = 3
    """distiller"""
    STUDENT = 4
    """checksum of the student's name; of who helps to distil it: distiller"""
    ACTOR = 5
    """actor, restarts of its process, learner updates when it started"""
    EPISODES = 6
    """starts and events of environments; of those that have one stream each: environment"""
    RESUMED_EPISODES = 7
    """of environments whose state cannot be saved"""
    ACTIONS = 8
    """an actor's or evaluation's draws; of a reseeded actor: 1"""
    EVALUATION = 9
    """J: the same for all runs, so that they are compared on common random numbers"""
    PLAYED_CHECKPOINT = 10
    FIRST_STATES = 11
    """the states that a compressor knows before the first rollout"""
    RANDOM_STRATEGY = 12
    BANDIT = 13
    ANALYTIC_RUN = 14
    ANALYTIC_GAME = 15
    """split, 1"""
    PRETRAINING = 16
    """iteration"""
    PERTURBATION = 17
    """generation"""
    CONTROLLER = 18
    """initial weights"""
    TUNING = 21
    """0: order of instances, 1: sampler"""
    BOOTSTRAP = 22
    """comparison"""
    ORACLE_EVALUATION = 23
    """decision"""
    PLACEBO = 24
    """decision, branch, actor"""
    EMULATOR = 27
    """process"""
    MACHINE = 28
    """family; the seed is the machine's number"""
    CONDITIONS = 29
    """what happens to the machine of a run"""
    PPO = 30
    """the rival's order of inner runs, and its own numbers; of drawn runs: 1"""


def stream(seed: int, role: Role, *index: int) -> np.random.SeedSequence:
    """Return the seed sequence of one stream.

    The role and indices are its spawn key: as part of the entropy, (seed, role) and
    (seed, role, 0) would be one stream, because numpy fills entropy up with zeros.

    Args:
        seed: of the run or study, below 2^128.
        role: what the stream is for.
        index: whole numbers below 2^32.

    Raises:
        UserError: a number is out of range.
    """
    if not 0 <= seed < 2**128:
        raise UserError(f"a seed must lie between 0 and 2^128 - 1, got {seed}")
    if not all(0 <= number < 2**32 for number in index):
        raise UserError(f"the index of a random stream is out of range: {index}")
    return np.random.SeedSequence(seed, spawn_key=(role, *index))


def number(seed: int, role: Role, *index: int) -> int:
    """Return the stream's seed as a whole number below 2^63, for what takes one."""
    return int(stream(seed, role, *index).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, role: Role, *index: int) -> np.random.Generator:
    """Return the stream as a numpy generator."""
    return np.random.default_rng(stream(seed, role, *index))


def torch_generator(seed: int, role: Role, *index: int) -> torch.Generator:
    """Return the stream as a torch generator on the CPU."""
    import torch  # actors that act in ONNX Runtime do without

    return torch.Generator().manual_seed(number(seed, role, *index))
