"""What commands print and what their pages say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import controller
import studies
from analysis.formats import rounded
from studies.cli.main import COMMANDS
from tests.fixtures.command_line import accerl

EVENTS = [
    {"at_seconds": 0.5, "lasts_seconds": 0.5, "kind": "co-tenant", "amount": 1},
    {"at_seconds": 1.5, "lasts_seconds": 9, "kind": "throttle", "amount": 2},
]


def page(package: Any) -> str:
    return (Path(package.__file__).parent / "README.md").read_text()


def test_a_run_says_which_events_it_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "events.json", tmp_path / "run"
    file.write_text(json.dumps({"events": EVENTS}))
    done = accerl(capsys, "train", "catch", "--seconds", 2, "--events", file, "--out", out)
    assert done.code == 0
    assert (
        "2 of 2 events happened: other programs on 1 core from 0.5 s for 0.5 s; "
        "all cores 2 times slower from 1.5 s for 9 s" in done.err
    )
    summary = json.loads((out / "summary.json").read_text())
    assert [event["kind"] for event in summary["conditions"]] == ["co-tenant", "throttle"]


def test_a_run_names_its_game_once_and_waiting_is_not_busy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = accerl(capsys, "train", "catch", "--seconds", 1, "--out", tmp_path / "run").err
    assert said.splitlines()[0].startswith("catch, seed 0, serial runtime")
    (busy,) = re.findall(r"busy seconds by phase: (.*)", said)
    assert "; the learner waited " in busy
    assert "events" not in said


def test_the_page_lists_every_command() -> None:
    text = page(studies)
    for name in COMMANDS:
        group, _, member = name.partition(" ")
        rows = [line for line in text.splitlines() if line.startswith(f"| `accerl {group}")]
        assert any(f"{member or group}" in row.split(" | ")[0] for row in rows), name
    assert "130 after Ctrl-C" in text


def test_examples_of_the_outer_problem_run_as_printed() -> None:
    blocks = re.findall(r"```python\n(.*?)```", page(controller), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    exec(blocks[1], names)  # on its own
    assert names["env"].observation_space.shape == (31,)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (42_848.3, "42,800"),
        (1_393.5, "1,390"),
        (1.6397, "1.64"),
        (0.00045678, "0.000457"),
        (0, "0"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert rounded(value) == text
