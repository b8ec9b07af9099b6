"""References: what random play and uncompressed training reach in each game of the splits.

`python -m controller.env.references [GAME ...]` measures them anew and writes references.json.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from accerl.envs import make_envs
from accerl.errors import UserError, did_you_mean
from accerl.records import read_json, write_json
from controller.arguments import one_line_mistakes
from controller.objective import GameReference

FILE = Path(__file__).with_name("references.json")
PROFILE = "paper-1080ti"
SEEDS = (50, 51, 52)  # of the validation range: nothing is trained or tested on them
EPISODES = 512  # of random play
LAST = 2  # measurements of J at the end of a run whose mean is what it reached


@cache
def _table() -> dict[str, Any]:
    return read_json(FILE)


def load_reference(game: str) -> GameReference:
    """Return the scale of a game's scores.

    Raises:
        UserError: it was not measured.
    """
    table = _table()
    if game not in table:
        raise UserError(
            f"game {game!r} has no reference returns; {did_you_mean(game, list(table))}; for "
            "one of your own give `make_instance` its random_return and reference_return"
        )
    return GameReference(table[game]["random_return"], table[game]["reference_return"])


def random_return(game: str) -> float:
    """Return the mean score of uniformly random play."""
    from accerl.acting.evaluate import EVALUATION_SEED, play_episodes
    from accerl.presets import load_preset

    config = load_preset(game)
    envs = make_envs(config.game, EPISODES, config.env)
    logits = np.zeros((EPISODES, envs.num_actions), dtype=np.float32)
    scores = play_episodes(envs, lambda obs: logits[: len(obs)], EVALUATION_SEED)
    envs.close()
    return float(scores.mean())


def reference_return(game: str) -> tuple[float, list[float]]:
    """Return the median of what fp32 actors lead to within the horizon, and all of it by seed."""
    from accerl.monitor.strategies import FixedStrategy
    from accerl.presets import load_preset
    from accerl.runtime.latency.profiles import load_profile
    from accerl.spec import IDENTITY
    from accerl.training.run import run_training
    from controller.env.instances import ENV_STEPS, choose_horizon

    profile = load_profile(PROFILE)
    horizon, interval = choose_horizon(load_preset(game), profile, ENV_STEPS[game])
    config = replace(load_preset(game), seconds=horizon).with_runtime(interval_seconds=interval)
    reached = []
    for seed in SEEDS:
        reports = run_training(
            replace(config, seed=seed), FixedStrategy(IDENTITY), profile=profile
        ).reports
        returns = [report.learner_return for report in reports[-LAST:]]
        reached.append(fmean(value for value in returns if value is not None))
    return median(reached), reached


def main(games: list[str]) -> None:
    """Measure these games, or all, and write them to references.json, one after the other.

    A user's mistake is one line and exit code 2.
    """
    from controller.env.instances import ENV_STEPS

    with one_line_mistakes("references"):
        for game in games:
            if game not in ENV_STEPS:
                hint = did_you_mean(game, list(ENV_STEPS))
                raise UserError(f"game {game!r} is not one that studies have references of; {hint}")
        for game in games or ENV_STEPS:
            reference, by_seed = reference_return(game)
            entry = {
                "random_return": random_return(game),
                "reference_return": reference,
                "by_seed": dict(zip(map(str, SEEDS), by_seed, strict=True)),
                "profile": PROFILE,
            }
            write_json(FILE, {**read_json(FILE), game: entry})
            print(game, entry, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
