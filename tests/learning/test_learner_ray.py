"""Runs on Ray learn what the others learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from accerl.acting.evaluate import Evaluator
from accerl.presets import load_preset
from accerl.runtime.ray.run import RayRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from tests.fixtures.runs.ray_runs import ray_here
from tests.learning.test_learner_cartpole import EVERY, SEEDS
from tests.learning.test_learner_catch import SOLVED

INT8 = CompressionSpec(bits=8)
SHORTEST_SECONDS = 0.05


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with ray_here():
        yield


def curve(game: str, spec: CompressionSpec, seed: int, *, env_steps: int) -> list[float]:
    """Return J after every `EVERY` env steps of a run on Ray with one actor."""
    config = replace(load_preset(game), seed=seed)
    config = config.with_runtime(runtime="ray", clock="real", num_actors=1, eval_episodes=0)
    run, judge = RayRun(config), Evaluator(game, 16, config.env)
    returns: list[float] = []
    try:
        run.apply(Decision.of(spec))
        total = 0
        while total < env_steps:
            total = run.advance(SHORTEST_SECONDS).total_env_steps
            if total >= EVERY * (len(returns) + 1):
                returns.append(judge.measure(run.learner.policy) or 0.0)
    finally:
        run.close()
        judge.close()
    return returns


@pytest.mark.slow
@pytest.mark.parametrize("spec", [IDENTITY, INT8], ids=lambda spec: spec.label)
def test_catch_is_solved(spec: CompressionSpec) -> None:
    assert curve("catch", spec, 0, env_steps=2 * EVERY)[-1] >= SOLVED


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cartpole_is_balanced() -> None:
    """As on the virtual clock: for two seeds of three, by the best of the last evaluations."""
    passed = 0
    for seed in SEEDS:
        returns = curve("cartpole", INT8, seed, env_steps=170_000)
        passed += returns[0] < 200.0 and max(returns[-3:]) >= 400.0
        if passed == 2:
            break
    assert passed == 2
