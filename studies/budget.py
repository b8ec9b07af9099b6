"""What the quickstart study spends, on which seeds, and among which specs it chooses."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.spec import IDENTITY
from controller.actions import ActionSpace
from controller.instances import ENV_STEPS, SPLITS

FP32 = {"name": "fixed", "params": {"spec": IDENTITY.to_json()}, "label": "fp32"}
TUNE_SEEDS, VALIDATE_SEEDS, TEST_SEEDS = (
    SPLITS[split].seeds for split in ("train", "validation", "test")
)
TARGET_SHARE = 0.9  # of the way from random play to the fp32 reference


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a study spends."""

    env_steps: dict[str, int]
    """environment steps that fp32 takes within the horizon, by game: sets the horizon"""
    reference_runs: int
    trials: int
    """parameter sets per hand-set strategy"""
    tune_seeds: int
    """seeds per game and trial"""
    test_seeds: int
    profile_repeats: int
    replay_seconds: float
    pretrain_iterations: int


BUDGETS = {
    "tiny": Budget(
        env_steps={"catch": 16_000, "cartpole": 30_000},
        reference_runs=1,
        trials=4,
        tune_seeds=1,
        test_seeds=1,
        profile_repeats=2,
        replay_seconds=8.0,
        pretrain_iterations=2,
    ),
    "default": Budget(
        env_steps={game: ENV_STEPS[game] for game in ("catch", "cartpole")},
        reference_runs=4,
        trials=8,
        tune_seeds=2,
        test_seeds=6,
        profile_repeats=5,
        replay_seconds=60.0,
        pretrain_iterations=8,
    ),
}
ACTIONS = ActionSpace(bits=(32, 8), sparsities=(0.0, 0.5), students=("original", "net3"))
