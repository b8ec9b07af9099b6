"""Effort: how much a student that follows the learner is distilled, by how far off it is.

Distilling takes the cores and the GPU that acting and learning want. A student that is close to the
learner anyway rests for most of the time that it is allowed:

    n = N max(min(KL / R, 1), 1 / 4N)

updates per learner update, where N are allowed to who distils it. An update sees how far away it
is: a student whose learner moves on is back at work after four learner updates at most. Where
nothing limits how much is distilled, nobody rests.
"""

from __future__ import annotations

import math

from accerl.spec import CompressionSpec

STUDENT_SHARES = (0.0, 0.35, 0.6, 1.0)
"""of the smallest student's KL, by place in the family"""
LEAST_UPDATES = 0.25
"""per learner update, of each who distils it"""


def updates_due(allowed: float, kl_nats: float | None, rest_kl_nats: float) -> float:
    """Return n of the module's equation.

    Args:
        allowed: N; 0 or infinity, no limit, stays that.
        kl_nats: None, or not a number: not known; all are due.
        rest_kl_nats: R; 0: all are due, however close it is.
    """
    if not allowed or math.isinf(allowed) or not rest_kl_nats:
        return allowed
    if kl_nats is None or not math.isfinite(kl_nats):
        return allowed
    return max(allowed * min(kl_nats / rest_kl_nats, 1.0), LEAST_UPDATES)


def usual_kl_nats(spec: CompressionSpec) -> float:
    """Return the KL of what `spec` distils while it follows, for those who must guess.

    MinAtar's games, with one to twelve updates of 256 states a learner update: Net2 0.02 to 0.08,
    Net3 0.03 to 0.12, pruned by half 0.03 to 0.08.
    """
    return 0.08 * STUDENT_SHARES[min(round(spec.size_rank), 3)] + 0.05 * (spec.sparsity / 0.5) ** 2
