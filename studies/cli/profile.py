"""`accerl profile`: measure, list, show and compare latency profiles; advice from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import tyro

from accerl.config import RunConfig
from accerl.errors import UserError, one_line
from accerl.monitor.strategy import specs_of
from accerl.presets import load_preset
from accerl.records import fingerprint, read_json
from accerl.runtime.latency.compare import compare, describe_wiring
from accerl.runtime.latency.families import FAMILIES, machine_of, sample_machine
from accerl.runtime.latency.fleet import FleetSettings, MessageCosts, plan_fleet
from accerl.runtime.latency.games import (
    as_wired,
    no_longer_timed,
    note_on_times,
    times_of_game,
    with_games_of,
)
from accerl.runtime.latency.measure import measure_game, measure_profile
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import (
    TAKEN,
    load_profile,
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
from studies.cli.command import Command, check_positive, check_writable, save_result
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
    """to load it by: `accerl train catch --profile NAME`"""
    game: str | None = None
    """as `accerl train` takes it"""
    network: str | None = None
    """of the learner (default: the game's)"""
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
                profile = with_games_of(measure_profile(self.name, **options), base)
            else:
                profile = measure_game(config, base, self.name, **options)
        if lost := no_longer_timed(base, profile):
            names = ", ".join(spec.label for spec in lost[:3]) + (", ..." if lost[3:] else "")
            say(
                f"{path.name} no longer holds times of {names} ({len(lost)} in all): those of two "
                "measurements do not compare; another --name keeps both"
            )
        save_profile(profile, path)
        tables.print_profile(profile, console)
        say(f"wrote {path}; use it with --profile {self.name if self.out is None else path}")
        return profile.to_json()


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
    """of the learner (default: the game's)"""
    settings: SettingsOption = ()
    """another setting, such as env.frame_stack=4; --set may come several times"""
    out: Path | None = None
    """folder to look in"""
    writes: ClassVar[bool] = False

    def execute(self) -> dict[str, Any]:
        """Predict every spec and print whether compressing pays."""
        profile = load_profile(self.profile or this_machine(self.out), self.out)
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


OF_MACHINES = ("family", "first")
"""options of `Sample` that fleets have no use for, and those that only fleets have a use for"""
OF_FLEETS = ("profile", "specs", "link_gbit", "actors_per_node", "store_gb", "whole", "costs")


@dataclass(frozen=True, kw_only=True)
class Sample(Command):
    """Draw machines that users have, or predict fleets of actors.

    Machines: what they are, fp32's env steps/s, and the fastest spec; their names are profiles.
    Fleets of 1 to --fleet actors: env steps/s, what limits, and bytes a second on each link.
    """

    number: tyro.conf.Positional[int | None] = None
    """machines to draw of each family"""
    family: str | None = None
    """laptop, gpu-few-cores, server or edge (default: all)"""
    first: int = 0
    """number of the first machine"""
    fleet: int | None = None
    """actors of the largest fleet; the options below but --env, --network and --out are those of
    fleets"""
    profile: str = "gpu-learner"
    """name or JSON file: times of an actor's core and of the learner"""
    env: GameOption = "pong"
    """game as `accerl train` takes it: gives environments, unroll, reuse, how often to publish"""
    network: str | None = None
    """of the learner (default: the game's)"""
    specs: tuple[str, ...] = ("{}", '{"bits": 8}')
    """what acts, as JSON"""
    link_gbit: float = 10.0
    """of the learner's node, each way"""
    actors_per_node: int = 16
    """each with a core"""
    store_gb: float = 16.0
    """object store of the learner's node"""
    whole: bool = False
    """send rollouts as they are, instead of each frame once and deflated"""
    costs: Path | None = None
    """bench-messages.json of `accerl bench messages` (default: as measured on two cores)"""
    out: Path | None = None
    """folder to write machines.json to, or fleet.json and fleet.png"""

    def execute(self) -> dict[str, Any]:
        """Draw machines, or predict every fleet."""
        if (self.number is None) == (self.fleet is None):
            raise UserError(
                "profile sample: give how many machines to draw, or --fleet, and not both; "
                "`accerl profile sample 5 --family laptop`"
            )
        config = load_preset(self.env)
        config = replace(config, network=self.network or config.network)
        if self.fleet is None:
            self._refuse(OF_FLEETS, "goes with --fleet, not with a number of machines")
            return self._machines(self.number or 0, config)
        self._refuse(OF_MACHINES, "goes with a number of machines, not with --fleet")
        return self._fleets(self.fleet, config)

    def _refuse(self, names: Sequence[str], why: str) -> None:
        """Refuse options that would do nothing."""
        defaults = {each.name: each.default for each in fields(self)}
        given = [name for name in names if getattr(self, name) != defaults[name]]
        if given:
            raise UserError(f"--{given[0].replace('_', '-')} {why}")

    def _machines(self, number: int, config: RunConfig) -> dict[str, Any]:
        """Draw machines and print what they are."""
        if number < 1:
            raise UserError(f"profile sample: draw at least 1 machine, got {number}")
        machines = [
            (family, sample_machine(family, index))
            for family in ((self.family,) if self.family else FAMILIES)
            for index in range(self.first, self.first + number)
        ]
        rows = [
            {"family": family, **tables.machine_row(machine, config)}
            for family, machine in machines
        ]
        tables.print_machines(rows, config, console)
        shown = [
            {**row, "profile": machine.to_json()}
            for row, (_, machine) in zip(rows, machines, strict=True)
        ]
        result = {
            "machines": shown,
            "env": self.env,
            "network": config.network,
        }
        return save_result(result, self.out, "machines.json")

    def _fleets(self, fleet: int, config: RunConfig) -> dict[str, Any]:
        """Predict every fleet, print and draw."""
        profile = load_profile(self.profile, self.out)
        settings = FleetSettings(
            link_gbit=self.link_gbit,
            actors_per_node=self.actors_per_node,
            store_gb=self.store_gb,
            packed=not self.whole,
        )
        costs = MessageCosts() if self.costs is None else _read_costs(self.costs)
        specs = [CompressionSpec.from_json(text) for text in self.specs]
        rows = plan_fleet(profile, config, specs, fleet, settings=settings, costs=costs)
        tables.print_fleet(rows, profile, config, console)
        result = {
            "profile": {"name": profile.name, "hash": profile.hash},
            "env": self.env,
            "network": config.network,
            "settings": asdict(settings),
            "costs": costs.to_json(),
            "rows": [{**row.to_json(), "label": row.spec.label} for row in rows],
        }
        saved = save_result(result, self.out, "fleet.json")
        if self.out is not None:
            from analysis.figures.export import write_pngs
            from analysis.figures.fleet import fleet_figure

            for path in write_pngs([fleet_figure(result)], self.out):
                say(f"wrote {path}")
        return saved


def _read_costs(path: Path) -> MessageCosts:
    data = read_json(path)
    try:
        return MessageCosts.from_json(data["costs"])
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"--costs {path}: a bench-messages.json of `accerl bench messages` is needed "
            f"({one_line(error)})"
        ) from error


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
        rows = compare(a, b)
        tables.print_differences(a, b, rows, console)
        return {
            "a": {"name": a.name, "hash": a.hash, "wiring": describe_wiring(a)},
            "b": {"name": b.name, "hash": b.hash, "wiring": describe_wiring(b)},
            "rows": [row.to_json() for row in rows],
        }
