"""LearningNetwork: the policy as it learns, and states as its passes read them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accerl.networks.autocast import autocast
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.policy_net import PolicyNet


class LearningNetwork(nn.Module):
    """The policy, its body perhaps in low precision, with one forward for everything."""

    def __init__(self, policy: Policy, precision: str) -> None:
        """Wrap `policy`; "bf16" computes its body in bfloat16, anything else in float32."""
        super().__init__()
        self._policy = policy
        # Without linear heads nothing tells where low precision would have to end.
        headless = isinstance(policy, GraphPolicy) and not policy.heads
        self._low = precision == "bf16" and not headless

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits [B, A], values [B] and features [B, H] for states [B, *shape].

        Args:
            obs: as they were recorded, or as `prepared` returned them.
        """
        with autocast(obs.device, low=self._low):
            return self._policy.outputs(obs)

    def prepared(self, obs: Tensor) -> Tensor:
        """Return states [T, B, *shape] as several passes read them fastest; the numbers are equal.

        Pixels come in one block, their channels last in memory: convolutions would reorder them in
        every pass. On a processor with AMX updates of Net1 take 0.8 of the time in bfloat16 and
        0.65 in float32, those of Original 0.87. Boards of small games stay as they are: there it
        was not measured. In bfloat16 on a processor they are converted here, once, and not in
        every pass: three passes of Original take 0.89 of the time. (In float32 it would be 0.97,
        for four times the memory.)
        """
        if not self._policy.observation.is_pixels:
            return obs
        pixels = obs.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        if self._low and pixels.device.type == "cpu" and isinstance(self._policy, PolicyNet):
            pixels = self._policy.centred(pixels)
        return pixels.view(obs.shape)
