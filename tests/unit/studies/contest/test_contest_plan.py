"""The contest's plan: what is in it, that it is kept to, and the rule that chose its instances."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accerl.errors import UserError
from accerl.records import json_hash, read_json
from accerl.runtime.latency.families import FAMILIES
from accerl.runtime.latency.profiles import load_profile
from controller.bundle.meta import git_revision
from controller.env.instances import Instance, keeping_pace
from controller.indicator.prior import SET_ON
from controller.objective import num_intervals
from studies.contest import real_clock
from studies.contest.bars import expected_half_width
from studies.contest.budget import (
    BUDGETS,
    CONTEST,
    REFERENCE_SEEDS,
    SHORT_TEST_SEEDS,
    TEST_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
)
from studies.contest.entrants import primary_names
from studies.contest.hours import planned_seconds
from studies.contest.plan import (
    NEW_BOTH,
    NEW_GAME,
    NEW_MACHINE,
    TRAINED,
    check_rule,
    check_specs,
    find_group,
    find_instances,
    make_plan,
    open_test,
)
from studies.core_seconds import CoreSeconds
from studies.room import plan as room
from studies.study_folder import PLAN, write_plan

BUDGET = CONTEST["default"]
PROFILES = {name: load_profile(name) for name in dict.fromkeys(name for _, name in BUDGET.pairs)}

ALL_SEEDS = (
    *(TUNE_SEEDS, VALIDATE_SEEDS, TEST_SEEDS, SHORT_TEST_SEEDS, REFERENCE_SEEDS),
    *(room.SEEDS, room.COPY_SEEDS, real_clock.SEEDS),
)


def _plan(seed: int = 0) -> dict[str, object]:
    instances = find_instances(BUDGET, PROFILES)
    return make_plan(BUDGET, instances, seed=seed, primary=("fp32", "static"))


@pytest.mark.parametrize("name", ["short", "medium", "default"])
def test_every_kind_of_limit_occurs_and_games_and_machines_are_new(name: str) -> None:
    budget = CONTEST[name]
    instances = find_instances(budget, {other: load_profile(other) for _, other in budget.pairs})
    check_rule(instances)
    assert {item.group for item in instances} == {TRAINED, NEW_BOTH}
    held_out = [item for item in instances if item.group != TRAINED]
    assert len({item.game for item in held_out}) == 3
    by_family: dict[str, list[Instance]] = {}
    for item in held_out:
        by_family.setdefault(item.profile.rpartition("-")[0], []).append(item)
    assert {name: len(own) for name, own in by_family.items()} == dict.fromkeys(FAMILIES, 3)


def test_conditions_change_on_half_of_all_instances_of_every_family() -> None:
    instances = find_instances(BUDGET, PROFILES)
    changing = [bool(item.config(0).conditions.events) for item in instances]
    # A Poisson number of events may be none.
    assert len(instances) / 2 - 2 <= sum(changing) <= len(instances) / 2
    for family in FAMILIES:
        own = [
            events
            for item, events in zip(instances, changing, strict=True)
            if item.profile.startswith(family)
        ]
        assert 0 < sum(own) < len(own)
    again = find_instances(BUDGET, PROFILES)
    assert [item.config(0) for item in again] == [item.config(0) for item in instances]


def test_runs_have_as_many_intervals_as_the_budget_says_the_first_of_them_short() -> None:
    for item in find_instances(BUDGET, PROFILES):
        assert num_intervals(*item.lengths) == 40
        assert item.first_interval_seconds == pytest.approx(0.1 * item.interval_seconds)
        assert item.config(0).learner.precision == "auto"


def test_a_group_says_what_is_new() -> None:
    trained = (("catch", "slow"), ("pole", "slow"), ("catch", "fast"))
    assert find_group(("catch", "fast"), trained) == TRAINED
    assert find_group(("pole", "fast"), trained) == NEW_MACHINE  # never with this game
    assert find_group(("chess", "fast"), trained) == NEW_GAME
    assert find_group(("catch", "other"), trained) == NEW_MACHINE
    assert find_group(("chess", "other"), trained) == NEW_BOTH


def test_a_missing_limit_is_refused_by_name() -> None:
    instances = [replace(item, limit="actors") for item in find_instances(BUDGET, PROFILES)]
    with pytest.raises(UserError, match="no instance is limited by emulator, learner, network"):
        check_rule(instances)


def test_a_game_that_the_prior_was_set_on_is_not_held_out() -> None:
    known = [
        replace(item, game="pong") if item.game == "acrobot" else item
        for item in find_instances(BUDGET, PROFILES)
    ]
    with pytest.raises(UserError, match="prior was set on pong; hold out other games"):
        check_rule(known)


def test_every_contest_holds_out_games_that_nothing_was_set_on() -> None:
    for budget in CONTEST.values():
        trained = {game for game, _ in budget.trained}
        held = {game for game, _ in budget.held_out}
        assert held
        assert not held & (trained | set(SET_ON))


def test_no_seed_serves_two_purposes() -> None:
    ranges = [set(seeds) for seeds in ALL_SEEDS]
    assert sum(map(len, ranges)) == len(set().union(*ranges))


def test_only_the_contest_proper_opens_its_test_seeds() -> None:
    for study, budgets in BUDGETS.items():
        for name, budget in budgets.items():
            opened = set(budget.test) & set(TEST_SEEDS)
            assert bool(opened) == ((study, name) == ("contest", "default"))
            assert len(budget.test) == budget.test_seeds


def test_a_later_contest_opens_other_seeds_and_machines() -> None:
    medium, short = CONTEST["medium"], CONTEST["short"]
    # 100 to 125, 128 to 135 and 143 to 148 were opened by earlier ones, 136 to 142 by ablations,
    assert medium.test == [*range(149, 157)]
    assert short.test == [*range(157, 163)]
    numbers = (*range(9_000, 9_018), *range(9_021, 9_024))
    opened = {f"{family}-{number}" for family in FAMILIES for number in numbers}  # as were these
    for budget in (medium, short, CONTEST["default"]):
        machines = {machine for _, machine in budget.held_out}
        assert not machines & opened
        assert len(budget.held_out) == 12
        opened |= machines


def test_students_keep_pace_on_drawn_machines() -> None:
    for item in find_instances(BUDGET, PROFILES):
        config = item.config(0)
        assert config == keeping_pace(config)


def test_too_little_held_out_is_refused() -> None:
    gone = ("acrobot", "minatar-freeway")
    few = [item for item in find_instances(BUDGET, PROFILES) if item.game not in gone]
    with pytest.raises(UserError, match="1 games and 4 machines are held out"):
        check_rule(few)


def test_a_plan_is_kept_to(tmp_path: Path) -> None:
    digest = write_plan(tmp_path, _plan())
    assert read_json(tmp_path / PLAN)["hash"] == digest == json_hash(_plan())
    assert write_plan(tmp_path, _plan()) == digest
    with pytest.raises(UserError, match="give another --out"):
        write_plan(tmp_path, _plan(seed=1))


def test_an_altered_plan_is_noticed(tmp_path: Path) -> None:
    write_plan(tmp_path, _plan())
    text = (tmp_path / PLAN).read_text()
    (tmp_path / PLAN).write_text(text.replace('"actors"', '"learner"', 1))
    with pytest.raises(UserError, match="is another plan"):
        write_plan(tmp_path, _plan())


def test_the_test_is_opened_once_and_that_is_noted(tmp_path: Path) -> None:
    (first,) = open_test(tmp_path, "abc")
    assert first["plan_hash"] == "abc"
    assert first["git_revision"] == git_revision()
    assert open_test(tmp_path, "abc") == [first]
    assert len(open_test(tmp_path, "xyz")) == 2


def test_hours_are_known_beforehand_and_grow_with_the_budget(tmp_path: Path) -> None:
    instances, costs = find_instances(BUDGET, PROFILES), CoreSeconds(tmp_path)
    hours = planned_seconds(BUDGET, instances, costs) / 3600.0
    assert 100.0 < hours < 300.0
    for less in (
        {"inner_runs": BUDGET.inner_runs // 2},
        {"instance_runs": 0},
        {"test_seeds": 8},
        {"pretrain_iterations": 0},
        {"real_seeds": 0},
        {"variants": ()},
    ):
        assert planned_seconds(replace(BUDGET, **less), instances, costs) / 3600.0 < hours - 0.2


@pytest.mark.parametrize(("name", "most"), [("short", 8.0), ("medium", 16.0)])
def test_budgets_of_a_night_take_no_longer(name: str, most: float, tmp_path: Path) -> None:
    budget = CONTEST[name]
    profiles = {other: load_profile(other) for _, other in budget.pairs}
    instances = find_instances(budget, profiles)
    hours = planned_seconds(budget, instances, CoreSeconds(tmp_path)) / 3600.0
    assert most - 3.0 < hours < most  # as studies/contest/README.md says


def test_references_are_made_once_a_game(tmp_path: Path) -> None:
    """However many instances are held out, whose unit of gains is not needed."""
    budget = replace(CONTEST["medium"], test_seeds=0, other_seeds=0, exploratory_seeds=0)
    profiles = {other: load_profile(other) for _, other in budget.pairs}
    instances, costs = find_instances(budget, profiles), CoreSeconds(tmp_path)
    acrobot = next(item for item in instances if item.game == "acrobot")
    once, thrice = [*instances, acrobot], [*instances, acrobot, acrobot, acrobot]
    hours = [planned_seconds(budget, each, costs) for each in (once, thrice)]
    assert hours[1] == pytest.approx(hours[0], rel=0.01)


def test_a_plan_sets_its_bars_and_says_how_narrow_its_intervals_are_to_be() -> None:
    instances = find_instances(BUDGET, PROFILES)
    plan = make_plan(BUDGET, instances, seed=0, primary=primary_names(BUDGET))
    bars = {(bar["against"], bar["where"]): bar for bar in plan["bars"]}
    assert len(bars) == len(plan["bars"]) == 12
    assert bars["best static spec, one for all", "held out"]["at_most"] == 0.9
    assert bars["fp32", "every instance"]["at_most"] == 1.03
    assert {against for against, _ in bars} <= set(primary_names(BUDGET))
    assert plan["precision"].startswith("3 games with 28 seeds are 84 independent pairs; ")
    assert "+-4.9% wide" in plan["precision"]
    assert plan["precision"].endswith(" (+-9.8% against those with 8 seeds)")
    trained = make_plan(
        replace(BUDGET, held_out=()), instances, seed=0, primary=primary_names(BUDGET)
    )
    assert trained["bars"] == []
    # By hand, with Student's t of 42 degrees of freedom: exp(2.018 * 0.22 / sqrt(45)) - 1.
    assert expected_half_width(3, 15) == pytest.approx(0.0684, abs=2e-4)
    assert expected_half_width(1, 1) == float("inf")


def test_a_plan_of_one_test_seed_promises_no_width() -> None:
    budget = replace(BUDGET, test_seeds=1)
    plan = make_plan(budget, find_instances(budget, PROFILES), seed=0, primary=("fp32",))
    assert plan["precision"].endswith("but these are too few seeds for an interval")


def test_a_machine_without_times_of_what_is_searched_is_refused() -> None:
    instances = find_instances(BUDGET, PROFILES)
    specs = BUDGET.actions.all_specs
    check_specs(instances, specs)
    first = instances[0]
    assert first.latency is not None
    last = specs[-1].student
    few = tuple(row for row in first.latency.specs if row.spec.student != last)
    poor = replace(first, latency=replace(first.latency, specs=few))
    with pytest.raises(UserError, match=f"no times of .*{specs[-1].label}"):
        check_specs([*instances[1:], poor], specs)
