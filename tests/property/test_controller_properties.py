"""Identities of the controller that hold for every input."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accerl.spec import STUDENTS, Decision
from controller.actions import ActionSpace
from controller.bundle.schedule import Schedule, median_schedule
from controller.env.machines import severity
from controller.objective import GameReference, discounted_gain

scores = st.floats(-1e3, 1e3)
seeds = st.integers(0, 2**31 - 1)
spaces = st.builds(
    ActionSpace,
    bits=st.sampled_from([(32,), (8,), (32, 8), (32, 16, 8), (16, 8)]),
    sparsities=st.sampled_from([(0.0,), (0.0, 0.5), (0.25, 0.5, 0.75)]),
    students=st.sampled_from([STUDENTS, STUDENTS[:1], STUDENTS[1:3]]),
)


@given(st.lists(st.tuples(st.floats(0.01, 10.0), scores), min_size=1, max_size=20))
def test_without_discount_only_the_ends_count(steps: list[tuple[float, float]]) -> None:
    times = np.cumsum([0.0, *(length for length, _ in steps)])
    returns = np.array([0.0, *(score for _, score in steps)])
    assert discounted_gain(times, returns, 0.0) == pytest.approx(returns[-1], abs=1e-8)


@given(scores, st.floats(0.1, 1e3), scores, st.floats(0.0, 1.0))
def test_rewards_do_not_depend_on_the_scale_of_the_game(
    low: float, span: float, score: float, beta: float
) -> None:
    # Shifting and stretching the scores of a game leaves its normalised gains unchanged.
    times, raw = [0.0, 1.0, 2.0], [low, score, low + span]
    here, there = GameReference(low, low + span), GameReference(3 * low + 7, 3 * (low + span) + 7)
    gains = [
        discounted_gain(times, [here.normalise(value) for value in raw], beta),
        discounted_gain(times, [there.normalise(3 * value + 7) for value in raw], beta),
    ]
    assert gains[0] == pytest.approx(gains[1], rel=1e-6, abs=1e-6)


@given(spaces)
def test_action_spaces_are_bijections(space: ActionSpace) -> None:
    assert [space.indices(space.spec(indices)) for indices in space.all_indices()] == (
        space.all_indices()
    )


@given(spaces, st.data())
def test_harder_levels_are_never_less_severe(space: ActionSpace, data: st.DataObject) -> None:
    mild = data.draw(st.sampled_from(space.all_indices()))
    other = data.draw(st.sampled_from(space.all_indices()))
    harder = tuple(max(pair) for pair in zip(mild, other, strict=True))
    assert 0.0 <= severity(space.spec(mild)) <= severity(space.spec(harder)) < 1.0


@given(spaces, st.integers(1, 12), st.integers(1, 5), seeds, st.floats(0.0, 2.0))
def test_schedules_survive_json_and_answer_at_any_time(
    space: ActionSpace, steps: int, runs: int, seed: int, fraction: float
) -> None:
    episodes = np.random.default_rng(seed).integers(space.sizes, size=(runs, steps, 3)).tolist()
    schedule = median_schedule(space, episodes, float(steps), 1.0)
    copy = Schedule.from_json(json.loads(json.dumps(schedule.to_json())))
    assert copy == schedule
    assert isinstance(schedule.at(fraction), Decision)
    for step in range(steps):
        votes = [tuple(episode[step]) for episode in episodes]
        winner = space.indices(schedule.at(step / steps).main)

        def distance(vote: tuple[int, ...], votes: list[tuple[int, ...]] = votes) -> int:
            return sum(abs(a - b) for other in votes for a, b in zip(vote, other, strict=True))

        assert winner in votes
        assert distance(winner) == min(map(distance, votes))
