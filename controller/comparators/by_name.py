"""The comparators that learn within one run, by name: what a trained controller has to beat."""

from __future__ import annotations

from typing import Any

from accerl.monitor.strategies import HandSetStrategy, make_from
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec
from controller.comparators.bandits import SlidingWindowUCB, ThompsonBandit
from controller.comparators.credit import JOINT_SPECS
from controller.comparators.gp_bandit import GPBandit
from controller.env.compatibility import incompatibility

COMPARATORS: dict[str, type[HandSetStrategy]] = {
    "sw-ucb": SlidingWindowUCB,
    "thompson": ThompsonBandit,
    "gp-bandit": GPBandit,
}


def make_comparator(name: str, /, **params: Any) -> HandSetStrategy:
    """Return a comparator by name, its parameters as objects or as JSON: see `make_from`.

    Raises:
        UserError: there is no such comparator or parameter, or a value is not allowed.
    """
    return make_from(COMPARATORS, name, params)


def existing_specs(network: str, profile: LatencyProfile | None) -> tuple[CompressionSpec, ...]:
    """Return those of `JOINT_SPECS` that actors can act with.

    Args:
        network: the learner's.
        profile: charges the virtual clock, as `LatencyProfile.for_network` shows it; None: the
            clock is real, and whatever can be built has its price.
    """
    return tuple(spec for spec in JOINT_SPECS if incompatibility(network, profile, spec) is None)
