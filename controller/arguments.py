"""Arguments of modules that are started with `python -m`; a user's mistake is one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from accerl.errors import UserError


@contextmanager
def one_line_mistakes(module: str) -> Iterator[None]:
    """End the program with exit code 2 and one line where a user made a mistake.

    Args:
        module: what the line begins with.
    """
    try:
        yield
    except UserError as error:
        print(f"{module}: {error}", file=sys.stderr)
        sys.exit(2)


def read_count(arguments: Sequence[str], default: int, name: str) -> int:
    """Return the number that is the only argument, or the default without one.

    Raises:
        UserError: it is no whole number from 1 on, or not the only one.
    """
    given = arguments[0] if arguments else str(default)
    if len(arguments) > 1 or not given.isdecimal() or int(given) < 1:
        raise UserError(f"give one {name}, a whole number from 1 on, got {' '.join(arguments)!r}")
    return int(given)


def read_folder(arguments: Sequence[str]) -> Path:
    """Return the folder that is the only argument.

    Raises:
        UserError: there is none, or more than one.
    """
    if len(arguments) != 1:
        raise UserError(f"give one DIR, a folder, got {' '.join(arguments) or 'nothing'!r}")
    return Path(arguments[0])
