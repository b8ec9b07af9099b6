"""Servers: who gets which share of the cores, and what ends when."""

from __future__ import annotations

import json

import pytest

from accerl.runtime.conditions import Condition, Conditions
from accerl.runtime.serial.servers import Servers


def ends(servers: Servers, until: float = 100.0) -> list[tuple[str, float]]:
    """Return (name, time) of everything that ends by `until`."""
    found = []
    while (event := servers.advance(until)) is not None:
        found.append((event[0], servers.now))
    return found


def test_with_a_core_each_nobody_waits_for_anybody() -> None:
    servers = Servers(["a", "b", "c"])
    for name, seconds in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        servers.work(name, seconds)
    assert ends(servers) == [("b", 1.0), ("c", 2.0), ("a", 3.0)]
    assert servers.now == 100.0


def test_three_on_two_cores_get_two_thirds_each_until_one_has_done() -> None:
    servers = Servers(["a", "b", "c"], cores=2)
    for name, seconds in (("a", 2.0), ("b", 2.0), ("c", 4.0)):
        servers.work(name, seconds)
    # a and b: 2 core-seconds at 2/3; then c has 2 left and a core to itself.
    assert ends(servers) == [
        ("a", pytest.approx(3.0)),
        ("b", pytest.approx(3.0)),
        ("c", pytest.approx(5.0)),
    ]


def test_who_pauses_takes_no_core_and_is_not_slowed_down() -> None:
    servers = Servers(["a", "b", "c"], cores=1)
    servers.work("a", 1.0)
    servers.pause("b", 1.5)
    assert ends(servers) == [("a", 1.0), ("b", 1.5)]


def test_processor_seconds_are_those_for_which_cores_are_occupied() -> None:
    servers = Servers(["a", "b", "c", "far"], cores=2, gpu_core=0.5)
    servers.work("a", 2.0, cores=2.0)  # a group that fills a rollout side by side
    servers.pause("b", 1.0)
    servers.work("far", 3.0, cores=0.0)
    assert servers.advance(2.0) == ("b", 1.0)
    servers.work("b", 1.0)  # three want two cores now
    ends(servers, until=20.0)
    taken = servers.take_processor_seconds()
    assert taken == pytest.approx({"a": 4.0, "b": 1.0, "far": 3.0})
    servers.work("c", 4.0, on_gpu=True)
    ends(servers, until=40.0)
    assert servers.take_processor_seconds() == pytest.approx({"c": 2.0})
    assert servers.take_processor_seconds() == {}


def test_no_more_cores_are_occupied_than_there_are_where_a_gpu_s_processes_share_them() -> None:
    servers = Servers(["a", "b", "learner", "distiller"], cores=3)
    for name in ("a", "b"):
        servers.work(name, 100.0)
    for name in ("learner", "distiller"):
        servers.work(name, 100.0, on_gpu=True)
    assert servers.advance(10.0) is None
    taken = servers.take_processor_seconds()
    assert taken == pytest.approx(dict.fromkeys(["a", "b", "learner", "distiller"], 7.5))


def test_a_throttled_core_is_occupied_for_longer() -> None:
    servers = Servers(["a"], conditions=changing((0.0, 9.0, "throttle", 2.0, "a")))
    servers.work("a", 1.0)
    ends(servers)
    assert servers.take_processor_seconds() == pytest.approx({"a": 2.0})


def test_work_that_comes_later_slows_down_what_is_under_way() -> None:
    servers = Servers(["a", "b"], cores=1)
    servers.work("a", 2.0)
    assert servers.advance(1.0) is None
    servers.work("b", 0.5)
    name, took = servers.advance(10.0) or ("", 0.0)
    assert (name, took, servers.now) == ("b", pytest.approx(1.0), pytest.approx(2.0))
    name, took = servers.advance(10.0) or ("", 0.0)
    assert (name, took) == ("a", pytest.approx(2.5))


def test_simultaneous_events_come_in_the_order_of_the_names() -> None:
    servers = Servers(["second", "first"])
    servers.work("first", 1.0)
    servers.work("second", 1.0)
    assert [name for name, _ in ends(servers)] == ["second", "first"]


def test_stopped_work_never_ends_and_frees_its_core() -> None:
    servers = Servers(["a", "b"], cores=1)
    servers.work("a", 1.0)
    servers.work("b", 1.0)
    servers.stop("a")
    assert servers.is_idle("a")
    assert ends(servers) == [("b", 1.0)]


def test_no_core_seconds_are_lost_or_made() -> None:
    """What is done never exceeds what the cores can do, and reaches it while all are busy."""
    servers = Servers(["a", "b", "c", "d"], cores=3)
    for index, name in enumerate("abcd"):
        servers.work(name, 1.0 + index)
    last = ends(servers)[-1][1]
    assert sum(1.0 + index for index in range(4)) <= 3.0 * last
    assert last == pytest.approx(4.0 + 1.0 / 3.0)  # 1/3 s is what sharing at first costs d


def test_a_state_goes_through_json_and_goes_on_to_the_bit() -> None:
    def begun() -> Servers:
        servers = Servers(["a", "b", "c"], cores=2)
        servers.work("a", 0.7)
        servers.work("b", 1.1)
        servers.pause("c", 0.3)
        servers.advance(0.1)
        return servers

    other = Servers(["a", "b", "c"], cores=2)
    other.load_state_dict(json.loads(json.dumps(begun().state_dict())))
    assert ends(other) == ends(begun())


def test_simultaneous_events_keep_their_order_whatever_that_of_a_file_is() -> None:
    names = [f"actor-{index}" for index in range(12)]  # a file has 10 and 11 before 2
    servers, other = Servers(names), Servers(names)
    for name in names:
        servers.work(name, 1.0)
    other.load_state_dict(json.loads(json.dumps(servers.state_dict(), sort_keys=True)))
    assert [name for name, _ in ends(other)] == names


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_impossible_work_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot take"):
        Servers(["a"]).work("a", seconds)


def test_nobody_does_two_things_at_once() -> None:
    servers = Servers(["a"])
    servers.work("a", 1.0)
    with pytest.raises(ValueError, match="busy"):
        servers.pause("a", 1.0)


def changing(*events: tuple[float, float, str, float, str]) -> Conditions:
    return Conditions(
        tuple(
            Condition(at_seconds=at, lasts_seconds=lasts, kind=kind, amount=amount, process=process)
            for at, lasts, kind, amount, process in events
        )
    )


def test_a_co_tenant_takes_its_fair_share_from_when_it_comes_until_it_goes() -> None:
    servers = Servers(["a", "b"], cores=2, conditions=changing((1.0, 3.0, "co-tenant", 2, "")))
    servers.work("a", 2.5)
    servers.work("b", 3.0)
    # One second alone, three at half a core, then alone again.
    assert ends(servers) == [("a", pytest.approx(4.0)), ("b", pytest.approx(4.5))]


def test_cores_to_spare_are_what_others_take_first() -> None:
    servers = Servers(["a", "b"], cores=3, conditions=changing((0.0, 9.0, "co-tenant", 1, "")))
    servers.work("a", 1.0)
    servers.work("b", 2.0)
    assert ends(servers) == [("a", 1.0), ("b", 2.0)]


def test_a_throttled_core_does_less_work_in_the_same_share() -> None:
    throttled = changing((1.0, 4.0, "throttle", 2.0, "a"), (2.0, 1.0, "throttle", 2.0, ""))
    servers = Servers(["a", "b", "c"], conditions=throttled)
    servers.work("a", 2.25)  # 1 + 0.5 + 0.25 by 3.0, then half as fast until 5.0
    servers.work("b", 2.0)  # 2 by 2.0
    servers.pause("c", 2.5)
    assert ends(servers) == [
        ("b", pytest.approx(2.0)),
        ("c", pytest.approx(2.5)),
        ("a", pytest.approx(4.0)),
    ]


def test_less_bandwidth_slows_down_what_travels_and_nothing_else() -> None:
    slow = changing((1.0, 5.0, "bandwidth", 0.2, ""))
    servers = Servers(["a", "b", "c"], cores=1, conditions=slow)
    servers.send("a", 2.0)
    servers.work("b", 2.0)
    servers.pause("c", 3.0)
    assert ends(servers) == [
        ("b", pytest.approx(2.0)),
        ("c", pytest.approx(3.0)),
        ("a", pytest.approx(6.0)),
    ]


def test_a_state_taken_in_the_middle_of_events_goes_on_to_the_bit() -> None:
    conditions = changing(
        (0.3, 1.0, "co-tenant", 1, ""),
        (0.7, 0.9, "throttle", 2.0, "b"),
        (0.1, 2, "bandwidth", 0.2, ""),
    )

    def started() -> Servers:
        servers = Servers(["a", "b", "c"], cores=2, conditions=conditions)
        servers.work("a", 0.9)
        servers.work("b", 1.1)
        servers.send("c", 0.37)
        return servers

    first, second = started(), started()
    assert first.advance(0.8) is None
    assert second.advance(0.8) is None
    third = Servers(["a", "b", "c"], cores=2, conditions=conditions)
    third.load_state_dict(json.loads(json.dumps(second.state_dict())))
    assert ends(first) == ends(third)


def test_a_group_occupies_as_many_cores_as_it_has_actors() -> None:
    servers = Servers(["group", "learner"], cores=8)
    servers.work("group", 3.0, cores=11.0)
    servers.work("learner", 1.0)
    # Twelve cores' work on eight: two thirds for everybody; then eight of eleven.
    assert ends(servers) == [
        ("learner", pytest.approx(1.5)),
        ("group", pytest.approx(1.5 + 2.0 * 11.0 / 8.0)),
    ]


def test_who_is_on_another_machine_takes_no_core_of_this_one() -> None:
    servers = Servers(["far", "a", "b"], cores=1)
    servers.work("far", 1.0, cores=0.0)
    servers.work("a", 1.0)
    servers.work("b", 1.0)
    assert ends(servers) == [("far", 1.0), ("a", 2.0), ("b", 2.0)]


def test_a_gpu_computes_for_one_or_for_two_in_turn() -> None:
    """The learner has 1.0 to do, the distiller 0.5; actors have the cores to themselves."""
    servers = Servers(["learner", "distiller", "actor"], cores=3)
    servers.work("learner", 1.0, on_gpu=True)
    servers.work("distiller", 0.5, on_gpu=True)
    servers.work("actor", 2.0)
    assert ends(servers) == [("distiller", 1.0), ("learner", 1.5), ("actor", 2.0)]


@pytest.mark.parametrize(
    ("gpu_core", "learner", "actors"),
    [
        (0.25, 1.0, 8 / 7),  # it gets its quarter, they share the rest
        (1.0, 1.5, 1.5),  # three want two cores
    ],
)
def test_who_waits_for_a_gpu_takes_its_share_of_a_core(
    gpu_core: float, learner: float, actors: float
) -> None:
    servers = Servers(["learner", "a", "b"], cores=2, gpu_core=gpu_core)
    servers.work("learner", 1.0, on_gpu=True)
    servers.work("a", 1.0)
    servers.work("b", 1.0)
    found = dict(ends(servers))
    assert found["learner"] == pytest.approx(learner)
    assert found["a"] == found["b"] == pytest.approx(actors, rel=0.02)


def test_gpu_work_is_part_of_the_state() -> None:
    servers, other = (Servers(["a", "b", "c"], cores=1, gpu_core=0.5) for _ in range(2))
    servers.work("a", 1.0, on_gpu=True)
    servers.work("b", 1.0, cores=0.0)
    servers.work("c", 1.0, cores=2.0)
    servers.advance(0.25)
    other.load_state_dict(json.loads(json.dumps(servers.state_dict())))
    assert ends(other) == ends(servers)
