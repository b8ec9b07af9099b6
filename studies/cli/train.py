"""`accerl train` and `accerl eval`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from accerl.compress.graphs.policy_graph import check_own_student
from accerl.config import RunConfig
from accerl.envs import check_installed, make_envs
from accerl.errors import UserError
from accerl.families import describe_game
from accerl.monitor.strategies import HandSetStrategy
from accerl.monitor.strategy import Strategy, bind, specs_of
from accerl.networks.make import make_network
from accerl.precision import note_on_precision
from accerl.presets import PRESETS
from accerl.records import SUMMARY, make_out_dir, write_json
from accerl.runtime.conditions import read_events
from accerl.runtime.latency.games import note_on_links, note_on_times, times_of_run
from accerl.runtime.machine.energy import EnergyMeter
from accerl.runtime.ray.cluster import check_reachable
from accerl.runtime.run import IntervalReport
from accerl.runtime.wiring import Wiring
from accerl.settings import configure, read_settings, to_text
from accerl.spec import STUDENTS, CompressionSpec, Decision, is_own_network
from accerl.training.run import (
    check_resumable,
    check_startable,
    known_times,
    run_identity,
    run_training,
)
from accerl.training.run_folder import holds_run, starting_learner
from accerl.training.saved_policy import evaluate_checkpoint
from accerl.training.summary import note_on_actors
from controller.shield import Shielded
from studies.cli.command import Command, save_result
from studies.cli.strategies import choose_strategy, clock_profile
from studies.progress import bar, say


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
    """TOML or JSON file with settings, as --print-config prints them; options go before it"""
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
    """refuse a bundle that may choose specs this run cannot act with; without it the nearest milder
    ones act instead"""
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
    """other settings, such as compression.prune_criterion=taylor or env.frame_stack=4"""
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
    """go on with the run in --out from its last checkpoint"""
    wandb: bool = False
    """also write an offline W&B run to the run directory"""
    energy: str | None = None
    """on the real clock: also estimate the energy and CO2 that this machine takes meanwhile, by
    codecarbon (pip install 'accerl-control[energy]'); the country's ISO code, such as DEU"""

    def execute(self) -> dict[str, Any]:
        """Resolve the options and train."""
        config = self.run_config()
        if self.print_config:
            if not self.json:
                print(to_text(config))
            return config.to_json()
        chosen = choose_strategy(
            self.strategy,
            config,
            spec=self.spec,
            params=self.strategy_params,
            bundle_mode=self.bundle_mode,
            strict=self.strict,
        )
        default = Path("runs") / f"{_as_file_name(config.preset)}-seed{config.seed}"
        out = self.out or free_folder(default, self.resume)
        if holds_run(out) and not self.resume:
            raise UserError(f"{out} already holds a run; add --resume, or give another --out")
        name = chosen.label if isinstance(chosen, HandSetStrategy) else self.strategy
        if self.shield is not None:
            chosen = Shielded(chosen, self.shield)
            name = f"{name} + {chosen.shield_label}"
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
        config = configure(
            self.game,
            {**_known(options), **read_settings(self.settings)},
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
        if self.profile is not None and config.runtime.clock == "real":
            raise UserError("--profile goes with the virtual clock; add --runtime serial")
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
        spec = CompressionSpec.from_json(self.spec)
        result = evaluate_checkpoint(self.run, self.episodes, spec, self.seed)
        say(
            f"{self.episodes} episodes: mean return {result['mean_return']:.2f}, "
            f"standard deviation {result['std_return']:.2f}"
        )
        return save_result(result, self.out, "eval.json")


def _as_file_name(game: str) -> str:
    """Return the name of a game without what folders cannot be named."""
    return game.replace("/", "-").replace(":", "-")


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def run_recorded(
    config: RunConfig,
    strategy: Strategy,
    strategy_name: str,
    out: Path,
    *,
    resume: bool = False,
    meter: EnergyMeter | None = None,
) -> dict[str, Any]:
    """Train with a progress bar, print what came of it, return the summary.

    With a meter, the summary has its `energy_estimate`.
    """
    profile = clock_profile(config)
    # What the run would refuse when it comes to it is refused before anything is written.
    check_installed(config.game)
    if config.preset not in PRESETS:
        say(describe_game(config))
    decided = config.adapted()
    if profile is not None:
        for note in (note_on_times(profile, config), note_on_links(profile, config)):
            if note is not None:
                say(note)
    if config.runtime.runtime == "ray":
        check_reachable(config.ray.address)
    Wiring.of(decided.runtime, profile).process_names(config.conditions)
    if config.start and not resume:
        starting_learner(config)
    check_startable(config, strategy)
    # What chooses from that which the run can act with says so only once it knows the run.
    bind(strategy, decided, known_times(config, profile))
    specs = specs_of(strategy)
    for spec in specs:
        Decision.of(spec).check_students(config.network)
    _check_networks(config, specs)
    if profile is not None:
        times = times_of_run(profile, config)
        for spec in specs:
            times.infer_seconds(spec, config.runtime.num_envs)
    if resume:
        check_resumable(config, out, run_identity(strategy, strategy_name, profile))
    make_out_dir(out)
    if (note := note_on_precision(config.learner.precision, decided.learner.device)) is not None:
        say(note)
    say(
        f"{config.preset}: {config.game}, seed {config.seed}, {config.runtime.runtime} runtime, "
        f"{config.runtime.clock} clock, {config.seconds:g} s, strategy {strategy_name}"
    )
    past_seconds = 0.0
    with bar("training", config.seconds) as advance, meter or nullcontext():

        def on_interval(report: IntervalReport) -> None:
            nonlocal past_seconds
            # By the run's own count: a resumed one does not begin at 0.
            passed, past_seconds = report.total_seconds - past_seconds, report.total_seconds
            advance(passed, _interval_note(report))

        result = run_training(
            config,
            strategy,
            strategy_name=strategy_name,
            out=out,
            resume=resume,
            profile=profile,
            on_interval=on_interval,
        )
    summary = result.summary
    if meter is not None:
        summary = {**summary, "energy_estimate": meter.estimate()}
        write_json(out / SUMMARY, summary)
    _print_summary(summary, out)
    if profile is None:
        note = note_on_actors(summary, Wiring.of(decided.runtime).actors)
        if note is not None:
            say(note)
    return summary


def _print_summary(summary: Mapping[str, Any], out: Path) -> None:
    """Print what a run reached and what it spent."""
    final = summary["final_return"]
    say(
        f"{summary['env_steps']:,} env steps in {summary['seconds']:.1f} s: "
        f"{summary['env_steps_per_second']:,.0f} per second; final return "
        f"{'none finished yet' if final is None else f'{final:.2f}'}; records in {out}"
    )
    phases = ", ".join(f"{name} {value:.1f}" for name, value in summary["phases"].items() if value)
    say(f"busy seconds by phase: {phases}")
    growth = summary["rss_bytes_per_minute"]
    memory = ", ".join(
        f"{name} {rss / 1e6:.0f} MB"
        + (f" ({growth[name] / 1e6:+.2f} MB/min)" if growth[name] is not None else "")
        for name, rss in summary["rss_bytes_max"].items()
    )
    if memory:
        say(f"largest resident memory, and its growth at the end: {memory}")
    if summary["cpu_seconds"]:
        used = ", ".join(f"{name} {value:.1f}" for name, value in summary["cpu_seconds"].items())
        say(f"processor seconds: {used}")
    if (energy := summary.get("energy_estimate")) is not None:
        say(
            f"estimate of {energy['by'].partition(':')[0]} for the whole machine, others' work "
            f"included: {1e3 * energy['kwh']:.3g} Wh, {1e3 * energy['kg_co2e']:.3g} g CO2e "
            f"({energy['country']})"
        )
    if summary["monitor_cpu_share"] is not None:
        say(f"processor time of the monitor: {summary['monitor_cpu_share']:.2%}")


def _interval_note(report: IntervalReport) -> str:
    """Return what progress shows of an interval: speed, specs, memory and the latest score."""
    scores = report.episode_returns
    result = f"J {report.learner_return:.2f}" if report.learner_return is not None else ""
    if not result and scores:
        result = f"return {sum(scores) / len(scores):.1f}"
    note = f"{report.env_steps / report.seconds:,.0f} steps/s, {report.decision.label}"
    waiting = [spec.label for spec in report.waiting_kl_nats]
    note += f" ({', '.join(waiting)} not yet admitted)" if waiting else ""
    held = "+".join(f"{rss / 1e6:.0f}" for rss in report.rss_bytes.values())
    memory = f"{held} MB" if held else ""
    return " ".join(part for part in (note, memory, result) if part)


def _check_networks(config: RunConfig, specs: Sequence[CompressionSpec]) -> None:
    """Refuse networks that the game does not fit; the paper's fit any."""
    named = {config.network, *(spec.student for spec in specs)}.difference(STUDENTS)
    if named:
        envs = make_envs(config.game, 1, config.env)
        inputs = config.inputs(envs.observation)
        for name in sorted(named):
            make_network(name, inputs, envs.num_actions)
        for spec in specs:
            if is_own_network(spec.student):
                check_own_student(spec, inputs, envs.num_actions)
        envs.close()


def free_folder(path: Path, resume: bool) -> Path:
    """Return `path`, or the first of path-2, path-3, ... that holds no run."""
    if resume:
        return path
    candidate, number = path, 1
    while holds_run(candidate):
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
