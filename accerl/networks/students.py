"""Students by name: members of the policy family, or a user's own network from an import path."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from accerl.errors import UserError, first_line
from accerl.networks.adopt import OpaquePolicy, as_policy, require_chain
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet, make_policy
from accerl.spec import CompressionSpec, is_own_student


def make_student(
    student: str, observation: ObservationSpec, num_actions: int, generator: torch.Generator
) -> PolicyNet | OpaquePolicy:
    """Return a fresh student.

    Args:
        student: net1, net2 or net3; or ``module:function``, where the function takes an
            `ObservationSpec` and the number of actions and returns a module. That takes states as
            they are recorded and returns logits [B, A] and values, [B] or [B, 1]. If it is a chain
            of layers (see `adopt`) it can be pruned, factorised and quantised like any other;
            batch norms are folded away before it learns.
        observation: of the states.
        num_actions: A.
        generator: of the weights.

    Raises:
        UserError: there is no such function, or what it returns does not fit.
    """
    if not is_own_student(student):
        return make_policy(student, observation, num_actions, generator)
    make = find_student(student)
    seed = int(torch.randint(2**31, (), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = make(observation, num_actions)
        except Exception as error:  # a user's own code may fail in any way
            raise UserError(
                f"student {student!r} cannot be made for {observation} and {num_actions} actions: "
                f"{first_line(error)}"
            ) from error
    if not isinstance(module, nn.Module):
        raise UserError(f"student {student!r} returned {type(module).__name__}, not a torch module")
    policy = as_policy(module, observation)
    _check(student, policy, observation, num_actions)
    return policy


def find_student(student: str) -> Callable[[ObservationSpec, int], Any]:
    """Return the function at an import path such as ``mynets:small``.

    Raises:
        UserError: there is none.
    """
    path, name = student.split(":")
    try:
        return getattr(import_module(path), name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"student {student!r}: {error}; give the import path of a function, as in "
            "mynets:small, of a module that can be imported from here"
        ) from error


def check_own_student(
    spec: CompressionSpec, observation: ObservationSpec, num_actions: int
) -> None:
    """Refuse a spec that asks for a user's own student which cannot be made, or not like that.

    Raises:
        UserError: there is none, it does not fit, or it is no chain of layers and should be one.
    """
    net = make_student(spec.student, observation, num_actions, torch.Generator())
    if spec.graph == "onnx" or spec.bits != 32 or spec.sparsity or spec.rank < 1.0:
        require_chain(net)


def _check(student: str, policy: nn.Module, observation: ObservationSpec, num_actions: int) -> None:
    """Refuse a network that does not take the game's states or return logits and values."""
    states = torch.zeros((2, *observation.shape), dtype=getattr(torch, observation.dtype))
    try:
        with torch.no_grad():
            logits, values = policy(states)
    except Exception as error:  # anything may be wrong in a user's own forward
        reason = first_line(error)
        raise UserError(f"student {student!r} cannot act on {observation}: {reason}") from error
    if logits.shape != (2, num_actions) or values.shape != (2,):
        raise UserError(
            f"student {student!r} returns logits {tuple(logits.shape)} and values "
            f"{tuple(values.shape)} for 2 states; (2, {num_actions}) and (2,) or (2, 1) are needed"
        )
