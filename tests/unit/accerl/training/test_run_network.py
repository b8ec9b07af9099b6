"""A run whose learner has a smaller network: what is refused, what it is charged, resuming it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FirstThatFires, FixedStrategy, make_strategy
from accerl.networks.policy_net import architecture
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import make_run, run_training
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

NET1, NET2, NET3 = (CompressionSpec(student=f"net{size}") for size in (1, 2, 3))
REFUSED = "student 'net1' is not smaller than the learner's network, 'net1'; use net2 or net3 or"


def net1(**runtime: Any) -> RunConfig:
    return replace(tiny_catch(**runtime), network="net1")


@pytest.mark.parametrize("runtime", ["serial", "process"])
def test_a_run_refuses_students_that_are_not_smaller(runtime: str) -> None:
    """At once, before any process is started, and it can go on with another decision."""
    clock = "virtual" if runtime == "serial" else "real"
    run = make_run(net1(runtime=runtime, clock=clock), fast_profile())
    try:
        observation = run.learner.policy.observation
        assert run.learner.policy.arch == architecture("net1", observation)
        for decision in (Decision.of(NET1), Decision(((IDENTITY, 0.5), (NET1, 0.5)))):
            with pytest.raises(UserError, match=REFUSED):
                run.apply(decision)
            assert run.orders.decision is None
        run.apply(Decision(((IDENTITY, 0.5), (NET2, 0.5))))
        assert run.orders.decision is not None
    finally:
        run.close()


def test_what_a_strategy_may_choose_later_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    rule = make_strategy("three-stage", exploring=NET3.to_json(), improving=NET1.to_json())
    with pytest.raises(UserError, match=REFUSED):
        run_training(net1(), rule, out=tmp_path / "run", profile=fast_profile())
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=REFUSED):  # inside another it is refused before it acts
        run_training(net1(), FirstThatFires((rule, FixedStrategy())), profile=fast_profile())


def test_a_learner_of_net1_is_charged_as_net1() -> None:
    """The same rollouts and updates: only the seconds of each differ from Original's."""
    profile = fast_profile(num_actors=1)
    reports = {}
    for config in (net1(eval_episodes=0), tiny_catch(eval_episodes=0)):
        run = make_run(config, profile)
        run.apply(Decision.of(IDENTITY))
        reports[config.network] = run.advance(0.05)
        run.close()
    for network, report in reports.items():
        spec = CompressionSpec(student=network)
        steps = report.learner_updates * 9 * 8
        env, infer, _ = profile.act_seconds(spec, 8)
        phases = report.phase_seconds
        assert phases["env"] == pytest.approx(report.learner_updates * 9 * env)
        assert phases["infer"] == pytest.approx(report.learner_updates * 9 * infer)
        us = {"net1": profile.small_learner_us["net1"], "original": profile.learner_us_per_sample}
        assert phases["learn"] == pytest.approx(steps * us[network] * 1e-6)
        assert set(report.spec_seconds) == {IDENTITY}
    assert reports["net1"].env_steps > 1.5 * reports["original"].env_steps


def test_a_profile_without_times_for_the_learner_is_refused() -> None:
    with pytest.raises(UserError, match="has no times for a learner of 'net1'"):
        make_run(net1(), replace(fast_profile(), small_learner_us={}))


def test_strategies_act_and_resume_with_a_smaller_learner(tmp_path: Path) -> None:
    config = net1(eval_episodes=0)
    mix = make_strategy("linear-kl", small={"student": "net3"}, kl_low_nats=0.001)
    result = run_training(
        config, mix, strategy_name="x", out=tmp_path / "run", profile=fast_profile()
    )
    assert result.reports[-1].learner_updates > 0
    longer = replace(config, seconds=0.15)
    with pytest.raises(UserError, match="network 'net1' there, 'original' here: preset 'catch'"):
        run_training(
            replace(longer, network="original"),
            mix,
            strategy_name="x",
            out=tmp_path / "run",
            resume=True,
            profile=fast_profile(),
        )
    resumed = run_training(
        longer, mix, strategy_name="x", out=tmp_path / "run", resume=True, profile=fast_profile()
    )
    assert resumed.summary["seconds"] == pytest.approx(0.15)
    played = evaluate_checkpoint(tmp_path / "run", 4, NET3)
    assert played["episodes"] == 4
    assert 0.0 < played["kl_nats"] < 10.0
    assert evaluate_checkpoint(tmp_path / "run", 4)["kl_nats"] == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(UserError, match=REFUSED):
        evaluate_checkpoint(tmp_path / "run", 4, NET1)


def test_train_refuses_what_the_run_would(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=REFUSED):
        run_training(net1(), FixedStrategy(NET1), profile=fast_profile())
