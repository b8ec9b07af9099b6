"""Correctors as composable objects: the paper's chain of responsibility (its Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from accerl.correct.importance import importance_ratios, importance_weights
from accerl.correct.vtrace import vtrace
from accerl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What a batch of rollouts offers a corrector; every field is a floating tensor [T, B].

    Ends of episodes are marked as in `accerl.correct.vtrace.vtrace`: discount 0 at a termination;
    lambda 0 and the episode's own bootstrap in `v_t` at a truncation.
    """

    v_tm1: Tensor
    """the learner's values of the observations acted on"""
    v_t: Tensor
    """the learner's values of the observations that followed"""
    r_t: Tensor
    """rewards as the learner sees them (clipped, if it clips)"""
    discount_t: Tensor
    """gamma, or 0 where the episode terminated"""
    target_log_prob: Tensor
    """log pi(a|x) of the learner's policy"""
    behaviour_log_prob: Tensor
    """log mu(a|x) that the acting engine produced"""
    lambda_: Tensor
    """how far traces carry on, in [0, 1]"""


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


@dataclass(frozen=True)
class VTraceCorrector:
    """Corrects value targets and advantages with V-trace (paper, eq. 2); leaves the weights.

    Raises:
        UserError: a truncation level is negative, or c exceeds rho.
    """

    rho: float = 1.0
    """rho_bar: decides which value function is learned, between that of mu (0) and pi"""
    c: float = 1.0
    """c_bar: decides how far corrections travel back in time"""

    def __post_init__(self) -> None:
        _require_clip("VTraceCorrector: rho", self.rho)
        _require_clip("VTraceCorrector: c", self.c)
        if self.c > self.rho:
            raise UserError(
                f"VTraceCorrector: V-trace needs c <= rho, got rho {self.rho} and c {self.c}"
            )

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        """Replace value targets and advantages by those of V-trace."""
        ratios = importance_ratios(experience.target_log_prob, experience.behaviour_log_prob)
        output = _vtrace(experience, ratios, clip_rho=self.rho, clip_c=self.c)
        return targets._replace(value_targets=output[0], advantages=output[1])


@dataclass(frozen=True)
class ISCorrector:
    """Weights the policy gradient with truncated importance sampling (paper, eq. 3).

    Raises:
        UserError: the truncation level is negative.
    """

    rho: float = 1.0
    """the largest weight"""

    def __post_init__(self) -> None:
        _require_clip("ISCorrector: rho", self.rho)

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        """Multiply the policy weights by min(rho, pi / mu)."""
        weights = importance_weights(
            experience.target_log_prob, experience.behaviour_log_prob, clip=self.rho
        )
        return targets._replace(policy_weights=targets.policy_weights * weights)


class CorrectorChain:
    """Correctors in the order they were added; an empty chain trusts the data as on-policy.

    ``CorrectorChain().add_corrector(VTraceCorrector(1.0, 1.0)).add_corrector(ISCorrector(1.0))``
    is equation 4 of the paper: the IMPALA learner.
    """

    def __init__(self, correctors: Sequence[Corrector] = ()) -> None:
        self._correctors = list(correctors)

    def add_corrector(self, corrector: Corrector) -> CorrectorChain:
        """Append `corrector` and return this same chain, so that calls can follow one another."""
        self._correctors.append(corrector)
        return self

    @property
    def correctors(self) -> tuple[Corrector, ...]:
        """The links, in the order they are applied."""
        return tuple(self._correctors)

    def correct(self, experience: Experience) -> Targets:
        """Return the targets after every corrector.

        The chain starts from lambda-returns (n-step returns at lambda 1) and weights of 1.

        Raises:
            ValueError: an input is not a floating [T, B] tensor or the shapes differ.
        """
        ones = torch.ones_like(experience.v_tm1)
        value_targets, advantages = _vtrace(experience, ones, clip_rho=1.0, clip_c=1.0)
        targets = Targets(value_targets, advantages, policy_weights=ones)
        for corrector in self._correctors:
            targets = corrector.correct(experience, targets)
        return targets


def _vtrace(
    experience: Experience, ratios: Tensor, *, clip_rho: float, clip_c: float
) -> tuple[Tensor, Tensor]:
    output = vtrace(
        experience.v_tm1,
        experience.v_t,
        experience.r_t,
        experience.discount_t,
        ratios,
        lambda_=experience.lambda_,
        clip_rho=clip_rho,
        clip_c=clip_c,
    )
    return output.vs, output.advantages


def _require_clip(name: str, value: float) -> None:
    if not value >= 0.0:
        raise UserError(f"{name} is a truncation level and must be at least 0, got {value!r}")
