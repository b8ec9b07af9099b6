"""What `accerl bench evaluation` measures: how much of J is luck, mirrored or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import f as f_distribution

from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.evaluate import policy_infer, return_noise
from accerl.networks.policy_net import PolicyNet
from accerl.presets import load_preset
from accerl.records import fingerprint, versions
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, Decision
from accerl.train import make_run
from controller.env.instances import ENV_STEPS, choose_horizon, find_instance
from studies.progress import bar

FIRST_SEED = 10_000  # of starts and actions; no run evaluates from these


def bench_evaluation(
    games: Sequence[str], *, profile: str, share: float, episodes: int, seeds: int, seed: int = 0
) -> dict[str, Any]:
    """Train each game for a while, uncompressed, and measure J of its policy over many seeds.

    Args:
        games: of the splits.
        profile: charges the virtual clock.
        share: of the game's horizon to train for.
        episodes: per measurement of J; 0: as many as the preset takes.
        seeds: measurements with mirrored pairs, and as many without.
        seed: of the runs.

    Returns:
        `rows`, with 95% limits of the variance ratio: those of an F test, so J is taken as normal.

    Raises:
        UserError: a name does not exist, or a number is not allowed.
    """
    if not 0.0 < share <= 1.0:
        raise UserError(f"--share must lie in (0, 1], got {share:g}")
    if seeds < 2 or episodes < 0:
        raise UserError(
            f"--seeds must be at least 2 and --episodes at least 0, got {seeds} and {episodes}"
        )
    for game in games:
        find_instance(game, profile, seed)  # raises where there is none
    rows = []
    with bar("evaluation", len(games), unit="game") as advance:
        for game in games:
            count = episodes or load_preset(game).runtime.eval_episodes
            policy, seconds = _half_trained(game, profile, share, seed)
            envs = make_envs(game, count)
            noise = return_noise(envs, policy_infer(policy), range(FIRST_SEED, FIRST_SEED + seeds))
            envs.close()
            low, high = (f_distribution.ppf(p, seeds - 1, seeds - 1) for p in (0.025, 0.975))
            rows.append(
                {
                    "game": game,
                    "trained_virtual_seconds": seconds,
                    "episodes": count,
                    **noise._asdict(),
                    "variance_ratio": noise.variance_ratio,
                    "low": noise.variance_ratio * float(low),
                    "high": noise.variance_ratio * float(high),
                }
            )
            advance(1, game)
    return {
        "profile": profile,
        "seeds": seeds,
        "seed": seed,
        "rows": rows,
        "fingerprint": fingerprint(),
        "versions": versions(),
    }


def _half_trained(game: str, profile: str, share: float, seed: int) -> tuple[PolicyNet, float]:
    """Return the learner's policy after a share of the horizon, and how many seconds that is."""
    config, latency = load_preset(game), load_profile(profile)
    seconds = share * choose_horizon(config, latency, ENV_STEPS[game])[0]
    run = make_run(replace(config, seed=seed).with_runtime(eval_episodes=0), latency)
    run.apply(Decision.of(IDENTITY))
    run.advance(seconds)
    run.close()
    return run.learner.policy, seconds


def print_evaluation(result: dict[str, Any], console: Console) -> None:
    """Print one line per game."""
    table = Table(title=f"bench evaluation: standard deviation of J over {result['seeds']} seeds")
    table.add_column("game", no_wrap=True)
    for name in ("episodes", "J", "plain", "mirrored", "variance ratio", "95%"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        table.add_row(
            row["game"],
            f"{row['episodes']}",
            f"{row['mean']:.3g}",
            f"{row['plain_std']:.3g}",
            f"{row['antithetic_std']:.3g}",
            f"{row['variance_ratio']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
        )
    console.print(table)
