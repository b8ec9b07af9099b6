"""What meta-training asks of an indicator, and how one is read from its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from accerl.errors import UserError
from accerl.monitor.strategy import Strategy
from controller.indicator.recurrent import RecurrentIndicator
from controller.indicator.strategy import AdvancedIndicator
from controller.training.module import PolicyModule


class Trainable(Strategy, Protocol):
    """A Strategy that acts by weights that can be replaced."""

    @property
    def policy(self) -> PolicyModule:
        """Return the weights that are trained."""
        ...

    def with_policy(self, state: Mapping[str, Any]) -> Self:
        """Return the same strategy with other weights.

        Args:
            state: of them, as `PolicyModule.to_json` has it.
        """
        ...

    def to_json(self) -> dict[str, Any]:
        """Return its name, and as parameters all that it is made of."""
        ...


INDICATORS: dict[str, Any] = {kind.name: kind for kind in (AdvancedIndicator, RecurrentIndicator)}
"""what `read_indicator` reads, by name"""


def read_indicator(description: Mapping[str, Any]) -> Trainable:
    """Return the indicator that `Trainable.to_json` described.

    Raises:
        UserError: a part is missing or does not fit.
    """
    name = description.get("name")
    if name not in INDICATORS or not isinstance(description.get("params"), Mapping):
        raise UserError(f"indicator: {name!r} is none; expected one of {', '.join(INDICATORS)}")
    return INDICATORS[name].from_params(description["params"])
