"""Checks of parameters that several strategies share; each says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accerl.errors import UserError, did_you_mean
from accerl.spec import CompressionSpec


def require_spec(strategy: str, name: str, value: object) -> None:
    """Refuse what is not a spec."""
    if not isinstance(value, CompressionSpec):
        raise UserError(f"strategy {strategy}: {name} must be a spec, got {value!r}")


def require_pair(strategy: str, one: str, first: object, other: str, second: object) -> None:
    """Refuse two specs to switch between that are the same."""
    require_spec(strategy, one, first)
    require_spec(strategy, other, second)
    if first == second:
        raise UserError(f"strategy {strategy}: {one} and {other} are the same spec")


def require_choice(strategy: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a word that is none of `allowed`."""
    if value not in allowed:
        hint = did_you_mean(str(value), list(allowed))
        raise UserError(f"strategy {strategy}: {name} {value!r} does not exist; {hint}")


def require_number(
    strategy: str,
    name: str,
    value: object,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
) -> None:
    """Refuse what is not a finite number within the bounds."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < at_least
        or value <= above
        or value > at_most
    ):
        bounds = [f"at least {at_least}"] * (at_least > -math.inf)
        bounds += [f"above {above}"] * (above > -math.inf)
        bounds += [f"at most {at_most}"] * (at_most < math.inf)
        raise UserError(
            f"strategy {strategy}: {name} must be a number {' and '.join(bounds)}".rstrip()
            + f", got {value!r}"
        )


def require_return_level(
    strategy: str, name: str, value: float | None, threshold_name: str, threshold: float
) -> None:
    """Refuse a level to return below that is not None and lies above the threshold."""
    if value is None:
        return
    require_number(strategy, name, value)
    if value > threshold:
        raise UserError(
            f"strategy {strategy}: {name} {value} must not exceed {threshold_name} {threshold}"
        )


def require_specs(strategy: str, value: object) -> tuple[CompressionSpec, ...]:
    """Return a list of at least one spec, none of them twice, as a tuple; refuse all else."""
    if not isinstance(value, tuple | list) or not value:
        raise UserError(
            f"strategy {strategy}: specs must be a list of at least one spec, got {value!r}"
        )
    for index, spec in enumerate(value):
        require_spec(strategy, f"specs[{index}]", spec)
        if spec in value[:index]:
            raise UserError(f"strategy {strategy}: specs holds {spec.label!r} twice")
    return tuple(value)


def require_whole(strategy: str, name: str, value: object, *, at_least: int) -> None:
    """Refuse what is not a whole number of at least so much."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise UserError(
            f"strategy {strategy}: {name} must be a whole number at least {at_least}, got {value!r}"
        )


def require_flag(strategy: str, name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise UserError(f"strategy {strategy}: {name} must be true or false, got {value!r}")
