"""Correctors as composable objects: the paper's chain of responsibility (its Table 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from accerl.correct.checks import require_time_batch
from accerl.correct.traces import state_returns
from accerl.errors import UserError
from accerl.own_code import own_errors


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What a batch of rollouts offers a corrector; every field is a floating tensor [T, B].

    Ends of episodes are marked as in `accerl.correct.vtrace.vtrace`: discount 0 at a termination;
    lambda 0 and the episode's own bootstrap in `value_tp1` at a truncation.
    """

    value_t: Tensor
    """the learner's values of the observations acted on"""
    value_tp1: Tensor
    """the learner's values of the observations that followed; at a truncation, whose observation is
    not kept, of the one before"""
    reward_t: Tensor
    """rewards as the learner sees them (clipped, if it clips)"""
    discount_t: Tensor
    """gamma, or 0 where the episode terminated"""
    target_logp_t: Tensor
    """log pi(a|x) of the learner's policy"""
    behaviour_logp_t: Tensor
    """log mu(a|x) that the acting engine produced"""
    lam: Tensor
    """how far traces carry on, in [0, 1]"""
    policy_logp_t: Tensor | None = None
    """log-prob of the policy whose ratio to mu weighs the policy gradient, None: the target's. A
    surrogate clipped around a recent policy (the proximal one) has its ratio to that inside"""


class Targets(NamedTuple):
    """What the learner fits; every field is [T, B] without gradient."""

    value_targets: Tensor
    """what the value function regresses on"""
    advantages: Tensor
    """q - v, before any weight"""
    policy_weights: Tensor
    """what multiplies advantages in the policy gradient"""


class Corrector(Protocol):
    """One link of the chain: takes the targets so far and returns better ones."""

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        """Return corrected targets; `experience` and `targets` are left as they are."""
        ...


class CorrectorChain:
    """Correctors in the order they were added; an empty chain trusts the data as on-policy.

    ``CorrectorChain().add_corrector(VTraceCorrector(1.0, 1.0)).add_corrector(ISCorrector(1.0))``
    is equation 4 of the paper: the IMPALA learner.
    """

    def __init__(self, correctors: Sequence[Corrector] = ()) -> None:
        self._correctors: list[Corrector] = []
        for corrector in correctors:
            self.add_corrector(corrector)

    def add_corrector(self, corrector: Corrector) -> CorrectorChain:
        """Append `corrector` and return this same chain, so that calls can follow one another.

        Raises:
            UserError: it is none.
        """
        if isinstance(corrector, type) or not callable(getattr(corrector, "correct", None)):
            raise UserError(
                "CorrectorChain: a corrector has a method `correct`, such as VTraceCorrector(); "
                f"got {corrector!r}"
            )
        self._correctors.append(corrector)
        return self

    @property
    def correctors(self) -> tuple[Corrector, ...]:
        """The links, in the order they are applied."""
        return tuple(self._correctors)

    @property
    def truncation(self) -> float:
        """The ratio from which on one of the links truncates (their `rho`); infinity: none.

        Of links of a user's own nobody knows what they mean by this name.
        """
        levels = [getattr(link, "rho", math.inf) for link in self._correctors if _is_shipped(link)]
        return min(levels, default=math.inf)

    def correct(self, experience: Experience) -> Targets:
        """Return the targets after every corrector.

        The chain starts from lambda-returns (n-step returns at lambda 1) and weights of 1.

        Raises:
            ValueError: an input is not a floating [T, B] tensor or the shapes differ.
            UserError: a corrector of the user's own raises, returns other than targets [T, B], or
                makes NaN or infinity of what was finite.
        """
        fields = {name: value for name, value in vars(experience).items() if value is not None}
        require_time_batch(**fields)
        ones = torch.ones_like(experience.value_t)
        targets = state_targets(experience, rho_t=ones, c_t=ones, policy_weights=ones)
        for corrector in self._correctors:
            before = targets
            with own_errors("corrector", corrector):
                targets = corrector.correct(experience, before)
            _check(targets, corrector, ones.shape)
            if not _is_shipped(corrector):
                _check_finite(before, targets, corrector)
        return targets


def _is_shipped(corrector: Corrector) -> bool:
    return type(corrector).__module__.startswith("accerl.correct.")


def _check_finite(before: Targets, after: Targets, corrector: Corrector) -> None:
    """Refuse what is not finite, unless it came in so: as of a learner that has diverged."""
    if not all(torch.isfinite(value).all() for value in before):
        return
    for field, value in after._asdict().items():
        if not torch.isfinite(value).all():
            raise UserError(
                f"{type(corrector).__name__}: correct() returned NaN or infinite {field}; look for "
                "a division by 0, and bound ratios before they are multiplied"
            )


def _check(targets: object, corrector: Corrector, shape: torch.Size) -> None:
    name = type(corrector).__name__
    if not isinstance(targets, Targets):
        raise UserError(f"{name}: correct() returned {type(targets).__name__}, not Targets")
    for field, value in targets._asdict().items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"{name}: correct() returned {field} that are {type(value).__name__}, not a tensor"
            )
        if value.shape != shape:
            raise UserError(
                f"{name}: correct() returned {field} {tuple(value.shape)} for samples "
                f"{tuple(shape)}"
            )


def state_targets(
    experience: Experience, *, rho_t: Tensor, c_t: Tensor, policy_weights: Tensor
) -> Targets:
    """Return the targets of any estimator of state values, given its weights and traces [T, B].

    `rho_t` weighs TD errors and `c_t` carries them back in time: see
    `accerl.correct.traces.state_returns`. `policy_weights` are handed on.
    """
    vs, advantage_t = state_returns(
        rho_t=rho_t,
        c_t=c_t,
        reward_t=experience.reward_t,
        discount_t=experience.discount_t,
        value_t=experience.value_t,
        value_tp1=experience.value_tp1,
        lam=experience.lam,
    )
    return Targets(value_targets=vs, advantages=advantage_t, policy_weights=policy_weights)
