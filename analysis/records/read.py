"""Reading records that are JSON: what is missing or damaged is said in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import read_json


def read_record(path: Path, required: Sequence[str] = ()) -> dict[str, Any]:
    """Read a file that holds a JSON object.

    Raises:
        UserError: it is missing or damaged, or lacks one of the keys `required`.
    """
    found = as_object(read_json(path), path)
    missing = [key for key in required if key not in found]
    if missing:
        raise UserError(f"{path} is incomplete or damaged: it has no {', '.join(missing)}")
    return found


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


def as_object(data: Any, path: Path, what: str = "a JSON object") -> dict[str, Any]:
    """Return `data` of a file if it is a JSON object.

    Raises:
        UserError: it is none; `what` says what the file must hold.
    """
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold {what}, found {type(data).__name__}")
    return data
