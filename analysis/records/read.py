"""Reading records that are JSON: what is missing or damaged is said in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from accerl.errors import UserError
from accerl.records import read_json

Read = TypeVar("Read")


def read_record(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object.

    Raises:
        UserError: it is missing or damaged.
    """
    return as_object(read_json(path), path)


def read_optional(path: Path) -> dict[str, Any]:
    """Read a file that holds a JSON object; a missing file is an empty one.

    Raises:
        UserError: it is damaged.
    """
    return read_record(path) if path.is_file() else {}


def read_list(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Read a file that holds a JSON list of objects; a missing file is an empty one.

    Raises:
        UserError: it is damaged.
    """
    rows = read_json(path) if path.is_file() else []
    what = "a list of JSON objects"
    if not isinstance(rows, list):
        raise UserError(f"{path} must hold {what}, found {type(rows).__name__}")
    return tuple(as_object(row, path, what) for row in rows)


def read_rows(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Read a JSON-lines file of objects; a missing file is no rows, a cut last line is dropped.

    Raises:
        UserError: a line before the last is damaged.
    """
    if not path.is_file():
        return ()
    rows: list[Mapping[str, Any]] = []
    lines = path.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise UserError(f"{path}, line {number} is damaged: {error}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number} is not a JSON object")
        rows.append(row)
    return tuple(rows)


NAMES = {
    **{int: "a whole number", float: "a number", bool: "true or false", str: "a text"},
    **{list: "a list", dict: "an object"},
}


def require_shape(data: Any, shape: Any, where: str) -> None:
    """Refuse what is not as `shape` says: a type; a list of one shape, or an object of some keys.

    Args:
        data: read from JSON.
        shape: a type, `float` for any number; ``[shape]``; ``{"key": shape}``, where there may be
            more keys; ``{str: shape}``, where any are allowed; or one of these ``| None``, written
            as ``(shape, None)``.
        where: what errors begin with, such as the file.

    Raises:
        UserError: it is not; says where.
    """
    if isinstance(shape, tuple):
        if data is not None:
            require_shape(data, shape[0], where)
        return
    kind = next((kind for kind in (list, dict) if isinstance(shape, kind)), shape)
    accepted: Any = (int, float) if kind is float else kind
    is_kind = isinstance(data, accepted)
    if not is_kind or (type(data) is bool) != (kind is bool):
        said = "nothing" if data is None else f"{type(data).__name__} {str(data)[:40]!r}"
        raise UserError(f"{where} is damaged: {NAMES[kind]} was expected, found {said}")
    if isinstance(shape, list):
        for index, item in enumerate(data):
            require_shape(item, shape[0], f"{where}[{index}]")
    elif isinstance(shape, dict):
        missing = [key for key in shape if key is not str and key not in data]
        if missing:
            raise UserError(f"{where} is incomplete or damaged: it has no {', '.join(missing)}")
        for key in data if str in shape else shape:
            require_shape(data[key], shape.get(key, shape.get(str)), f"{where}: {key}")


def shaped(path: Path, read: Callable[[Path], Read], shape: Any) -> Read:
    """Return what `read` makes of a file that may be missing, if it is as `shape` says.

    Raises:
        UserError: it is damaged.
    """
    found = read(path)
    if found:
        require_shape(list(found) if isinstance(found, tuple) else found, shape, str(path))
    return found


def as_object(data: Any, path: Path, what: str = "a JSON object") -> dict[str, Any]:
    """Return `data` of a file if it is a JSON object.

    Raises:
        UserError: it is none; `what` says what the file must hold.
    """
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold {what}, found {type(data).__name__}")
    return data
