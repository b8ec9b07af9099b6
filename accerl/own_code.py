"""A user's own code by its import path, such as ``mynets:small``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from accerl.errors import UserError, first_line, is_users, one_line, raised_in, require


@dataclass(frozen=True, kw_only=True)
class OwnConfig:
    """Components of a user's own, each as ``module:Class`` that is called without arguments.

    Raises:
        UserError: one is no such path.
    """

    links: tuple[str, ...] = ()
    """compressors that every published network goes through after it was distilled and pruned, each
    before the shipped one of its `stage`: TUNE and FACTORISE before it is factorised, QUANTISE
    before it is rounded; these three are lists of module:Class, each called without
    arguments"""
    correctors: tuple[str, ...] = ()
    """what corrects after `learner.corrector`, in this order"""
    indicators: tuple[str, ...] = ()
    """what strategies and records find beside the monitor's own"""

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            given = (given,) if isinstance(given, str) else tuple(given)
            object.__setattr__(self, field.name, given)  # JSON knows no tuples
            paths = all(isinstance(path, str) and all(path.rpartition(":")) for path in given)
            require(paths, f"own: {field.name}", "must be import paths, module:Class", given)

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.links, *self.correctors, *self.indicators)


NOTHING_OWN = OwnConfig()


def class_name(part: object) -> str:
    """Return what records call an object of the user's, ``module:Class``."""
    return f"{type(part).__module__}:{type(part).__qualname__}"


def described(part: object) -> str:
    """Return `class_name`, with the numbers and words that a dataclass holds in brackets."""
    if not is_dataclass(part):
        return class_name(part)
    held = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
    plain = [f"{name}={each}" for name, each in held.items() if isinstance(each, int | float | str)]
    return f"{class_name(part)}({', '.join(plain)})" if plain else class_name(part)


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


def make_own(what: str, path: str, example: str, params: Mapping[str, Any] | None = None) -> Any:
    """Return an object of the function or class at an import path, made with `params`.

    Args:
        what: it is, as the message begins.
        path: ``module:name``.
        example: of such a path.
        params: arguments by name; None: it takes none.

    Raises:
        UserError: there is none, or it cannot be made.
    """
    make = find_own(what, path, example)
    try:
        return make(**(params or {}))
    except Exception as error:  # a user's own code may fail in any way
        given = "without arguments" if params is None else f"with {dict(params)}"
        raise UserError(
            f"{what} {path!r} cannot be made {given}: {one_line(error)}{raised_in(error)}"
        ) from error


def source_hash(path: str) -> str:
    """Return a hash of the code that an import path leads to; "" where there is no file.

    That is the module or the whole package that the path begins with, and whatever else of a user's
    own it imports, directly or through another. So a change is seen wherever it is made. What is
    imported by a name that is put together at run time is not in it.
    """
    sources, waiting = dict[str, list[Path]](), [path.partition(":")[0]]
    while waiting:
        name, file = _find_source(waiting.pop())
        if file is None or name in sources or (sources and not is_users(file)):
            continue
        is_package = file.name == "__init__.py"
        sources[name] = sorted(file.parent.rglob("*.py")) if is_package else [file]
        if is_users(file):
            root = name if is_package else name.rpartition(".")[0]
            for each in sources[name]:
                folders = each.parent.relative_to(file.parent).parts
                waiting += _imports(each, ".".join((root, *folders)))
    digest = sha256()
    for name in sorted(sources):  # in whatever order they were found
        for each in sources[name]:
            digest.update(each.read_bytes())
    return digest.hexdigest()[:12] if sources else ""


def _find_source(module: str) -> tuple[str, Path | None]:
    """Return the module or package that a dotted name begins with, and its file; None: it has none.

    A namespace package has no file of its own: what lies in it has.
    """
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        try:
            found = find_spec(name)
        except (ImportError, ValueError):  # it does not exist, or was made up at run time
            break
        if found is not None and found.origin:
            file = Path(found.origin)
            return name, file if file.is_file() else None
    return module, None


def _imports(file: Path, package: str) -> Iterator[str]:
    """Yield the dotted names that a file of a package imports: modules, and names in modules."""
    try:
        nodes = [*ast.walk(ast.parse(file.read_bytes()))]
    except (SyntaxError, ValueError):  # it is no Python, or of another version
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # it leads out of the package
                module = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{module}.{alias.name}" for alias in node.names)


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
