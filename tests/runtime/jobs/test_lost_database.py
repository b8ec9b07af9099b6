"""A study whose database goes away: one line, exit code 2, and the same command goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.runs.processes import wait_for
from tests.fixtures.studies.postgres import PASSWORD, started_server

PROFILE = "paper-1080ti"  # on one machine that need not be measured


def study(out: Path, *options: str) -> list[str]:
    """Return the command of a whole study, and its smallest."""
    command = "import sys; from studies.cli.main import main; main(sys.argv[1:])"
    run = ["study", "run", "quickstart", "--budget", "tiny", "--profile", PROFILE]
    return [sys.executable, "-c", command, *run, "--out", str(out), *options]


def trials(out: Path) -> list[str]:
    """Return what is recorded of the trials that have ended."""
    path = out / "tuning.jsonl"
    return path.read_text().splitlines() if path.is_file() else []


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(1800)
def test_a_study_outlives_its_database(tmp_path: Path) -> None:
    out = tmp_path / "study"
    with started_server() as server:
        command = study(out, "--storage", server.new_database())
        driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: len(trials(out)) == 3, "some trials to end", seconds=600)
            server.stop()
            _, told = driver.communicate(timeout=300)
        finally:
            driver.kill()
        assert driver.returncode == 2
        last = told.strip().splitlines()[-1]
        assert "Traceback" not in told
        assert "has stopped to answer" in last
        assert "when it is back, start the same command again" in last
        assert PASSWORD not in told
        made = {path: path.stat().st_mtime_ns for path in (out / "jobs").iterdir()}
        ended = trials(out)[:3]
        # As long as it is away, the line is another and nothing is done.
        down = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        assert (down.returncode, len(down.stderr.strip().splitlines())) == (2, 1)
        assert "does not answer" in down.stderr
        server.start()
        rest = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        assert rest.returncode == 0, rest.stderr[-2000:]
    assert all(path.stat().st_mtime_ns == then for path, then in made.items())  # none made again
    assert trials(out)[:3] == ended
    assert (out / "report.html").is_file()
