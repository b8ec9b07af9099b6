"""The page on components of your own: its blocks run, in the order in which they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import accerl

PAGE = Path(accerl.__file__).parent / "your-own.md"
ROOT = Path(accerl.__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["mine.py", "train.py", "elsewhere.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    said = {name: run(tmp_path, name) for name in ("train.py", "elsewhere.py")}
    assert "goes right in 9 of 9 places" in said["train.py"]
    best = re.search(r"best return (\S+)", said["train.py"])
    assert best is not None
    assert float(best[1]) > 0.9
    scores = [float(score) for score in re.findall(r": (\d+)$", said["elsewhere.py"], re.MULTILINE)]
    assert len(scores) == 4
    assert min(scores[:3]) > 150.0  # as trained, in float32 and in INT8
    assert scores[1] == scores[0]


def run(folder: Path, script: str) -> str:
    """Run a script there; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
