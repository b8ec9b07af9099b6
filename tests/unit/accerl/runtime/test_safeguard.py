"""A learner that diverges is set back once, then the run ends with a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.checkpoint import load_checkpoint
from accerl.errors import UserError
from accerl.learner.config import LearnerConfig
from accerl.learner.learner import Learner, UpdateStats
from accerl.monitor.strategies import FixedStrategy
from accerl.networks.policy_net import ObservationSpec, make_policy
from accerl.records import read_json, read_metrics
from accerl.runtime.safeguard import Safeguard
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

SERIAL = tiny_catch(seconds=0.1, interval_seconds=0.01, eval_episodes=0)
VECTOR = ObservationSpec((4,), "float32")


def make_learner(minibatches: int = 2, learning_rate: float = 5e-4) -> Learner:
    policy = make_policy("original", VECTOR, 3, torch.Generator().manual_seed(0))
    config = LearnerConfig(unroll=4, minibatches=minibatches, learning_rate=learning_rate)
    return Learner(policy, config)


def make_rollout(seed: int, *, spoilt: bool = False) -> Rollout:
    rng = np.random.default_rng(seed)
    shape = RolloutShape(unroll=4, num_envs=4, num_actions=3, observation=VECTOR)
    rollout = Rollout.allocate(shape)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    rollout.reward[:] = rng.normal(size=rollout.reward.shape)
    rollout.log_prob[:] = -np.log(3.0)
    if spoilt:
        rollout.reward[2, 3] = np.nan  # in the second minibatch: the first step is taken
    return rollout


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}


def test_weights_that_a_finite_gradient_breaks_set_it_back_before_anybody_acts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learner = make_learner(minibatches=1, learning_rate=1e38)
    safeguard = Safeguard(learner)
    safeguard.take()
    good = weights(learner)
    assert safeguard.update(make_rollout(0), seconds=1.0) is None
    assert "weights are not finite" in capsys.readouterr().err
    for name, tensor in weights(learner).items():
        assert torch.equal(tensor, good[name]), name


def test_what_is_not_learned_may_be_infinite() -> None:
    learner = make_learner()
    mask = torch.nn.Parameter(torch.tensor([0.0, -torch.inf]), requires_grad=False)
    learner.policy.register_parameter("mask", mask)
    assert Safeguard(learner).update(make_rollout(0), seconds=0.0) is not None


def test_a_diverged_learner_is_set_back_once(capsys: pytest.CaptureFixture[str]) -> None:
    learner = make_learner()
    safeguard = Safeguard(learner)
    assert safeguard.update(make_rollout(0), seconds=0.0) is not None
    good = weights(learner)
    safeguard.take()
    for seed in (1, 2):
        assert safeguard.update(make_rollout(seed), seconds=1.0) is not None

    assert safeguard.update(make_rollout(3, spoilt=True), seconds=2.0) is None
    assert learner.updates == 3  # versions never go backwards
    for name, tensor in weights(learner).items():
        assert torch.equal(tensor, good[name]), name
    (event,) = safeguard.take_events()
    assert (event.role, event.seconds) == ("learner", 2.0)
    assert event.action.startswith("set back to the weights of update 1")
    assert "not finite after 3 updates" in event.cause
    assert safeguard.take_events() == ()
    assert len(capsys.readouterr().err.splitlines()) == 1

    assert safeguard.update(make_rollout(4), seconds=3.0) is not None  # it does go on
    with pytest.raises(UserError, match=r"set back once, at update 3.*learning_rate is 0.0005"):
        safeguard.update(make_rollout(5, spoilt=True), seconds=4.0)
    assert all(tensor.isfinite().all() for tensor in weights(learner).values())


def test_without_a_good_state_the_error_itself_comes_out() -> None:
    with pytest.raises(FloatingPointError, match="not finite after 0 updates"):
        Safeguard(make_learner()).update(make_rollout(0, spoilt=True), seconds=0.0)


def spoil(at: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a NaN into the rewards of those updates, for the real learner to stumble over."""
    update = Learner.update
    seen = 0

    def spoilt(self: Learner, rollout: Rollout) -> UpdateStats:
        nonlocal seen
        seen += 1
        if at(seen):
            rollout.reward[0, 0] = np.nan
        return update(self, rollout)

    monkeypatch.setattr(Learner, "update", spoilt)


@pytest.mark.parametrize("runtime", ["serial", pytest.param("process", marks=pytest.mark.slow)])
def test_a_run_goes_on_after_one_nan(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(lambda number: number == 12, monkeypatch)
    config, profile = SERIAL, fast_profile()
    if runtime == "process":
        config = replace(SERIAL, seconds=4.8).with_runtime(
            runtime="process", clock="real", interval_seconds=1.2
        )
        profile = None
    result = run_training(config, FixedStrategy(), out=tmp_path / "run", profile=profile)
    events = [event for report in read_metrics(tmp_path / "run") for event in report.events]
    assert [event["role"] for event in events] == ["learner"]
    assert result.reports[-1].total_learner_updates > 12
    assert read_json(tmp_path / "run" / "summary.json")["events"] == {"learner": 1}


def test_a_run_that_is_not_recorded_is_set_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first interval to the weights that it began with."""
    spoil(lambda number: number == 2, monkeypatch)
    reports = run_training(SERIAL, FixedStrategy(), profile=fast_profile()).reports
    (event,) = (event for report in reports for event in report.events)
    assert event["action"].startswith("set back to the weights of update 0")
    assert reports[-1].total_learner_updates > 12


def test_a_run_that_keeps_diverging_ends_with_a_diagnosis_and_a_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(lambda number: number >= 12, monkeypatch)
    with pytest.raises(UserError, match="had been set back once") as diagnosis:
        run_training(SERIAL, FixedStrategy(), out=tmp_path / "run", profile=fast_profile())
    assert "\n" not in str(diagnosis.value)
    state = load_checkpoint(tmp_path / "run" / "checkpoint")
    for name, tensor in state["run"]["learner"]["policy"].items():
        assert tensor.isfinite().all(), name
