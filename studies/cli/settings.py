"""--set SECTION.NAME=VALUE: any setting of a preset, from the command line."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean


def with_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """Return `config` with settings such as ``compression.prune_criterion=taylor``.

    Sections are the parts of `RunConfig` that are dataclasses; names and types are those of their
    fields. Values are JSON, or else words. An object fills a setting that is a dataclass itself:
    ``learner.sparse={"method": "set"}``.

    Raises:
        UserError: there is no such setting, or the value is of another type or not allowed.
    """
    sections = [item.name for item in fields(config) if is_dataclass(getattr(config, item.name))]
    changes: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, dot, name = path.partition(".")
        if not (equals and dot):
            raise UserError(f"--set {setting}: write it like compression.prune_criterion=taylor")
        if section not in sections:
            hint = did_you_mean(section, sections)
            raise UserError(f"--set {setting}: {section!r} does not exist; {hint}")
        part = getattr(config, section)
        kinds = _checked_types(type(part), [name], f"--set {setting}: {section}")
        try:
            changes[section][name] = _read(text, kinds[name], f"--set {setting}: {name}")
        except TypeError as error:
            needed = json.dumps(getattr(part, name))
            raise UserError(
                f"--set {setting}: a value like {needed} is needed, got {text!r}"
            ) from error
    parts = {name: replace(getattr(config, name), **changed) for name, changed in changes.items()}
    return replace(config, **parts)


def _read(text: str, kind: Any, where: str) -> Any:
    """Return the value of type `kind`, which may be a union, that `text` stands for.

    Raises:
        TypeError: it stands for a value of another type.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    for allowed in get_args(kind) or (kind,):
        if isinstance(value, dict) and isinstance(allowed, type) and is_dataclass(allowed):
            _checked_types(allowed, value, where)
            return allowed(**value)
        if allowed is float and type(value) is int:
            return float(value)
        if type(value) is allowed:  # a bool is an int to isinstance
            return value
    raise TypeError(f"{value!r} is no {kind}")


def _checked_types(owner: type[Any], names: Iterable[str], where: str) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name, once `names` are among them."""
    types = get_type_hints(owner)
    for name in names:
        if name not in types:
            raise UserError(f"{where} has no {name!r}; {did_you_mean(name, list(types))}")
    return types
