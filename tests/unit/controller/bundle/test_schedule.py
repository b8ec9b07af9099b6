"""Open-loop schedules: medians, quantiles, replaying by the clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance
from accerl.monitor.strategy import Strategy
from controller.actions import ActionSpace
from controller.bundle.card import describe_schedule, schedule_rows
from controller.bundle.schedule import (
    QUANTILES,
    ReplayedSchedule,
    Schedule,
    SchedulePoint,
    median_schedule,
    median_schedules,
    medoid,
)
from tests.fixtures.controllers.made_bundles import ACTIONS, HARD, MILD, make_schedules


class TestReplayCompliance(StrategyCompliance):
    def make(self) -> Strategy:
        return ReplayedSchedule(make_schedules()["catch"])


def test_medians_that_some_run_chose_together_are_the_combination() -> None:
    chosen = np.array([[0, 0, 0], [1, 2, 3], [1, 0, 2], [1, 1, 2], [0, 1, 2]])
    assert np.median(chosen, axis=0).tolist() == [1, 1, 2]
    assert medoid(chosen) == (1, 1, 2)


def test_medians_that_no_run_chose_together_give_way_to_the_nearest_that_one_did() -> None:
    chosen = np.array([[0, 0, 3], [0, 3, 0], [3, 0, 0], [0, 0, 1]])
    assert medoid(chosen[:3]) == (0, 0, 3)  # all three are equally near to (0, 0, 0): the first
    assert medoid(chosen) == (0, 0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_medoid_is_what_a_slow_search_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, ACTIONS.sizes, (int(rng.integers(1, 9)), 3))
    rows = [tuple(row) for row in chosen.tolist()]

    def steps(row: tuple[int, ...]) -> int:
        return sum(abs(a - b) for other in rows for a, b in zip(row, other, strict=True))

    assert medoid(chosen) == min(rows, key=lambda row: (steps(row), sum(row), row))


def test_ties_go_to_the_milder_combination() -> None:
    schedules = median_schedules(
        ACTIONS, {"a": [[HARD], [MILD]], "b": [[HARD]]}, {"a": (5.0, 5.0), "b": (5.0, 5.0)}
    )
    assert schedules["a"].points[0].decision == ACTIONS.decision(MILD)
    assert schedules["a"].points[0].agreement == 0.5
    assert schedules["all"].points[0].decision == ACTIONS.decision(HARD)
    assert schedules["all"].points[0].agreement == pytest.approx(2 / 3)


def test_quantiles_are_levels_that_this_share_of_runs_did_not_exceed() -> None:
    """Ten runs: sparsity 0 five times, 0.25 three times, 0.5 twice; students apart from it."""
    sparsities, students = [0] * 5 + [1] * 3 + [2] * 2, [0] * 1 + [1] * 2 + [3] * 7
    episodes = [[(0, a, b)] for a, b in zip(sparsities, students, strict=True)]
    (point,) = median_schedule(ACTIONS, episodes, 5.0, 5.0).points
    assert QUANTILES == (0.1, 0.25, 0.5, 0.75, 0.9)
    assert point.levels == {
        "bits": [32] * 5,
        "sparsity": [0.0, 0.0, 0.0, 0.25, 0.5],
        "student": ["original", "net1", "net3", "net3", "net3"],
    }
    assert Schedule.from_json(Schedule((point,)).to_json()) == Schedule((point,))


def test_a_short_first_interval_is_short_in_the_schedule() -> None:
    lengths = {"a": (20.0, 10.0, 1.0)}
    schedule = median_schedules(ACTIONS, {"a": [[HARD, MILD, HARD]]}, lengths)["a"]
    assert [point.seconds for point in schedule.points] == [0.0, 1.0, 11.0]
    assert schedule.at(0.06) == ACTIONS.decision(MILD)
    with pytest.raises(UserError, match="runs of 3 intervals"):
        median_schedule(ACTIONS, [[HARD, MILD]], 20.0, 10.0, 1.0)


def test_a_game_on_several_machines_has_schedules_of_its_own_and_one_together() -> None:
    episodes = {"a-x": [[HARD]], "a-y": [[MILD]] * 2, "b-x": [[HARD]] * 3}
    lengths = {"a-x": (5.0, 5.0), "a-y": (9.0, 9.0), "b-x": (7.0, 7.0)}
    groups = {"a-x": ["a"], "a-y": ["a"], "b-x": ["b"]}
    found = median_schedules(ACTIONS, episodes, lengths, groups)
    assert set(found) == {*episodes, "a", "b", "all"}
    assert found["a-x"].points[0].decision == ACTIONS.decision(HARD)
    assert found["a"].points[0].decision == ACTIONS.decision(MILD)
    assert found["a"].points[0].agreement == pytest.approx(2 / 3)
    assert found["all"].points[0].agreement == pytest.approx(4 / 6)
    alone = median_schedules(ACTIONS, {"a": [[HARD]]}, {"a": (5.0, 5.0)}, {"a": ["a"]})
    assert set(alone) == {"a", "all"}


def test_runs_of_another_length_are_refused() -> None:
    with pytest.raises(UserError, match="runs of 2 intervals"):
        median_schedules(ACTIONS, {"a": [[HARD]]}, {"a": (10.0, 5.0)})
    with pytest.raises(UserError, match="runs of 1 intervals"):
        median_schedules(ACTIONS, {"a": []}, {"a": (5.0, 5.0)})


@pytest.mark.parametrize("fractions", [(), (0.1,), (0.0, 0.0), (0.0, 1.0)])
def test_schedules_out_of_order_are_refused(fractions: tuple[float, ...]) -> None:
    decision = ACTIONS.decision(MILD)
    points = tuple(
        SchedulePoint(fraction=f, seconds=f, decision=decision, agreement=1.0, levels={})
        for f in fractions
    )
    with pytest.raises(UserError, match="schedule"):
        Schedule(points)


def test_a_table_has_one_row_for_each_stretch_in_which_nothing_changes() -> None:
    catch = make_schedules()["catch"]
    rows = schedule_rows(catch)
    assert [(row["from"], row["to"]) for row in rows] == [(0, 0.5), (0.5, 0.75), (0.75, 1)]
    assert [row["label"] for row in rows] == ["net3 pruned 50% INT8"] * 2 + ["original fp32"]
    assert [row["agreement"] for row in rows] == pytest.approx([1, 2 / 3, 1])
    assert rows[1]["levels"]["bits"] == [32, 32, 8, 8, 8]
    assert describe_schedule(catch) == [
        "0% to 75%: net3 pruned 50% INT8, chosen by 67%",
        "75% to 100%: original fp32, chosen by 100%",
    ]


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"bits": [32] * 5}, "levels of bits, sparsity, student"),
        ({"bits": [32] * 4}, "5 of"),
        ({"bits": [32, 32, 32, 32, 16]}, "5 of"),
        ({"bits": [8, 32, 32, 32, 32]}, "quantiles of bits fall"),
    ],
)
def test_levels_outside_the_action_space_are_refused(
    levels: dict[str, list[Any]], message: str
) -> None:
    point = make_schedules()["catch"].points[0]
    whole = {} if "levels of" in message else dict(point.levels)
    wrong = Schedule((replace(point, levels=whole | levels),))
    with pytest.raises(UserError, match=message):
        wrong.check(ACTIONS)
    Schedule((point,)).check(ACTIONS)
    with pytest.raises(UserError, match="is not in it"):
        Schedule((point,)).check(ActionSpace(bits=(32,)))
