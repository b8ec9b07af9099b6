"""What trains the indicator, against the known optimum of games that it has never seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from accerl.spec import IDENTITY
from controller.actions import PresetActions
from controller.env.machine_instances import SPECS
from controller.env.play import play
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.indicator.training import train_on_tier0
from controller.objective import default_beta
from controller.training.gradient import GradientConfig
from studies.jobs.meta_training import first_indicator
from tests.fixtures.known_optimum.instances import KnownOptimum, draw_known_optimum
from tests.fixtures.known_optimum.run import optimum, schedule_value

ACTIONS = PresetActions((IDENTITY, *(spec for spec in SPECS if spec != IDENTITY)))
GAMES = 4


class Game(NamedTuple):
    """One that nothing is trained on, and the discounted gain of its best schedule."""

    instance: KnownOptimum
    best: float


def value(game: KnownOptimum, schedule: list[tuple[int, ...]]) -> float:
    beta = default_beta(game.horizon_seconds)
    return schedule_value(game.model, ACTIONS, schedule, game.interval_seconds, beta)


@pytest.fixture(scope="module")
def games() -> list[Game]:
    found = []
    for number in range(GAMES):
        game = draw_known_optimum("test", number)
        lengths = game.horizon_seconds, game.interval_seconds
        beta = default_beta(game.horizon_seconds)
        found.append(Game(game, optimum(game.model, ACTIONS, *lengths, beta, grid_size=81)[0]))
    return found


def share(indicator: AdvancedIndicator, games: list[Game]) -> float:
    """Mean share of the optimum that the noise-free value of what it does in a noisy run is."""
    shares = []
    for game, best in games:
        decisions = play(indicator, game, 50).decisions
        shares.append(value(game, [ACTIONS.indices(each.main) for each in decisions]) / best)
    return float(np.mean(shares))


def test_no_spec_that_is_held_reaches_the_optimum(games: list[Game]) -> None:
    for game, best in games:
        held = [value(game, [indices] * 20) / best for indices in ACTIONS.all_indices()]
        assert 0.8 < max(held) < 0.95


@pytest.mark.slow
def test_the_policy_gradient_comes_nearer_to_the_optimum(games: list[Game]) -> None:
    """320 inner runs, in which no latency profile says beforehand that compression is faster."""
    indicator = first_indicator(IndicatorSettings(specs=SPECS), 0)
    before = share(indicator, games)
    config = GradientConfig(instances=4, pairs=4)
    train_on_tier0(indicator, config, 10, draw=lambda number: draw_known_optimum("train", number))
    assert share(indicator, games) > before + 0.1
