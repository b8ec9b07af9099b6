"""Conditions: what a schedule of events says of a machine, how it is read and how it is drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.runtime.conditions import (
    ACTORS,
    BANDWIDTH,
    CO_TENANT,
    KINDS,
    THROTTLE,
    UNCHANGING,
    Condition,
    Conditions,
    Moment,
    draw_conditions,
    read_events,
)
from accerl.runtime.wiring import Wiring
from accerl.settings import configure, to_text
from accerl.training.run import check_startable


def event(kind: str, amount: float, at: float = 1.0, lasts: float = 2.0, **more: Any) -> Condition:
    return Condition(at_seconds=at, lasts_seconds=lasts, kind=kind, amount=amount, **more)


EVENTS = (
    event(CO_TENANT, 1),
    event(CO_TENANT, 2, at=2.0, lasts=3.0),
    event(BANDWIDTH, 0.2),
    event(BANDWIDTH, 0.5, at=2.0),
    event(THROTTLE, 2.0),
    event(THROTTLE, 3.0, at=2.0, process="actor-1"),
    event(ACTORS, 4),
    event(ACTORS, 12, at=2.0),
)


def test_what_overlaps_adds_up() -> None:
    conditions = Conditions(EVENTS)
    assert conditions.at(0.5) == Moment() == UNCHANGING.at(1.0)
    early, late = conditions.at(1.0), conditions.at(2.5)
    assert (early.co_tenants, early.bandwidth, early.actors) == (1, 0.2, 4)
    assert (early.slowdown("learner"), early.slowdown("actor-1")) == (2.0, 2.0)
    assert (late.co_tenants, late.bandwidth, late.actors) == (3, 0.1, 12)
    assert (late.slowdown("learner"), late.slowdown("actor-1")) == (2.0, 6.0)
    # What ends at a moment is over at that moment; what began last may outlast it.
    assert (conditions.at(3.0).co_tenants, conditions.at(3.0).actors) == (2, 12)
    assert conditions.at(5.0) == Moment()
    assert (conditions.least_share, UNCHANGING.least_share) == (0.1, 1.0)


def test_changes_are_found_one_after_the_other() -> None:
    conditions, seconds, found = Conditions(EVENTS), 0.0, []
    while (seconds := conditions.next_change(seconds)) < math.inf:
        found.append(seconds)
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert conditions.next_change(4.0, ACTORS) == math.inf
    assert conditions.next_change(3.5, ACTORS) == 4.0
    assert conditions.most_actors(2) == 12
    assert conditions.most_actors(20) == 20


def test_an_interval_shows_what_was_under_way_in_it() -> None:
    conditions = Conditions(EVENTS[:2])
    assert conditions.under_way(0.0, 1.0) == ()
    assert conditions.under_way(0.0, 1.5) == EVENTS[:1]
    assert conditions.under_way(2.9, 4.0) == EVENTS[:2]
    assert conditions.under_way(3.0, 4.0) == EVENTS[1:2]


def test_a_co_tenant_of_an_actor_s_machine_leaves_it_a_share_of_its_core() -> None:
    beside = [event(CO_TENANT, amount, process="actor-1") for amount in (1, 2)]
    conditions = Conditions((event(CO_TENANT, 1), *beside))
    moment = conditions.at(1.0)
    assert moment.co_tenants == 1
    slower = [moment.slowdown(name) for name in ("learner", "actor-0", "actor-1")]
    assert slower == [1.0, 1.0, 1.0 + 1.0 + 2.0]
    assert beside[0].words == "other programs beside actor-1"
    conditions.check_machines(apart=True)
    with pytest.raises(UserError, match="event 2: actor-1 is on the learner's machine"):
        conditions.check_machines(apart=False)
    with pytest.raises(UserError, match="event 1: compressor is on the learner's machine"):
        Conditions((event(CO_TENANT, 1, process="compressor"),)).check_machines(apart=True)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ([{"kind": "quake", "at_seconds": 1, "lasts_seconds": 1, "amount": 1}], "'quake' does not"),
        (
            [{"kind": "throtle", "at_seconds": 1, "lasts_seconds": 1, "amount": 2}],
            "mean 'throttle'",
        ),
        (
            [{"kind": "actors", "at_seconds": 10**400, "lasts_seconds": 1, "amount": 1}],
            "at_seconds must be a number",
        ),
        (
            [{"kind": "actors", "at_seconds": -1, "lasts_seconds": 1, "amount": 1}],
            "not be negative",
        ),
        (
            [{"kind": "actors", "at_seconds": 1, "lasts_seconds": 0, "amount": 1}],
            "must be positive",
        ),
        (
            [{"kind": "actors", "at_seconds": 1, "lasts_seconds": 1, "amount": 0}],
            "at least 1, got 0",
        ),
        ([{"kind": "bandwidth", "at_seconds": 1, "lasts_seconds": 1, "amount": 0}], "above 0"),
        ([{"kind": "bandwidth", "at_seconds": 1, "lasts_seconds": 1, "amount": 1}], "below 1"),
        ([{"kind": "throttle", "at_seconds": 1, "lasts_seconds": 1, "amount": 1}], "times slower"),
        (
            [{"kind": "co-tenant", "at_seconds": 1, "lasts_seconds": 1, "amount": 0.5}],
            "whole number",
        ),
        ([{"kind": "actors", "at_seconds": "1", "lasts_seconds": 1, "amount": 1}], "be a number"),
        ([{"kind": "actors", "at_seconds": 1, "lasts_seconds": 1}], "event 1: it lacks amount"),
        ([{"kind": "actors", "at": 1}], "there is no 'at'"),
        (["actors"], "event 1: an object with"),
        ({"kind": "actors"}, "with a list of events is needed"),
    ],
)
def test_an_event_that_cannot_be_is_one_clear_line(
    tmp_path: Path, written: Any, reason: str
) -> None:
    file = tmp_path / "events.json"
    file.write_text(json.dumps({"events": written}))
    with pytest.raises(UserError, match=reason) as caught:
        read_events(file)
    assert str(caught.value).startswith(f"--events {file}: ")
    assert "\n" not in str(caught.value)


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    given = {"at_seconds": 1, "lasts_seconds": 2.5, "kind": "throttle", "amount": 2}
    as_json, as_toml = tmp_path / "events.json", tmp_path / "events.toml"
    as_json.write_text(json.dumps({"events": [{**given, "process": "learner"}]}))
    lines = [f"{name} = {json.dumps(value)}" for name, value in given.items()]
    as_toml.write_text("\n".join(["[[events]]", *lines, 'process = "learner"']))
    expected = Conditions((event(THROTTLE, 2, at=1, lasts=2.5, process="learner"),))
    assert read_events(as_json) == read_events(as_toml) == expected
    as_json.write_text("\ufeff" + as_json.read_text())  # as some editors save it
    assert read_events(as_json) == expected
    as_json.write_text("{")
    with pytest.raises(UserError, match="JSON ends or goes wrong at line 1, column 2"):
        read_events(as_json)


def test_a_configuration_holds_its_conditions() -> None:
    plain = replace(load_preset("catch"), seconds=60.0)
    config = replace(plain, conditions=Conditions(EVENTS))
    assert config.hash != plain.hash == replace(plain, conditions=Conditions()).hash
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    written = json.loads(to_text(config))["conditions"]
    assert (
        configure("catch", {"conditions.events": written["events"]}).conditions == config.conditions
    )
    late = {**written["events"][0], "at_seconds": 9e5}
    longer = configure("catch", {"conditions.events": [late]}, seconds=1e6)
    assert longer.conditions.events[0].at_seconds == 9e5
    with pytest.raises(UserError, match="begins at 2 s, and the run ends at 2 s"):
        check_startable(replace(config, seconds=2.0), FixedStrategy())
    with pytest.raises(UserError, match="process goes with throttle"):
        event(BANDWIDTH, 0.5, process="actor-0")
    with pytest.raises(UserError, match="event 6: the run has no process 'actor-1'"):
        config.conditions.check_processes(["learner", "actor-0"])


def test_only_a_process_that_is_there_is_throttled() -> None:
    slow = Conditions((event(THROTTLE, 2.0, process="compressor"),))
    names = Wiring(actors=1, compressor=True, distillers=1).process_names(slow)
    assert names == ["learner", "compressor", "distiller-0", "actor-0"]
    with pytest.raises(UserError, match="event 1: the run has no process 'compressor'"):
        Wiring(actors=1).process_names(slow)  # the learner compresses


def test_drawn_events_are_a_poisson_process_of_what_the_machine_can_show() -> None:
    drawn = [draw_conditions(seed, 100.0, actors=4, cores=4, linked=True) for seed in range(300)]
    assert draw_conditions(7, 100.0, actors=4, cores=4, linked=True) == drawn[7] != drawn[8]
    counts = [len(each.events) for each in drawn]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    assert mean == pytest.approx(3.0, abs=0.3)
    assert variance == pytest.approx(3.0, abs=0.8)
    events = [each for conditions in drawn for each in conditions.events]
    for kind in KINDS:
        assert sum(each.kind == kind for each in events) / len(events) == pytest.approx(
            0.25, abs=0.06
        )
    assert all(0.0 <= each.at_seconds < each.ends <= 100.0 + 1e-9 for each in events)
    assert {each.amount for each in events if each.kind == CO_TENANT} == {1.0, 2.0}
    numbers = {each.amount for each in events if each.kind == ACTORS}
    assert 4.0 not in numbers
    assert (min(numbers), max(numbers)) == (1.0, 12.0)
    for conditions in drawn:
        conditions.check(100.0)
        conditions.check_processes(["learner", *(f"actor-{index}" for index in range(4))])
    alone = [draw_conditions(seed, 9.0, actors=1, cores=1, linked=False) for seed in range(60)]
    assert {each.kind for conditions in alone for each in conditions.events} == {*KINDS} - {
        BANDWIDTH
    }
    assert all(
        each.amount in (2.0, 3.0)
        for conditions in alone
        for each in conditions.events
        if each.kind == ACTORS
    )


def test_drawn_co_tenants_land_on_any_of_the_machines() -> None:
    drawn = [
        draw_conditions(seed, 100.0, actors=3, cores=8, linked=True, hosts=3) for seed in range(400)
    ]
    events = [each for conditions in drawn for each in conditions.events if each.kind == CO_TENANT]
    hosts = ["", "actor-0", "actor-1", "actor-2"]
    for host in hosts:
        found = [each for each in events if each.process == host]
        assert len(found) / len(events) == pytest.approx(0.25, abs=0.07)
        amounts = {1.0} if host else {1.0, 2.0, 3.0, 4.0}
        assert {each.amount for each in found} == amounts
    for conditions in drawn:
        conditions.check_machines(apart=True)
