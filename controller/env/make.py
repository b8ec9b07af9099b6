"""Environments by name: which tier, which split, which actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accerl.errors import UserError, did_you_mean
from controller.actions import Actions, find_actions
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instances, split_instances
from controller.env.machine_instances import DrawnInstances
from controller.objective import TIERS


def make_env(
    *,
    tier: str = "analytic",
    split: str = "train",
    games: Sequence[str] | None = None,
    profiles: Sequence[str] | None = None,
    action_space: str | Actions = "factored",
    **settings: Any,
) -> CompressionControlEnv:
    """Return the environment that names describe: what `gymnasium.make` calls.

    Args:
        tier: analytic (drawn games in closed form), virtual (real learning on a virtual clock) or
            real (real learning on this machine's clock).
        split: train, validation or test.
        games: only these games of the split (tiers virtual and real).
        profiles: only these latency profiles of the split (tiers virtual and real).
        action_space: a name in `ACTION_SPACES`, or an `Actions`.
        settings: more arguments of `CompressionControlEnv`.

    Raises:
        UserError: a name does not exist.
    """
    if tier not in TIERS:
        raise UserError(f"tier {tier!r} does not exist; {did_you_mean(tier, list(TIERS))}")
    actions = find_actions(action_space) if isinstance(action_space, str) else action_space
    instances: Instances
    if tier != "analytic":
        instances = split_instances(split, games, profiles, tier)
    elif games is not None or profiles is not None:
        raise UserError("tier analytic has no games and profiles; leave them out, or use virtual")
    else:
        instances = DrawnInstances(split)
    return CompressionControlEnv(instances, actions=actions, **settings)
