"""Meta-training: who is handed what, what a row says, and a killed training that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from controller.training.config import MetaTrainConfig
from controller.training.policy_gradient import (
    MetaTrainer,
    collect_group,
)
from controller.training.pretraining import pretrain_tier0
from controller.training.rollouts import Trajectory
from tests.fixtures.controllers.trajectories import ACTIONS, GAME, make_policy, played

CONFIG = MetaTrainConfig(groups=2, reuse_iterations=3, entropy_decay=0.9, min_dwell_intervals=2)
ROW = {
    "iteration",
    "gain",
    "advantage_std",
    "entropy_nats",
    "kl_nats",
    "clone_kl_nats",
    "clipped_share",
    "truncated_share",
}


def collect(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
    return [
        collect_group(state, ACTIONS, GAME, seed, 100 * iteration + 10 * seed, CONFIG)
        for seed in range(CONFIG.groups)
    ]


class Killed(Exception):
    """What ends a training in the middle of collecting."""


def collect_until(end: int) -> Any:
    def collecting(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
        if iteration == end:
            raise Killed
        return collect(state, iteration)

    return collecting


@pytest.mark.parametrize(
    "fields",
    [
        {"rollouts": 1, "antithetic": False},
        {"rollouts": 2},
        {"rollouts": 5},
        {"groups": 0},
        {"reuse_iterations": 0},
        {"min_dwell_intervals": 0},
        {"clip": 0.0},
        {"entropy_weight": -0.1},
        {"entropy_decay": 0.0},
        {"clone_kl_weight": -1.0},
        {"learning_rate": float("nan")},
    ],
)
def test_impossible_configs_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="meta-training"):
        MetaTrainConfig(**fields)


def test_meta_train_hands_out_the_current_policy() -> None:
    policy, seen = make_policy(), []

    def collecting(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
        seen.append(state["weights"]["offsets"])
        return collect(state, iteration)

    history = MetaTrainer(policy, CONFIG).train(collecting, 3)
    assert [row["iteration"] for row in history] == [0, 1, 2]
    assert seen[0] == [0.0] * 9
    assert seen[0] != seen[1] != seen[2] != policy.offsets.tolist()


def test_a_row_says_what_happened() -> None:
    history = MetaTrainer(make_policy(), CONFIG, make_policy(1, spread=0.1)).train(collect, 3)
    for row in history:
        assert set(row) == ROW
        assert np.isfinite(list(row.values())).all()
        assert 0.0 <= row["clipped_share"] <= 1.0
    gains = [t.gain for group in collect(make_policy().to_json(), 0) for t in group]
    assert history[0]["gain"] == pytest.approx(np.mean(gains))
    assert history[0]["clone_kl_nats"] > 0.0
    # Only kept rollouts have weights to truncate, and these have them from the second row on.
    assert history[0]["truncated_share"] == 0.0
    assert all(0.0 < row["truncated_share"] < 1.0 for row in history[1:])


def test_kept_rollouts_are_learned_from_again() -> None:
    for reuse, kept in ((1, False), (2, True)):
        config = MetaTrainConfig(reuse_iterations=reuse, entropy_weight=0.0)
        trainer = MetaTrainer(make_policy(), config)
        trainer.improve([played([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 2.0]], antithetic=True)])
        before = trainer.policy.to_json()
        row = trainer.improve([played([[0.0, 0.0]] * 4, antithetic=True)])
        # Nothing can be learned from the second group; the first one is still there, or not.
        assert (row["advantage_std"] > 0.0) == kept
        assert row["gain"] == 0.0
        assert (trainer.policy.to_json() != before) or not kept


@pytest.mark.parametrize("killed_at", [1, 3])
def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path: Path, killed_at: int) -> None:
    clone = make_policy(1, spread=0.1)
    whole = make_policy()
    expected = MetaTrainer(whole, CONFIG, clone).train(collect, 4)
    killed = make_policy()
    with pytest.raises(Killed):
        MetaTrainer(killed, CONFIG, clone).train(collect_until(killed_at), 4, tmp_path / "meta")
    resumed = make_policy(5)  # whatever it was: the checkpoint says
    history = MetaTrainer(resumed, CONFIG, clone).train(collect, 4, tmp_path / "meta")
    assert history == expected
    assert resumed.to_json() == whole.to_json()
    # A finished one is not trained further.
    again = make_policy(6)
    assert MetaTrainer(again, CONFIG, clone).train(collect_until(0), 4, tmp_path / "meta")
    assert again.to_json() == whole.to_json()


def test_the_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "meta"
    MetaTrainer(make_policy(), CONFIG).train(collect, 1, place)
    with pytest.raises(UserError, match=r"other settings \(clone\)"):
        MetaTrainer(make_policy(), CONFIG, make_policy()).train(collect, 2, place)
    with pytest.raises(UserError, match=r"other settings \(groups, min_dwell_intervals, reuse"):
        MetaTrainer(make_policy(), MetaTrainConfig()).train(collect, 2, place)
    with pytest.raises(UserError, match="of another policy"):
        MetaTrainer(make_policy(hidden=5), CONFIG).train(collect, 2, place)


def test_the_entropy_weight_decays() -> None:
    # Nothing to gain: entropy alone moves the policy, and a decayed weight moves it less.
    moved = []
    for decay in (1.0, 0.01):
        config = MetaTrainConfig(entropy_weight=1e-6, entropy_decay=decay, epochs=1)
        trainer = MetaTrainer(make_policy(spread=0.3), config)
        trainer.improve([played([[0.0, 0.0]] * 4, antithetic=True)])
        before = trainer.policy.offsets.detach().clone()
        trainer.improve([played([[0.0, 0.0]] * 4, antithetic=True)])
        moved.append(float((trainer.policy.offsets - before).detach().abs().max()))
    assert 0.0 < moved[1] < 0.9 * moved[0]


def test_pretraining_is_a_function_of_its_generators() -> None:
    weights = []
    for seed in (0, 0, 1):
        policy = make_policy()
        config = MetaTrainConfig(groups=1)
        pretrain_tier0(policy, ACTIONS, config, np.random.default_rng(seed), 2)
        weights.append(policy.to_json())
    assert weights[0] == weights[1] != weights[2]


def test_pretraining_plays_new_games_every_iteration(tmp_path: Path) -> None:
    gains = []
    for iterations in (1, 2):  # resumed with the same generator, it goes on where it was
        history = pretrain_tier0(
            make_policy(),
            ACTIONS,
            MetaTrainConfig(groups=1),
            np.random.default_rng(0),
            iterations,
            checkpoint=tmp_path / "tier0",
        )
        gains.append([row["gain"] for row in history])
    assert gains[1][0] == gains[0][0] != gains[1][1]
