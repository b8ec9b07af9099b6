"""The options of `accerl bench`; see `options`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import make_out_dir
from studies.cli import commands
from studies.cli.options import Json, written
from studies.progress import console


def bench_infer(
    *,
    run: Path | None = None,
    batches: tuple[int, ...] = (1, 8, 16, 32),
    repeats: int = 7,
    distill_updates: int = 150,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Time every compression when it acts, interleaved, and tell its KL to Original.

    Args:
        run: run directory whose learner's policy is compressed (without one, a policy that was
            fitted to follow Pong's ball)
        batches: states per call
        repeats: interleaved rounds
        distill_updates: gradient steps of each student and pruned network
        out: folder to write bench-infer.json to, and pareto-batch-N.png: time against KL
        json_: print the result as JSON
    """
    from studies.benchmarks.infer import bench_infer as measure
    from studies.benchmarks.infer import draw_pareto

    for name, value in (("--repeats", repeats), ("--distill-updates", distill_updates)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")
    if not batches or min(batches) < 1:
        raise UserError(f"--batches must be positive, got {' '.join(map(str, batches)) or 'none'}")
    result = commands.bench(
        lambda: measure(batches, repeats, run=run, distill_updates=distill_updates), json_
    )
    if out is not None:
        for path in draw_pareto(result, out):
            console.print(f"wrote {path}")
    return written(result, out, "bench-infer.json")


def bench_publish(
    *, repeats: int = 3, publications: int = 0, out: Path | None = None, json_: Json = False
) -> Any:
    """Time publications: compress, export, make ready to act.

    Args:
        repeats: interleaved rounds
        publications: then publish so many times and tell how much memory that leaves in use
        out: folder to write bench-publish.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.bench import bench_publish as measure

    result = commands.bench(lambda: measure(repeats, publications=publications), json_)
    return written(result, out, "bench-publish.json")


def bench_learner(*, repeats: int = 3, out: Path | None = None, json_: Json = False) -> Any:
    """Time learner updates in float32 and bfloat16.

    Args:
        repeats: interleaved rounds
        out: folder to write bench-learner.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.bench import bench_learner as measure

    result = commands.bench(lambda: measure(repeats=repeats), json_)
    return written(result, out, "bench-learner.json")


def bench_clock(
    *,
    games: tuple[str, ...] = ("pong", "minatar-breakout"),
    seconds: float | None = None,
    seeds: int = 3,
    repeats: int = 5,
    workers: int = 2,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Compare the virtual clock with the real one: speed, policy lag, and which strategy is better.

    Run it on an idle machine.

    Args:
        games: of pong and minatar-breakout
        seconds: length of each run (default: 12 for pong, 16 for minatar-breakout)
        seeds: runs of each strategy and game, on each clock
        repeats: rounds of the latency profiles that are measured before and after the real runs
        workers: processes for the runs on the virtual clock
        out: folder to write bench-clock.json and clock-fidelity.png to; a run that was interrupted
            goes on with what is there
        json_: print the result as JSON
    """
    from studies.benchmarks.clock import bench_clock as measure
    from studies.benchmarks.clock_tables import draw_clock, print_clock
    from studies.jobs.cache import Kept

    if out is not None:
        make_out_dir(out)
    result = measure(
        games=games,
        seconds=seconds,
        seeds=seeds,
        repeats=repeats,
        workers=workers,
        kept=Kept(None if out is None else out / "clock_runs.jsonl"),
    )
    print_clock(result, console)
    written(result, out, "bench-clock.json")
    if out is not None:
        for path in draw_clock(result, out):
            console.print(f"wrote {path}")
    return result


def bench_pipeline(
    *,
    env: str = "pong",
    network: str = "original",
    configs: tuple[str, ...] = (),
    wiring: bool = False,
    seconds: float = 20.0,
    repeats: int = 3,
    seed: int = 0,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Compare whole pipelines, interleaved: env steps/s, CPU-seconds, phases, memory, bounds.

    Args:
        env: Atari game
        network: the learner's network
        configs: names to compare, all if none (paper, fp32, int8, net3+int8, env-only, ...)
        wiring: vary how the INT8 pipeline is wired instead
        seconds: measured in each run
        repeats: interleaved runs of each configuration
        seed: of the first repeat
        out: folder to write bench-pipeline.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.pipeline import bench_pipeline as measure
    from studies.cli.tables import print_pipeline

    result = measure(
        game=env,
        network=network,
        names=configs,
        wiring=wiring,
        seconds=seconds,
        repeats=repeats,
        seed=seed,
    )
    print_pipeline(result, console)
    return written(result, out, "bench-pipeline.json")
