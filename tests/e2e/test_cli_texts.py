"""What commands print and what their pages say of them."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import controller.analytic
import controller.env
import studies
import studies.benchmarks
from accerl import train
from analysis.formats import rounded
from studies.cli.main import COMMANDS
from studies.cli.options import read_options
from tests.fixtures.command_line import accerl

ROOT = Path(studies.__file__).parents[1]
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
        "all cores 2 times slower from 1.5 s for 9 s" in done.out
    )
    summary = json.loads((out / "summary.json").read_text())
    assert [event["kind"] for event in summary["conditions"]] == ["co-tenant", "throttle"]


def test_a_run_names_its_game_once_and_waiting_is_not_busy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = accerl(capsys, "train", "catch", "--seconds", 1, "--out", tmp_path / "run").out
    assert said.splitlines()[0].startswith("catch, seed 0, serial runtime")
    (busy,) = re.findall(r"busy seconds by phase: (.*)", said)
    assert "; the learner waited " in busy
    assert "events" not in said


def test_the_page_lists_every_command() -> None:
    text = page(studies)
    lines = (text + page(studies.benchmarks)).replace("| [`", "| `").splitlines()
    for name in COMMANDS:
        group, _, member = name.partition(" ")
        rows = [line for line in lines if line.startswith(f"| `accerl {group}")]
        assert any(f"{member or group}" in row.split(" | ")[0] for row in rows), name
    assert "130 after Ctrl-C" in " ".join(text.split())


def printed_commands() -> list[list[str]]:
    """Return the words of every `accerl` command that a page shows in a block of its own."""
    pages = [
        path
        for folder in ("accerl", "controller", "studies", "analysis")
        for path in (ROOT / folder).rglob("*.md")
    ]
    found = []
    for path in (ROOT / "README.md", *pages):
        for block in re.findall(r"```[a-z]*\n(.*?)```", path.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                for part in line.split("#")[0].split("&&"):
                    words = shlex.split(part) if part.strip().startswith("accerl ") else []
                    found += [words[1:]] if words else []
    return found


def test_commands_on_pages_have_the_options_that_they_are_shown_with() -> None:
    shown = printed_commands()
    assert len(shown) > 10
    for words in shown:
        name = next(name for n in (2, 1) if (name := " ".join(words[:n])) in COMMANDS)
        module, _, kind = COMMANDS[name][0].rpartition(".")
        command = getattr(importlib.import_module(f"studies.cli.{module}"), kind)
        options = [word for word in words[len(name.split()) :] if word != "..."]
        assert read_options(command, name, options), words


def test_examples_of_the_outer_problem_run_as_printed() -> None:
    pages = page(controller.env) + page(controller.analytic)
    blocks = re.findall(r"```python\n(.*?)```", pages, re.DOTALL)
    found: list[dict[str, Any]] = [{} for _ in blocks]
    for block, names in zip(blocks, found, strict=True):
        exec(block, names)
    made = [names["env"] for names in found if "env" in names]
    assert [env.observation_space.shape for env in made] == 3 * [(31,)]
    assert made[0].unwrapped.snapshot().keys() == found[0]["snapshot"].keys()
    for env in made:
        env.close()
    (agent,) = (names["Agent"] for names in found if "Agent" in names)
    seen = []

    def last_of(vector: np.ndarray, mask: np.ndarray) -> int:
        seen.append(vector.shape)
        return int(np.flatnonzero(mask)[-1])

    result = train("catch", strategy=agent(last_of), seconds=1.0)
    assert seen
    assert set(seen) == {(31,)}
    assert list(result.summary["spec_seconds"]) != ["original fp32"]


def test_the_readme_s_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["actions"].shape == (8,)
    assert names["result"].best_return > -0.5
    assert (tmp_path / "catch.onnx").stat().st_size > 1_000


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
