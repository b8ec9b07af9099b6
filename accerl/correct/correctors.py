"""The correctors that a chain is made of: state-value forms of every estimator, and ratios.

The actor-critic learner has V and no Q. Retrace, Tree-backup, Q(lambda) and per-decision importance
sampling therefore come as targets of V: their traces c_t carry TD errors that are weighed by
``min(rho, pi / mu)``. Without truncation (rho infinite, the default) the TD errors of V^pi are
zero in expectation for any traces, so the fixed point is V^pi, as that of the Q-forms is Q^pi. At
rho = 1 the state form of Retrace is V-trace with rho_bar = c_bar = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from accerl.correct.chain import Experience, Targets, state_targets
from accerl.correct.checks import require_fraction, require_level
from accerl.correct.importance import importance_sampling
from accerl.correct.vtrace import leaky_truncation
from accerl.errors import UserError


@dataclass(frozen=True)
class _TraceCorrector:
    """Corrects value targets and advantages with traces of its own; leaves the weights.

    TD errors are weighed by min(rho, pi / mu).

    Raises:
        UserError: the truncation level is negative.
    """

    rho: float = math.inf
    """largest weight of a TD error"""

    def __post_init__(self) -> None:
        require_level(f"{type(self).__name__}: rho", self.rho)

    def _truncated(self, ratio_t: Tensor, bar: float) -> Tensor:
        """Return what becomes of ratios [T, B] beyond a level."""
        return ratio_t.clamp(max=bar)

    def _trace(self, experience: Experience, ratio_t: Tensor) -> Tensor:
        """Return c_t [T, B]; `ratio_t` is pi / mu, not truncated."""
        raise NotImplementedError

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        """Replace value targets and advantages by those of the estimator's state form."""
        ratio_t = _ratio(experience)
        return state_targets(
            experience,
            rho_t=self._truncated(ratio_t, self.rho),
            c_t=self._trace(experience, ratio_t),
            policy_weights=targets.policy_weights,
        )


@dataclass(frozen=True)
class VTraceCorrector(_TraceCorrector):
    """V-trace (paper, eq. 2): traces min(c, pi / mu).

    Raises:
        UserError: a truncation level is negative, or c exceeds rho.
    """

    rho: float = 1.0
    """rho_bar: decides which value function is learned, between that of mu (0) and pi"""
    c: float = 1.0
    """c_bar: decides how far corrections travel back in time"""

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        require_level(f"{name}: c", self.c)
        if self.c > self.rho:
            raise UserError(f"{name}: V-trace needs c <= rho, got rho {self.rho} and c {self.c}")

    def _trace(self, experience: Experience, ratio_t: Tensor) -> Tensor:
        return self._truncated(ratio_t, self.c)


@dataclass(frozen=True)
class LeakyVTraceCorrector(VTraceCorrector):
    """V-trace through whose truncation a part leaks (`accerl.correct.vtrace.leaky_vtrace`).

    Raises:
        UserError: a truncation level is negative, c exceeds rho, or alpha lies outside [0, 1].
    """

    alpha: float = 0.9
    """how much of the truncation is kept: 1 is V-trace, 0 none"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("LeakyVTraceCorrector: alpha", self.alpha)

    def _truncated(self, ratio_t: Tensor, bar: float) -> Tensor:
        return leaky_truncation(ratio_t, bar, self.alpha)


@dataclass(frozen=True)
class RetraceCorrector(_TraceCorrector):
    """Retrace: traces min(1, pi / mu); with rho 1 this is V-trace with both levels 1."""

    def _trace(self, experience: Experience, ratio_t: Tensor) -> Tensor:
        return ratio_t.clamp(max=1.0)


@dataclass(frozen=True)
class PerDecisionCorrector(_TraceCorrector):
    """Per-decision importance sampling: traces pi / mu, which are never truncated."""

    def _trace(self, experience: Experience, ratio_t: Tensor) -> Tensor:
        return ratio_t


@dataclass(frozen=True)
class TreeBackupCorrector(_TraceCorrector):
    """Tree-backup: traces pi(a|x)."""

    @torch.no_grad()
    def _trace(self, experience: Experience, ratio_t: Tensor) -> Tensor:
        return experience.target_logp_t.exp()


@dataclass(frozen=True)
class QLambdaCorrector(_TraceCorrector):
    """Q(lambda): traces that are never cut but by lambda."""

    def _trace(self, experience: Experience, ratio_t: Tensor) -> Tensor:
        return torch.ones_like(ratio_t)


@dataclass(frozen=True)
class ISCorrector:
    """Weighs the policy gradient with truncated importance sampling (paper, eq. 3).

    Raises:
        UserError: the truncation level is negative.
    """

    rho: float = 1.0
    """the largest weight"""

    def __post_init__(self) -> None:
        require_level(f"{type(self).__name__}: rho", self.rho)

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        """Multiply the policy weights by min(rho, pi / mu)."""
        proximal = experience.policy_logp_t
        weights = importance_sampling(
            behaviour_logp_t=experience.behaviour_logp_t,
            target_logp_t=experience.target_logp_t if proximal is None else proximal,
            rho_bar=self.rho,
        )
        return targets._replace(policy_weights=targets.policy_weights * weights)


@dataclass(frozen=True)
class TruncatedISCorrector(ISCorrector):
    """Weighs the policy gradient as FlashRL does (`truncated_importance_sampling`).

    Raises:
        UserError: the truncation level is negative.
    """

    rho: float = 2.0
    """the largest weight, FlashRL's C"""


def _ratio(experience: Experience) -> Tensor:
    """Return pi / mu [T, B], not truncated, without gradient."""
    return importance_sampling(
        behaviour_logp_t=experience.behaviour_logp_t,
        target_logp_t=experience.target_logp_t,
        rho_bar=math.inf,
    )
