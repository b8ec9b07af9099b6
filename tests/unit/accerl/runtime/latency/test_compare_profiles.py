"""Differences of two profiles: every number that both have, as ratios."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.compare import compare, describe_wiring, drift, middle, same_times
from accerl.runtime.latency.profiles import load_profile, paper_profile
from accerl.spec import IDENTITY

PAPER = paper_profile()


def test_a_profile_does_not_differ_from_itself() -> None:
    rows = compare(PAPER, PAPER)
    assert {row.ratio for row in rows} == {1.0}
    assert {row.size for row in rows} == {0.0}
    assert {row.operation for row in rows} == {
        "env", "learner", "learner net1", "learner net2", "learner net3", "inference", "publish",
        "distill",
    }  # fmt: skip


def test_ratios_are_b_over_a() -> None:
    first = replace(PAPER.specs[0], infer_us={1: 3000.0, 16: 9.0}, load_ms=2.0)
    other = replace(PAPER, env_step_us=1500.0, write_us=7.0, specs=(first, *PAPER.specs[1:]))
    rows = {(row.operation, row.spec, row.batch): row for row in compare(PAPER, other)}
    assert rows["env", None, None].ratio == 0.5
    assert rows["inference", IDENTITY, 1].ratio == 0.5
    assert ("inference", IDENTITY, 16) not in rows  # the paper has no such batch
    write = rows["write", None, None]
    assert (write.a, write.b, write.ratio, write.size) == (0.0, 7.0, None, math.inf)
    assert rows["load", IDENTITY, None].to_json()["b"] == 2000.0


def test_times_of_the_same_game_are_compared_wherever_they_stand() -> None:
    breakout = replace(PAPER, name="mine", game="breakout", games=(PAPER,))
    assert same_times(PAPER, breakout) == (PAPER, PAPER)
    alone = replace(breakout, games=())
    assert same_times(breakout, alone) == (breakout, alone)
    with pytest.raises(UserError, match=r"'paper-1080ti' \(of pong\) and 'mine' \(of breakout\)"):
        same_times(PAPER, alone)


def test_a_rate_drifts_as_the_time_that_it_stands_for() -> None:
    slow = replace(PAPER, copy_bytes_per_second=1e9)
    fast = replace(slow, copy_bytes_per_second=3e9, env_step_us=2.0 * slow.env_step_us)
    found = drift(fast, slow)
    assert (found["copy_us"], found["env_step_us"]) == pytest.approx((3.0, 0.5))
    assert "copy_bytes_per_second" not in found
    assert middle(fast, slow).copy_bytes_per_second == pytest.approx(1.5e9)


def test_only_specs_of_both_are_compared() -> None:
    rows = compare(replace(PAPER, specs=PAPER.specs[:2]), replace(PAPER, specs=PAPER.specs[1:]))
    assert {row.spec for row in rows} == {None, PAPER.specs[1].spec}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("paper-1080ti", ("12 actors, 12 of which fill a batch side by side", "4 distillers")),
        ("two-core", ("1 actor", "all share 2 cores", "rollouts need not travel")),
        (
            "edge",
            ("8 actors, each fills batches of its own", "learner and compressor share 2 cores"),
        ),
        ("edge", ("publications travel at 1.56 MB/s to each machine",)),
        ("gpu-learner", ("the learner copies its weights at 10 GB/s", "the compressor distils")),
    ],
)
def test_wiring_in_words(name: str, words: tuple[str, ...]) -> None:
    assert set(words) <= set(describe_wiring(load_profile(name)))
