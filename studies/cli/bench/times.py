"""`accerl bench`: the speed of this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accerl.errors import UserError, require, require_choice
from accerl.records import make_out_dir
from accerl.runtime.conditions import read_events
from accerl.spec import IMPALA_NETWORKS, CompressionSpec
from studies.benchmarks.clocks.clock import bench_clock
from studies.benchmarks.clocks.events import DOWN_MBIT_PER_SECOND, bench_events
from studies.benchmarks.infer import bench_infer
from studies.benchmarks.learner import bench_learner
from studies.benchmarks.messages import bench_messages
from studies.benchmarks.pipeline import bench_pipeline
from studies.benchmarks.publish import bench_publish
from studies.benchmarks.students import CHECKPOINTS, bench_students
from studies.benchmarks.tables import (
    print_clock,
    print_events,
    print_pipeline,
    print_rows,
    print_students,
)
from studies.cli.command import Command, check_positive, save_result
from studies.cli.options import GameOption
from studies.jobs.cache import ResultCache
from studies.progress import console, say

if TYPE_CHECKING:
    from analysis.figures.theme import Figure


@dataclass(frozen=True, kw_only=True)
class Infer(Command):
    """Time inference with every compression, and its KL.

    Compressions are interleaved; KL is from the network that is compressed.
    """

    network: str | None = None
    """what is compressed without a run: original (the default), impala, impala-small or
    impala-tiny"""
    run: Path | None = None
    """run directory whose learner's policy, an Original or IMPALA's, is compressed (without one, a
    policy that was fitted to follow Pong's ball)"""
    batches: tuple[int, ...] = (1, 8, 16, 32)
    """states per call"""
    repeats: int = 7
    """interleaved rounds"""
    distill_updates: int = 150
    """gradient steps of each student and pruned network"""
    out: Path | None = None
    """folder to write bench-infer.json to, and pareto-batch-N.png: time against KL"""

    def execute(self) -> dict[str, Any]:
        """Measure, print, and draw time against KL."""
        check_positive(repeats=self.repeats, distill_updates=self.distill_updates)
        if not self.batches or min(self.batches) < 1:
            given = " ".join(map(str, self.batches)) or "none"
            raise UserError(f"--batches must be positive, got {given}")
        if self.run is not None and self.network is not None:
            raise UserError("--network goes without --run, whose learner's network is compressed")
        result = bench_infer(
            self.batches,
            self.repeats,
            run=self.run,
            distill_updates=self.distill_updates,
            network=_measured(self.network or "original"),
        )
        print_rows(result, console)
        if self.out is not None:
            from analysis.figures.bench import pareto  # brings Altair, which seconds do not need

            _draw((pareto(result, batch) for batch in self.batches), self.out)
        return save_result(result, self.out, "bench-infer.json")


@dataclass(frozen=True, kw_only=True)
class Publish(Command):
    """Time publications: compress, export, load."""

    network: str = "original"
    """whose publications: original; or impala, impala-small, impala-tiny"""
    repeats: int = 3
    """interleaved rounds"""
    publications: int = 0
    """then publish so many times and show how much memory that leaves in use"""
    out: Path | None = None
    """folder to write bench-publish.json to"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        check_positive(repeats=self.repeats)
        require(self.publications >= 0, "--publications", "must not be negative", self.publications)
        result = bench_publish(
            self.repeats, publications=self.publications, network=_measured(self.network)
        )
        print_rows(result, console)
        return save_result(result, self.out, "bench-publish.json")


@dataclass(frozen=True, kw_only=True)
class Learner(Command):
    """Time learner updates in float32 and bfloat16."""

    repeats: int = 3
    """interleaved rounds"""
    out: Path | None = None
    """folder to write bench-learner.json to"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        check_positive(repeats=self.repeats)
        result = bench_learner(repeats=self.repeats)
        print_rows(result, console)
        return save_result(result, self.out, "bench-learner.json")


@dataclass(frozen=True, kw_only=True)
class Students(Command):
    """Compare how close small networks come to a trained policy, and how fast.

    The policy stands still. Shown are pruned copies with and without compensation, the KL of
    students against distillation updates, and the KL and size of each compression.
    """

    run: Path
    """run directory whose learner's policy is compressed: original or a student, no network of
    your own"""
    states: int = 20_000
    """states to learn from, of games that the policy plays"""
    quick: bool = False
    """fewer states and a tenth of the updates"""
    seed: int = 0
    """seed of games and random weights"""
    out: Path | None = None
    """folder to write bench-students.json to, and students-kl.png: KL against updates"""

    def execute(self) -> dict[str, Any]:
        """Measure, print, and draw KL against updates."""
        require(self.seed >= 0, "--seed", "must not be negative", self.seed)
        check_positive(states=self.states)
        size: dict[str, Any] = {"states": self.states}
        if self.quick:
            size = {"states": min(self.states, 4096), "compared": 256, "batches": (128,)}
            size["updates"] = tuple(count // 10 for count in CHECKPOINTS)
        result = bench_students(self.run, seed=self.seed, **size)
        print_students(result, console)
        if self.out is not None:
            from analysis.figures.bench import students_kl

            _draw([students_kl(result)], self.out)
        return save_result(result, self.out, "bench-students.json")


@dataclass(frozen=True, kw_only=True)
class Pipeline(Command):
    """Compare the speed of whole pipelines.

    They are interleaved; shown are env steps/s, CPU-seconds, phases, memory and bounds.
    """

    env: GameOption = "pong"
    """Atari game"""
    network: str = "original"
    """the learner's network"""
    configs: tuple[str, ...] = ()
    """names to compare, all if none (paper, fp32, int8, ray, net3+int8, env-only, ...)"""
    wiring: bool = False
    """vary how the INT8 pipeline is wired instead"""
    seconds: float = 20.0
    """measured in each run"""
    repeats: int = 3
    """interleaved runs of each configuration"""
    seed: int = 0
    """seed of the first repeat"""
    out: Path | None = None
    """folder to write bench-pipeline.json to"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        result = bench_pipeline(
            game=self.env,
            network=self.network,
            names=self.configs,
            wiring=self.wiring,
            seconds=self.seconds,
            repeats=self.repeats,
            seed=self.seed,
        )
        print_pipeline(result, console)
        return save_result(result, self.out, "bench-pipeline.json")


@dataclass(frozen=True, kw_only=True)
class Clock(Command):
    """Compare the virtual clock with the real one.

    Shows speed, policy lag, and which strategy is better. Run it on an idle machine.
    """

    games: tuple[str, ...] = ("pong", "minatar-breakout")
    """which of pong and minatar-breakout to measure"""
    seconds: float | None = None
    """length of each run (default: 12 for pong, 16 for minatar-breakout)"""
    seeds: int = 3
    """runs of each strategy and game, on each clock"""
    repeats: int = 5
    """rounds of the latency profiles that are measured before and after the real runs"""
    workers: int = 2
    """processes for the runs on the virtual clock"""
    out: Path | None = None
    """folder to write bench-clock.json and clock-fidelity.png to; a run that was interrupted goes
    on with what is there"""

    def execute(self) -> dict[str, Any]:
        """Measure, print, and draw predictions against measurements."""
        if self.out is not None:
            make_out_dir(self.out)
        result = bench_clock(
            games=self.games,
            seconds=self.seconds,
            seeds=self.seeds,
            repeats=self.repeats,
            workers=self.workers,
            kept=ResultCache(None if self.out is None else self.out / "clock_runs"),
        )
        print_clock(result, console)
        if self.out is not None:
            from analysis.figures.bench import clock_fidelity

            _draw([clock_fidelity(result)], self.out)
        return save_result(result, self.out, "bench-clock.json")


@dataclass(frozen=True, kw_only=True)
class Events(Command):
    """Compare the clocks while a machine's conditions change.

    Shows env steps/s before, during and after each event. Run it on an idle machine.
    """

    env: GameOption = "breakout"
    """game"""
    network: str = "net1"
    """the learner's network"""
    spec: str = "{}"
    """what actors act with, as JSON"""
    actors: int = 2
    """processes that act"""
    down_mbit: float | None = None
    """a second, of the link that publications pass; 0: they pass memory, and it cannot get
    slower (default: 200)"""
    up_mbit: float | None = None
    """a second, of the link that rollouts pass (default: 0)"""
    piece_seconds: float = 12.0
    """how long each event lasts, and each pause; a run is 14 times as long"""
    seeds: int = 3
    """runs on each clock"""
    repeats: int = 5
    """rounds of the latency profiles that are measured before and after the real runs"""
    events: Path | None = None
    """TOML or JSON file with other events and their links, see `accerl train --help`"""
    out: Path | None = None
    """folder to write bench-events.json to; a run that was interrupted goes on with what is
    there"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        down, up = self.down_mbit, self.up_mbit
        if self.events is not None and (down, up) != (None, None):
            raise UserError(
                "--down-mbit and --up-mbit do not go with --events, which has its links"
            )
        if self.out is not None:
            make_out_dir(self.out)
        result = bench_events(
            game=self.env,
            network=self.network,
            spec=CompressionSpec.from_json(self.spec),
            actors=self.actors,
            down_mbit=DOWN_MBIT_PER_SECOND if down is None else down,
            up_mbit=up or 0.0,
            piece_seconds=self.piece_seconds,
            seeds=self.seeds,
            repeats=self.repeats,
            conditions=None if self.events is None else read_events(self.events),
            kept=ResultCache(None if self.out is None else self.out / "events_runs"),
        )
        print_events(result, console)
        return save_result(result, self.out, "bench-events.json")


@dataclass(frozen=True, kw_only=True)
class Messages(Command):
    """Measure what Ray's messages take.

    Processor seconds of the learner's process and of an actor's, and bytes, per rollout.
    """

    env: GameOption = "pong"
    """Atari game"""
    calls: int = 300
    """messages of each kind and repeat"""
    repeats: int = 3
    """repeats of every measurement"""
    out: Path | None = None
    """folder to write bench-messages.json to"""

    def execute(self) -> dict[str, Any]:
        """Measure and print."""
        check_positive(calls=self.calls, repeats=self.repeats)
        result = bench_messages(game=self.env, calls=self.calls, repeats=self.repeats)
        for name, value in result["costs"].items():
            say(f"{name:24} {value:,.7g}")
        return save_result(result, self.out, "bench-messages.json")


def _measured(network: str) -> str:
    """Return `network` if it can be measured; the paper's students are, beside Original."""
    require_choice("--network", network, ("original", *IMPALA_NETWORKS))
    return network


def _draw(figures: Iterable[Figure], out: Path) -> None:
    """Write figures as PNG."""
    from analysis.figures.export import write_pngs

    make_out_dir(out)
    for path in write_pngs(figures, out):
        say(f"wrote {path}")
