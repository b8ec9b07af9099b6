"""LearnerConfig: how the policy is improved from rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from accerl.compress.pruning.sparse import TopologyConfig
from accerl.correct import COMBINATIONS, OWN, make_corrector
from accerl.errors import UserError, require, require_choice, require_fields
from accerl.precision import PRECISIONS

CHOICES = {
    "precision": PRECISIONS,
    "device": ("auto", "cpu", "cuda"),
    "policy_loss": ("importance", "clipped"),
    "proximal": ("update", "pass"),
    "advantage_moments": ("plain", "weighted"),
}


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """How the policy is improved from rollouts; losses are means over samples.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    unroll: int = 20
    """steps per rollout, T"""
    learning_rate: float = 5e-4
    """of Adam"""
    adam_eps: float = 1e-5
    """epsilon of Adam"""
    discount: float = 0.99
    """of rewards, per env step"""
    lam: float = 0.95
    """trace decay of the value targets"""
    corrector: str = "vtrace+importance"
    """how off-policy data is corrected: vtrace+importance (paper eq. 4), either half alone (vtrace,
    importance), none, truncated-importance (FlashRL's, at most 2), or importance with other value
    targets: leaky-vtrace+, retrace+, tree-backup+, q-lambda+ or per-decision+importance. "own"
    stands for a chain given in Python"""
    clip_rho: float = 1.0
    """rho_bar of V-trace, bounds its fixed point; and the largest weight of importance"""
    clip_c: float = 1.0
    """c_bar of V-trace: bounds its traces"""
    policy_loss: str = "importance"
    """importance (paper eq. 3: the corrector's weight times advantage), or clipped: that with PPO's
    surrogate around a recent policy of the learner ("decoupled", Hilton et al. 2021)"""
    proximal: str = "update"
    """that recent policy: the one before this update (costs a forward pass), or the one of the
    first "pass" over the same samples (free, but then the first pass is not clipped). With one pass
    in one part there is no policy in between, and nothing is clipped"""
    clip_ratio: float = 0.2
    """width of the clipped surrogate"""
    normalise_advantages: bool = False
    """scale advantages of each minibatch to mean 0 and standard deviation 1"""
    advantage_moments: str = "plain"
    """plain, or weighted as the corrector weighs each advantage in the policy gradient"""
    reuse: int = 1
    """passes over each rollout; the corrector also corrects what the passes change"""
    minibatches: int = 1
    """parts (by environment) that one pass is split into"""
    entropy_cost: float = 0.01
    """weight of the entropy bonus"""
    actor_kl_cost: float = 0.0
    """weight of KL(what acted || learner), which keeps the learner where its compressed actors can
    follow (Actor-Learner Distillation, Parisotto and Salakhutdinov 2021)"""
    anneal_updates: int = 0
    """updates within which learning rate and entropy cost fall linearly to `anneal_to` of their
    values, where they stay; 0: they never change. Those of the run that `start` names count"""
    anneal_to: float = 0.2
    """share of their values at the end of annealing"""
    value_cost: float = 0.25
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """to which the norm of all gradients together is clipped"""
    reward_clip: float = 1.0
    """rewards are clipped to [-reward_clip, reward_clip]; 0 leaves them raw"""
    reward_scale: float = 1.0
    """multiplies rewards after clipping"""
    life_loss_ends: bool = False
    """whether to learn as if the episode ended with each life (scores still count whole games)"""
    precision: str = "fp32"
    """fp32, bf16 (autocast of the body; both heads and the optimiser stay in fp32), or auto:
    bf16 where that is faster on the learner's device"""
    device: str = "auto"
    """where it learns: cpu, cuda, or auto (cuda if there is one)"""
    sparse: TopologyConfig | None = None
    """how the network is kept sparse while it learns; None: it is dense"""

    def __post_init__(self) -> None:
        for name, words in CHOICES.items():
            given, rule = getattr(self, name), f"must be {', '.join(words[:-1])} or {words[-1]}"
            require(given in words, f"learner: {name}", rule, given)
        if self.policy_loss == "clipped" and self.proximal == "pass" and self.reuse == 1:
            raise UserError(
                "learner: proximal 'pass' clips nothing without reuse of 2 or more; with reuse 1 "
                "set proximal to update, or policy_loss to importance"
            )
        counts = "unroll reuse minibatches anneal_updates"
        for name in counts.split():  # as loops over arrays give them
            if isinstance(value := getattr(self, name), np.integer):
                object.__setattr__(self, name, int(value))
        check = partial(require_fields, self, "learner")
        check(counts, "must be a whole number", lambda count: type(count) is int)
        check("unroll reuse minibatches", "must be at least 1", lambda count: count >= 1)
        check("discount lam", "must lie in [0, 1]", lambda share: 0.0 <= share <= 1.0)
        check(
            "learning_rate adam_eps max_grad_norm reward_scale",
            "must be positive",
            lambda value: 0.0 < value < math.inf,
        )
        check(
            "clip_ratio reward_clip value_cost entropy_cost actor_kl_cost",
            "must not be negative",
            lambda value: 0.0 <= value < math.inf,
        )
        check("clip_rho clip_c", "must not be negative", lambda level: level >= 0.0)
        check("anneal_updates", "must not be negative", lambda count: count >= 0)
        check("anneal_to", "must lie in (0, 1]", lambda share: 0.0 < share <= 1.0)
        if self.corrector != OWN:
            require_choice("learner: corrector", self.corrector, COMBINATIONS)
            try:  # refuses levels that it cannot make one with
                make_corrector(self.corrector, rho=self.clip_rho, c=self.clip_c)
            except UserError as error:
                raise UserError(f"learner: clip_rho and clip_c: {error}") from error

    def annealed(self, updates: int) -> float:
        """Return the share of learning rate and entropy cost that is left after `updates`."""
        if not self.anneal_updates:
            return 1.0
        return 1.0 - (1.0 - self.anneal_to) * min(updates / self.anneal_updates, 1.0)


def choose_device(wanted: str) -> torch.device:
    """Return the device that "auto", "cpu" or "cuda" means on this machine.

    Raises:
        UserError: there is no GPU that torch can use.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("learner: device cuda asks for a GPU and torch sees none; use cpu or auto")
    return torch.device(wanted)
