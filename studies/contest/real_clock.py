"""The contest on the real clock: the process runtime on this machine, against its prediction.

Contestants take turns, seed by seed and game by game, so that the machine's drift meets all alike.
What the virtual clock predicts comes from a latency profile of each game's own environments and
networks, measured just before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import SUMMARY, fingerprint, read_json, read_metrics, write_json
from accerl.runtime.conditions import CO_TENANT, Condition, Conditions
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import save_profile
from accerl.runtime.machine.cores import usable_cores
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from controller.env.instances import INTERVALS, Instance
from studies.benchmarks.pipelines import base_config
from studies.benchmarks.repeats import rotated
from studies.jobs.executor import Executor, Job
from studies.jobs.inner import build_strategy
from studies.jobs.timed import OF_GAME, ProfileJob, RealRunJob
from studies.progress import bar, console

REAL = "real.json"
SEEDS = range(320, 340)
WARM_UP_INTERVALS = 2
"""left out of speeds: actors import torch, and everything happens for the first time"""
EVAL_EPISODES = 16
ATARI_EVAL_EPISODES = 4
"""likewise, of games that last a thousand steps; rules that read the learner's score need some"""

CO_TENANT_COMES = ((0.25, 0.25), (0.75, 0.15))
"""when another program takes a core, and for how long, as shares of the run"""

Describe = Callable[[str], tuple[Mapping[str, Any], Instance]]
"""a game -> a strategy as `build_strategy` takes it, and the units of the game's scores"""
SCORE_RANGES = {"pong": (-21.0, 21.0), "breakout": (1.7, 31.8)}
"""of games that a contest has no reference of: the lowest score and the highest, and random play's
and a person's (Mnih et al. 2015)"""


def real_config(game: str, seconds: float, *, changing: bool) -> RunConfig:
    """Return the run: an Atari game as `bench pipeline` found it fastest, a small one as preset.

    A small game's actors infer one state at a time, as otherwise its learner alone sets the pace.

    Args:
        game: what is played.
        seconds: the run's length.
        changing: whether another program takes a core for a while, and comes again (`CO_TENANT`).
    """
    if "minatar" in game:
        config = load_preset(game).with_runtime(infer_batch=1, eval_episodes=EVAL_EPISODES)
    else:
        config = base_config(game, "original").with_runtime(eval_episodes=ATARI_EVAL_EPISODES)
    config = replace(config, seconds=seconds, network="original")
    if changing:
        events = tuple(
            Condition(
                at_seconds=start * seconds,
                lasts_seconds=share * seconds,
                kind=CO_TENANT,
                amount=1,
            )
            for start, share in CO_TENANT_COMES
        )
        config = replace(config, conditions=Conditions(events=events))
    return config.with_runtime(
        runtime="process",
        clock="real",
        num_actors=1,
        interval_seconds=seconds / INTERVALS,
        pin_cores=usable_cores() > 1,
    )


@dataclass(frozen=True)
class Speed:
    """How fast a run is."""

    env_steps_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PredictedSpeedJob(Job[Speed]):
    """What the virtual clock makes of a run on the real one."""

    kind: ClassVar[str] = "predicted-speed"
    run_on_real_clock: RealRunJob

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {"kind": self.kind, "run": self.run_on_real_clock.to_json()}

    def run(self) -> Speed:
        """Do the run on the virtual clock, with what was measured of the machine."""
        real = self.run_on_real_clock
        serial = real.config.with_runtime(runtime="serial", clock="virtual")
        config = serial.with_learner(device="cpu")  # which a profile charges as what it measured
        strategy = build_strategy(real.strategy, real.instance, real.config.seed)
        return Speed(_speed(run_training(config, strategy, profile=real.times).reports))

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> Speed:
        """Read a result."""
        return Speed(**data)


def real_contest(
    out: Path,
    executor: Executor,
    strategies: Mapping[str, Describe],
    specs: Sequence[CompressionSpec],
    *,
    games: Sequence[str],
    seeds: int,
    seconds: float,
    changing: bool,
    repeats: int,
) -> dict[str, Any]:
    """Run every strategy on the real clock and on the virtual one; write and return real.json.

    Args:
        out: the study's folder; run directories go to real/GAME/STRATEGY/seed-N.
        executor: makes the runs on the real clock, one after another on one machine.
        strategies: by name.
        specs: all that they may act with.
        games: what is played.
        seeds: how many.
        seconds: length of each run.
        changing: see `real_config`.
        repeats: rounds in which a game's latencies are measured.

    Raises:
        UserError: runs of two machines lie in the folder, or would.
    """
    profiles = _profiles(out, executor, games, specs, seconds, repeats)
    jobs = []
    for index, seed in enumerate(list(SEEDS)[:seeds]):
        for game in games:
            for name in rotated(list(strategies), index):
                strategy, instance = strategies[name](game)
                jobs.append(
                    RealRunJob(
                        config=replace(real_config(game, seconds, changing=changing), seed=seed),
                        instance=instance,
                        strategy={**strategy, "label": name},
                        times=profiles[game],
                        out=out / "real" / game / name / f"seed-{seed}",
                    )
                )
    if executor.is_local and not all(map(executor.is_saved, jobs)):
        _check_machine(out, profiles, {fingerprint()["id"]})  # now: not after hours
    with bar("real clock", len(jobs)) as advance:
        made = executor.map(jobs, advance)
    _check_machine(out, profiles, {outcome.result.fingerprint for outcome in made})
    predicted = [PredictedSpeedJob(run_on_real_clock=job) for job in jobs]
    with bar("the same on the virtual clock", len(jobs)) as advance:
        speeds = [outcome.result for outcome in executor.map(predicted, advance)]
    rows = [_row(job, speed) for job, speed in zip(jobs, speeds, strict=True)]
    result = {
        "seconds": seconds,
        "changing": changing,
        "rows": rows,
        "fingerprint": fingerprint(),
        "profiles": {game: profile.hash for game, profile in profiles.items()},
    }
    write_json(out / REAL, result)
    for line in told(rows):
        console.print(f"  {line}")
    return result


def _check_machine(
    out: Path, profiles: Mapping[str, LatencyProfile], machines: Collection[str]
) -> None:
    """Refuse runs of several machines, or of another one than the profiles are of.

    Raises:
        UserError: there are such.
    """
    measured = {str(profile.fingerprint["id"]) for profile in profiles.values()}
    if len(measured.union(machines)) > 1:
        raise UserError(
            f"{out / 'real'} is of several machines, whose seconds are not to be mixed; go on "
            "where its runs and profiles were made, or begin with another --out"
        )


def _row(job: RealRunJob, predicted: Speed) -> dict[str, Any]:
    """Return what a run showed, and what the virtual clock predicted."""
    assert job.out is not None
    summary = read_json(job.out / SUMMARY)
    return {
        "game": job.config.game,
        "strategy": job.strategy["label"],
        "seed": job.config.seed,
        "env_steps_per_second": _speed(list(read_metrics(job.out))),
        "predicted_env_steps_per_second": predicted.env_steps_per_second,
        "final_return": summary["final_return"],
        "spec_seconds": summary["spec_seconds"],
        "cpu_seconds": sum(summary.get("cpu_seconds", {}).values()) or None,
        "publication_bytes": summary.get("publication_bytes"),
    }


def _profiles(
    out: Path,
    executor: Executor,
    games: Sequence[str],
    specs: Sequence[CompressionSpec],
    seconds: float,
    repeats: int,
) -> dict[str, LatencyProfile]:
    """Return the latencies of each game's environments and networks; also saved for the report."""
    configs = {game: real_config(game, seconds, changing=False) for game in games}
    jobs = [
        ProfileJob(
            name=f"{OF_GAME}{game}",
            config=config,
            specs=tuple(specs),
            batches=(config.runtime.infer_batch or config.runtime.num_envs,),
            networks=(config.network,),
            repeats=repeats,
        )
        for game, config in configs.items()
    ]
    with bar("latency profiles", len(jobs)) as advance:
        made = [outcome.result for outcome in executor.map(jobs, advance)]
    (out / "real").mkdir(exist_ok=True)
    found = {}
    for game, measured in zip(games, made, strict=True):
        found[game] = replace(measured, num_actors=configs[game].runtime.num_actors)
        save_profile(found[game], out / "real" / f"profile-{game}.json")
    return found


def _speed(reports: Sequence[IntervalReport]) -> float:
    counted = reports[WARM_UP_INTERVALS:]
    return sum(r.env_steps for r in counted) / sum(r.seconds for r in counted)


def told(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence per game and strategy: its speed, and what was predicted."""
    sentences = []
    for game, name in dict.fromkeys((row["game"], row["strategy"]) for row in rows):
        own = [row for row in rows if (row["game"], row["strategy"]) == (game, name)]
        real = sum(row["env_steps_per_second"] for row in own) / len(own)
        predicted = sum(row["predicted_env_steps_per_second"] for row in own) / len(own)
        off = f" ({predicted / real - 1.0:+.0%})" if real else ""
        sentences.append(
            f"{game}, {name}: {real:,.0f} env steps/s; the virtual clock says {predicted:,.0f}{off}"
        )
    return sentences
