"""The comparison of clocks under events: which intervals count, and what is compared."""

from __future__ import annotations

import pytest
from rich.console import Console

from accerl.errors import UserError
from accerl.runtime.conditions import ACTORS, KINDS, Condition, Conditions
from accerl.spec import CompressionSpec
from studies.benchmarks.clocks import events
from studies.benchmarks.clocks.events import (
    _agreement,
    bench_events,
    compare_events,
    events_config,
    schedule,
    window_errors,
)
from studies.benchmarks.tables import print_events
from tests.fixtures.runs.beside_a_gpu import Started, put_beside_a_gpu
from tests.fixtures.runs.inner_runs import fast_profile


def test_the_schedule_has_every_kind_and_a_pause_around_each() -> None:
    conditions = schedule(10.0, 2, down=1e6)
    assert {event.kind for event in conditions.events} == set(KINDS)
    begins = [event.at_seconds for event in conditions.events]
    assert begins == [20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    assert all(event.lasts_seconds == 10.0 for event in conditions.events)
    assert conditions.has_link
    config = events_config("catch", "net1", 2, 10.0, conditions)
    assert (config.seconds, config.runtime.interval_seconds) == (140.0, 1.0)
    # One actor of one cannot leave.
    alone = [event.amount for event in schedule(10.0, 1, down=1e6).events if event.kind == ACTORS]
    assert alone == [2.0]
    up = schedule(10.0, 2, down=0.0, up=1e5)
    assert (up.down_bytes_per_second, up.up_bytes_per_second) == (0.0, 1e5)
    assert "bandwidth" in {event.kind for event in up.events}
    # Memory does not get slower.
    assert "bandwidth" not in {event.kind for event in schedule(10.0, 2, down=0.0).events}


def run(*speeds: float, late: float = 0.0) -> dict[str, list[float]]:
    """Intervals of a second each, but for what the real clock is late."""
    ends = [
        index + 1.0 + (late if index < len(speeds) - 1 else 0.0) for index in range(len(speeds))
    ]
    lengths = [after - before for before, after in zip([0.0, *ends], ends, strict=False)]
    return {
        "ends": ends,
        "env_steps": [s * length for s, length in zip(speeds, lengths, strict=True)],
    }


def test_speeds_are_of_whole_intervals_within_each_window() -> None:
    event = Condition(at_seconds=3.0, lasts_seconds=3.0, kind="throttle", amount=2.0)
    real = run(9, 10, 10, 7, 5, 5, 8, 10, 10, late=0.01)
    virtual = run(8, 8, 8, 4, 4, 4, 8, 8, 8)
    rows = compare_events(Conditions((event,)), 3.0, 9.0, [real], [virtual])
    assert [row["window"] for row in rows] == ["before", "during", "after"]
    assert [(row["begins"], row["ends"]) for row in rows] == [(0.0, 3.0), (3.0, 6.0), (6.0, 9.0)]
    # The first interval of each is left out.
    assert [row["real"] for row in rows] == pytest.approx([10.0, 5.0, 10.0])
    assert [row["ratio"] for row in rows] == pytest.approx([1.25, 1.25, 1.25])
    slower = compare_events(Conditions((event,)), 3.0, 9.0, [real, run(*[2] * 9), real], [virtual])
    assert slower[0]["real"] == pytest.approx(10.0)  # the median over seeds


@pytest.mark.parametrize("stalled", ["real", "virtual"])
def test_a_clock_that_stands_still_alone_is_an_error(stalled: str) -> None:
    event = Condition(at_seconds=3.0, lasts_seconds=3.0, kind="throttle", amount=2.0)
    steady, still = run(*[8] * 9), run(*[8] * 3, *[0] * 3, *[8] * 3)
    clocks = ([still], [steady]) if stalled == "real" else ([steady], [still])
    rows = compare_events(Conditions((event,)), 3.0, 9.0, *clocks)
    assert list(window_errors(rows).values()) == [0.0, 1.0, 0.0]
    assert _agreement(rows)["within"] is False
    both = compare_events(Conditions((event,)), 3.0, 9.0, [still], [still])
    assert list(window_errors(both).values()) == [0.0, 0.0]


def test_a_pause_between_two_events_counts_once() -> None:
    lasts = {"lasts_seconds": 3.0, "kind": "co-tenant", "amount": 1.0}
    events = tuple(Condition(at_seconds=at, **lasts) for at in (3.0, 9.0))
    real, virtual = run(*[10] * 15), run(*[8] * 6, *[5] * 3, *[8] * 6)
    rows = compare_events(Conditions(events), 3.0, 15.0, [real], [virtual])
    assert len(rows) == 6
    assert [row["event"] for row in rows[::3]] == [
        "other programs on 1 core, at 3 s", "other programs on 1 core, at 9 s",
    ]  # fmt: skip
    errors = window_errors(rows)
    assert list(errors) == [(0.0, 3.0), (3.0, 6.0), (6.0, 9.0), (9.0, 12.0), (12.0, 15.0)]
    assert list(errors.values()) == pytest.approx([0.25, 0.25, 1.0, 0.25, 0.25])


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ((), "Error not measured: no window"),
        (("before",), "25.0% in the median (10% are allowed), not measured during events"),
        (("before", "during"), "25.0% during events"),
    ],
)
def test_what_was_not_measured_is_not_called_exact(windows: tuple[str, ...], words: str) -> None:
    rows = [
        {"event": "an event", "window": window, "begins": at, "ends": at + 3.0}
        | {"real": 10.0, "virtual": 8.0, "ratio": 1.25}
        for at, window in enumerate(windows)
    ]
    found = _agreement(rows)
    assert found["within"] is (False if windows else None)
    console = Console(width=200, record=True)
    run = {"game": "catch", "network": "net1", "actors": 1, "seeds": [0], "seconds": 9.0}
    print_events({**run, "rows": rows, **found}, console)
    assert words in console.export_text()


def test_numbers_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="--piece-seconds lies"):
        bench_events(piece_seconds=0.5)
    with pytest.raises(UserError, match="are positive"):
        bench_events(seeds=0)
    with pytest.raises(UserError, match="--down-mbit and --up-mbit are finite"):
        bench_events(up_mbit=-1.0)


def test_the_virtual_clock_needs_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    put_beside_a_gpu(monkeypatch, events)
    config = events_config("catch", "net1", 1, 2.0, Conditions())
    for profile, device in ((None, "cuda"), (fast_profile().to_json(), "cpu")):
        with pytest.raises(Started, match=device):
            events._run(config, CompressionSpec(), 0, profile)


@pytest.mark.slow
def test_what_acts_and_both_links_are_the_same_on_both_clocks() -> None:
    int8 = CompressionSpec(bits=8)
    event = Condition(at_seconds=4.0, lasts_seconds=2.0, kind="bandwidth", amount=0.5)
    links = {"down_bytes_per_second": 5e6, "up_bytes_per_second": 5e6}
    found = bench_events(
        game="catch",
        network="original",
        spec=int8,
        actors=1,
        piece_seconds=2.0,
        seeds=1,
        repeats=1,
        conditions=Conditions((event,), **links),
    )
    profile = found["profile"]
    assert {name: profile[name] for name in links} == links
    assert found["spec"] == int8.to_json()
    assert all(row["real"] > 0.0 and row["virtual"] > 0.0 for row in found["rows"])
