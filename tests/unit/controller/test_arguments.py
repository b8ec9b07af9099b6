"""Modules that are started with `python -m` say in one line what is wrong with an argument."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controller import shipped
from controller.arguments import read_count, read_folder
from controller.env import drawn_room, machines
from controller.indicator import example

Main = Callable[[list[str]], None]


@pytest.mark.parametrize(
    ("main", "arguments", "words"),
    [
        (machines.main, ["abc"], "machines: give one DRAWS, a whole number from 1 on, got 'abc'"),
        (machines.main, ["0"], "machines: give one DRAWS"),
        (machines.main, ["9999"], "machines: split 'train' has 1 to 8,000 machines"),
        (drawn_room.main, ["0"], "drawn_room: give one COUNT, a whole number from 1 on, got '0'"),
        (drawn_room.main, ["2", "3"], "drawn_room: give one COUNT"),
        (shipped.main, [], "shipped: give one DIR, a folder, got 'nothing'"),
        (shipped.main, ["/nonexistent"], "shipped: /nonexistent does not exist; give the folder"),
        (example.main, [], "example: give one DIR"),
    ],
)
def test_a_mistake_is_one_line(
    main: Main, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    told = capsys.readouterr()
    assert (stop.value.code, told.out) == (2, "")
    assert told.err.startswith(words)
    assert told.err.count("\n") == 1


def test_what_is_given_is_taken() -> None:
    assert read_count([], 7, "COUNT") == 7
    assert read_count(["3"], 7, "COUNT") == 3
    assert read_folder(["there"]) == Path("there")
