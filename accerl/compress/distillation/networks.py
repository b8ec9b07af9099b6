"""Networks that are distilled before they act, as plain trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from accerl.compress.graphs.torch_artifact import architecture_from_json, architecture_to_json
from accerl.errors import UserError
from accerl.networks.adopt import OpaquePolicy
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet
from accerl.networks.students import make_student
from accerl.spec import StudentKey


def net_to_json(net: PolicyNet | OpaquePolicy) -> dict[str, Any] | None:
    """Return the layer sizes of a network; None for a user's own that is no chain of layers."""
    return architecture_to_json(net.arch) if isinstance(net, PolicyNet) else None


def empty_net(
    key: StudentKey, sizes: Mapping[str, Any] | None, observation: ObservationSpec, actions: int
) -> PolicyNet | OpaquePolicy:
    """Return the network that `net_to_json` was given, for weights that are to be loaded."""
    if sizes is None:
        return make_student(key.student, observation, actions, torch.Generator())
    return PolicyNet(architecture_from_json(sizes), observation, actions)


def require_smaller(net: nn.Module, policy: PolicyNet, student: str) -> None:
    """Refuse a student with more weights than the learner's network.

    Raises:
        UserError: it has.
    """
    own, learners = (sum(weight.numel() for weight in m.parameters()) for m in (net, policy))
    if own > learners:
        raise UserError(
            f"student {student!r} has {own:,} weights, more than the learner's network "
            f"({learners:,}); give a smaller one"
        )
