"""What every search tries first: what is known to do well, as the controller's rule is.

The rule that the controller starts from was set by hand before any inner run. So comparators begin
with values that were set by hand too, and rules with the best static spec, held by a rule that
hardly ever switches: a short search then does not lose to what it merely never tried. A rule of two
specs, whose aggressive one is no less compressed than the other, cannot hold fp32: it holds INT8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accerl.spec import IDENTITY, CompressionSpec

Guess = Mapping[str, Any]
"""a value for each name that a strategy's `suggest` asks for"""
FEW_ARMS: Guess = {
    **{"all_bits": False, "all_sparsities": False, "all_students": True},
    "hold_intervals": 1,
}
"""few enough to be told apart within a run"""
GUESSES: Mapping[str, Guess] = {
    # The cap of the controller's rule, and half of that again for what is tried once more.
    "advise-kl-cap": {"cap_nats": 0.35, "retry_fraction": 0.25},
    "sw-ucb": {**FEW_ARMS, "choices_remembered": 4, "exploration": 0.5, "factored": False},
    "thompson": {**FEW_ARMS, "discount": 0.95, "noise": 1.0, "prior": 0.5, "factored": False},
    "gp-bandit": {**FEW_ARMS, "exploration": 1.0},
}
SELDOM: Mapping[str, Guess] = {
    "kl-threshold": {
        **{"threshold_nats": 3.0, "returns": False, "indicator": "compression_kl_nats"},
        "conservative_bits": 8,
    },
    "reward-gap": {"gap": 2.0, "returns": False, "conservative_bits": 8},
}
"""of rules of two specs, with which they hardly ever leave the aggressive one"""


def guesses(name: str, static: CompressionSpec | None) -> list[Guess]:
    """Return what the search of a strategy tries first.

    Args:
        name: of the strategy.
        static: the best static spec, if it is known.
    """
    found = [GUESSES[name]] if name in GUESSES else []
    if static is None:
        return found
    if name in SELDOM:
        found.append({**SELDOM[name], **_knobs(static)})
    if name == "three-stage":
        stages = {**_knobs(static, "exploring_"), **_knobs(static, "improving_")}
        # What never acts differs: were all three alike, the search would change one that does.
        other = IDENTITY if static == CompressionSpec(bits=8) else CompressionSpec(bits=8)
        last = _knobs(other, "converged_")
        never = {"by": "time", "improving_from": 0.2, "converged_from": 1.0}
        found.append({**stages, **last, **never})
    return found


def _knobs(spec: CompressionSpec, start: str = "") -> dict[str, Any]:
    names = ("student", "sparsity", "bits")
    return {f"{start}{name}": getattr(spec, name) for name in names}
