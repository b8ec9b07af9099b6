"""A whole contest on three nodes, one of which is killed: the numbers of processes of this machine.

`analysis/gallery/ray-transcripts.md` shows what it prints; `pytest -s` prints it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.runs.processes import wait_for
from tests.fixtures.studies.clusters import add_node, cluster

COSTS = ("break_even", "fingerprint")
"""of a contest: what training the controller cost in seconds of this machine"""


def contest(out: Path, *options: str) -> list[str]:
    """Return the command of the smallest contest."""
    command = "import sys; from studies.cli.main import main; main(sys.argv[1:])"
    run = ["study", "run", "contest", "--budget", "tiny", "--out", str(out)]
    return [sys.executable, "-c", command, *run, *options]


def results(out: Path) -> dict[str, Any]:
    """Return the result of every job, by the hash of the job."""
    files = (out / "jobs").glob("*.json")
    return {path.name: json.loads(path.read_text())["result"]["value"] for path in files}


def files(out: Path) -> dict[Path, bytes]:
    """Return what does not depend on the machine: the runs' metrics, the trials, the bundle."""
    paths = [*out.glob("runs/**/metrics.jsonl"), out / "tuning.jsonl"]
    paths += out.glob("bundle/*")
    return {path.relative_to(out): path.read_bytes() for path in paths}


def verdict(out: Path) -> dict[str, Any]:
    """Return what a contest found, without its costs."""
    found = json.loads((out / "contest.json").read_text())
    return {name: value for name, value in found.items() if name not in COSTS}


def check_equal(here: Path, there: Path) -> None:
    """Whether two contests found the same, to the bit."""
    assert results(here) == results(there)
    assert len(files(here)) > 3
    assert files(here) == files(there)
    assert verdict(here) == verdict(there)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_contest_loses_a_node_and_finds_the_same(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    subprocess.run(contest(here), check=True)
    with cluster(3) as made:
        driver = subprocess.Popen(contest(there, "--cluster", made.address))
        try:
            wait_for(lambda: len(results(there)) >= 60, "60 jobs to be done", seconds=1800.0)
            print("## a node is killed without grace")
            made.remove_node(made.list_all_nodes()[-1], allow_graceful=False)
            wait_for(lambda: len(results(there)) >= 90, "90 jobs to be done", seconds=1800.0)
            print("## another joins")
            add_node(made)
            assert driver.wait() == 0
        finally:
            driver.kill()
    check_equal(here, there)
