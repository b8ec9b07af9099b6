"""Meta-training: a policy gradient over whole inner runs, with the variance taken out.

One inner run costs seconds to minutes, so hundreds of runs are all there is. An iteration is a
list of *groups*; the rollouts of a group share the game and the inner run's seed and differ only
in the controller's own random numbers.

    collect groups -> return to go - mean of the others (baselines.py)
                   -> a few clipped epochs (surrogate.py) -> keep everything (trainer.py)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from accerl.records import json_hash
from controller.actions import Actions
from controller.env.instances import Instance
from controller.policy.policy import ControllerPolicy
from controller.training.config import MetaTrainConfig
from controller.training.rollouts import Trajectory, rollout
from controller.training.surrogate import update
from controller.training.trainer import Trainer


def collect_group(
    policy_state: Mapping[str, Any],
    actions: Actions,
    instance: Instance,
    seed: int,
    first_action_seed: int,
    config: MetaTrainConfig,
) -> list[Trajectory]:
    """Play the rollouts of one group here, one after the other."""
    first_action_seed -= first_action_seed % config.block  # a pair starts at an even seed
    return [
        rollout(
            policy_state,
            actions,
            instance,
            seed,
            first_action_seed + member,
            antithetic=config.antithetic,
            min_dwell_intervals=config.min_dwell_intervals,
        )
        for member in range(config.rollouts)
    ]


class MetaTrainer(Trainer[ControllerPolicy]):
    """Policy gradient, with the rollouts of its last iterations.

    `train` takes (policy state, iteration) -> groups of rollouts, played anywhere.

    Args:
        policy: trained in place.
        config: how.
        clone: what the policy is kept near (`cloning.clone`); None: nothing.
    """

    def __init__(
        self,
        policy: ControllerPolicy,
        config: MetaTrainConfig,
        clone: ControllerPolicy | None = None,
    ) -> None:
        optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate, eps=1e-5)
        clone_hash = None if clone is None else json_hash(clone.to_json())
        super().__init__(policy, optimizer, {**asdict(config), "clone": clone_hash})
        self.config = config
        self.clone = clone
        self._recent: list[list[list[Trajectory]]] = []

    def improve(self, played: Sequence[Sequence[Trajectory]]) -> dict[str, float]:
        """Learn from new groups and from the kept ones; return the iteration's statistics.

        ``gain`` is the mean outer objective of the new rollouts, ``advantage_std`` is in its
        units; ``entropy_nats``, ``kl_nats`` (moved by this update), ``clone_kl_nats`` (0 without a
        clone) and ``clipped_share`` are those of the last pass; ``truncated_share`` is the share
        of steps, new and kept, whose importance weight was cut off.
        """
        new = [list(group) for group in played]
        self._recent = [*self._recent, new][-self.config.reuse_iterations :]
        weight = self.config.entropy_weight * self.config.entropy_decay**self.iteration
        stats = update(
            self.policy,
            self.optimizer,
            [group for iteration in self._recent for group in iteration],
            replace(self.config, entropy_weight=weight),
            clone=self.clone,
        )
        gain = float(np.mean([trajectory.gain for group in new for trajectory in group]))
        self.history.append({"iteration": self.iteration, "gain": gain, **stats})
        return self.history[-1]

    def snapshot(self) -> dict[str, Any]:
        """See `Trainer.snapshot`."""
        recent = [[[t.to_json() for t in group] for group in groups] for groups in self._recent]
        return {**super().snapshot(), "recent": recent}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Trainer.restore`."""
        super().restore(snapshot)
        self._recent = [
            [[Trajectory.from_json(data) for data in group] for group in groups]
            for groups in snapshot["recent"]
        ]
