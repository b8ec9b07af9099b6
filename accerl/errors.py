"""The one exception that speaks to a person instead of a programmer."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user: the message is one line that says what to do; exit code 2."""


def one_line(error: BaseException) -> str:
    """Return what another's error says, on one line; its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of what another's error says; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def did_you_mean(given: str, allowed: list[str]) -> str:
    """Return the sentence that lists `allowed`, naming the closest spelling first."""
    import difflib

    close = difflib.get_close_matches(given, allowed, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(allowed)}"
