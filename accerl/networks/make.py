"""Networks by name, for learners and as students: this package's, or a user's from an import path.

Other processes of a run make the same network again, by the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from accerl.errors import UserError, first_line, raised_in
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.impala import IMPALA, ImpalaNet, make_impala
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet, architecture, make_policy
from accerl.networks.probe import require_gradients, require_repeatable
from accerl.own_code import find_own
from accerl.spec import STUDENTS, is_import_path, require_network


def make_network(
    name: str,
    observation: ObservationSpec,
    num_actions: int,
    generator: torch.Generator | None = None,
) -> Policy:
    """Return a fresh network.

    Args:
        name: original, net1, net2 or net3; impala, impala-small or impala-tiny; or
            ``module:function``, where the function (or class) takes an `ObservationSpec` and the
            number of actions and returns a module. That takes states as they are recorded and
            returns logits [B, A] and values, [B] or [B, 1]. If it is a chain of layers (see
            `adopt`), batch norms are folded away before it learns. Other processes are
            sent its floating-point weights and persistent buffers: what else it draws needs a
            fixed seed, which is checked of a learner's network and not of a student.
        observation: of the states.
        num_actions: A.
        generator: of the weights; None: they will be overwritten.

    Raises:
        UserError: there is no such network, or it does not fit the game.
    """
    if is_import_path(name):
        return _own(name, observation, num_actions, generator)
    require_network("network", name)
    if name in IMPALA:
        if generator is None:
            net = ImpalaNet(IMPALA[name], observation, num_actions)
        else:
            net = make_impala(name, observation, num_actions, generator)
        return as_policy(net, observation, name)
    if generator is None:
        return PolicyNet(architecture(name, observation), observation, num_actions)
    return make_policy(name, observation, num_actions, generator)


def find_network(name: str) -> Callable[[ObservationSpec, int], Any]:
    """Return the function at an import path such as ``mynets:small``.

    Raises:
        UserError: there is none.
    """
    return find_own("network", name, "mynets:small")


def _own(
    name: str, observation: ObservationSpec, num_actions: int, generator: torch.Generator | None
) -> Policy:
    make = find_network(name)
    seed = int(torch.randint(2**31, (), generator=generator or torch.Generator()))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = make(observation, num_actions)
        except Exception as error:  # a user's own code may fail in any way
            raise UserError(
                f"network {name!r} cannot be made for {observation} and {num_actions} actions: "
                f"{first_line(error)}{raised_in(error)}"
            ) from error
        if not isinstance(module, nn.Module):
            raise UserError(
                f"network {name!r} returned {type(module).__name__}, not a torch module"
            )
        try:
            policy = as_policy(module, observation, name)
            if generator is not None:  # else it was tried when its weights were drawn
                require_repeatable(policy)
                require_gradients(policy)
        except UserError as error:
            raise UserError(f"network {name!r}: {error}") from error
    if policy.num_actions != num_actions:
        raise UserError(
            f"network {name!r} returns logits of {policy.num_actions} actions, and the game has "
            f"{num_actions}"
        )
    policy.name = name
    return policy


def name_of(policy: Policy) -> str | None:
    """Return what `make_network` makes a network like `policy` of; None: nothing does."""
    if policy.name is not None or isinstance(policy, GraphPolicy):
        return policy.name
    shown = policy.observation
    return next((name for name in STUDENTS if architecture(name, shown) == policy.arch), None)


def student_name(net: nn.Module) -> str:
    """Return what a network is called, or where its class is defined: a label, not to import by."""
    name = name_of(net) if isinstance(net, Policy) else None
    own = net.module if isinstance(net, GraphPolicy) else net
    return name or f"{type(own).__module__}:{type(own).__name__}"
