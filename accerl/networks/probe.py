"""What a user's network must not do: remember, throw dice, change its input, or lose gradients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from accerl.errors import ForwardError, UserError, first_line, raised_in
from accerl.networks.graph_policy import (
    GraphPolicy,
    Policy,
    blank_states,
    own_copy,
    random_states,
)
from accerl.networks.observation import ObservationSpec

PROBED_STATES = 8
"""drawn at random, on which networks that should act alike are compared"""
TOLERANCE = 1e-3
"""of the largest output: what differs less is rounding, as of batch norms that were folded"""
SMALLEST = 1e-6
"""difference that counts at all"""
FLOOR_NATS = 20.0
"""below the best logit of a state: nothing deeper counts. A network may put out -1e9 for actions
that are illegal, beside which all other differences would be rounding"""


@torch.no_grad()
def make_lazy_weights(module: nn.Module, observation: ObservationSpec) -> None:
    """Have layers such as LazyLinear draw their weights, from torch's dice.

    Raises:
        UserError: the module cannot act on such states.
    """
    if not any(is_lazy(each) for each in chain(module.parameters(), module.buffers())):
        return
    was_training = module.training
    try:
        module.eval()(blank_states(observation, 2))
    except Exception as error:  # anything may be wrong in a user's own forward
        raise UserError(
            f"{type(module).__name__} cannot act on {observation}: {first_line(error)}"
            f"{raised_in(error)}"
        ) from error
    module.train(was_training)


def require_repeatable(policy: Policy, observations: np.ndarray | None = None) -> None:
    """Refuse a network that acts otherwise on the same states, or changes them.

    Neither can be compressed or corrected: what an engine holds would be one moment of it. A chain
    of layers that was read (`adopt`) does neither.

    Args:
        policy: the network.
        observations: states [N, *shape] of its game; None: some that are drawn.

    Raises:
        UserError: it does; it says what.
    """
    if not isinstance(policy, GraphPolicy):
        return
    name, net = type(policy.module).__name__, own_copy(policy).cpu()
    states = states_for(policy) if observations is None else torch.tensor(observations)
    given = states.clone()
    first = _act(net, given)
    if not torch.equal(given, states):
        raise UserError(
            f"{name} changes the states that it is given, as `x -= 1` does; write `x = x - 1`, or "
            "clone them first"
        )
    again = _act(net, states)
    alone = _act(net, states[:1])
    if not (alike(first, again) and alike(first, _act(net, states))):
        raise UserError(
            f"{name} acts otherwise when it is called again: it remembers states, or throws dice "
            "that torch's seed does not set. Recurrent policies cannot be learned; show it some "
            "frames at once instead (--set env.frame_stack=4)"
        )
    if not alike([output[:1] for output in first], alone):
        raise UserError(
            f"{name} acts otherwise on a state when others are in its batch: it takes a mean over "
            "the batch, say, and learner and actors have batches of other sizes; keep states apart"
        )
    if not alike(first, _act(net, states, seed=1)):
        raise UserError(
            f"{name} throws dice in evaluation mode; give functional dropout "
            "`training=self.training`, and leave noise out"
        )


def require_gradients(policy: Policy) -> None:
    """Refuse a learner's or student's network whose outputs lead to no weight.

    Raises:
        UserError: nothing of it can be learned.
    """
    if not isinstance(policy, GraphPolicy):
        return
    if not any(weight.requires_grad for weight in policy.parameters()):
        return
    with torch.enable_grad():
        outputs = policy(blank_states(policy.observation, 2, policy.device))
    if not any(output.requires_grad for output in outputs):
        raise UserError(
            f"{type(policy.module).__name__}: its outputs have no gradient, so that nothing can be "
            "learned; is something computed under torch.no_grad(), or detached?"
        )


def states_for(policy: Policy, recorded: np.ndarray | None = None) -> Tensor:
    """Return states on which a network gives numbers: noise, or recorded ones, or zeros.

    No game shows noise, so a network may fail at it; with zeros it was tried when it was made.

    Args:
        policy: the network.
        recorded: states [N, *shape] of its game; None: there are none.
    """
    choices = [random_states(policy.observation, PROBED_STATES)]
    if recorded is not None:
        choices.append(torch.tensor(recorded[:PROBED_STATES]))
    for states in choices:
        try:
            outputs = outputs_of(policy, states)
        except ForwardError:
            continue
        # The logits of actions that are illegal may be -inf.
        if not any(bool((each.isnan() | each.isposinf()).any()) for each in outputs):
            return states
    return torch.zeros_like(choices[0])


def outputs_of(policy: Policy, states: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and values of states, from equal dice at every call, by a copy on the CPU."""
    return _act(own_copy(policy).cpu(), states.clone())


def alike(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Whether logits and values are equal but for rounding: weights are sent in float32."""
    return all(
        torch.allclose(own, other, atol=max(TOLERANCE * largest, SMALLEST), equal_nan=True)
        for (own, largest), (other, _) in zip(_that_count(mine), _that_count(theirs), strict=True)
    )


def _that_count(outputs: Sequence[Tensor]) -> list[tuple[Tensor, float]]:
    """Return logits above the floor, and values; and how large each of them get."""
    logits, values = outputs
    best = logits.masked_fill(logits.isnan(), -torch.inf).amax(1, keepdim=True)
    floor = best - FLOOR_NATS
    numbers = (logits.masked_fill(logits <= floor, 0.0), values)
    return [
        (output, float(given.nan_to_num(0.0, 0.0, 0.0).abs().max()))
        for output, given in zip((logits.maximum(floor), values), numbers, strict=True)
    ]


@torch.no_grad()
def _act(net: nn.Module, states: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # a GPU's dice are the run's
        logits, values = net(states)
    return logits.clone(), values.clone()
