"""--set SECTION.NAME=VALUE: any setting of a preset, from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean

SECTIONS = ("learner", "runtime", "compression")


def with_settings(config: RunConfig, settings: Sequence[str]) -> RunConfig:
    """Return `config` with settings such as ``compression.prune_criterion=taylor``.

    Values are JSON; what is none is a word. Objects fill settings that have parts:
    ``learner.sparse={"method": "set"}``.

    Raises:
        UserError: there is no such setting, or the value is of another kind or not allowed.
    """
    data = config.to_json()
    for setting in settings:
        path, equals, text = setting.partition("=")
        section, dot, name = path.partition(".")
        if not (equals and dot):
            raise UserError(f"--set {setting}: write it like compression.prune_criterion=taylor")
        if section not in SECTIONS:
            hint = did_you_mean(section, list(SECTIONS))
            raise UserError(f"--set {setting}: {section!r} does not exist; {hint}")
        known = data[section]
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise UserError(f"--set {setting}: {section} has no {name!r}; {hint}")
        value = _read(text)
        if not _fits(value, known[name]):
            raise UserError(
                f"--set {setting}: a value like {json.dumps(known[name])} is needed, got {text!r}"
            )
        known[name] = value
    return RunConfig.from_json(data)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _fits(value: Any, current: Any) -> bool:
    """Whether `value` may take the place of `current`."""
    if current is None or isinstance(current, dict):
        return value is None or isinstance(value, dict | bool)
    if isinstance(current, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(current, bool)
    if isinstance(current, float):
        return isinstance(value, int | float)
    return isinstance(value, type(current))
