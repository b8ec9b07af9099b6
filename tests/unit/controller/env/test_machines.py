"""Machines of the splits, and the first calculation of what compressing is worth on them."""

from __future__ import annotations

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.families import FAMILIES, MACHINES
from controller.env.machines import NUMBERS, SPECS, calculate, split_machines, table


def test_no_machine_is_in_two_splits() -> None:
    numbers = [number for split in NUMBERS.values() for number in split]
    assert len(numbers) == len(set(numbers)) <= MACHINES
    names = [machine.name for machine in split_machines("test", "edge", 2)]
    assert names == ["edge-9000", "edge-9001"]


@pytest.mark.parametrize(
    ("split", "family", "count", "words"),
    [
        ("tests", "edge", 1, "did you mean 'test'"),
        ("test", "edges", 1, "did you mean 'edge'"),
        ("test", "edge", 1001, "1 to 1,000 machines"),
    ],
)
def test_mistakes(split: str, family: str, count: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        split_machines(split, family, count)


def test_the_calculation_finds_families_that_want_different_specs() -> None:
    """Laptops pay for distilling with the cores that act; links are relieved by small students."""
    worths = {worth.family: worth for worth in calculate(8)}
    assert list(worths) == list(FAMILIES)
    names = list(SPECS)
    best = {family: names[int(worth.means.argmax())] for family, worth in worths.items()}
    assert best["laptop"] in ("fp32", "INT8")
    assert best["gpu-few-cores"] != "fp32"
    assert best["edge"].startswith("Net")
    laptop = worths["laptop"]
    assert laptop.left_by(names.index("Net2 INT8")) > laptop.left_by(names.index("INT8"))
    assert min(worth.left_by(place) for worth in worths.values() for place in range(6)) >= 0.0
    lines = table(list(worths.values())).splitlines()
    assert len(lines) == 2 + len(FAMILIES) + 1
