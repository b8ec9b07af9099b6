"""Evolution strategies: ranks, mirrored pairs, a quadratic, and a killed run that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from accerl.errors import UserError
from controller.indicator.scorer import SpecScorer
from controller.training.evolution import Evolution, EvolutionConfig, centred_ranks


def make_policy(seed: int = 0) -> SpecScorer:
    return SpecScorer(hidden=12, generator=torch.Generator().manual_seed(seed))


def weights(policy: SpecScorer | dict[str, Any]) -> np.ndarray:
    policy = SpecScorer.from_json(policy) if isinstance(policy, dict) else policy
    return parameters_to_vector(policy.parameters()).detach().double().numpy()


TARGET = np.random.default_rng(0).normal(size=make_policy().num_parameters())


def quadratic(states: Sequence[dict[str, Any]], generation: int) -> np.ndarray:
    return np.array([-np.sum((weights(state) - TARGET) ** 2) for state in states])


def test_ranks_are_centred_within_instances_and_then_averaged() -> None:
    values = np.array([[1.0, 300.0], [2.0, 100.0], [2.0, 200.0]])
    assert centred_ranks(values) == pytest.approx([(-0.5 + 0.5) / 2, (0.25 - 0.5) / 2, 0.125])
    # No instance counts for more than another, whatever its scale.
    assert centred_ranks(values * [1e6, 1.0]) == pytest.approx(centred_ranks(values))
    assert centred_ranks(np.ones((4, 1))).tolist() == [0.0] * 4


def test_candidates_come_in_mirrored_pairs() -> None:
    config = EvolutionConfig(pairs=3, sigma=0.5)
    evolution = Evolution(make_policy(), config)
    centre = weights(evolution.policy)
    found = np.stack([weights(state) for state in evolution.proposal()]) - centre
    assert found.shape[0] == config.population == 6
    assert found[::2] == pytest.approx(-found[1::2], abs=1e-6)
    assert found.std() == pytest.approx(0.5, rel=0.1)
    again = [weights(state) for state in Evolution(make_policy(), config).proposal()]
    assert np.stack(again) - centre == pytest.approx(found)
    evolution.improve(np.arange(6.0))
    new = np.stack([weights(s) for s in evolution.proposal()]) - weights(evolution.policy)
    assert not np.allclose(new, found)


def test_a_plain_step_is_the_estimate_written_out() -> None:
    config = EvolutionConfig(pairs=2, sigma=0.5, learning_rate=2.0)
    evolution = Evolution(make_policy(), config)
    centre = weights(evolution.policy)
    noise = (np.stack([weights(s) for s in evolution.proposal()[::2]]) - centre) / 0.5
    evolution.improve(np.array([4.0, 1.0, 2.0, 3.0]))  # ranks 1/2, -1/2, -1/6, 1/6
    gradient = (1.0 * noise[0] - 1 / 3 * noise[1]) / (4 * 0.5)
    moved = weights(evolution.policy) - centre
    assert moved == pytest.approx(2.0 * 2.0 * 0.5**2 * gradient, abs=1e-5)


def test_on_a_quadratic_it_climbs() -> None:
    policy = make_policy()
    uphill = TARGET - weights(policy)
    step = make_policy()
    Evolution(step, EvolutionConfig(pairs=32)).train(quadratic, 1)
    moved = weights(step) - weights(policy)
    cosine = moved @ uphill / np.linalg.norm(moved) / np.linalg.norm(uphill)
    assert cosine > 0.2  # in 250 dimensions, chance alone gives 0.06
    history = Evolution(policy, EvolutionConfig(pairs=16, learning_rate=1.0)).train(quadratic, 60)
    assert np.linalg.norm(TARGET - weights(policy)) < 0.7 * np.linalg.norm(uphill)
    assert history[-1]["gain"] > history[0]["gain"]
    assert set(history[0]) == {"iteration", "gain", "best_gain", "gradient_norm"}


def test_where_the_weights_do_not_matter_it_stays() -> None:
    policy = make_policy()
    before = weights(policy)
    Evolution(policy, EvolutionConfig(pairs=4)).train(
        lambda states, generation: np.zeros(len(states)), 3
    )
    assert weights(policy) == pytest.approx(before)


class Killed(Exception):
    """What ends an evolution in the middle of evaluating."""


def test_a_resumed_evolution_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    config = EvolutionConfig(pairs=4)
    whole = make_policy()
    expected = Evolution(whole, config).train(quadratic, 4)

    def until_killed(states: Sequence[dict[str, Any]], generation: int) -> np.ndarray:
        if generation == 2:
            raise Killed
        return quadratic(states, generation)

    with pytest.raises(Killed):
        Evolution(make_policy(), config).train(until_killed, 4, tmp_path / "es")
    resumed = make_policy(7)
    assert Evolution(resumed, config).train(quadratic, 4, tmp_path / "es") == expected
    assert torch.equal(
        parameters_to_vector(resumed.parameters()), parameters_to_vector(whole.parameters())
    )
    with pytest.raises(UserError, match=r"other settings \(pairs\)"):
        Evolution(make_policy(), EvolutionConfig()).train(quadratic, 5, tmp_path / "es")


def test_mistakes_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"pairs": 0}, {"sigma": 0.0}, {"learning_rate": float("nan")}]
    for fields in wrong:
        with pytest.raises(UserError, match="evolution"):
            EvolutionConfig(**fields)
    evolution = Evolution(make_policy(), EvolutionConfig(pairs=2))
    for values in (np.zeros(3), np.zeros((4, 0)), np.zeros((4, 1, 1))):
        with pytest.raises(UserError, match="4 candidates"):
            evolution.improve(values)
    with pytest.raises(UserError, match="candidate 2 of generation 0"):
        evolution.improve(np.array([[0.0, 1.0], [0.0, 1.0], [np.nan, 1.0], [0.0, 1.0]]))
