"""Combinations of correctors that can be chosen by name, for the same learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from accerl.correct.chain import Corrector, CorrectorChain
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
from accerl.errors import UserError, require_choice

# The links that a name stands for, given rho and c.
COMBINATIONS: dict[str, Callable[[float, float], Sequence[Corrector]]] = {
    "none": lambda rho, c: (),
    "importance": lambda rho, c: (ISCorrector(rho),),  # equation 3 alone
    "truncated-importance": lambda rho, c: (TruncatedISCorrector(),),
    "vtrace": lambda rho, c: (VTraceCorrector(rho, c),),  # equation 2 alone
    "vtrace+importance": lambda rho, c: (VTraceCorrector(rho, c), ISCorrector(rho)),  # equation 4
    "leaky-vtrace+importance": lambda rho, c: (LeakyVTraceCorrector(rho, c), ISCorrector(rho)),
    "per-decision+importance": lambda rho, c: (PerDecisionCorrector(), ISCorrector(rho)),
    "retrace+importance": lambda rho, c: (RetraceCorrector(), ISCorrector(rho)),
    "tree-backup+importance": lambda rho, c: (TreeBackupCorrector(), ISCorrector(rho)),
    "q-lambda+importance": lambda rho, c: (QLambdaCorrector(), ISCorrector(rho)),
}


OWN = "own"
"""what stands for a chain of objects that no name makes"""


def levels_of(name: str) -> set[str]:
    """Return which of "rho" and "c" the combination of a name reads."""
    links = COMBINATIONS[name]
    found = {"rho"} if links(3.0, 1.0) != links(2.0, 1.0) else set()
    return found | ({"c"} if links(3.0, 2.0) != links(3.0, 1.0) else set())


def name_of(chain: CorrectorChain, *, rho: float, c: float) -> str:
    """Return the name that `make_corrector` makes an equal chain of; OWN if there is none."""
    for name, links in COMBINATIONS.items():
        # Some of them refuse levels that others allow.
        with suppress(UserError):
            if tuple(links(rho, c)) == chain.correctors:
                return name
    return OWN


def make_corrector(name: str, *, rho: float, c: float) -> CorrectorChain:
    """Return the chain that `name` stands for.

    "vtrace+importance" is equation 4 of Zhang (2022), V-trace and importance sampling on A3C, which
    is the IMPALA learner; equations 2 and 3 alone are "vtrace" and "importance"; "none" takes the
    data as on-policy.

    Args:
        name: one of `COMBINATIONS`.
        rho: rho_bar of (leaky) V-trace, and the largest weight of the policy gradient; the other
            estimators weigh TD errors by the whole ratio, and FlashRL's bound is its own 2.
        c: c_bar of (leaky) V-trace; the other estimators have traces of their own.

    Raises:
        UserError: there is no such name; or a level is negative, or c exceeds rho where both count.
    """
    if name == OWN:
        others = ", ".join(COMBINATIONS)
        raise UserError(
            "corrector 'own' stands for a chain that only Python code can give; choose one of "
            f"{others}"
        )
    require_choice("corrector", name, COMBINATIONS)
    return CorrectorChain(COMBINATIONS[name](rho, c))
