"""Corrector: pure functions that repair off-policy data, and the chain that composes them."""

from accerl.correct.chain import (
    Corrector,
    CorrectorChain,
    Experience,
    ISCorrector,
    Targets,
    VTraceCorrector,
)
from accerl.correct.importance import (
    importance_ratios,
    importance_sampling_policy_loss,
    importance_weights,
)
from accerl.correct.vtrace import VTraceOutput, vtrace

__all__ = [
    "Corrector",
    "CorrectorChain",
    "Experience",
    "ISCorrector",
    "Targets",
    "VTraceCorrector",
    "VTraceOutput",
    "importance_ratios",
    "importance_sampling_policy_loss",
    "importance_weights",
    "vtrace",
]
