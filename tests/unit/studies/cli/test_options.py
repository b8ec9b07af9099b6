"""How options are explained, and what is said of those that are wrong."""

from __future__ import annotations

import re

import pytest

from studies.cli.main import COMMANDS
from tests.fixtures.command_line import accerl, call


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_no_words_of_python_and_no_default_twice(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*name.split(), "--help") == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert COMMANDS[name][1] in text
    assert not re.search(r"\b(STR|INT|FLOAT|None)\b", text)
    for option in re.split(r"(?= --[a-z])", text):
        assert option.count("(default: ") <= 1, option


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train"], "train needs GAME (see `accerl train --help`)"),
        (["study", "run"], "study run needs NAME, --out PATH (see"),
        (["train", "catch", "--seconds", "soon"], "--seconds: 'soon' is not a number (see"),
        (["train", "catch", "--seed", "1.5"], "--seed: '1.5' is not a whole number (see"),
        (["eval", "run", "--seed", "-1"], "--seed must not be negative, got -1"),
    ],
)
def test_a_wrong_option_costs_a_line_in_plain_words(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in accerl(capsys, *arguments).complaint


def test_it_does_too_where_boxes_are_drawn_in_utf_8(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tyro._fmtlib._FORCE_UTF8_BOXES", True)
    assert accerl(capsys, "train").complaint == (
        "accerl: train needs GAME (see `accerl train --help`)"
    )
    wrong = accerl(capsys, "train", "catch", "--seed", "x").complaint
    assert wrong.endswith("--seed: 'x' is not a whole number (see `accerl train --help`)")
