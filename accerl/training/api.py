"""train(): a whole run in one call, from the names that the command line uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import accerl
from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean, require_choice
from accerl.monitor.strategies import STRATEGIES, FixedStrategy, HandSetStrategy, make_strategy
from accerl.monitor.strategy import Strategy
from accerl.presets import load_preset
from accerl.training.run import RunResult, run_training
from accerl.training.run_folder import holds_run

SECTIONS = ("learner", "runtime", "compression")


def train(
    game: str,
    *,
    network: str | None = None,
    strategy: Strategy | str | Path | None = None,
    seconds: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    **settings: Any,
) -> RunResult:
    """Train on a game and return what came of it.

    Args:
        game: a preset.
        network: the learner's network; None: the preset's.
        strategy: an object, the name of a hand-set strategy, or the folder of a schedule bundle;
            None acts without compression.
        seconds: length of the run on its own clock; None: the preset's.
        seed: of everything random.
        out: folder to record the run in; None records nothing.
        settings: any setting of a preset, as ``section__name``: ``runtime__num_envs=8``.

    Raises:
        UserError: a name or value is not allowed, or `out` holds a run already.
    """
    config = replace(load_preset(game), seed=seed)
    if network is not None:
        config = replace(config, network=network)
    if seconds is not None:
        config = replace(config, seconds=seconds)
    config = with_settings(config, settings)
    folder = None if out is None else Path(out)
    if folder is not None and holds_run(folder):
        raise UserError(f"{folder} already holds a run; give another out")
    chosen = _strategy(strategy)
    default = str(strategy) if isinstance(strategy, str | Path) else type(chosen).__name__
    name = chosen.label if isinstance(chosen, HandSetStrategy) else default
    return run_training(config, chosen, strategy_name=name, out=folder)


def with_settings(config: RunConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Return `config` with other settings, by ``section__name``.

    Raises:
        UserError: there is no such setting, or a value is not allowed.
    """
    changes: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    known = [
        f"{section}__{item.name}"
        for section in SECTIONS
        for item in fields(getattr(config, section))
    ]
    for setting, value in settings.items():
        require_choice("setting", setting, known)
        section, _, name = setting.partition("__")
        changes[section][name] = value
    sections: dict[str, Any] = {
        section: replace(getattr(config, section), **given) for section, given in changes.items()
    }
    return replace(config, **sections)


def _strategy(strategy: Strategy | str | Path | None) -> Strategy:
    if strategy is None:
        return FixedStrategy()
    if not isinstance(strategy, str | Path):
        return strategy
    if strategy in STRATEGIES:
        return make_strategy(str(strategy))
    if Path(strategy).is_dir():
        return accerl.load_bundle(strategy)
    hint = did_you_mean(str(strategy), list(STRATEGIES))
    raise UserError(f"strategy {str(strategy)!r} does not exist; {hint}, or the folder of a bundle")
