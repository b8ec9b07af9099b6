"""What a controller's return is compared with, so that little but its own choices is left of it.

The rollouts of a *group* share the game and the inner run's seed and differ only in the
controller's own random numbers. What the game and the seed do to the return is therefore common to
a group, and the mean of the *other* rollouts removes it without bias (leave-one-out; an
input-dependent baseline, Mao et al. 2019, "Variance reduction for reinforcement learning in
input-driven environments"). Intervals may differ in length between rollouts, so "the same moment"
is a bin of elapsed seconds: an interval of an episode that nothing delays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accerl.errors import UserError
from controller.objective import interval_starts, num_intervals
from controller.training.rollouts import Trajectory


def returns_to_go(discounted_rewards: np.ndarray) -> np.ndarray:
    """Return sum over j >= k of exp(-beta t_j) r_j for every step k, [..., K].

    Discounted to the start of the episode, not to step k: then the sum of gradient terms is the
    gradient of the outer objective itself, and late decisions weigh what they are worth.
    """
    return np.flip(np.cumsum(np.flip(discounted_rewards, -1), -1), -1)


def time_bins(trajectory: Trajectory) -> np.ndarray:
    """Return the bin of elapsed seconds that every step began in, int [K].

    In an episode that nothing delays, step k is alone in bin k.
    """
    begun = np.cumsum(trajectory.seconds) - trajectory.seconds
    rounding = 1e-6 * trajectory.interval_seconds  # of sums of seconds
    return np.searchsorted(interval_starts(*trajectory.lengths), begun + rounding, "right") - 1


def mean_of_others(values: np.ndarray, block: int = 1) -> np.ndarray:
    """Return, for every rollout's values [M, T], the mean of the other rollouts', [M, T].

    Rollouts with shared action noise (a mirrored pair is a block of 2) are left out together:
    a baseline that depends on a rollout's own random numbers would bias the gradient.

    Raises:
        UserError: they do not make two or more blocks.
    """
    members, columns = values.shape
    if members % block or members <= block:
        raise UserError(
            f"leave-one-out: {members} rollouts do not make two or more blocks of {block}"
        )
    own = values.reshape(members // block, block, columns).sum(axis=1).repeat(block, axis=0)
    return (values.sum(axis=0) - own) / (members - block)


def group_baselines(group: Sequence[Trajectory], block: int) -> list[np.ndarray]:
    """Return the baseline of every step, [K] for each rollout of a group, in the order given.

    It is the mean, over the other rollouts, of what they gained from the beginning of the step's
    bin on. On-policy, a return to go minus its baseline is an unbiased advantage: the bin is
    known before the step's action is drawn, and the others' gains do not depend on them.

    Raises:
        UserError: the rollouts do not belong together, or are not in order.
    """
    _check_group(group, block)
    count = num_intervals(*group[0].lengths)
    bins = [time_bins(trajectory) for trajectory in group]
    gained = [
        np.bincount(places, weights=trajectory.discounted_rewards, minlength=count)
        for trajectory, places in zip(group, bins, strict=True)
    ]
    others = mean_of_others(returns_to_go(np.stack(gained)), block)
    return [row[places] for row, places in zip(others, bins, strict=True)]


def _check_group(group: Sequence[Trajectory], block: int) -> None:
    tasks = {(t.instance, t.seed, t.beta, *t.lengths) for t in group}
    if len(tasks) != 1:
        raise UserError("meta-training: the rollouts of a group must share instance and seed")
    seeds = [t.action_seed for t in group if t.action_seed is not None]
    if len(set(seeds)) != len(group):
        raise UserError(
            "meta-training: two rollouts of a group share their action seed, or lack it"
        )
    pairs = [seed // block for seed in seeds]
    if any(pairs[i] != pairs[i - i % block] for i in range(len(pairs))):
        raise UserError("meta-training: mirrored rollouts must stand side by side in their group")


def instance_factors(instances: Sequence[str], advantages: Sequence[np.ndarray]) -> np.ndarray:
    """Return what to multiply each rollout's advantages with, so that no instance dominates.

    Rewards are normalised per game already, but on one machine compression moves them more than on
    another. With s_g the root mean square of all advantages of instance g, and s their mean over
    instances,

        factor_g = min(1, s / s_g).

    Only instances that stand out are turned down; none is turned up, because where the choice does
    not matter there is nothing but noise to turn up.

    Args:
        instances: the name of each rollout's instance.
        advantages: of each rollout, [K].
    """
    squares: dict[str, list[np.ndarray]] = {}
    for name, values in zip(instances, advantages, strict=True):
        squares.setdefault(name, []).append(values**2)
    spreads = {
        name: float(np.sqrt(np.concatenate(values).mean())) for name, values in squares.items()
    }
    typical = float(np.mean(list(spreads.values())))
    factors = {name: min(1.0, typical / s) if s > 0.0 else 1.0 for name, s in spreads.items()}
    return np.array([factors[name] for name in instances])
