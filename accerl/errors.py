"""The one exception that speaks to a person instead of a programmer."""

from __future__ import annotations

import json
import math
import sysconfig
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeGuard


class UserError(Exception):
    """A mistake of the user: the message is one line that says what to do; exit code 2."""


class CannotCompressError(UserError):
    """A network cannot be compressed as asked; a run that has begun acts with something else."""


class RefusedBeforeError(CannotCompressError):
    """It was tried before: this time nothing was built."""


class DivergedError(UserError):
    """Weights are NaN or infinite."""


class ForwardError(UserError):
    """A network's own forward raised."""


class GameError(UserError):
    """An environment raised, or returned NaN, while it was played.

    Args:
        text: one line that names the environment and the step.
        details: the environment's own traceback; empty if it raised nothing.
        saved: whether a file holds the traceback, which the text names.
    """

    def __init__(self, text: str, details: str = "", *, saved: bool = False) -> None:
        super().__init__(text)
        self.details = details
        self.saved = saved


def one_line(error: BaseException) -> str:
    """Return what another's error says, on one line; its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def last_line(error: BaseException) -> str:
    """Return the last line of what another's error says: TorchScript begins with where it was."""
    return ([*filter(str.strip, str(error).splitlines())] or [type(error).__name__])[-1].strip()


def is_users(file: Path) -> bool:
    """Whether a file is a user's own: neither these packages', nor installed, nor Python's."""
    root = Path(__file__).parents[1]
    others = {root / name for name in ("accerl", "controller", "studies", "analysis")}
    others.add(Path(sysconfig.get_path("stdlib")))
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(file.parts)
    return file.is_file() and not is_installed and others.isdisjoint(file.parents)


def raised_in(error: BaseException) -> str:
    """Return file and line of a user's own code that raised, as `` (mynets.py:7)``; "" if unknown.

    That is the innermost frame in a user's own file. A syntax error names its place itself.
    """
    if isinstance(error, SyntaxError):
        return ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if is_users(path):
            return f" ({path.name}:{frame.lineno})"
    return ""


def first_line(error: BaseException) -> str:
    """Return the first line of what another's error says; its type where it says nothing.

    What is wrong with a file is said without the numbers and names that Python has for it.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, UnicodeDecodeError):
        return "it holds no text"
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}, column {error.colno}"
        return f"JSON ends or goes wrong at {place}" if error.doc.strip() else "it is empty"
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def read_json_text(text: str, what: str, example: str) -> Any:
    """Return what a JSON text of the command line holds.

    Args:
        text: as it was given.
        what: what errors begin with.
        example: how it is to be written.

    Raises:
        UserError: it is no JSON, or nothing that Python can hold: nested too deeply, or a whole
            number of thousands of digits.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{what}: not valid JSON ({first_line(error)}); write it like {example}"
        ) from error


def did_you_mean(given: str, allowed: list[str]) -> str:
    """Return the sentence that lists `allowed`, naming the closest spelling first."""
    import difflib

    close = difflib.get_close_matches(given, allowed, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(allowed)}"


def require(allowed: bool, name: str, rule: str, given: object) -> None:
    """Refuse what is not allowed: ``learner: reuse must be at least 1, got 0``."""
    if not allowed:
        raise UserError(f"{name} {rule}, got {given!r}")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number that a float can hold; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def require_fields(
    config: object, section: str, names: str, rule: str, allowed: Callable[[float], bool]
) -> None:
    """Refuse a configuration of which one of these numbers is not allowed; NaN never is."""
    for name in names.split():
        given = getattr(config, name)
        require(allowed(given), f"{section}: {name}", rule, given)


def require_choice(name: str, given: object, choices: Collection[str]) -> None:
    """Refuse a word that is none of `choices`."""
    if given not in choices:
        hint = did_you_mean(str(given), list(choices))
        raise UserError(f"{name} {given!r} does not exist; {hint}")
