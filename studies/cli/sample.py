"""`accerl profile sample`: machines that users have, and fleets of actors, drawn and predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import tyro

from accerl.config import RunConfig
from accerl.errors import UserError, one_line
from accerl.presets import load_preset
from accerl.records import read_json
from accerl.runtime.latency.families import FAMILIES, sample_machine
from accerl.runtime.latency.fleet import FleetSettings, MessageCosts, plan_fleet
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import CompressionSpec
from studies import profile_tables as tables
from studies.cli.command import Command, save_result
from studies.cli.options import GameOption
from studies.progress import console, say

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
    """the learner's network (default: the game's)"""
    specs: tuple[str, ...] = ("{}", '{"bits": 8}')
    """what acts, as JSON"""
    link_gbit: float = 10.0
    """bandwidth of the learner's node, each way"""
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
        if not self.specs:
            raise UserError("--specs: name at least one")
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
        profile = load_profile(self.profile)
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
