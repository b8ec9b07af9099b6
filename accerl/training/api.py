"""train(): a whole run in one call, from the names that the command line uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import accerl
from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean, require_choice
from accerl.monitor.strategies import STRATEGIES, FixedStrategy, HandSetStrategy, make_strategy
from accerl.monitor.strategy import Strategy
from accerl.own_code import make_own
from accerl.settings import configure, refuse_idle
from accerl.spec import CompressionSpec, is_import_path
from accerl.training.run import RunResult, run_training
from accerl.training.run_folder import as_measured, resumed


def train(
    game: str,
    *,
    network: str | None = None,
    strategy: Strategy | CompressionSpec | str | Path | None = None,
    seconds: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    start: str | Path | None = None,
    until_score: float | None = None,
    **settings: Any,
) -> RunResult:
    """Train on a game and return what came of it.

    Args:
        game: a preset, an Atari game in snake case, or an id of Gymnasium's registry, where
            ``module:Id`` imports the module first.
        network: the learner's network; None: the game's.
        strategy: an object, what actors act with throughout, the name of a hand-set strategy,
            ``module:Class`` of your own, or the folder of a schedule bundle; None acts without
            compression.
        seconds: length of the run on its own clock; None: the game's.
        seed: of all random numbers.
        out: folder to record the run in; None records nothing.
        resume: whether to go on with the run in `out`, from its last checkpoint, to its length
            unless `seconds` says another.
        start: folder of a run whose learner this one begins with.
        until_score: score at which the run ends early: J, the learner's, where it is measured, and
            else the mean of the actors' last 20 episodes.
        settings: any setting of the configuration, as ``section__name``: ``runtime__num_envs=8``.

    Raises:
        UserError: a name or value is not allowed, `out` holds anything already, or nothing that
            could be resumed.
    """
    if not isinstance(game, str):
        raise UserError(
            "game: give its name, or module:Id of Gymnasium's registry, such as 'mygames:My-v0', "
            f"not {game!r}: other processes make it too"
        )
    if network is not None and not isinstance(network, str):
        raise UserError(
            f"network: give its import path, such as 'mynets:MyNet', not {network!r}: other "
            "processes import it too"
        )
    given = _by_path(settings)
    if "runtime.runtime" in given:  # the others have no other clock than the real one
        is_serial = given["runtime.runtime"] == "serial"
        given.setdefault("runtime.clock", "virtual" if is_serial else "real")
    config = configure(
        game,
        given,
        label="setting",
        network=network,
        seconds=seconds,
        seed=seed,
        start=None if start is None else str(Path(start).absolute()),
        until_score=until_score,
    )
    if earlier := out if resume else start:
        config = as_measured(config, Path(earlier), given)
    if resume and out is not None:
        config = resumed(config, Path(out), seconds)
    else:
        refuse_idle(config, given, "setting")
    chosen = _strategy(strategy)
    is_rule = isinstance(chosen, HandSetStrategy) and not is_import_path(str(strategy))
    name = None if is_rule or not isinstance(strategy, str | Path) else str(strategy)
    return run_training(config, chosen, strategy_name=name, out=out, resume=resume)


def _by_path(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by ``section.name``, where they are given by ``section__name``."""
    names = get_type_hints(RunConfig)
    known = [
        f"{section}__{item.name}"
        for section, kind in names.items()
        if is_dataclass(kind)
        for item in fields(kind)
    ]
    for setting in settings:
        meant = [name for name in known if name.endswith(f"__{setting}")]
        if meant:
            raise UserError(f"setting {setting!r} lacks its section; write {' or '.join(meant)}")
        require_choice("setting", setting, known)
    return {setting.replace("__", ".", 1): value for setting, value in settings.items()}


def _strategy(strategy: Strategy | CompressionSpec | str | Path | None) -> Strategy:
    if strategy is None:
        return FixedStrategy()
    if isinstance(strategy, CompressionSpec):
        return FixedStrategy(strategy)
    if not isinstance(strategy, str | Path):
        if not hasattr(strategy, "decide"):
            hint = (
                "; give CompressionSpec(bits=8) or the like" if isinstance(strategy, dict) else ""
            )
            raise UserError(
                f"strategy: expected an object with decide() and reset(), got {strategy!r}{hint}"
            )
        return strategy
    if strategy in STRATEGIES:
        return make_strategy(str(strategy))
    if Path(strategy).is_dir():
        return accerl.load_bundle(strategy)
    if ":" in str(strategy):
        return make_own("strategy", str(strategy), "mine:MyStrategy")
    hint = did_you_mean(str(strategy), list(STRATEGIES))
    raise UserError(
        f"strategy {str(strategy)!r} does not exist; {hint}, the folder of a bundle, or an object "
        "such as controller.shipped.shipped_indicator()"
    )
