"""The learner balances CartPole with actors of any compression."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accerl.evaluate import Evaluator
from accerl.presets import load_preset
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.train import make_run
from tests.fixtures.inner_runs import fast_profile

ENV_STEPS = 170_000
EVERY = 20_000
SEEDS = (0, 1, 2)


def measured_returns(spec: CompressionSpec, seed: int) -> list[float]:
    """J after every 20,000 env steps of the preset."""
    config = replace(load_preset("cartpole"), seed=seed).with_runtime(eval_episodes=0)
    run = make_run(config, fast_profile(num_actors=1))
    judge = Evaluator(config.game, 16)
    run.apply(Decision.of(spec))
    returns: list[float] = []
    total = 0
    while total < ENV_STEPS:
        total = run.advance(0.1).total_env_steps
        if total >= EVERY * (len(returns) + 1):
            returns.append(judge.measure(run.learner.policy) or 0.0)
    run.close()
    judge.close()
    return returns


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "spec",
    [IDENTITY, CompressionSpec(bits=8), CompressionSpec(student="net3")],
    ids=lambda spec: spec.label,
)
def test_cartpole_is_balanced(spec: CompressionSpec) -> None:
    """The best of the last three evaluations reaches 400 of 500 with at least 2 of 3 seeds.

    Policies of CartPole still lose what they have learned now and then, for a while: hence the best
    of three evaluations, and two seeds of three. A third seed runs only where one has failed.
    """
    curves: list[list[float]] = []
    passed = 0
    for seed in SEEDS:
        curves.append(measured_returns(spec, seed))
        assert curves[-1][0] < 200.0  # random play scores 22
        passed += max(curves[-1][-3:]) >= 400.0
        if passed == 2:
            return
    pytest.fail(f"{passed} of {len(SEEDS)} seeds reached 400: {curves}")
