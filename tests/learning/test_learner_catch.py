"""The learner solves Catch with actors of any compression, and fails to when it is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from accerl.learner import Learner
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.spec import IDENTITY, CompressionSpec
from accerl.train import RunResult, train
from tests.fixtures.inner_runs import fast_profile

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3")
SOLVED = 0.9  # random play scores -0.6, perfect play 1


def learn(spec: CompressionSpec, seed: int, *, seconds: float = 4.0, **learner: Any) -> RunResult:
    """Train the preset with one actor: some 150 to 330 updates, depending on the spec's speed."""
    config = replace(load_preset("catch"), seed=seed, seconds=seconds).with_learner(**learner)
    profile = fast_profile(num_actors=1)
    return train(config.with_runtime(interval_seconds=0.4), FixedStrategy(spec), profile=profile)


@pytest.mark.parametrize(
    ("spec", "seed"),
    [
        (IDENTITY, 0),
        (INT8, 0),
        (NET3, 0),
        pytest.param(IDENTITY, 1, marks=pytest.mark.slow),
        pytest.param(INT8, 1, marks=pytest.mark.slow),
        pytest.param(NET3, 1, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "label", str(value)),
)
def test_catch_is_solved(spec: CompressionSpec, seed: int) -> None:
    result = learn(spec, seed)
    last = result.reports[-1]
    assert result.reports[0].learner_return is not None
    assert result.reports[0].learner_return < SOLVED  # it was not solved from the start
    assert result.summary["final_return"] >= SOLVED
    # The compressed policies that acted have learned it with the learner.
    assert sum(last.episode_returns) / len(last.episode_returns) >= SOLVED - 0.1
    assert set(last.spec_seconds) == {spec.label}


def negated(learner: Learner, *arguments: Any) -> tuple[Tensor, Tensor]:
    targets, advantages = ORIGINAL(learner, *arguments)
    return targets, -advantages


ORIGINAL = Learner._targets


def test_a_learner_that_climbs_downwards_does_not_solve_catch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the test above proves something: one wrong sign, everything else the same."""
    monkeypatch.setattr(Learner, "_targets", negated)
    assert learn(IDENTITY, 0, seconds=2.0).summary["best_return"] < -0.5


def test_a_learner_that_hardly_learns_does_not_solve_catch() -> None:
    assert learn(IDENTITY, 0, seconds=2.0, learning_rate=1e-7).summary["best_return"] < 0.0
