"""`accerl profile`: measure, list, show and compare latency profiles; advice from one.

`accerl profile sample` is in `sample.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import tyro

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategy import specs_of
from accerl.records import fingerprint
from accerl.runtime.latency.compare import compare, describe_wiring, same_times
from accerl.runtime.latency.families import machine_of
from accerl.runtime.latency.games import (
    as_wired,
    no_longer_timed,
    note_on_times,
    times_of_game,
    with_games_of,
)
from accerl.runtime.latency.measure import check_ours, measure_game, measure_profile
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import (
    TAKEN,
    load_profile,
    note_on_cores,
    profile_folder,
    profile_names,
    save_profile,
    this_machine,
)
from accerl.settings import configure, read_settings
from accerl.spec import CompressionSpec
from controller.env.compatibility import incompatibility
from controller.indicator.strategy import AdvancedIndicator
from controller.shipped import shipped_indicator
from studies import profile_tables as tables
from studies.cli.command import Command, check_positive, check_writable
from studies.cli.options import GameOption, SettingsOption
from studies.progress import console, say, share_bar


@dataclass(frozen=True, kw_only=True)
class Measure(Command):
    """Measure this machine's latency profile.

    Without --game, all networks of the paper on Pong. With it, that game's own step, network and
    learner, in place of what the profile of that name holds of this game; other games are kept.
    Where torch sees a GPU, that learns and distils (the processor: `--name cpu --game pong --set
    learner.device=cpu`). All 58 specs take half an hour on a slow machine, those of the indicator
    that ships some minutes: `accerl profile measure --game pong --specs indicator`.
    """

    name: str = "measured"
    """name to load it by: `accerl train catch --profile NAME`"""
    game: str | None = None
    """game, as `accerl train` takes it"""
    network: str | None = None
    """the learner's network (default: the game's)"""
    settings: SettingsOption = ()
    """another setting, such as env.frame_stack=4; --set may come several times"""
    specs: tuple[str, ...] = ()
    """what to time acting with, each as JSON, or indicator: all that the one that ships may choose
    (default: all that a profile can hold)"""
    repeats: int = 5
    """interleaved rounds of inference"""
    out: Path | None = None
    """folder to keep it in (default: ~/.cache/accerl/profiles, or under $ACCERL_HOME)"""

    def execute(self) -> dict[str, Any]:
        """Measure, save and print a profile."""
        check_positive(repeats=self.repeats)
        # Also with --out: `profile show NAME --out DIR` would show what ships by that name.
        is_taken = self.name in TAKEN or machine_of(self.name) is not None
        if is_taken or not self.name.replace("-", "").replace("_", "").isalnum():
            raise UserError(
                f"--name {self.name!r}: use letters, digits, - and _; {', '.join(TAKEN)} are "
                "taken, and so are names of drawn machines such as laptop-0017"
            )
        if self.game is None and (self.network or self.settings or self.specs):
            raise UserError("--network, --set and --specs go with --game")
        folder = self.out or profile_folder()
        check_writable(folder, "ACCERL_HOME" if self.out is None else "--out")
        path = folder / f"{self.name}.json"
        options: dict[str, Any] = {"repeats": self.repeats}
        config = None
        if self.game is not None:
            settings = read_settings(self.settings)
            config = configure(self.game, settings, network=self.network)
            options["specs"] = _read_specs(self.specs, config.network)
        with share_bar("latency profile") as options["on_progress"]:
            base = load_profile(str(path)) if path.is_file() else None
            if config is None:
                check_ours(base)
                profile = with_games_of(measure_profile(self.name, **options), base)
            else:
                profile = measure_game(config, base, self.name, **options)
        if lost := no_longer_timed(base, profile):
            names = ", ".join(lost[:3]) + (", ..." if lost[3:] else "")
            say(
                f"{path.name} no longer holds the earlier times of {names} ({len(lost)} in all); "
                "another --name keeps both"
            )
        if config is not None:
            _note_left_out(options["specs"], times_of_game(profile, config))
        save_profile(profile, path)
        tables.print_profile(profile, console)
        say(f"wrote {path}; use it with --profile {self.name if self.out is None else path}")
        return profile.to_json()


def _note_left_out(asked: Sequence[CompressionSpec], times: LatencyProfile) -> None:
    """Say which of the specs that were asked for the network cannot be compressed to."""
    timed = {row.spec for row in times.specs}
    if missing := [spec.label for spec in asked if spec not in timed]:
        say(f"{times.network} cannot be compressed to {', '.join(missing)}: left out")


def _read_specs(texts: Sequence[str], network: str) -> list[CompressionSpec]:
    """Return the specs that are named; of the indicator those that `network` can act with.

    Raises:
        UserError: it cannot act with one that is named by itself.
    """
    specs: list[CompressionSpec] = []
    for text in texts:
        if text == AdvancedIndicator.name:
            offered = specs_of(shipped_indicator())
            specs += [spec for spec in offered if incompatibility(network, None, spec) is None]
            continue
        spec = CompressionSpec.from_json(text)
        if (reason := incompatibility(network, None, spec)) is not None:
            raise UserError(f"--specs: {network} cannot act with {spec.label}: {reason}")
        specs.append(spec)
    return specs


@dataclass(frozen=True, kw_only=True)
class Advise(Command):
    """Predict whether compressing pays on a machine.

    The advice names the spec to start from.
    """

    profile: str | None = None
    """name or JSON file (default: measured, if this machine was, else two-core)"""
    env: GameOption = "pong"
    """game as `accerl train` takes it: gives environments, unroll, reuse and how often to publish;
    its own times count if the profile holds them"""
    network: str | None = None
    """the learner's network (default: the game's)"""
    settings: SettingsOption = ()
    """another setting, such as env.frame_stack=4; --set may come several times"""
    out: Path | None = None
    """folder to look in"""
    writes: ClassVar[bool] = False

    def execute(self) -> dict[str, Any]:
        """Predict every spec and print whether compressing pays."""
        profile = load_profile(self.profile or this_machine(self.out), self.out)
        if (note := note_on_cores(profile)) is not None:
            say(note)
        settings = read_settings(self.settings)
        config = configure(self.env, settings, network=self.network)
        profile = _with_processes(profile, config, settings)
        advice = advise(profile, config)
        if (note := note_on_times(profile, config)) is not None:
            say(note)
        times = times_of_game(profile, config)
        tables.print_advice(advice, times, config, console)
        return {
            "profile": {"name": profile.name, "hash": profile.hash, "game": times.game},
            "env": self.env,
            "network": config.network,
            "pays": advice.pays,
            "start": advice.start.spec.to_json(),
            "limit": advice.fp32.limit,
            "bound": advice.bound,
            "advice": advice.sentence,
            "enough_actors": advice.enough_actors,
            "rows": [row.to_json() for row in advice.rows],
        }


PROCESSES = ("runtime.num_actors", "runtime.num_distillers")
"""settings that say how many processes of a kind a run on the real clock has"""


def _with_processes(
    profile: LatencyProfile, config: RunConfig, settings: Mapping[str, Any]
) -> LatencyProfile:
    """Return a profile with the processes that settings ask for, if they do.

    Raises:
        UserError: they do, and the profile is that of another machine; or several learners.
    """
    if config.runtime.num_learners > 1:
        raise UserError("runtime.num_learners: predictions are of one learner; leave it out")
    given = [name for name in PROCESSES if name in settings]
    if not given:
        return profile
    if profile.fingerprint.get("id") != fingerprint()["id"]:
        raise UserError(
            f"--set {given[0]}: latency profile {profile.name!r} is of another machine and says "
            "how many it has; leave this out, or measure this machine (`accerl profile measure`)"
        )
    if config.runtime.runtime == "serial":  # which would have those of the profile
        config = config.with_runtime(runtime="process", clock="real")
    return as_wired(profile, config)


@dataclass(frozen=True, kw_only=True)
class List(Command):
    """List the latency profiles that have a name."""

    out: Path | None = None
    """folder to look in"""
    writes: ClassVar[bool] = False

    def execute(self) -> dict[str, Any]:
        """Print a row for each profile; a damaged file has a row too, and hides no other."""
        names, rows = profile_names(self.out), []
        for name in names:
            try:
                rows.append(tables.profile_row(load_profile(name, self.out)))
            except UserError as error:
                rows.append({"name": name, "damaged": str(error)})
        tables.print_profiles(rows, console)
        return {"profiles": names, "rows": rows}


@dataclass(frozen=True, kw_only=True)
class Show(Command):
    """Show a latency profile as a table."""

    name: tyro.conf.Positional[str] = "paper-1080ti"
    """name or JSON file"""
    out: Path | None = None
    """folder to look in"""
    writes: ClassVar[bool] = False

    def execute(self) -> dict[str, Any]:
        """Print the profile."""
        profile = load_profile(self.name, self.out)
        tables.print_profile(profile, console)
        return profile.to_json()


@dataclass(frozen=True, kw_only=True)
class Diff(Command):
    """Compare two latency profiles.

    Shows ratios B / A, and how the wiring differs.
    """

    a: tyro.conf.Positional[str]
    """name or JSON file"""
    b: tyro.conf.Positional[str]
    """name or JSON file"""
    out: Path | None = None
    """folder to look in"""
    writes: ClassVar[bool] = False

    def execute(self) -> dict[str, Any]:
        """Print how the profiles differ."""
        a, b = (load_profile(name, self.out) for name in (self.a, self.b))
        mine, theirs = same_times(a, b)
        rows = compare(mine, theirs)
        say(f"Times of {mine.game}, whose learner is {mine.network}:")
        tables.print_differences(a, b, rows, console)
        return {
            "game": mine.game,
            "a": {"name": a.name, "hash": a.hash, "wiring": describe_wiring(a)},
            "b": {"name": b.name, "hash": b.hash, "wiring": describe_wiring(b)},
            "rows": [row.to_json() for row in rows],
        }
