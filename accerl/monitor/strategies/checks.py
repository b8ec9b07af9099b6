"""Checks of parameters that several strategies share; each says what is allowed."""

from __future__ import annotations

import math

from accerl.errors import UserError, is_number, require
from accerl.spec import CompressionSpec


def require_spec(strategy: str, name: str, value: object) -> None:
    """Refuse what is not a spec."""
    is_spec = isinstance(value, CompressionSpec)
    require(is_spec, f"strategy {strategy}: {name}", "must be a spec", value)


def require_pair(strategy: str, one: str, first: object, other: str, second: object) -> None:
    """Refuse two specs to switch between that are the same."""
    require_spec(strategy, one, first)
    require_spec(strategy, other, second)
    if first == second:
        raise UserError(f"strategy {strategy}: {one} and {other} are the same spec")


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
    bounds = [f"at least {at_least}"] * (at_least > -math.inf)
    bounds += [f"above {above}"] * (above > -math.inf)
    bounds += [f"at most {at_most}"] * (at_most < math.inf)
    allowed = is_number(value) and at_least <= value <= at_most and value > above
    rule = f"must be a number {' and '.join(bounds)}".rstrip()
    require(allowed, f"strategy {strategy}: {name}", rule, value)


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
    allowed = isinstance(value, int) and not isinstance(value, bool) and value >= at_least
    rule = f"must be a whole number at least {at_least}"
    require(allowed, f"strategy {strategy}: {name}", rule, value)


def require_held(
    strategy: str, specs: object, seed: object, hold_intervals: object
) -> tuple[CompressionSpec, ...]:
    """Return the specs that are drawn by a seed and held for so many intervals, as a tuple.

    Raises:
        UserError: they are no specs, or one of the numbers is not allowed.
    """
    found = require_specs(strategy, specs)
    require_whole(strategy, "seed", seed, at_least=0)
    require_whole(strategy, "hold_intervals", hold_intervals, at_least=1)
    return found


def require_flag(strategy: str, name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    is_flag = isinstance(value, bool)
    require(is_flag, f"strategy {strategy}: {name}", "must be true or false", value)
