"""Strategies by name: rules, bandits, the indicator, schedule bundles, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean, read_json_text, require_choice
from accerl.monitor.strategies import STRATEGIES, AdviseKLCapStrategy, make_strategy
from accerl.monitor.strategy import Strategy, specs_of
from accerl.own_code import make_own
from accerl.runtime.latency.games import times_of_game, times_of_run
from accerl.runtime.latency.predict import fastest_first
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import MEASURED, load_profile, this_machine
from accerl.spec import IDENTITY, CompressionSpec, is_import_path
from accerl.training.run import known_times
from controller.actions import PresetActions
from controller.bundle.bundle import is_bundle
from controller.bundle.read import MODES, read_bundle
from controller.bundle.serving import (
    Replacement,
    ServedSchedule,
    ServedStrategy,
    leave_out,
    serve_bundle,
)
from controller.comparators.by_name import COMPARATORS, existing_specs, make_comparator
from controller.indicator.strategy import AdvancedIndicator
from controller.shipped import shipped_indicator
from studies.progress import say


def clock_profile(config: RunConfig) -> LatencyProfile | None:
    """Return the latency profile that charges a run's virtual clock; None on the real clock."""
    is_virtual = config.runtime.clock == "virtual"
    return load_profile(config.runtime.profile) if is_virtual else None


def names_bundle(name: str) -> bool:
    """Whether a strategy's name is a bundle's folder; names from here come before folders."""
    return name not in (*STRATEGIES, *COMPARATORS, AdvancedIndicator.name) and is_bundle(name)


def choose_strategy(
    name: str, config: RunConfig, *, spec: str, params: str, bundle_mode: str, strict: bool
) -> Strategy:
    """Return the strategy of that name, or the one that a schedule bundle holds.

    Args:
        name: of a hand-set strategy or a comparator, "indicator", a bundle's folder, or the import
            path of a user's own class.
        config: of the run that it decides in.
        spec: of the fixed strategy, as JSON.
        params: of every strategy but a bundle, as JSON.
        bundle_mode: of a bundle: policy or schedule.
        strict: refuse a bundle that may choose what the run cannot act with.

    Raises:
        UserError: there is no such strategy, or an option belongs to another kind.
    """
    if name != "fixed" and spec != "{}":
        raise UserError(f"--spec goes with the fixed strategy; {name!r} chooses its own specs")
    is_other = name in (*STRATEGIES, *COMPARATORS, AdvancedIndicator.name) or (
        is_import_path(name) and not is_bundle(name)
    )
    if is_other and (bundle_mode != "policy" or strict):
        raise UserError(f"--bundle-mode and --strict go with a schedule bundle; {name!r} is none")
    if name in STRATEGIES:
        given = _read_params(params)
        if name == "fixed" and spec != "{}":
            if given:
                raise UserError("--spec and --strategy-params both set the fixed spec; give one")
            given = {"spec": spec}
        if name == AdviseKLCapStrategy.name and "specs" not in given:
            given = {"specs": _fastest_first(config), **given}
            _note_unknown_times(config, name)
        return make_strategy(name, **given)
    if name in COMPARATORS:
        profile = clock_profile(config)
        times = None if profile is None else times_of_run(profile, config)
        specs = existing_specs(config.network, times)
        return make_comparator(name, **{"specs": specs, **_read_params(params)})
    if name == AdvancedIndicator.name:
        _note_unknown_times(config, name, params)
        shipped = shipped_indicator(**_read_params(params))
        specs = specs_of(shipped)
        times = _times_acted_by(config)
        _warn("the indicator", leave_out(PresetActions(specs), specs, config.network, times))
        return shipped
    if is_bundle(name):
        if params != "{}":
            raise UserError(
                f"--strategy-params goes with a hand-set strategy; {name!r} is a schedule bundle, "
                "which holds its own parameters"
            )
        return bundle_strategy(name, config, mode=bundle_mode, strict=strict)
    if is_import_path(name):
        return _own(name, _read_params(params))
    if Path(name).exists():
        inside = f"; its bundle is {name}/bundle" if is_bundle(f"{name}/bundle") else ""
        raise UserError(f"--strategy {name}: this is no schedule bundle (no bundle.json){inside}")
    hint = did_you_mean(name, [*STRATEGIES, *COMPARATORS, AdvancedIndicator.name])
    raise UserError(
        f"strategy {name!r} does not exist; {hint}, the folder of a bundle, or module:Class of "
        "your own"
    )


def _own(path: str, params: Mapping[str, Any]) -> Strategy:
    """Return a user's own strategy, made with some parameters.

    Raises:
        UserError: there is none at that import path, it cannot be made, or it is no strategy.
    """
    strategy = make_own("strategy", path, "mine:CarefulBelowTheBest", params)
    lacking = [name for name in ("reset", "decide") if not callable(getattr(strategy, name, None))]
    if lacking:
        raise UserError(
            f"strategy {path!r} is no strategy: {type(strategy).__name__} has no "
            f"{' and no '.join(lacking)}"
        )
    return strategy


def note_on_strategy(name: str, params: str, config: RunConfig) -> str | None:
    """Say of a strategy that goes by the machine's times that nobody measured those; None: nothing.

    Args:
        name: see `choose_strategy`; of a bundle its policy decides.
        params: as JSON.
        config: of the run that it decides in.

    Raises:
        UserError: the parameters are no JSON object.
    """
    if name == AdviseKLCapStrategy.name:
        return None if "specs" in _read_params(params) else _unknown_times(config, name)
    if name == AdvancedIndicator.name:
        return _unknown_times(config, name, params)
    return _unknown_times(config, "bundle") if names_bundle(name) else None


def _note_unknown_times(config: RunConfig, strategy: str, params: str = "{}") -> None:
    """Print what `_unknown_times` says."""
    if (note := _unknown_times(config, strategy, params)) is not None:
        say(note)


def _unknown_times(config: RunConfig, strategy: str, params: str = "{}") -> str | None:
    """Say of the run of a strategy that reads the machine that nobody measured it; None: nothing.

    On the virtual clock the machine is its latency profile.
    """
    if config.runtime.clock != "real":
        return None
    # What advise + KL cap, bundles, and an indicator with specs of one's own may choose is other.
    is_shipped = strategy == AdvancedIndicator.name and "specs" not in _read_params(params)
    only = " --specs indicator" if is_shipped else ""
    measure, machine = _measuring(config, only), this_machine()
    if known_times(config, None) is None:
        return (
            f"nobody measured how fast {config.network} learns and acts on this machine: the "
            f"{strategy} may stay without compression ({measure} measures it)"
        )
    if machine != MEASURED:
        return (
            f"nobody measured this machine: the {strategy} takes it for {machine}; at work it sees "
            f"how fast it is, but hardly how specs compare ({measure} measures it)"
        )
    measured = times_of_game(load_profile(machine), config).game
    if measured == config.game:
        return None
    return (
        f"this machine was measured with {measured}, whose times the {strategy} takes for "
        f"those of {config.game} ({measure} measures them)"
    )


def _measuring(config: RunConfig, only: str = "") -> str:
    """Return the command that measures this machine with a run's game and network."""
    return f"`accerl profile measure --game {config.game} --network {config.network}{only}`"


def _fastest_first(config: RunConfig) -> tuple[CompressionSpec, ...]:
    """Return what actors can act with, by the speed that the machine's profile predicts.

    Raises:
        UserError: there are no times of the learner's network.
    """
    profile = clock_profile(config) or load_profile(this_machine())
    times = times_of_game(profile, config)
    is_real = config.runtime.clock == "real"
    if is_real and not times.knows(config.network):
        raise UserError(
            f"strategy {AdviseKLCapStrategy.name}: nobody measured how fast {config.network} "
            f"learns and acts on this machine; measure it with {_measuring(config)}"
        )
    specs = existing_specs(config.network, times.for_network(config.network))
    return fastest_first(profile, config, specs)


def bundle_strategy(path: str, config: RunConfig, *, mode: str, strict: bool) -> ServedStrategy:
    """Return a bundle as the strategy of a run; print where it differs from the bundle.

    Args:
        path: the bundle's folder.
        config: of the run.
        mode: policy or schedule.
        strict: refuse a bundle that may choose what the run cannot act with.

    Raises:
        UserError: there is no such mode; see `serve_bundle` and `ServedSchedule` of
            `controller.bundle.serving`.
    """
    require_choice("bundle: mode", mode, MODES)
    profile = clock_profile(config)
    times = None if profile is None else times_of_run(profile, config)
    if mode == "schedule":
        served = ServedSchedule(read_bundle(path), strict=strict)
        served.bind(config, times)
        schedule = served.identity["schedule"]
        if schedule != served.wanted:
            say(f"{path} has no schedule for {served.wanted}; replaying that of {schedule!r}")
    else:
        _note_unknown_times(config, "bundle")
        times = _times_acted_by(config) if profile is None else times
        served = serve_bundle(path, network=config.network, profile=times, strict=strict)
    _warn(path, served.replacements)
    return served


def _times_acted_by(config: RunConfig) -> LatencyProfile | None:
    """Return the times without which the indicator acts with no spec; None: it asks for none."""
    times = known_times(config, clock_profile(config))
    return times if times is not None and times.has(IDENTITY) else None


def _warn(strategy: str, replaced: Sequence[Replacement]) -> None:
    """Say which specs of a strategy do not act in a run."""
    if not replaced:
        return
    left_out = replaced[0].acting is None
    others = "it chooses from the others" if left_out else "the nearest milder ones act instead"
    say(
        f"warning: this run cannot act with {len(replaced)} of the specs of {strategy} "
        f"({'; '.join(map(str, replaced))}); {others}"
    )


def _read_params(text: str) -> dict[str, Any]:
    """Return the JSON object of --strategy-params."""
    example = '{"threshold_nats": 2.0}'
    params = read_json_text(text, "--strategy-params", example)
    if not isinstance(params, dict):
        raise UserError(
            f"--strategy-params: expected a JSON object such as {example}, got {params!r}"
        )
    return params
