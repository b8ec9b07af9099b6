"""The page on components of your own: its blocks run, in the order in which they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import accerl
from accerl.records import read_json
from tests.fixtures.controllers.made_bundles import make_bundle

PAGE = Path(accerl.__file__).parent / "your-own.md"
ROOT = Path(accerl.__file__).parents[1]


def blocks() -> dict[str, str]:
    """Return the page's Python by the name of its file, in its order."""
    return dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL))


def test_rules_have_a_module_that_nothing_else_lies_in() -> None:
    """A change of it is one of its rules only, to a comparison."""
    found = blocks()
    assert list(found) == ["mine.py", "rules.py", "train.py", "learned.py", "elsewhere.py"]
    assert re.findall(r"^class (\w+)", found["rules.py"], re.MULTILINE) == ["CarefulBelowTheBest"]
    assert "def decide" not in found["mine.py"]
    assert "mine:CarefulBelowTheBest" not in PAGE.read_text()


def test_a_bundle_trains_and_is_read_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_bundle(tmp_path / "learned")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks()["learned.py"], names)
    assert names["strategy"].to_json()["params"]["schedule"] == "catch"
    first, *steps = capsys.readouterr().out.splitlines()
    assert first == f"best return {names['result'].best_return}"
    fp32 = [f"{update} original fp32" for update in (250, 500, 750)]
    assert steps == ["0 net3 pruned 50% INT8", *fp32]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    page = PAGE.read_text()
    for name, code in blocks().items():
        (tmp_path / name).write_text(code)
    (command,) = re.findall(r"```\naccerl (train mine:.*?)```", page, re.DOTALL)
    words = shlex.split(command.replace("\\\n", " "))
    words[words.index("--seconds") + 1] = "6"
    run(tmp_path, "-m", "studies.cli", *words, "--out", "runs/named")
    last = (tmp_path / "runs" / "named" / "metrics.jsonl").read_text().splitlines()[-1]
    assert "best_return" in json.loads(last)["indicators"]
    assert read_json(tmp_path / "runs" / "named" / "config.json")["own"] == {
        "links": ["mine:WeightClipping"],
        "correctors": ["mine:CappedAdvantages"],
        "indicators": ["mine:BestReturn"],
    }
    said = {name: run(tmp_path, name) for name in ("train.py", "elsewhere.py")}
    assert "goes right in 9 of 9 places" in said["train.py"]
    best = re.search(r"best return (\S+)", said["train.py"])
    assert best is not None
    assert float(best[1]) > 0.9
    scores = [float(score) for score in re.findall(r": (\d+)$", said["elsewhere.py"], re.MULTILINE)]
    assert len(scores) == 4
    assert scores[0] > 60.0  # by chance 22; how far 20,000 steps lead depends on the processor
    assert min(scores[1:3]) > 0.7 * scores[0]  # in float32 and in INT8


def run(folder: Path, *arguments: str) -> str:
    """Run Python there; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
