"""What the shipped strategies have in common; a strategy of your own needs none of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from accerl.monitor.features import Features
from accerl.monitor.strategies.search import Levels
from accerl.own_code import class_name
from accerl.spec import CompressionSpec, Decision

if TYPE_CHECKING:
    import optuna

FEW = 3
"""specs that a label names; of more it says how many"""
SECONDS_EPSILON = 1e-9
"""a clock summed up from intervals may stop a rounding error short of a moment"""


@dataclass(frozen=True)
class HandSetStrategy:
    """A rule whose fields are its parameters: it is saved as them and made of them again.

    Subclasses implement `decide` and `suggest`, and list in `specs` whatever they may act with.
    """

    name: ClassVar[str]
    """as in `accerl train --strategy`"""

    @property
    def needs(self) -> frozenset[str]:
        """Raw indicators without which it can never act."""
        return frozenset()

    @property
    def fires(self) -> bool:
        """Whether the last decision was away from the rule's state of rest."""
        return True

    @property
    def label(self) -> str:
        """Its name and the parameters that are not the defaults, for people and run records."""
        changed = [
            f"{item.name}={_show(getattr(self, item.name))}"
            for item in fields(self)
            if item.init and getattr(self, item.name) != item.default
        ]
        return f"{self.name}({', '.join(changed)})" if changed else self.name

    def reset(self) -> None:
        """Nothing to forget."""

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return ``{"name": ..., "params": {...}}``, of which `make_strategy` makes it again."""
        params = {item.name: _plain(getattr(self, item.name)) for item in fields(self) if item.init}
        return {"name": self.name, "params": params}

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return the parameters of one trial of an Optuna search, as JSON.

        Args:
            trial: proposes the values.
            actions: the levels that specs are chosen from.
        """
        raise NotImplementedError


def _plain(value: Any) -> Any:
    """Return a parameter as JSON; somebody's own strategy as its import path alone."""
    if isinstance(value, CompressionSpec | HandSetStrategy):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {"name": class_name(value)} if hasattr(value, "decide") else value


def _show(value: Any) -> str:
    """Return a parameter in a few words, without brackets, which terminals take for markup."""
    if isinstance(value, CompressionSpec | HandSetStrategy):
        return value.label
    if isinstance(value, tuple) and len(value) > FEW and isinstance(value[0], CompressionSpec):
        return f"{len(value)} specs"
    if isinstance(value, tuple):
        return f"({', '.join(map(_show, value))})"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.12g}"  # 3 and 3.0 are the same parameter
    return class_name(value) if hasattr(value, "decide") else str(value)
