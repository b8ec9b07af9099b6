"""`accerl train` and `accerl eval`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from accerl.acting.evaluate import MAX_STEPS
from accerl.config import RunConfig
from accerl.errors import UserError, require
from accerl.monitor.strategies import HandSetStrategy
from accerl.runtime.conditions import read_events
from accerl.runtime.machine.energy import EnergyMeter
from accerl.settings import configure, read_settings, refuse_idle, to_text
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run_folder import check_free, resumed, seconds_finished
from accerl.training.saved_policy import evaluate_checkpoint
from analysis.formats import rounded
from controller.shield import Shielded
from studies.cli.command import Command, check_positive, save_result
from studies.cli.recorded import free_folder, run_recorded
from studies.cli.strategies import choose_strategy
from studies.progress import say


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train one agent.

    For example `accerl train pong --seconds 120 --spec '{"bits": 8}'`.
    """

    game: tyro.conf.Positional[str]
    """a preset: a small game (catch, cartpole, acrobot, minatar-breakout, minatar-asterix,
    minatar-freeway, minatar-seaquest, minatar-space-invaders), an Atari game (pong, breakout,
    alien, amidar, bank_heist, beam_rider, hero, name_this_game, riverraid, road_runner, seaquest,
    space_invaders), paper-pong (the paper's settings), or ald-pong (Actor-Learner Distillation);
    any other Atari game in snake_case; or any id of Gymnasium's registry, such as LunarLander-v3 or
    mypackage:MyEnv-v0, which imports mypackage first"""
    config: Path | None = None
    """TOML or JSON file with settings, as --print-config prints them; options override it"""
    print_config: bool = False
    """print the whole configuration as JSON, and train nothing"""
    seconds: float | None = None
    """length of the run on its own clock (default: the game's)"""
    until_score: float | None = None
    """end sooner, once the mean of the last 20 episodes (or J, where it is measured) is this"""
    seed: int | None = None
    """of everything random (default: 0)"""
    runtime: str | None = None
    """serial, process or ray (default: the game's)"""
    cluster: str | None = None
    """of --runtime ray: auto (the Ray cluster that this machine is a node of) or HOST:PORT of its
    head (default: one of this machine alone, for the time of the run)"""
    clock: str | None = None
    """virtual or real; the serial runtime defaults to virtual"""
    profile: str | None = None
    """latency profile of the virtual clock (default: paper-1080ti)"""
    strategy: str = "fixed"
    """fixed, kl-threshold, reward-gap, linear-kl, three-stage, advise-kl-cap, random,
    first-that-fires, sw-ucb, thompson, gp-bandit, indicator (the learned controller that ships with
    AcceRL), or the path of a schedule bundle"""
    spec: str = "{}"
    """for the fixed strategy: what actors act with, as JSON"""
    strategy_params: str = "{}"
    """of any of these but a bundle, as JSON: '{"threshold_nats": 2.0}'"""
    bundle_mode: str = "policy"
    """of a schedule bundle: policy (reacts to the run) or schedule (replays what the controller
    usually did, by the clock)"""
    strict: bool = False
    """refuse a bundle that may choose specs this run cannot act with; without it a policy chooses
    from the others, and in a schedule the nearest milder ones act instead"""
    shield: float | None = None
    """largest KL in nats (the paper: 14) above which an interval acts with the mildest of the
    strategy's specs, as it does when the strategy fails"""
    network: str | None = None
    """of the learner: original, net1, net2 or net3; impala, impala-small or impala-tiny; or
    module:function, your own (default: the game's)"""
    precision: str | None = None
    """of the learner: fp32, bf16, or auto: bf16 where there are instructions for it (default: the
    game's)"""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(name="set", metavar="SECTION.NAME=VALUE"),
    ] = ()
    """another setting, such as compression.prune_criterion=taylor or env.frame_stack=4; --set may
    come several times"""
    events: Path | None = None
    """TOML or JSON file with what happens to the machine meanwhile: {"events": [{"at_seconds": 60,
    "lasts_seconds": 30, "kind": "co-tenant", "amount": 1}]}; kinds: co-tenant (cores that others
    take), bandwidth (share that is left), throttle (times slower; "process" says whose core),
    actors (how many act)"""
    start: Path | None = None
    """run directory whose learner this run begins with"""
    out: Path | None = None
    """run directory (default: runs/GAME-seedN)"""
    resume: bool = False
    """go on with the run in --out from its last checkpoint, to its length unless --seconds says
    another"""
    wandb: bool = False
    """also write an offline W&B run to the run directory"""
    energy: str | None = None
    """on the real clock: also estimate the energy and CO2 that this machine takes meanwhile, by
    codecarbon (pip install codecarbon); the country's ISO code, such as DEU"""

    def execute(self) -> dict[str, Any]:
        """Resolve the options and train."""
        config = self.run_config()
        default = Path("runs") / f"{_as_file_name(config.preset)}-seed{config.seed}"
        out = self.out or free_folder(default, self.resume)
        if self.resume:
            config = resumed(config, out, self.seconds)
            if (done := seconds_finished(config, out)) is not None:
                say(f"{out} is finished after {done:g} s: give more --seconds to go on with it")
        chosen = choose_strategy(
            self.strategy,
            config,
            spec=self.spec,
            params=self.strategy_params,
            bundle_mode=self.bundle_mode,
            strict=self.strict,
        )
        name = chosen.label if isinstance(chosen, HandSetStrategy) else self.strategy
        if self.shield is not None:
            chosen = Shielded(chosen, self.shield)
            name = f"{name} + {chosen.shield_label}"
        if self.print_config:
            if not self.json:
                print(to_text(config))
            return config.to_json()
        if not self.resume:
            check_free(out, "add --resume, or give another --out")
        summary = run_recorded(
            config, chosen, name, out, resume=self.resume, meter=self._meter(config)
        )
        if self.wandb:
            from analysis.render.wandb_runs import write_offline_runs

            for folder in write_offline_runs([out], out / "wandb"):
                say(f"wrote {folder} (upload with `wandb sync {folder}`)")
        return summary

    def _meter(self, config: RunConfig) -> EnergyMeter | None:
        if self.energy is None:
            return None
        if config.runtime.clock == "virtual":
            raise UserError(
                "--energy goes with the real clock: the seconds of a virtual clock take no power; "
                "add --runtime process"
            )
        return EnergyMeter(self.energy)

    def run_config(self) -> RunConfig:
        """Return the game's configuration with every option that was given."""
        clock = self.clock
        if clock is None and self.runtime is not None:
            clock = "virtual" if self.runtime == "serial" else "real"
        options = {
            "runtime.runtime": self.runtime,
            "runtime.clock": clock,
            "runtime.profile": self.profile,
            "learner.precision": self.precision,
            "ray.address": self.cluster,
        }
        given = read_settings(self.settings)
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
        if self.cluster is not None and config.runtime.runtime != "ray":
            raise UserError("--cluster goes with --runtime ray")
        refuse_idle(config, given)
        if self.profile is not None and config.runtime.clock == "real":
            raise UserError(
                "--profile goes with the virtual clock; add --runtime serial --clock virtual"
            )
        return config


@dataclass(frozen=True, kw_only=True)
class Eval(Command):
    """Play episodes with a checkpoint.

    For example `accerl eval runs/pong-seed0 --episodes 20`.
    """

    run: tyro.conf.Positional[Path]
    """run directory"""
    episodes: int = 10
    """how many to play"""
    spec: str = "{}"
    """compression to act with, as JSON; full precision by default"""
    seed: int = 0
    """of the episodes"""
    out: Path | None = None
    """folder to write eval.json to"""

    def execute(self) -> dict[str, Any]:
        """Play, and print the mean."""
        require(self.seed >= 0, "--seed", "must not be negative", self.seed)
        check_positive(episodes=self.episodes)
        spec = CompressionSpec.from_json(self.spec)
        result = evaluate_checkpoint(self.run, self.episodes, spec, self.seed)
        say(
            f"{self.episodes} episodes: mean return {result['mean_return']:.2f}, "
            f"standard deviation {result['std_return']:.2f}"
        )
        if spec != IDENTITY and result["kl_nats"] is not None:
            say(
                f"it is {rounded(result['kl_nats'])} nats from the learner on the states that were "
                "recorded last; a student rests while it does not act"
            )
        if result["cut_off"]:
            say(
                f"{result['cut_off']} of them had not ended after {MAX_STEPS:,} steps, and count "
                "with their scores so far"
            )
        return save_result(result, self.out, "eval.json")


def _as_file_name(game: str) -> str:
    """Return the name of a game without what folders cannot be named."""
    return game.replace("/", "-").replace(":", "-")


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
