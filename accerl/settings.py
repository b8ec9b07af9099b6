"""Settings by name, ``section.name``: from the command line, Python or a configuration file."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from accerl.config import RunConfig
from accerl.correct.combinations import OWN, levels_of
from accerl.errors import UserError, did_you_mean, first_line
from accerl.families import with_reward_scale
from accerl.json_fields import read_toml_or_json
from accerl.learner.config import LearnerConfig
from accerl.presets import PRESETS, load_preset

RECORDED = ("strategy", "strategy_params", "shield", "profile_hash", "own_parts", "machine")
"""what the config.json of a run says besides its configuration"""
_PRINTED = ("fingerprint", "versions")
"""what --print-config --json says besides the configuration"""
LARGEST = 2**32 - 1
"""of whole numbers but seeds, which `RunConfig` bounds"""
_OPTIONS = ("seconds", "seed", "network", "start", "events")
"""of the command line, which are no settings"""


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return settings such as ``compression.prune_criterion=taylor``; values are JSON, or words.

    Raises:
        UserError: one is not written like that.
    """
    settings = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not (equals and "." in path):
            option = f"; for {path} there is --{path}" if path in _OPTIONS else ""
            raise UserError(
                f"--set {text}: write it like compression.prune_criterion=taylor{option}"
            )
        try:
            settings[path] = json.loads(value)
        except json.JSONDecodeError:
            settings[path] = value
        except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
            raise UserError(f"--set {path}: {first_line(error)}") from error
    return settings


def read_file(path: Path, game: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a TOML or JSON file says of a run: fields of `RunConfig`, and its settings.

    Args:
        path: ends in .toml or .json; what it leaves out stays as it is.
        game: that it must be for, if it names one.

    Raises:
        UserError: it cannot be read, has unknown entries, or is for another game.
    """
    data = read_toml_or_json(path, f"--config {path}")
    if not isinstance(data, dict):
        raise UserError(f"--config {path}: an object such as --print-config prints is needed")
    named = data.get("preset", data.get("game", game))
    if named != game:
        raise UserError(f"--config {path} is for {named!r}; give that game, or another file")
    settings, own = {}, {}
    for name, value in data.items():
        if name in ("hash", "preset", "game", *_PRINTED, *RECORDED):
            continue
        if isinstance(value, dict):
            settings |= {f"{name}.{each}": setting for each, setting in value.items()}
        else:
            own[name] = value
    return _fitted(RunConfig, own, f"--config {path}"), settings


def configure(
    game: str,
    settings: Mapping[str, Any],
    file: Path | None = None,
    *,
    label: str = "--set",
    **own: Any,
) -> RunConfig:
    """Return a game's configuration: its defaults, then a file, then settings.

    Sections are the parts of `RunConfig` that are dataclasses; names and types are those of their
    fields. An object fills a setting that is a dataclass itself, as in
    ``{"learner.sparse": {"method": "set"}}``; a list of objects, one that holds such; a list, or a
    word with commas, one that holds words.

    Args:
        game: see `load_preset`.
        settings: values by ``section.name``.
        file: see `read_file`.
        label: what errors about `settings` begin with.
        own: fields of `RunConfig` itself; None leaves one as it is.

    Raises:
        UserError: the game, the file or a setting is not allowed.
    """
    filed_own, filed = ({}, {}) if file is None else read_file(file, game)
    changes = _checked(filed, f"--config {file}")
    for section, given in _checked(settings, label).items():
        changes[section] = {**changes.get(section, {}), **given}
    # What the networks see decides which defaults a game has.
    config = _replaced(load_preset(game, changes.pop("env", {})), changes)
    if config.preset not in PRESETS and "reward_scale" not in changes.get("learner", {}):
        config = with_reward_scale(config)
    given = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in own.items()
        if value is not None
    }
    return replace(config, **{**filed_own, **given})


def refuse_idle(config: RunConfig, given: Collection[str], label: str = "--set") -> None:
    """Refuse settings that were given and would do nothing with the run's clock or its learner.

    Args:
        config: that came of them.
        given: their names, ``section.name``.
        label: what errors begin with.

    Raises:
        UserError: one of them would.
    """
    counted = {"runtime.num_actors", "runtime.num_distillers"}.intersection(given)
    if counted and config.runtime.clock == "virtual":
        raise UserError(
            f"{label} {min(counted)} goes with the real clock: on the virtual one the latency "
            "profile says how many there are; take the real clock, or another profile"
        )
    if "runtime.profile" in given and config.runtime.clock == "real":
        raise UserError(
            f"{label} runtime.profile goes with the virtual clock; take the serial runtime and "
            "that clock"
        )
    if "runtime.pin_cores" in given and config.runtime.runtime == "serial":
        raise UserError(f"{label} runtime.pin_cores goes with processes; take the process runtime")
    of_ray = sorted(name for name in given if name.startswith("ray."))
    if of_ray and config.runtime.runtime != "ray":
        raise UserError(f"{label} {of_ray[0]} goes with the runtime ray")
    idle = _idle_in(config.learner)
    if found := [name for name in idle if f"learner.{name}" in given]:
        raise UserError(f"{label} learner.{found[0]} would do nothing: {idle[found[0]]}")


def _idle_in(learner: LearnerConfig) -> dict[str, str]:
    """Return which settings change nothing beside the learner's others, and what they need."""
    found: dict[str, str] = {}
    if learner.policy_loss != "clipped":
        found |= dict.fromkeys(("clip_ratio", "proximal"), "it needs learner.policy_loss clipped")
    elif learner.reuse * learner.minibatches == 1:
        need = "nothing is clipped in one pass in one part; raise learner.reuse or minibatches too"
        found |= dict.fromkeys(("policy_loss", "clip_ratio", "proximal"), need)
    if not learner.anneal_updates:
        found["anneal_to"] = "it needs learner.anneal_updates"
    if not learner.normalise_advantages:
        found["advantage_moments"] = "it needs learner.normalise_advantages"
    if learner.corrector != OWN:
        for level in {"rho", "c"} - levels_of(learner.corrector):
            found[f"clip_{level}"] = f"learner.corrector {learner.corrector} does not read it"
    return found


def to_text(config: RunConfig) -> str:
    """Return the whole configuration as JSON; `read_file` reads it back."""
    return json.dumps(asdict(config), indent=2)


def _checked(settings: Mapping[str, Any], label: str) -> dict[str, dict[str, Any]]:
    """Return values of the right types, by section and name.

    Raises:
        UserError: there is no such setting, or a value is of another type.
    """
    kinds: dict[str, Any] = {
        name: kind for name, kind in get_type_hints(RunConfig).items() if is_dataclass(kind)
    }
    sections: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for path, value in settings.items():
        section, _, name = path.partition(".")
        if section not in kinds:
            hint = did_you_mean(section, list(kinds))
            raise UserError(f"{label} {path}: {section!r} does not exist; {hint}")
        sections[section][name] = value
    return {
        section: _fitted(kinds[section], given, f"{label} {section}")
        for section, given in sections.items()
    }


def _fitted(owner: type[Any], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values for fields of a dataclass, as the types of those fields."""
    kinds, values = _check_names(owner, given, where), {}
    for name, value in given.items():
        try:
            most = math.inf if name == "seed" else LARGEST
            values[name] = _fit(value, kinds[name], where, most)
        except TypeError as error:
            standard = getattr(owner, name, None)
            if standard is None or is_dataclass(standard):
                needed = " or ".join(map(_form, get_args(kinds[name]) or (kinds[name],)))
            else:
                needed = f"a value like {json.dumps(standard)}"
            raise UserError(f"{where}.{name}: {needed} is needed, got {value!r}") from error
    return values


def _form(kind: Any) -> str:
    """Return how a value of a type is written."""
    if isinstance(kind, type) and is_dataclass(kind):
        return f"an object with {', '.join(item.name for item in fields(kind))}"
    return "null" if kind is NoneType else getattr(kind, "__name__", str(kind))


def _replaced(config: RunConfig, changes: Mapping[str, Mapping[str, Any]]) -> RunConfig:
    parts = {name: replace(getattr(config, name), **given) for name, given in changes.items()}
    return replace(config, **parts)


def _fit(value: Any, kind: Any, where: str, most: float = LARGEST) -> Any:
    """Return `value` as the type `kind`, which may be a union.

    Raises:
        TypeError: it is of another type.
    """
    if get_origin(kind) is tuple and hasattr(get_args(kind)[0], "read"):
        if isinstance(value, list | tuple):
            return tuple(get_args(kind)[0].read(item) for item in value)
        raise TypeError
    if get_origin(kind) is tuple:  # of words
        words = value.split(",") if isinstance(value, str) else value
        if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
            return tuple(words)
        raise TypeError
    value = value.item() if isinstance(value, np.generic) else value
    if type(value) is int and abs(value) > most:
        raise UserError(f"{where}: numbers are at most {most:,}, got {value}")
    for allowed in get_args(kind) or (kind,):
        if isinstance(value, dict) and isinstance(allowed, type) and is_dataclass(allowed):
            _check_names(allowed, value, where)
            return allowed(**value)
        if allowed is float and type(value) is int:
            return float(value)
        if type(value) is allowed:  # a bool is an int to isinstance
            return value
    raise TypeError


def _check_names(owner: type[Any], names: Iterable[str], where: str) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name, once `names` are among them."""
    types = get_type_hints(owner)
    for name in names:
        if name not in types:
            raise UserError(f"{where} has no {name!r}; {did_you_mean(name, list(types))}")
    return types
