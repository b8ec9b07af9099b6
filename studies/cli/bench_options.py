"""The options of `accerl bench`; see `options`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import make_out_dir
from accerl.spec import CompressionSpec
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


def bench_graphs(
    *,
    batches: tuple[int, ...] = (1, 16),
    repeats: int = 7,
    compile: bool = True,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Time the same network in eager torch, TorchScript, torch.compile and ONNX, and sparse.

    Args:
        batches: states per call
        repeats: interleaved rounds
        compile: also torch.compile, which needs a C++ compiler and up to a minute per batch size
        out: folder to write bench-graphs.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.graphs import bench_graphs as measure

    result = commands.bench(lambda: measure(batches, repeats, compile_torch=compile), json_)
    return written(result, out, "bench-graphs.json")


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


def bench_monitor(
    *,
    presets: tuple[str, ...] = ("pong", "minatar-breakout", "cartpole"),
    seconds: float = 30.0,
    repeats: int = 3,
    seed: int = 0,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Tell what share of a run's processor time its monitor takes, with INT8 actors.

    Args:
        presets: what to run, interleaved
        seconds: length of each run
        repeats: interleaved runs of each preset
        seed: of the first repeat
        out: folder to write bench-monitor.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.monitor import bench_monitor as measure
    from studies.benchmarks.monitor import print_monitor

    result = measure(presets, seconds=seconds, repeats=repeats, seed=seed)
    print_monitor(result, console)
    return written(result, out, "bench-monitor.json")


def bench_tiers(
    *,
    games: tuple[str, ...] = ("catch", "cartpole", "minatar-breakout"),
    profile: str = "two-core",
    seconds: float = 60.0,
    episodes: int = 10_000,
    seed: int = 0,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Tell what an episode of the outer problem costs on each tier, in core-seconds.

    Args:
        games: of tier 1, each with uncompressed and with the hardest compressed actors
        profile: latency profile of tier 1, by name or as a JSON file
        seconds: of the virtual clock, per run of tier 1
        episodes: of tier 0, with random actions
        seed: of games, runs and actions
        out: folder to write bench-tiers.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.tiers import bench_tiers as measure
    from studies.benchmarks.tiers import print_tiers

    result = measure(games, profile=profile, seconds=seconds, episodes=episodes, seed=seed)
    print_tiers(result, console)
    return written(result, out, "bench-tiers.json")


def bench_evaluation(
    *,
    games: tuple[str, ...] = ("catch", "cartpole", "minatar-breakout"),
    profile: str = "paper-1080ti",
    share: float = 0.4,
    episodes: int = 0,
    seeds: int = 200,
    seed: int = 0,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Tell how far J, the measured return of one policy, scatters, and what mirrored pairs do.

    Args:
        games: whose policies are measured
        profile: latency profile that they are trained under, by name or as a JSON file
        share: of the game's horizon that they are trained for
        episodes: per measurement; 0: as many as the game's preset takes
        seeds: measurements with mirrored pairs of episodes, and as many without
        seed: of the training runs
        out: folder to write bench-evaluation.json to
        json_: print the result as JSON
    """
    from studies.benchmarks.evaluation import bench_evaluation as measure
    from studies.benchmarks.evaluation import print_evaluation

    result = measure(games, profile=profile, share=share, episodes=episodes, seeds=seeds, seed=seed)
    print_evaluation(result, console)
    return written(result, out, "bench-evaluation.json")


def bench_correctors(
    *,
    repeats: int = 9,
    learn: str | None = None,
    spec: str = '{"bits": 8}',
    seconds: float = 40.0,
    seeds: int = 12,
    publish_every: int = 16,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Time every off-policy corrector, interleaved; or --learn a game with each of them.

    Args:
        repeats: interleaved rounds
        learn: preset to learn with every named combination instead, on the virtual clock
        spec: with --learn: what actors act with, as JSON
        seconds: with --learn: length of each run on its clock
        seeds: with --learn: runs of each
        publish_every: with --learn: learner updates between two publications
        out: folder to write bench-correctors.json to, or bench-correctors-PRESET.json
        json_: print the result as JSON
    """
    from studies.benchmarks.correctors import bench_correctors as measure

    if learn is not None:
        from studies.benchmarks.compare_correctors import compare_correctors, print_comparison

        result = compare_correctors(
            learn,
            spec=CompressionSpec.from_json(spec),
            seconds=seconds,
            seeds=seeds,
            publish_every=publish_every,
        )
        print_comparison(result, console)
        return written(result, out, f"bench-correctors-{learn}.json")
    if repeats < 1:
        raise UserError(f"--repeats must be at least 1, got {repeats}")
    result = commands.bench(lambda: measure(repeats), json_)
    return written(result, out, "bench-correctors.json")


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


def bench_training(
    *,
    run: Path,
    out: Path,
    specs: tuple[str, ...] = (),
    seconds: float = 300.0,
    seeds: int = 3,
    episodes: int = 16,
    json_: Json = False,
) -> Any:
    """Go on from a run's learner with every compression: KL, lag, env steps/s, scores.

    Args:
        run: run directory to start from; its settings are kept
        out: folder for the runs, which can be reported, and bench-training.json; runs that it
            holds already are not repeated
        specs: what to compare, each as JSON (default: one of each compressor, and compositions)
        seconds: length of each run
        seeds: runs of each
        episodes: played with the learner's own policy after each run, uncompressed
        json_: print the result as JSON
    """
    from studies.benchmarks.training import bench_training as measure
    from studies.cli.tables import print_training

    parsed = [CompressionSpec.from_json(spec) for spec in specs]
    result = measure(run, out, specs=parsed, seconds=seconds, seeds=seeds, episodes=episodes)
    print_training(result, console)
    return result
