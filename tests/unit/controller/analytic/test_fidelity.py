"""Drawn games: their prior, their equations, and what they say of what was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.spec import IDENTITY, CompressionSpec
from controller.analytic.fidelity import (
    KINDS,
    REFERENCE_LAG,
    FidelityPrior,
    GameFidelity,
    learned_within,
)

INT8 = CompressionSpec(bits=8)
GAME = GameFidelity(gain_per_step=1e-5)


def draws(kind: str, count: int = 400) -> list[GameFidelity]:
    return [FidelityPrior().draw(np.random.default_rng(i), kind, 4)[0] for i in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_game_is_learned_within_the_env_steps_of_its_run(kind: str) -> None:
    """Euler's rule with a thousand steps reaches the reference without compression."""
    for seed in range(3):
        game, env_steps = FidelityPrior().draw(np.random.default_rng(seed), kind, 4)
        low, high = FidelityPrior().kind(kind).env_steps
        assert low <= env_steps <= high
        skill = game.initial_skill
        for _ in range(1_000):
            gain = game.gain_per_step * env_steps / 1_000 / (1.0 + REFERENCE_LAG / game.lag_half)
            skill += gain * skill**game.rise * (1.0 - skill) ** game.saturation
        assert game.score(skill) == pytest.approx(game.reference_return, rel=0.02, abs=0.05)
        assert game.score(game.initial_skill) == game.random_return


def test_what_prior_games_cost_is_what_was_measured() -> None:
    """Medians of KL on Atari as correctors.json has them; some games are free, in some it fails."""
    games = draws("atari")
    shown = [game.growth(0.3) * 1.3 for game in games]

    def median(spec: CompressionSpec) -> float:
        return float(np.median([g.full_kl(spec) * s for g, s in zip(games, shown, strict=True)]))

    assert 1e-3 < median(INT8) < 1e-2
    assert 0.02 < median(replace(INT8, sparsity=0.5)) < 0.1
    assert 0.04 < median(replace(INT8, student="net2")) < 0.1
    assert 0.06 < median(replace(INT8, student="net3")) < 0.18
    assert 0.1 < np.mean([game.cost == 0.0 for game in games]) < 0.2
    small = [game.full_kl(replace(INT8, student="net3")) for game in draws("minatar")]
    assert np.median(small) < np.median([g.full_kl(replace(INT8, student="net3")) for g in games])
    worth = [
        math.exp(-g.cost * g.full_kl(replace(INT8, student="net3")) ** g.cost_power) for g in games
    ]
    assert 0.03 < np.mean(np.array(worth) < 0.05) < 0.2


def test_harder_specs_differ_more_and_the_identity_not_at_all() -> None:
    assert GAME.full_kl(IDENTITY) == 0.0
    specs = [INT8, *(replace(INT8, student=name) for name in ("net1", "net2", "net3"))]
    specs.append(replace(specs[-1], sparsity=0.5))
    kls = [GAME.full_kl(spec) for spec in specs]
    assert kls == sorted(kls)
    assert kls[0] > 0.0
    assert GAME.growth(0.1) < GAME.growth(0.9) < 1.0


@pytest.mark.parametrize("states", [0.0, 500.0, 3_000.0])
def test_following_the_learner_is_the_differential_equation(states: float) -> None:
    """A hundredth of an update at a time, by Euler's rule."""
    excess = expected = 3.0
    for _ in range(4_000):
        change = GAME.moves * (1.0 - expected / GAME.begins_at)
        expected += 0.01 * (change - states * expected / GAME.distill_states)
    assert GAME.followed(excess, 40.0, states) == pytest.approx(expected, rel=1e-3)


def test_who_is_not_distilled_falls_behind() -> None:
    assert GAME.followed(0.0, 1e6, 0.0) == pytest.approx(GAME.begins_at)


def test_a_prior_that_cannot_be_drawn_from_is_refused() -> None:
    prior = FidelityPrior()
    assert replace(prior, kinds=(prior.kind("easy"),) * 3).kind("atari") == prior.kind("easy")
    with pytest.raises(UserError, match="rise must be two numbers"):
        replace(prior, rise=(1.0,))
    with pytest.raises(UserError, match="easy, minatar, atari"):
        replace(prior, kinds=(prior.kind("easy"),))
    with pytest.raises(UserError, match="lag_half must be positive"):
        GameFidelity(gain_per_step=1.0, lag_half=0.0)


def test_a_slower_game_takes_more_env_steps() -> None:
    slow, fast = (learned_within(GAME, steps).gain_per_step for steps in (2e5, 1e5))
    assert fast == pytest.approx(2.0 * slow)
