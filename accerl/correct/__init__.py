"""Corrector: pure functions that repair off-policy data, and the chain that composes them."""

from accerl.correct.action_values import (
    per_decision_importance_sampling,
    q_lambda,
    retrace,
    tree_backup,
)
from accerl.correct.chain import Corrector, CorrectorChain, Experience, Targets, state_targets
from accerl.correct.combinations import COMBINATIONS, OWN, make_corrector, name_of
from accerl.correct.correctors import (
    ISCorrector,
    LeakyVTraceCorrector,
    PerDecisionCorrector,
    QLambdaCorrector,
    RetraceCorrector,
    TreeBackupCorrector,
    TruncatedISCorrector,
    VTraceCorrector,
)
from accerl.correct.importance import importance_sampling, truncated_importance_sampling
from accerl.correct.vtrace import VTraceReturns, leaky_vtrace, vtrace

__all__ = [
    "COMBINATIONS",
    "OWN",
    "Corrector",
    "CorrectorChain",
    "Experience",
    "ISCorrector",
    "LeakyVTraceCorrector",
    "PerDecisionCorrector",
    "QLambdaCorrector",
    "RetraceCorrector",
    "Targets",
    "TreeBackupCorrector",
    "TruncatedISCorrector",
    "VTraceCorrector",
    "VTraceReturns",
    "importance_sampling",
    "leaky_vtrace",
    "make_corrector",
    "name_of",
    "per_decision_importance_sampling",
    "q_lambda",
    "retrace",
    "state_targets",
    "tree_backup",
    "truncated_importance_sampling",
    "vtrace",
]
