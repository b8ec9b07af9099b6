"""JsonFields: dataclasses that are written as JSON objects, field by field."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from accerl.errors import UserError, first_line
from accerl.spec import CompressionSpec, by_spec

ACCEPTED = {int: (int,), float: (int, float), bool: (bool,), str: (str,)}
"""what a field of plain values may hold; whole numbers stand for real ones"""
NUMBERS = (int, float)
"""kinds for which true and false, whole numbers of Python's, do not stand"""


def read_toml_or_json(path: Path, where: str) -> Any:
    """Return what a TOML or JSON file that somebody wrote by hand holds.

    Args:
        path: ends in .toml, or anything else for JSON.
        where: what errors begin with.

    Raises:
        UserError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin files with a mark
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{where}: {first_line(error)}") from error


class JsonFields:
    """A dataclass that is written as a JSON object, and read as its annotations say.

    Fields are plain values, classes with `to_json` and `from_json`, or tuples of these; or lists
    and mappings of plain values, whose keys are words, whole numbers or specs (by their label).
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {each.name: _write(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; fields that are missing have their defaults.

        Raises:
            TypeError: a value is of another kind than its field, or one is missing.
            AttributeError, KeyError, ValueError: what should be an object, or a key, is none.
        """
        kinds = _kinds(cls)
        return cls(**{name: _read(kinds.get(name), value) for name, value in data.items()})


_kinds = cache(get_type_hints)


def _write(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_write(item) for item in value]
    if isinstance(value, Mapping):
        return {
            key.label if isinstance(key, CompressionSpec) else str(key): _write(item)
            for key, item in value.items()
        }
    return value


def _read(kind: Any, value: Any) -> Any:
    """Return `value` as a field of this kind; nothing is shared with what was read."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:  # with None
        return None if value is None else _read(parts[0], value)
    if origin is not None and issubclass(origin, Sequence):
        items = [_read(parts[0], item) for item in value]
        return tuple(items) if origin is tuple else items
    if origin is not None:
        read = {key: _read(parts[1], item) for key, item in value.items()}
        if parts[0] is CompressionSpec:
            read = by_spec(read)
        elif parts[0] is int:
            read = {int(key): item for key, item in read.items()}
        return defaultdict(parts[1], read) if origin is defaultdict else read
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    accepted = ACCEPTED.get(kind, (object,))
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind in NUMBERS):
        raise TypeError(f"{kind.__name__} was expected, not {value!r}")
    return value
