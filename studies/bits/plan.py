"""What is trained, and how copies of it are rounded, tuned and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from accerl.records import json_hash

BITS = (2, 3, 4, 5, 6, 8, 16)
FLOAT32 = 32
"""what all are compared with"""
CLAIM = (
    "QuaRL: policies act in 6 to 8 bits as well as in float32, and training that knows of the "
    "rounding mostly improves on rounding afterwards. (Here trained copies are distilled with it: "
    "rewards play no part.)"
)
PROFILE = "paper-1080ti"
"""the machine that policies are trained on: what they become depends on it a little"""


@dataclass(frozen=True, kw_only=True)
class BitsBudget:
    """How much the study spends on each of its policies."""

    env_steps: Mapping[str, int]
    """of the training without compression, by game"""
    seeds: int
    """policies of each game"""
    states: int
    """recorded, of games that the policy plays: what is tuned learns from them"""
    compared: int
    """states of later games, on which KL is measured"""
    updates: int
    """gradient steps of tuning"""
    batch: int
    """states per gradient step"""
    episodes: int
    """whose mean is the return: the same starts and dice for all copies"""
    learning_rate: float = 1e-4
    """of Adam, when a copy is tuned"""
    network: str = "original"

    @property
    def key(self) -> str:
        """A hash of what is trained and compared, by which results of another are known."""
        judged = "by what was learned over random play, on dice of its own for each episode"
        return json_hash({"spent": asdict(self), "bits": BITS, "judged": judged})[:12]


def _of(games: tuple[str, ...], env_steps: int) -> dict[str, int]:
    return dict.fromkeys(games, env_steps)


BUDGETS: Mapping[str, BitsBudget] = {
    "tiny": BitsBudget(
        env_steps={"catch": 30_000, "cartpole": 40_000},
        seeds=1,
        states=4_096,
        compared=256,
        updates=100,
        batch=128,
        episodes=16,
        learning_rate=1e-3,
    ),
    "short": BitsBudget(
        env_steps=_of(
            ("minatar-breakout", "minatar-space-invaders", "minatar-freeway", "minatar-asterix"),
            300_000,
        ),
        seeds=2,
        states=16_384,
        compared=1_024,
        updates=1_000,
        batch=256,
        episodes=32,
        learning_rate=3e-4,
    ),
    "default": BitsBudget(
        env_steps=_of(("pong", "breakout", "space_invaders", "road_runner"), 1_000_000),
        seeds=2,
        states=20_480,
        compared=1_024,
        updates=500,
        batch=256,
        episodes=32,
    ),
}
ENV_STEPS_PER_CORE_SECOND = {"tiny": 2_000.0, "short": 1_500.0, "default": 550.0}
"""that a core plays and learns, by budget: some"""
