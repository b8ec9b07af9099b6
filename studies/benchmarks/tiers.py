"""What `accerl bench tiers` measures: what one episode of the outer problem costs on each tier."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import process_time
from typing import Any

import gymnasium
import torch
from rich.console import Console
from rich.table import Table

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import fingerprint, versions
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller import ENV_ID
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import INTERVALS, game_instance
from controller.env.references import load_reference
from studies.progress import bar

SPECS = (IDENTITY, CompressionSpec(bits=8, student="net3"))
"""what acts: nothing compressed, and the hardest preset, whose runs have the most steps a second"""


def bench_tiers(
    games: Sequence[str], *, profile: str, seconds: float, episodes: int, seed: int = 0
) -> dict[str, Any]:
    """Measure processor seconds per episode: random actions on tier 0, two specs on tier 1.

    Tier 2 needs no measurement: a second takes a second, of all cores.

    Args:
        games: of tier 1.
        profile: charges the virtual clock.
        seconds: of the virtual clock per run of tier 1.
        episodes: of tier 0.
        seed: of games, runs and actions.

    Raises:
        UserError: a name does not exist, or a number is not allowed.
    """
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {episodes}")
    if not seconds > 0.0:
        raise UserError(f"--seconds must be positive, got {seconds:g}")
    latency = load_profile(profile)
    envs = {game: _virtual_env(game, latency, seconds) for game in games}
    torch.set_num_threads(1)
    rows = []
    with bar("tiers", 1 + len(envs) * len(SPECS), unit="run") as advance:
        rows.append(_analytic_row(episodes, seed))
        advance(1, "analytic")
        for game, env in envs.items():
            for spec in SPECS:
                rows.append({"game": game, **_virtual_row(env, spec, seed)})
                advance(1, game)
    rows.append({"tier": "real", "seconds_per_second": 1.0, "cores": os.cpu_count()})
    return {
        "profile": latency.name,
        "profile_hash": latency.hash,
        "seed": seed,
        "rows": rows,
        "fingerprint": fingerprint(),
        "versions": versions(),
    }


def _virtual_env(game: str, profile: LatencyProfile, seconds: float) -> CompressionControlEnv:
    instance = game_instance(
        load_preset(game),
        profile,
        reference=load_reference(game),
        horizon_seconds=seconds,
        interval_seconds=seconds / INTERVALS,
    )
    return CompressionControlEnv([instance])


def _analytic_row(episodes: int, seed: int) -> dict[str, Any]:
    """Play random games of the train split with random actions."""
    env = gymnasium.make(ENV_ID, split="train")
    env.action_space.seed(seed)
    env.reset(seed=seed)
    before = process_time()
    for _ in range(episodes):
        env.reset()
        truncated = False
        while not truncated:
            truncated = env.step(env.action_space.sample())[3]
    spent = process_time() - before
    env.close()
    return {
        "tier": "analytic",
        "episodes": episodes,
        "core_seconds": spent,
        "episodes_per_second": episodes / spent,
        "seconds_per_10000_episodes": 1e4 * spent / episodes,
    }


def _virtual_row(env: CompressionControlEnv, spec: CompressionSpec, seed: int) -> dict[str, Any]:
    """Play one episode with one spec; its run is made and closed within the time."""
    before = process_time()
    env.reset(seed=seed)
    truncated, info = False, {}
    while not truncated:
        *_, truncated, info = env.step_decision(Decision.of(spec))
    env.close()
    spent = process_time() - before
    return {
        "tier": "virtual",
        "spec": spec.to_json(),
        "virtual_seconds": info["total_seconds"],
        "env_steps": info["report"].total_env_steps,
        "core_seconds": spent,
        "core_seconds_per_virtual_second": spent / info["total_seconds"],
    }


def print_tiers(result: dict[str, Any], console: Console) -> None:
    """Print one line per tier, game and spec."""
    table = Table(title=f"bench tiers: one episode, on one core (profile {result['profile']})")
    for name in ("tier", "what"):
        table.add_column(name, no_wrap=True)
    for name in ("core-s per episode", "per second of its clock", "per 10,000 episodes"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        if row["tier"] == "real":
            table.add_row("real", f"any game ({row['cores']} cores)", "", "1 s of all cores", "")
            continue
        per_episode = row["core_seconds"] / row.get("episodes", 1)
        what, rate = "random games", ""
        if row["tier"] == "virtual":
            what = f"{row['game']}, {CompressionSpec.from_json(row['spec']).label}"
            rate = f"{row['core_seconds_per_virtual_second']:.3f}"
        table.add_row(row["tier"], what, f"{per_episode:.3g}", rate, f"{1e4 * per_episode:,.0f}")
    console.print(table)
