"""RunEvent: something that went wrong in a run and what was done about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """One entry of `IntervalReport.events`."""

    role: str
    """of the process that it happened to"""
    index: int | None = None
    """of several with that role"""
    exit_code: int | None = None
    """of a process that ended"""
    seconds: float
    """clock of the run"""
    cause: str
    action: str

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return asdict(self)
