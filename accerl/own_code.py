"""A user's own code by its import path, such as ``mynets:small``."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accerl.errors import UserError, one_line, raised_in


def find_own(what: str, path: str, example: str) -> Callable[..., Any]:
    """Return the function or class at an import path.

    Args:
        what: it is, as the message begins.
        path: ``module:name``.
        example: of such a path.

    Raises:
        UserError: there is none.
    """
    module, _, name = path.rpartition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{what} {path!r}: {one_line(error)}; give the import path of a function or class, "
            f"as in {example}, of a module that can be imported from here"
        ) from error
    except Exception as error:  # a user's own code may fail in any way
        raise UserError(
            f"{what} {path!r}: importing {module!r} failed, {type(error).__name__}: "
            f"{one_line(error)}{raised_in(error)}; mend it"
        ) from error


def source_hash(path: str) -> str:
    """Return a hash of the file that an import path names, so that a change of it is seen.

    What that file imports is not in it. "" where there is no file.
    """
    found = find_spec(path.partition(":")[0])
    origin = None if found is None else found.origin
    if origin is None or not Path(origin).is_file():
        return ""
    return sha256(Path(origin).read_bytes()).hexdigest()[:12]
