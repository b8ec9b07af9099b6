"""RunEvent: something that went wrong in a run and what was done about it."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.json_fields import JsonFields


@dataclass(frozen=True, kw_only=True)
class RunEvent(JsonFields):
    """One entry of `IntervalReport.events`."""

    role: str
    """of the process that it happened to"""
    index: int | None = None
    """of several with that role"""
    exit_code: int | None = None
    """of a process that ended"""
    seconds: float
    """clock of the run"""
    label: str | None = None
    """of the spec that cannot be built"""
    is_retried: bool = False
    """whether it is built again of other weights: it may act yet"""
    cause: str
    action: str
