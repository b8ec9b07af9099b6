"""A user's own code by its import path, such as ``mynets:small``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accerl.errors import UserError, first_line, one_line, raised_in


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
    """Return a hash of the module or the whole package that an import path begins with.

    So a change of it is seen, wherever in the package the name is defined. What it imports from
    elsewhere is not in it. "" where there is no file.
    """
    parts = path.partition(":")[0].split(".")
    # A namespace package has no file of its own: what lies in it has.
    found = (find_spec(".".join(parts[:count])) for count in range(1, len(parts) + 1))
    try:
        file = next(Path(each.origin) for each in found if each is not None and each.origin)
    except (ModuleNotFoundError, StopIteration):
        return ""
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    digest = sha256()
    for each in files:
        digest.update(each.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def own_errors(what: str, owner: Any) -> Iterator[None]:
    """Turn what a user's own object raises into one line; what is not the user's raises as it is.

    Args:
        what: it is, as the message begins.
        owner: the object.

    Raises:
        UserError: in place of any exception.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a user's own code may fail in any way
        package = type(owner).__module__.partition(".")[0]
        if package in ("accerl", "controller", "studies"):
            raise
        raise UserError(
            f"{what} {type(owner).__name__}: {type(error).__name__}: "
            f"{first_line(error)}{raised_in(error)}; mend it"
        ) from error
