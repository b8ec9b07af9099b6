"""The study of room: what is planned, stopped and read off runs; and all of it, in small."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.strategies import make_strategy
from accerl.records import json_hash, read_json
from accerl.runtime.latency.families import FAMILIES
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec
from analysis.comparison.room.matrix import CHOICES
from controller.env.instances import Instance, keeping_pace
from studies.contest.budget import TUNE_SEEDS, VALIDATE_SEEDS
from studies.contest.study import strategy_job
from studies.contest.tuning.guesses import GUESSES
from studies.core_seconds import COSTS, CoreSeconds
from studies.jobs.executor import Outcome
from studies.jobs.inner import StrategyResult, build_strategy
from studies.options import StudyOptions
from studies.room import run as room
from studies.room import tuned
from studies.room.cells import (
    find_references,
    find_specs,
    make_cell,
    make_cells,
    scales_of,
    specs_beside,
)
from studies.room.plan import (
    BUDGETS,
    CHANGING,
    CONFIRMED,
    CONTROL,
    DRAWN,
    MACHINES,
    STEADY,
    STRETCH,
    RoomBudget,
    make_plan,
)
from studies.room.result import by_target
from studies.room.run import planned_seconds, run_room
from studies.room.runs import log_seconds, log_steps, make_matrix, rows_of
from studies.room.study import RoomStudy, clearly_last
from studies.room.tuned import composed, levels_of, spread_over
from studies.storage import JOURNAL, open_storage

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(bits=8, student="net3")
TINY = BUDGETS["tiny"]


@cache
def planned(name: str) -> tuple[tuple[Instance, ...], tuple[CompressionSpec, ...]]:
    """Return the instances of a budget, and its specs."""
    budget = BUDGETS[name]
    names = dict.fromkeys([*budget.machines, budget.control_machine])
    machines = {each: load_profile(each) for each in names if each}
    drawn = {each: machines[each] for each in budget.machines}
    specs, _ = find_specs(budget, [*budget.games, *budget.easy], drawn)
    return tuple(make_cells(budget, machines, specs)), specs


def test_students_keep_pace_where_a_budget_says_so() -> None:
    for name, budget in BUDGETS.items():
        kept = [keeping_pace(item.config(0)) == item.config(0) for item in planned(name)[0]]
        assert all(kept) if budget.keeps_pace else not any(kept)


@pytest.mark.parametrize("name", BUDGETS)
def test_half_of_what_is_drawn_has_changing_conditions(name: str) -> None:
    """And half of each machine's and each family's, as far as the games are even in number."""
    drawn = [item for item in planned(name)[0] if item.group in DRAWN]
    changing = [item for item in drawn if item.group == CHANGING]
    assert len(changing) == len(drawn) / 2
    assert all(not item.config(0).conditions.events for item in drawn if item.group == STEADY)
    assert any(item.config(0).conditions.events for item in changing)
    machines = {item.profile for item in changing}
    assert machines == {item.profile for item in drawn}


def test_events_are_the_same_with_all_seeds_and_lie_within_the_horizon() -> None:
    planned.cache_clear()
    item = next(item for item in planned("short")[0] if item.config(0).conditions.events)
    planned.cache_clear()  # so that what is drawn again is drawn
    conditions = item.config(0).conditions
    assert item.config(7).conditions == conditions
    assert all(0.0 <= event.at_seconds < item.horizon_seconds for event in conditions.events)
    again = next(each for each in planned("short")[0] if each.name == item.name)
    assert again.config(0).conditions == conditions


def test_a_horizon_is_what_the_fastest_spec_needs() -> None:
    latency = load_profile("paper-1080ti")
    slow = make_cell("catch", latency, 10_000, (IDENTITY,), STEADY, TINY)
    fast = make_cell("catch", latency, 10_000, (IDENTITY, NET3), STEADY, TINY)
    assert fast.horizon_seconds < 0.7 * slow.horizon_seconds
    assert fast.horizon_seconds == pytest.approx(20 * fast.interval_seconds)
    assert STRETCH > 1.0


def test_families_are_drawn_in_equal_numbers() -> None:
    families = [name.rpartition("-")[0] for name in MACHINES]
    assert {families.count(family) for family in families} == {2}
    assert len(MACHINES) >= 8


def test_a_plan_is_json_and_names_all_that_runs_depend_on() -> None:
    instances, _ = planned("short")
    plan = make_plan(BUDGETS["short"], instances, {}, seed=0)
    assert json_hash(plan) == json_hash(json.loads(json.dumps(plan)))
    assert len({row["config_hash"] for row in plan["instances"]}) > 4
    other = make_plan(replace(BUDGETS["short"], seeds=9), instances, {}, seed=0)
    assert json_hash(other) != json_hash(plan)
    assert "10%" in plan["rules"]["gate"]


def test_a_spec_without_times_is_left_out_everywhere() -> None:
    budget = replace(BUDGETS["tiny"], specs=(IDENTITY, CompressionSpec(bits=8, rank=0.25)))
    specs, missing = find_specs(budget, ["catch"], {"paper": load_profile("paper")})
    assert specs == (IDENTITY,)
    assert missing == {"original rank 25% INT8": ["paper"]}


def test_what_controls_and_confirmations_lack_stays_in_the_matrix() -> None:
    rank = CompressionSpec(bits=8, rank=0.25)
    instances, specs = planned("default")
    assert rank in specs
    assert len(specs) == len(BUDGETS["default"].specs)
    has = {item.group: item.has(rank) for item in instances}
    assert has[STEADY]
    assert not has[CONTROL]
    assert not has[CONFIRMED]


def test_hours_grow_with_the_budget_and_know_what_was_measured(tmp_path: Path) -> None:
    instances, specs = planned("tiny")
    costs = CoreSeconds(tmp_path)
    budget = BUDGETS["tiny"]
    few = planned_seconds(budget, instances, specs, costs)
    assert planned_seconds(replace(budget, seeds=4), instances, specs, costs) > 1.2 * few
    result = curve([0.0, 1.0], env_steps=[0, 1000])
    for _ in range(2):  # the same job twice costs once
        costs.add("catch", Outcome("job", result, 5.0))
    costs.save()
    assert costs.spent == 5.0
    again = CoreSeconds(tmp_path)
    again.add("catch", Outcome("job", result, 5.0))
    assert again.spent == 5.0
    assert again.per_step("catch") == 5e-3
    assert CoreSeconds(tmp_path).per_step("cartpole") == pytest.approx(3e-5)
    assert CoreSeconds(tmp_path).per_step("minatar-freeway") == pytest.approx(1e-3)
    unlike = CoreSeconds(tmp_path, unlike=["minatar-freeway"])
    assert unlike.per_step("minatar-freeway") == unlike.per_step("minatar-seaquest")
    (tmp_path / COSTS).write_text('{"games": {"catch": 3.0}, "jobs": []}')
    with pytest.raises(UserError, match=r"core-seconds\.json: games: catch is damaged: an object"):
        CoreSeconds(tmp_path)


def test_a_spec_stops_that_is_far_slower_with_both_seeds() -> None:
    far, near = math.log(1.6), math.log(1.4)
    found = clearly_last({"a": [0.0, 0.1], "b": [far, 0.1 + far], "c": [far, 0.1 + near]})
    assert found == {"b"}
    assert clearly_last({"a": [0.0], "b": [9.0]}) == set()
    assert clearly_last({"a": [9.0, 0.0], "b": [0.0, 9.0]}) == set()


def curve(returns: list[float], env_steps: list[int] | None = None) -> StrategyResult:
    count = len(returns)
    return StrategyResult(
        times=tuple(10.0 * place for place in range(count)),
        returns=tuple(returns),
        decisions=(),
        env_steps=tuple(env_steps or [100 * place for place in range(count)]),
    )


def instance() -> Instance:
    made = make_cell("catch", load_profile("paper-1080ti"), 10_000, (IDENTITY,), STEADY, TINY)
    scale = {"random_return": 0.0, "reference_return": 1.0, "target_return": 1.0}
    return replace(made, horizon_seconds=40.0, interval_seconds=10.0, **scale)


def test_a_game_that_was_not_learned_gives_no_target() -> None:
    """MinAtar's Asterix stays at random play's score for long: its targets would be noise."""
    job = strategy_job(replace(instance(), game="pong"), 200, {"name": "fixed", "params": {}})
    learned, not_learned = (
        curve([-20.7, -21.0, -20.5, -20.0, 5.0]),
        curve([-20.7, -21, -20, -21, -20]),
    )
    (found,) = find_references([job], [learned]).values()
    assert (found["random_return"], found["target_return"]) == (-20.7, 5.0)
    with pytest.raises(UserError, match="no target"):
        find_references([job], [not_learned])


def test_how_well_j_tells_is_a_share_of_the_way() -> None:
    """Of 0, 6, 0 after half the run the one second difference is -12, the noise 12 / sqrt(6)."""
    job = strategy_job(instance(), 200, {"name": "fixed", "params": {}})
    runs = [curve([0.0, 1.0, 0.0, 6.0, 0.0])]
    scale = {"catch": {"random_return": -2.0, "reference_return": 8.0, "fp32_returns": (8.0,)}}
    (row,) = scales_of([job], runs, scale)
    known = {"game": "catch", "random_return": -2.0, "reference_return": 8.0}
    assert row == {**known, "noise_share": pytest.approx(12.0 / 6.0**0.5 / 10.0)}
    (row,) = scales_of([job], [curve([0.0, 1.0])], scale)  # too short to tell
    assert row["noise_share"] is None


def test_a_run_is_read_at_both_targets() -> None:
    """The curve is the running mean of two points: 0.5 is reached at 20 s, 0.9 at 36 s."""
    half, most = rows_of(instance(), "net3", 7, curve([0.0, 0.0, 1.0, 0.5, 1.5]))
    assert (half["seconds_to_target"], half["env_steps_to_target"]) == (20.0, 200.0)
    assert most["seconds_to_target"] == pytest.approx(36.0)
    assert most["env_steps_to_target"] == pytest.approx(360.0)
    assert (half["censored"], most["censored"], most["final_return"]) == (False, False, 1.5)
    assert log_seconds([half, most]) == pytest.approx(math.log(20.0 * 36.0) / 2.0)


def test_a_run_that_misses_a_target_counts_as_if_it_arrived_at_the_horizon() -> None:
    half, most = rows_of(instance(), "net3", 7, curve([0.0, 0.6, 0.6, 0.6, 0.6]))
    assert (half["censored"], most["censored"]) == (False, True)
    assert (most["seconds_to_target"], most["env_steps_to_target"]) == (40.0, 400.0)


def test_of_a_run_that_has_not_begun_no_env_steps_are_known() -> None:
    rows = rows_of(instance(), "net3", 7, curve([0.0] * 5, env_steps=[0] * 5))
    assert [row["env_steps_to_target"] for row in rows] == [None, None]
    assert np.isnan(log_steps(rows))
    assert log_seconds(rows) == pytest.approx(math.log(40.0))
    at_once = rows_of(instance(), "net3", 7, curve([1.0] * 5, env_steps=[0, 0, 9, 9, 9]))
    assert [row["seconds_to_target"] for row in at_once] == [5.0, 5.0]


def test_a_matrix_holds_what_was_run() -> None:
    rows = rows_of(instance(), "a", 3, curve([0.0, 0.0, 1.0, 0.5, 1.5]))
    found = make_matrix([instance()], ["a", "b"], [3, 4], {("catch-paper-1080ti", "a", 3): rows})
    assert found.log_seconds[0, 0, 0] == log_seconds(rows)
    assert np.isnan(found.log_steps).sum() == 3


def test_targets_are_reported_apart() -> None:
    """With 50% both specs are as fast; 90% only one of them reaches."""
    both = {
        ("catch-paper-1080ti", "a", seed): rows_of(instance(), "a", seed, curve(values))
        for seed, values in ((3, [0.0, 0.0, 1.0, 1.0, 1.0]), (4, [0.0, 0.0, 1.0, 1.0, 1.0]))
    }
    for seed in (3, 4):
        rows = rows_of(instance(), "b", seed, curve([0.0, 0.0, 1.0, 0.0, 0.0]))
        both["catch-paper-1080ti", "b", seed] = rows
    matrix = make_matrix([instance()], ["a", "b"], [3, 4], both)
    half, most = by_target(matrix, [instance()], both, 0)
    assert (half["target"], half["reached"], half["ratio"]) == (0.5, 1.0, 1.0)
    assert (most["target"], most["reached"]) == (0.9, 0.5)


@pytest.mark.parametrize("budget", ["short", "medium", "default"])
def test_rules_are_tuned_on_all_games_and_families_and_on_both_groups(budget: str) -> None:
    drawn = [item for item in planned(budget)[0] if item.group in DRAWN]
    count = BUDGETS[budget].rule_instances
    chosen = spread_over(drawn, count)
    assert len({item.name for item in chosen}) == count
    assert {item.game for item in chosen} == {item.game for item in drawn}
    assert {item.profile[:4] for item in chosen} == {name[:4] for name in FAMILIES}
    changing = sum(item.group == CHANGING for item in chosen)
    assert count / 3 <= changing <= count / 2
    assert {item.name for item in spread_over(drawn, 99)} == {item.name for item in drawn}


def test_schedules_are_strategies_of_two_and_three_phases() -> None:
    found = composed([IDENTITY, INT8, NET3])
    assert len({json_hash(each) for each in found}) == len(found) == 24
    assert all(make_strategy(each["name"], **each["params"]) for each in found)


def test_searches_choose_among_the_levels_of_the_specs() -> None:
    levels = levels_of((IDENTITY, INT8, NET3))
    assert (levels.bits, levels.sparsities) == ((32, 8), (0.0,))
    assert levels.students == ("original", "net3")


def test_the_cap_rule_s_specs_are_sorted_by_the_machine() -> None:
    """On the paper's machine small networks are faster; where the learner limits, none is."""
    described = {
        "name": "advise-kl-cap",
        "params": {"specs": [spec.to_json() for spec in (IDENTITY, INT8, NET3)]},
    }
    paper = build_strategy(described, instance())
    assert paper.specs == (NET3, INT8, IDENTITY)  # pyright: ignore[reportAttributeAccessIssue]
    bound = load_profile("learner-bound")
    other = build_strategy(described, replace(instance(), latency=bound))
    assert other.specs[0] == IDENTITY  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"budget": "tine"}, "tiny"),
        ({"seed": -1}, "--seed"),
        ({"workers": -1}, "--workers"),
        ({"profile": "nowhere"}, "nowhere"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        run_room(tmp_path / "r", StudyOptions(**{"budget": "tiny", **changes}))
    assert not (tmp_path / "r" / "jobs").exists()


@pytest.mark.slow
def test_a_study_measures_the_room_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = RoomBudget(
        games={"catch": 12_000},
        machines=("paper-1080ti", "learner-bound"),
        specs=(IDENTITY, NET3),
        seeds=2,
        reference_runs=1,
        copied=("catch",),
        copies=2,
        indicator=True,
        rules=("advise-kl-cap",),
        rule_runs=1,
        rule_instances=1,
        scheduled=1,
    )
    monkeypatch.setitem(room.BUDGETS, "tiny", budget)
    monkeypatch.setattr(tuned, "HALVING", ((1, 0), (1, 2)))
    monkeypatch.setattr(tuned, "TWO_PHASES", (0.5,))
    monkeypatch.setattr(tuned, "THREE_PHASES", ())
    result = run_room(tmp_path, StudyOptions(budget="tiny", workers=1))
    assert result == read_json(tmp_path / "room.json")
    assert (tmp_path / "room.html").is_file()
    assert (tmp_path / "room-catch.png").read_bytes()[1:4] == b"PNG"
    assert result["gate"]["open"] is False
    assert [each["name"] for each in result["groups"]][:2] == list(DRAWN)
    assert result["groups"][-1]["name"].startswith("placebo")
    assert len(result["matrix"]) >= 2 * 2 * 2 * 2  # machines, specs, seeds and targets
    for row in (*result["matrix"], *read_json(tmp_path / "room-small.json")["matrix"]):
        spec = CompressionSpec.from_json(row["spec"])
        assert row.get("label", spec.label) == spec.label
        assert row["spec"] == spec.to_json()
        assert row["seconds_to_target"] > 0.0
        assert {"game", "machine", "env_steps_to_target", "final_return", "censored"} <= set(row)
    assert set(result["room"]["choices"]) == set(CHOICES)
    assert [row["name"] for row in result["strategies"]] == [
        "indicator",
        "advise-kl-cap",
        "schedule",
    ]
    jobs = sorted((tmp_path / "jobs").iterdir())
    before = [path.stat().st_mtime_ns for path in jobs]
    assert run_room(tmp_path, StudyOptions(budget="tiny", workers=1)) == result
    assert [path.stat().st_mtime_ns for path in jobs] == before
    with pytest.raises(UserError, match="other settings"):
        run_room(tmp_path, StudyOptions(budget="tiny", seed=1))


def test_rules_begin_with_the_contest_s_guess_and_are_chosen_on_other_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def seconds_of(_: Any, asked: Any, own: Any, *__: Any) -> list[float]:
        seeds.extend(own)
        return [0.0] * len(asked)

    monkeypatch.setattr(tuned, "seconds_of", seconds_of)
    nobody = cast("Any", None)  # nothing is run
    budget = replace(TINY, rule_runs=1, rule_instances=1)
    study = RoomStudy(tmp_path, budget, (IDENTITY, INT8, NET3), 0, nobody, nobody, "plan")
    storage = open_storage(str(tmp_path / JOURNAL))
    found = tuned.tune_rule(study, "advise-kl-cap", [instance()], storage).params
    guess = GUESSES["advise-kl-cap"]
    assert {name: found[name] for name in guess} == guess
    assert seeds == [TUNE_SEEDS[0], VALIDATE_SEEDS[0]]


def test_learners_act_with_their_own_network_and_with_smaller_ones() -> None:
    assert specs_beside("catch", (IDENTITY, INT8, NET3)) == (IDENTITY, INT8, NET3)
    net1 = CompressionSpec(bits=8, student="net1")
    assert specs_beside("breakout", (IDENTITY, net1, NET3)) == (IDENTITY, NET3)
