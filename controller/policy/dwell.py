"""Minimum dwell: a new decision is held for a number of intervals."""

from __future__ import annotations

from typing import Generic, TypeVar

from accerl.errors import UserError

T = TypeVar("T")


class Dwell(Generic[T]):
    """Holds every new choice for a minimum number of intervals, then leaves it free to change.

    Args:
        min_intervals: how long a new choice is held at least; 1 holds nothing.

    Raises:
        UserError: it is below 1.
    """

    def __init__(self, min_intervals: int = 1) -> None:
        if min_intervals < 1:
            raise UserError(f"min_dwell_intervals must be 1 or more, got {min_intervals}")
        self.min_intervals = min_intervals
        self._held: T | None = None
        self._age = 0

    def reset(self) -> None:
        """Hold nothing."""
        self._held, self._age = None, 0

    def settle(self, wanted: T) -> tuple[T, bool]:
        """Return what the next interval acts with, and whether that was free to choose.

        Choosing again what is held does not start another hold.
        """
        if self._held is not None and self._age < self.min_intervals:
            self._age += 1
            return self._held, False
        self._age = 1 if wanted != self._held else self._age + 1
        self._held = wanted
        return wanted, True
