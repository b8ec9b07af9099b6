"""How to meta-train: every number of the policy gradient, validated."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class MetaTrainConfig:
    """How to turn groups of rollouts into a better controller.

    Raises:
        UserError: a number is out of range, or a group is too small for its baseline.
    """

    groups: int = 8
    """(game, seed) pairs per iteration"""
    rollouts: int = 4
    """rollouts per group"""
    antithetic: bool = True
    """draw rollouts in pairs with mirrored action noise, u and 1 - u"""
    min_dwell_intervals: int = 1
    """how long a decision is held at least; a held step has a reward but no gradient"""
    learning_rate: float = 0.02
    epochs: int = 4
    """passes over the same rollouts"""
    clip: float = 0.2
    """how far the probability ratio may move before its gradient stops"""
    reuse_iterations: int = 1
    """how many iterations' rollouts are learned from, the new one's included"""
    entropy_weight: float = 0.01
    """bonus per nat, in units of scaled advantage"""
    entropy_decay: float = 1.0
    """factor on the entropy weight per iteration"""
    clone_kl_weight: float = 0.1
    """penalty per nat of KL(policy || clone), where there is a clone"""
    max_gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("groups", "epochs", "reuse_iterations", "min_dwell_intervals"):
            if getattr(self, name) < 1:
                raise UserError(f"meta-training: {name} must be 1 or more")
        for name in ("learning_rate", "clip", "max_gradient_norm"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"meta-training: {name} must be positive")
        for name in ("entropy_weight", "clone_kl_weight"):
            if not getattr(self, name) >= 0.0:
                raise UserError(f"meta-training: {name} must not be negative")
        if not 0.0 < self.entropy_decay <= 1.0:
            raise UserError("meta-training: entropy_decay must lie in (0, 1]")
        if self.antithetic and (self.rollouts < 4 or self.rollouts % 2):
            raise UserError("meta-training: antithetic rollouts come in pairs; use 4, 6, 8, ...")
        if self.rollouts < 2:
            raise UserError("meta-training: a leave-one-out baseline needs 2 rollouts or more")

    @property
    def block(self) -> int:
        """How many rollouts of a group share their action noise."""
        return 2 if self.antithetic else 1
