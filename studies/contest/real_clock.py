"""The contest on the real clock: the process runtime on this machine, against its prediction.

Contestants take turns, seed by seed and game by game, so that the machine's drift meets all alike.
What the virtual clock predicts comes from a latency profile of each game's own environments and
networks, measured just before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from accerl.config import RunConfig
from accerl.monitor.strategy import Strategy
from accerl.presets import load_preset
from accerl.records import SUMMARY, fingerprint, read_json, read_metrics, write_json
from accerl.runtime.latency.measure import measure_profile
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile, save_profile
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from controller.env.instances import INTERVALS
from studies.benchmarks.pipelines import base_config
from studies.progress import bar, console, share_bar

REAL = "real.json"
SEEDS = range(320, 340)
WARM_UP_INTERVALS = 2
"""left out of speeds: actors import torch, and everything happens for the first time"""
EVAL_EPISODES = 16

Make = Callable[[str], Strategy]
"""a game -> a new strategy, in the units of its scores"""
PONG_RANGE = (-21.0, 21.0)
"""of its scores: nobody measured a reference of it within a contest's horizon"""


def real_config(game: str, seconds: float) -> RunConfig:
    """Return the run: an Atari game as `bench pipeline` found it fastest, a small one as preset.

    A small game's actors infer one state at a time, as otherwise its learner alone sets the pace.
    """
    if "minatar" in game:
        config = load_preset(game).with_runtime(infer_batch=1, eval_episodes=EVAL_EPISODES)
    else:
        config = base_config(game, "original")
    config = replace(config, seconds=seconds, network="original")
    return config.with_runtime(
        runtime="process",
        clock="real",
        num_actors=1,
        interval_seconds=seconds / INTERVALS,
        pin_cores=fingerprint()["cores"] > 1,
    )


def real_contest(
    out: Path,
    strategies: Mapping[str, Make],
    specs: Sequence[CompressionSpec],
    *,
    games: Sequence[str],
    seeds: int,
    seconds: float,
    repeats: int,
) -> dict[str, Any]:
    """Run every strategy on the real clock and on the virtual one; write and return real.json.

    Args:
        out: the study's folder; run directories go to real/GAME/STRATEGY/seed-N.
        strategies: by name; a new one is made for every run of a game.
        specs: all that they may act with.
        games: what is played.
        seeds: how many.
        seconds: length of each run.
        repeats: rounds in which a game's latencies are measured.
    """
    rows = []
    profiles = {game: _profile(out, game, specs, seconds, repeats) for game in games}
    total = seeds * len(games) * len(strategies)
    with bar("real clock", total) as advance:
        for index, seed in enumerate(list(SEEDS)[:seeds]):
            for game in games:
                for name in _rotated(list(strategies), index):
                    folder = out / "real" / game / name / f"seed-{seed}"
                    config = replace(real_config(game, seconds), seed=seed)
                    summary = _real_run(config, strategies[name](game), name, folder)
                    predicted = _predict(config, strategies[name](game), profiles[game])
                    rows.append(
                        {
                            "game": game,
                            "strategy": name,
                            "seed": seed,
                            "env_steps_per_second": summary["speed"],
                            "predicted_env_steps_per_second": predicted,
                            "final_return": summary["final_return"],
                            "spec_seconds": summary["spec_seconds"],
                            "cpu_seconds": sum(summary.get("cpu_seconds", {}).values()) or None,
                            "publication_bytes": summary.get("publication_bytes"),
                        }
                    )
                    advance(1, f"{game}, {name}: {summary['speed']:,.0f} steps/s")
    result = {
        "seconds": seconds,
        "rows": rows,
        "fingerprint": fingerprint(),
        "profiles": {game: profile.hash for game, profile in profiles.items()},
    }
    write_json(out / REAL, result)
    for line in told(rows):
        console.print(f"  {line}")
    return result


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def _profile(
    out: Path, game: str, specs: Sequence[CompressionSpec], seconds: float, repeats: int
) -> LatencyProfile:
    """Return the latencies of a game's environments and networks; kept in the study's folder."""
    path = out / "real" / f"profile-{game}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        config = real_config(game, seconds)
        with share_bar(f"latency profile of {game}") as on_progress:
            measured = measure_profile(
                f"real-{game}",
                config=config,
                specs=specs,
                batches=(config.runtime.infer_batch or config.runtime.num_envs,),
                networks=(config.network,),
                repeats=repeats,
                on_progress=on_progress,
            )
        save_profile(replace(measured, num_actors=config.runtime.num_actors), path)
    return load_profile(str(path))


def _real_run(config: RunConfig, strategy: Strategy, name: str, folder: Path) -> dict[str, Any]:
    """Run on the real clock, unless that is done; return its summary and its speed."""
    if not (folder / SUMMARY).is_file():
        shutil.rmtree(folder, ignore_errors=True)  # a run that was cut short starts again
        run_training(config, strategy, strategy_name=name, out=folder)
    return {**read_json(folder / SUMMARY), "speed": _speed(list(read_metrics(folder)))}


def _predict(config: RunConfig, strategy: Strategy, profile: LatencyProfile) -> float:
    """Return the env steps per second of the same run on the virtual clock."""
    torch.set_num_threads(1)
    config = config.with_runtime(runtime="serial", clock="virtual")
    return _speed(run_training(config, strategy, profile=profile).reports)


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
        sentences.append(
            f"{game}, {name}: {real:,.0f} env steps/s; the virtual clock says {predicted:,.0f} "
            f"({predicted / real - 1.0:+.0%})"
        )
    return sentences
