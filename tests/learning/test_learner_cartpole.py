"""The learner balances CartPole with actors of any compression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accerl.presets import load_preset
from accerl.spec import IDENTITY, CompressionSpec
from tests.fixtures.runs.learning import EVERY_ENGINE, measured_returns

EVERY = 20_000
SEEDS = (0, 1, 2)
RANDOM_PLAY = 22.0


def curve(spec: CompressionSpec, seed: int, *, env_steps: int, **learner: Any) -> list[float]:
    config = replace(load_preset("cartpole"), seed=seed).with_learner(**learner)
    return measured_returns(config, spec, env_steps=env_steps, every=EVERY)


def passing_seeds(spec: CompressionSpec, level: float, **learner: Any) -> int:
    """Return for how many seeds the best of the last three evaluations reaches `level`; 2 do.

    Policies of CartPole still lose what they have learned now and then, for a while: hence the best
    of three evaluations, and two seeds of three. A third seed runs only where one has failed.
    """
    passed = 0
    for seed in SEEDS:
        returns = curve(spec, seed, env_steps=170_000, **learner)
        passed += returns[0] < level / 2.0 and max(returns[-3:]) >= level
        if passed == 2:
            break
    return passed


def test_cartpole_is_held_up_for_a_while_after_forty_thousand_steps() -> None:
    assert max(curve(IDENTITY, 0, env_steps=2 * EVERY)) > 4.0 * RANDOM_PLAY


def test_a_learner_that_hardly_learns_lets_the_pole_fall() -> None:
    assert max(curve(IDENTITY, 0, env_steps=2 * EVERY, learning_rate=1e-7)) < 2.0 * RANDOM_PLAY


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("spec", EVERY_ENGINE, ids=lambda spec: spec.label)
def test_cartpole_is_balanced(spec: CompressionSpec) -> None:
    assert passing_seeds(spec, 400.0) == 2


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("lam", [1.0, 0.95])
@pytest.mark.parametrize("policy_loss", ["clipped", "importance"])
def test_cartpole_is_balanced_under_either_loss(policy_loss: str, lam: float) -> None:
    """The paper's loss takes smaller steps and does not get as far in as many of them."""
    if policy_loss == "clipped":
        assert passing_seeds(IDENTITY, 400.0, lam=lam) == 2
        return
    slower = {"learning_rate": 5e-4, "normalise_advantages": False}
    assert passing_seeds(IDENTITY, 150.0, policy_loss=policy_loss, lam=lam, **slower) == 2
