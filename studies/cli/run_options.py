"""The options that say which run is meant: game, machine, network and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.runtime.conditions import read_events
from accerl.settings import configure, read_settings, refuse_idle
from accerl.training.run_folder import as_measured
from studies.cli.command import Command
from studies.cli.options import SettingsOption


@dataclass(frozen=True, kw_only=True)
class RunOptions(Command):
    """A command that trains: its options are those of the run."""

    game: tyro.conf.Positional[str]
    """a preset: a small game (catch, cartpole, acrobot, minatar-breakout, minatar-asterix,
    minatar-freeway, minatar-seaquest, minatar-space-invaders), an Atari game (pong, breakout,
    alien, amidar, bank_heist, beam_rider, hero, name_this_game, riverraid, road_runner, seaquest,
    space_invaders), paper-pong (the paper's settings), or ald-pong (Actor-Learner Distillation, if
    a student acts: --spec '{"student": "net2"}'); any other Atari game in snake_case; or any id of
    Gymnasium's registry, such as LunarLander-v3 or mypackage:MyEnv-v0, which imports mypackage
    first"""
    config: Path | None = None
    """TOML or JSON file with settings, as --print-config prints them; options override it"""
    seconds: float | None = None
    """length of the run on its own clock (default: the game's)"""
    until_score: float | None = None
    """end sooner, once the mean of the last 20 episodes (or J, where it is measured) is this"""
    seed: int | None = None
    """seed of all random numbers (default: 0)"""
    runtime: str | None = None
    """serial (all in one process, which is exact on the virtual clock), process (actors, learner
    and compressor side by side) or ray (on several machines) (default: the game's)"""
    cluster: str | None = None
    """where --runtime ray runs: auto (the Ray cluster that this machine is a node of) or HOST:PORT
    of its head (default: one of this machine alone, for the time of the run)"""
    clock: str | None = None
    """virtual or real; the serial runtime defaults to virtual"""
    profile: str | None = None
    """latency profile of the virtual clock (default: paper-1080ti)"""
    network: str | None = None
    """the learner's network: original, net1, net2 or net3; impala, impala-small or impala-tiny; or
    module:function, your own (default: the game's)"""
    precision: str | None = None
    """the learner's precision: fp32, bf16, or auto: bf16 where that is faster
    (default: the game's)"""
    settings: SettingsOption = ()
    """another setting, such as compression.prune_criterion=taylor or env.frame_stack=4; --set may
    come several times"""
    events: Path | None = None
    """TOML or JSON file with what happens to the machine meanwhile: {"events": [{"at_seconds": 60,
    "lasts_seconds": 30, "kind": "co-tenant", "amount": 1}]}; kinds: co-tenant (cores that others
    take), bandwidth (share that is left), throttle (times slower; "process" says whose core),
    actors (how many act; those of a profile that fill a batch together count as one)"""
    start: Path | None = None
    """run directory whose learner this run begins with"""

    def run_config(self) -> RunConfig:
        """Return the game's configuration with every option that was given."""
        given, clock = read_settings(self.settings), self.clock
        if clock is None and self.runtime is not None and "runtime.clock" not in given:
            clock = "virtual" if self.runtime == "serial" else "real"
        options = {
            "runtime.runtime": self.runtime,
            "runtime.clock": clock,
            "runtime.profile": self.profile,
            "learner.precision": self.precision,
            "ray.address": self.cluster,
        }
        for name, value in _known(options).items():
            if given.get(name, value) != value:
                raise UserError(
                    f"--set {name}={given[name]} contradicts the option that says {value}; give one"
                )
        config = configure(
            self.game,
            {**_known(options), **given},
            self.config,
            seconds=self.seconds,
            until_score=self.until_score,
            seed=self.seed,
            network=self.network,
            start=None if self.start is None else str(self.start.absolute()),
            conditions=None if self.events is None else read_events(self.events),
        )
        if config.start and self.config is None:
            config = as_measured(config, Path(config.start), given)
        if self.cluster is not None and config.runtime.runtime != "ray":
            raise UserError("--cluster goes with --runtime ray")
        refuse_idle(config, given)
        if self.profile is not None and config.runtime.clock == "real":
            raise UserError(
                "--profile goes with the virtual clock; add --runtime serial --clock virtual"
            )
        return config


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
