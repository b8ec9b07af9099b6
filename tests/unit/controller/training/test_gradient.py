"""Policy gradient in parameter space: a step written out, climbing, sigma, and going on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from accerl.errors import UserError
from controller.indicator.scorer import SpecScorer
from controller.training.gradient import GradientConfig, ParameterGradient


def make_policy() -> SpecScorer:
    return SpecScorer(generator=torch.Generator().manual_seed(0))


def flat(policy: SpecScorer) -> np.ndarray:
    return parameters_to_vector(policy.parameters()).detach().double().numpy()


def test_a_step_is_the_estimate_written_out() -> None:
    config = GradientConfig(instances=2, pairs=3, sigma=0.5, sigma_rate=0.2)
    trainer, rng = ParameterGradient(make_policy(), config), np.random.default_rng(0)
    for _ in range(2):  # in the second sigma is another for every weight
        centre, before = flat(trainer.policy), trainer.log_sigma.copy()
        drawn = np.stack([flat(SpecScorer.from_json(state)) for state in trainer.proposal()])
        eps = ((drawn - centre) / np.exp(before)).reshape(2, 3, 2, -1)[:, :, 0]
        values = rng.normal(size=(2, 6))
        scaled = (values / math.sqrt(values.var(axis=1).mean())).reshape(2, 3, 2)
        up, wider = np.zeros(len(centre)), np.zeros(len(centre))
        for instance in range(2):
            middles = scaled[instance].mean(axis=1)
            for pair, (plus, minus) in enumerate(scaled[instance]):
                noise, rest = eps[instance, pair], np.delete(middles, pair).mean()
                up += (plus - minus) / 2.0 * noise / 6.0
                wider += (middles[pair] - rest) * (noise**2 - 1.0) / 2.0 / 6.0
        trainer.improve(values)
        moved = flat(trainer.policy) - centre
        assert moved == pytest.approx(0.5 * up * np.exp(before), abs=1e-5)
        assert trainer.log_sigma == pytest.approx(before + 0.2 * wider, abs=1e-5)


def test_parameter_gradient_climbs_and_resumes(tmp_path: Path) -> None:
    start = make_policy()
    aim = start.linear.detach().numpy() + 1.0

    def reached(states: list[dict], iteration: int) -> np.ndarray:
        del iteration
        miss = [np.sum((np.array(s["weights"]["linear"]) - aim) ** 2) for s in states]
        return -np.array(miss).reshape(4, 8)

    def train(iterations: int, folder: str) -> ParameterGradient[SpecScorer]:
        config = GradientConfig(instances=4, pairs=4)
        trainer = ParameterGradient(SpecScorer.from_json(start.to_json()), config)
        trainer.train(reached, iterations, tmp_path / folder)
        return trainer

    whole = train(30, "whole")
    assert whole.history[-1]["gain"] > 0.4 * whole.history[0]["gain"]  # they are negative
    train(12, "parts")
    parts = train(30, "parts")
    assert parts.history == whole.history
    assert parts.policy.to_json() == whole.policy.to_json()
    np.testing.assert_array_equal(parts.log_sigma, whole.log_sigma)


def test_sigma_grows_where_it_pays_to_be_far() -> None:
    def sigma(sign: float) -> float:
        start = make_policy()
        trainer = ParameterGradient(start, GradientConfig(instances=4, pairs=4))
        middle = start.linear.detach().numpy().copy()

        def reached(states: list[dict], iteration: int) -> np.ndarray:
            del iteration
            far = [np.sum((np.array(s["weights"]["linear"]) - middle) ** 2) for s in states]
            return sign * np.array(far).reshape(4, 8)

        return trainer.train(reached, 15)[-1]["sigma"]

    assert sigma(1.0) > 0.3 > sigma(-1.0)


def test_nonsense_in_training_is_refused() -> None:
    with pytest.raises(UserError, match="2 pairs or more"):
        GradientConfig(pairs=1)
    start = make_policy()
    trainer = ParameterGradient(start, GradientConfig(instances=1, pairs=2))
    with pytest.raises(UserError, match="finite value for each of 1 x 4"):
        trainer.improve(np.array([[0.0, 1.0, math.nan, 2.0]]))
