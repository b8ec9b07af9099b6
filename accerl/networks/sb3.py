"""Stable-Baselines3's actor-critic policies as modules that return logits and a value.

They are known by their members: nothing of Stable-Baselines3 is imported.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from accerl.errors import UserError

_MEMBERS = ("mlp_extractor", "action_net", "value_net", "features_extractor", "action_space")


def is_sb3_policy(module: nn.Module) -> bool:
    """Whether a module is the policy of a PPO, an A2C or the like."""
    return all(hasattr(module, member) for member in _MEMBERS)


class ActorCritic(nn.Module):
    """What such a policy computes before it draws an action.

    Raises:
        UserError: it is recurrent, its actions are not discrete, or its observations are no single
            array.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__()
        if hasattr(policy, "lstm_actor"):
            raise UserError("compress: a recurrent policy remembers, and cannot be compressed")
        actions, states = type(policy.action_space).__name__, policy.observation_space
        if actions != "Discrete":
            raise UserError(f"compress: a policy with Discrete actions is needed, not {actions}")
        if type(states).__name__ != "Box":
            raise UserError(
                f"compress: a policy of Box observations is needed, not {type(states).__name__}"
            )
        self.divides = bool(policy.normalize_images) and _is_image(states)
        self.shared = bool(policy.share_features_extractor)
        if self.shared:
            self.features: nn.Module = policy.features_extractor
        else:
            self.features = policy.pi_features_extractor
            self.value_features: nn.Module = policy.vf_features_extractor
        self.mlp_extractor: Any = policy.mlp_extractor
        self.action_net: nn.Module = policy.action_net
        self.value_net: nn.Module = policy.value_net

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, A] and values [B, 1] for states [B, *shape]."""
        states = obs.float()
        if self.divides:
            states = states / 255.0
        acting = self.features(states)
        judging = acting if self.shared else self.value_features(states)
        hidden = self.mlp_extractor.forward_actor(acting)
        values = self.value_net(self.mlp_extractor.forward_critic(judging))
        return self.action_net(hidden), values


def _is_image(states: Any) -> bool:
    """Whether that is what Stable-Baselines3 calls an image: it scales nothing else."""
    whole = bool((states.low == 0).all() and (states.high == 255).all())
    return len(states.shape) == 3 and str(states.dtype) == "uint8" and whole
