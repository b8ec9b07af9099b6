"""`accerl bench pipeline`: collecting and learning together, interleaved."""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from accerl.acting.rollout import Rollout
from accerl.envs import make_envs
from accerl.errors import UserError, did_you_mean
from accerl.learner.learner import UpdateStats
from accerl.runtime.machine.cores import usable_cores
from accerl.runtime.parallel import ParallelRun
from accerl.runtime.process.supervise import end_with_parent, leave_interrupts
from accerl.runtime.run import PHASES, IntervalReport
from accerl.runtime.serial.run import SerialRun
from accerl.seeds import Role, generator, number
from accerl.spec import Decision
from accerl.training.run import make_run
from studies.benchmarks.pipelines import RATIOS, Pipeline, pipelines, wirings
from studies.benchmarks.repeats import apart, median_and_spread, result_of, rotated
from studies.progress import bar

WARM_UP_SECONDS = 3.0
"""first publication, first sessions, first allocations"""


def bench_pipeline(
    *,
    game: str = "pong",
    network: str = "original",
    names: Sequence[str] = (),
    wiring: bool = False,
    seconds: float = 20.0,
    repeats: int = 3,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure whole pipelines: env steps per second, processor seconds, phases, memory.

    Every repeat runs each configuration once, in rotated order, each in a fresh process: the
    memory that one run leaves behind must not count against the next. Ratios are formed within a
    repeat before their median is taken. Each ratio has a bound beside it, see `speed_bound`.

    Args:
        game: an Atari game.
        network: the learner's network.
        names: configurations to compare; all if empty, on Ray if that is installed.
        wiring: vary how the INT8 pipeline is wired instead.
        seconds: measured in each run, after a warm-up.
        repeats: runs of each configuration.
        seed: of the first repeat; the next ones count on.

    Raises:
        UserError: a name or number is not allowed, or a process that measures was killed.
    """
    if not 0.0 < seconds < 3600.0:
        raise UserError(f"--seconds must be positive and below 3600, got {seconds:g}")
    if repeats < 1:
        raise UserError(f"--repeats must be at least 1, got {repeats}")
    known = (wirings if wiring else pipelines)(game, network)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise UserError(f"configuration {name!r} does not exist; {hint}")
    # Ray is an extra: without it the others are still compared.
    here = [name for name in known if name != "ray" or find_spec("ray") is not None]
    chosen = {name: known[name] for name in names or here}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    with bar("pipelines", len(chosen) * repeats) as advance:
        for repeat in range(repeats):
            for name in rotated(list(chosen), repeat):
                arguments = (chosen[name], seconds, seed + repeat)
                found[name].append(apart(measure, *arguments, what=repr(name)))
                speed = found[name][-1]["env_steps_per_second"]
                advance(1, f"{name}: {speed:,.0f} env steps/s")
    pairs = [(name, "int8") for name in chosen if name != "int8"] if wiring else RATIOS
    return result_of(
        "pipeline",
        game=game,
        network=network,
        seconds=seconds,
        repeats=repeats,
        cores=usable_cores(),
        seeds=list(range(seed, seed + repeats)),
        configs={name: _medians(rows) for name, rows in found.items()},
        **_ratios(found, pairs),
    )


def measure(pipeline: Pipeline, seconds: float, seed: int) -> dict[str, Any]:
    """Run one pipeline; return what one interval after the warm-up showed.

    Raises:
        UserError: nothing was learned from in the interval.
    """
    if pipeline.emulators:
        return _measure_emulators(pipeline, seconds, seed)
    run = make_run(replace(pipeline.config, seed=seed))
    try:
        if not pipeline.learns:
            run.learner.update = hand_back
        run.apply(Decision.of(pipeline.spec))
        run.advance(WARM_UP_SECONDS)
        if not pipeline.learns and isinstance(run, ParallelRun):
            run.publishing.after_update = leave_it  # nothing new: nothing to distil either
        report = run.advance(seconds)
    finally:
        run.close()
    if not report.env_steps:
        raise UserError(f"bench pipeline: no update within {seconds:g} s; give more --seconds")
    return _measured(report, pipeline, run)


def hand_back(rollout: Rollout) -> UpdateStats:
    """Learn nothing from a rollout: its slot is free at once, and the actor never waits."""
    nothing, logits = torch.zeros(rollout.action.shape), torch.from_numpy(rollout.logits)
    return UpdateStats(kl_nats=nothing, entropy_nats=nothing, logits=logits, losses={})


def leave_it(rollout: Rollout) -> None:
    """Neither distil nor publish after a rollout."""


def _measured(
    report: IntervalReport, pipeline: Pipeline, run: SerialRun | ParallelRun
) -> dict[str, Any]:
    steps = report.env_steps
    runtime = pipeline.config.runtime
    processor = sum(report.cpu_seconds.values())
    return {
        "env_steps_per_second": report.env_steps / report.seconds,
        "cpu_seconds_per_1000_steps": 1000.0 * processor / steps,
        "learner_samples_per_second": (
            report.env_steps * pipeline.config.learner.reuse / report.seconds
            if pipeline.learns
            else 0.0
        ),
        "phases": {name: 1000.0 * report.phase_seconds[name] / steps for name in PHASES},
        "queue_fill": report.queue_fill,
        "policy_lag": report.policy_lag,
        "kl_mean_nats": report.kl_mean_nats,
        "rss_mb": {name: held / 2**20 for name, held in report.rss_bytes.items()},
        "cpu_by_process": {
            name: 1000.0 * seconds / steps for name, seconds in report.cpu_seconds.items()
        },
        "actors": runtime.num_actors,
        "serial": runtime.runtime == "serial",
    }


def _measure_emulators(pipeline: Pipeline, seconds: float, seed: int) -> dict[str, Any]:
    """Step environments at random, side by side in so many processes."""
    context = multiprocessing.get_context("spawn")
    started = []
    for index in range(pipeline.emulators):
        pipe, theirs = context.Pipe()
        arguments = (theirs, pipeline.config.game, pipeline.config.runtime.num_envs)
        drawn = number(seed, Role.EMULATOR, index)
        process = context.Process(target=emulate, args=(*arguments, drawn), daemon=True)
        process.start()
        theirs.close()
        started.append((pipe, process))
    try:
        for pipe, _ in started:
            pipe.recv()  # ready
        for pipe, _ in started:
            pipe.send(seconds)
        results = [pipe.recv() for pipe, _ in started]
    finally:
        for _, process in started:
            process.terminate()
            process.join()
    steps = sum(result["env_steps"] for result in results)
    elapsed = float(np.mean([result["seconds"] for result in results]))
    phases = dict.fromkeys(PHASES, 0.0)
    phases["env"] = 1000.0 * sum(result["seconds"] for result in results) / steps
    processor = sum(result["cpu_seconds"] for result in results)
    return {
        "env_steps_per_second": steps / elapsed,
        "cpu_seconds_per_1000_steps": 1000.0 * processor / steps,
        "learner_samples_per_second": 0.0,
        "phases": phases,
        "queue_fill": 0.0,
        "policy_lag": 0.0,
        "kl_mean_nats": 0.0,
        "rss_mb": {},
        "cpu_by_process": {},
        "actors": pipeline.emulators,
        "serial": False,
    }


def emulate(pipe: Connection, game: str, num_envs: int, seed: int) -> None:
    """Body of a process: step environments at random for as many seconds as it receives."""
    leave_interrupts()  # its parent ends it
    end_with_parent()
    envs = make_envs(game, num_envs)
    actions = generator(seed, Role.ACTIONS).integers(envs.num_actions, size=(997, num_envs))
    envs.reset(number(seed, Role.EPISODES))
    for index in range(50):
        envs.step(actions[index])
    pipe.send("ready")
    seconds = pipe.recv()
    steps, processor, start = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - start < seconds:
        envs.step(actions[steps % len(actions)])
        steps += 1
    elapsed = time.perf_counter() - start
    pipe.send(
        {
            "env_steps": steps * num_envs,
            "seconds": elapsed,
            "cpu_seconds": time.process_time() - processor,
        }
    )
    envs.close()


def speed_bound(fast: Mapping[str, Any], slow: Mapping[str, Any], cores: int) -> float:
    """Return how many times faster than `slow` the pipeline `fast` could be at most.

    That is Amdahl's bound: its emulator, its writing and its learner cost what they were measured
    to cost, and inference costs nothing. Actors work side by side, the learner beside them, and
    all of them share the cores:

        seconds per step >= max((env + write) / actors, learn, (env + write + learn) / cores)
    """
    phases = fast["phases"]
    act = phases["env"] + phases["write"]
    learn = phases["learn"]
    together = (act + learn) / (1 if fast["serial"] else cores)
    least_ms = max(act / max(fast["actors"], 1), learn, together)
    return 1000.0 / slow["env_steps_per_second"] / least_ms


def _medians(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return medians over repeats, and the interquartile range of the speed."""
    _, spread = median_and_spread([row["env_steps_per_second"] for row in rows])
    median: dict[str, Any] = {
        name: float(np.median([row[name] for row in rows]))
        for name in (
            "env_steps_per_second",
            "cpu_seconds_per_1000_steps",
            "learner_samples_per_second",
            "queue_fill",
            "policy_lag",
            "kl_mean_nats",
        )
    }
    for name in ("phases", "rss_mb", "cpu_by_process"):
        values: defaultdict[str, list[float]] = defaultdict(list)
        for row in rows:
            for key, value in row[name].items():
                values[key].append(value)
        median[name] = {key: float(np.median(found)) for key, found in values.items()}
    return {**median, "spread": spread, "actors": rows[0]["actors"]}


def _ratios(
    found: Mapping[str, Sequence[Mapping[str, Any]]], pairs: Sequence[tuple[str, str]]
) -> dict[str, dict[str, float]]:
    cores = usable_cores()
    result: dict[str, dict[str, float]] = {"ratios": {}, "ratio_spread": {}, "bounds": {}}
    for fast, slow in pairs:
        if fast not in found or slow not in found:
            continue
        rows = list(zip(found[fast], found[slow], strict=True))
        ratios = [a["env_steps_per_second"] / b["env_steps_per_second"] for a, b in rows]
        key = f"{fast}/{slow}"
        result["ratios"][key], result["ratio_spread"][key] = median_and_spread(ratios)
        result["bounds"][key] = float(np.median([speed_bound(a, b, cores) for a, b in rows]))
    return result
