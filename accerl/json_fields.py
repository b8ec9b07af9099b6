"""JsonFields: dataclasses that are written as JSON objects, field by field."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from accerl.spec import CompressionSpec, by_spec


class JsonFields:
    """A dataclass that is written as a JSON object, and read as its annotations say.

    Fields are plain values, classes with `to_json` and `from_json`, or tuples of these; or lists
    and mappings of plain values, whose keys are words, whole numbers or specs (by their label).
    """

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {name: _write(value) for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote; fields that are missing have their defaults."""
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
    if origin is tuple:
        return tuple(_read(parts[0], item) for item in value)
    if origin is not None and isinstance(value, Mapping):
        if parts[0] is CompressionSpec:
            value = by_spec(value)
        elif parts[0] is int:
            value = {int(key): parts[1](item) for key, item in value.items()}
        return defaultdict(parts[1], value) if origin is defaultdict else dict(value)
    if origin is list:
        return list(value)
    return kind.from_json(value) if hasattr(kind, "from_json") else value
