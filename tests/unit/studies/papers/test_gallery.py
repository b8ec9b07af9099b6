"""The page of the papers' claims: nothing is claimed of what was not run at size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import fingerprint
from studies.cli.main import run as command
from studies.papers.figures.fig1 import time_split
from studies.papers.gallery import NOT_YET, write_gallery
from studies.papers.plan import FIGURES, at_budget
from studies.papers.results import figure_result, interval_text
from studies.papers.settings import settings_table

ROWS = len(FIGURES) + 1


def fig1(folder: Path, budget: str) -> Path:
    result: dict[str, Any] = figure_result(FIGURES["fig1"], [])
    result |= {"split": time_split(FIGURES["fig1"].machines()), "budget": budget}
    result |= {"command": f"accerl study run paper-fig1 --budget {budget} --seed 0 --out DIR"}
    result |= {"git_revision": "0123456789", "fingerprint": fingerprint()}
    folder.mkdir(exist_ok=True)
    (folder / "fig1.json").write_text(json.dumps(result))
    return folder


def rows(page: Path) -> dict[str, str]:
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    found = {line.split(" | ")[0].strip("| "): line for line in lines}
    return {
        name: line
        for name, line in found.items()
        if name.split()[0] in ("Figure", "Table", "Beyond", "Bits")
    }


def test_what_was_run_at_size_is_shown_and_tiny_results_are_not(tmp_path: Path) -> None:
    out = tmp_path / "gallery"
    assert write_gallery([fig1(tmp_path / "tiny", "tiny")], out) == []
    found = rows(out / "README.md")
    assert len(found) == ROWS
    assert all(NOT_YET in line for line in found.values())
    assert "accerl study run bits --budget default" in found["Bits"]
    assert [path.name for path in out.iterdir()] == ["README.md"]

    assert write_gallery([fig1(tmp_path / "short", "short")], out) == ["fig1"]
    assert "--budget short" in rows(out / "README.md")["Figure 1"]
    assert "Policies of the last row" not in (out / "README.md").read_text()  # there are none yet
    assert write_gallery([fig1(tmp_path / "real", "default")], out) == ["fig1"]
    found = rows(out / "README.md")
    fits = "with INT8 fits this split, if collecting and learning overlap"
    assert f"40.3% {fits}: **does not hold** (0.33)" in found["Figure 1"]
    assert f"29.8% {fits}: **holds** (0.33)" in found["Figure 1"]
    page = (out / "README.md").read_text()
    assert "| n-steps | 5 | 32 | 32 |" in page
    assert "Of an earlier version" not in page
    old = json.loads((out / "fig1.json").read_text()) | {"key": "another"}
    (out / "fig1.json").write_text(json.dumps(old))
    write_gallery([], out)
    assert (out / "README.md").read_text().count("Of an earlier version") == 2  # row and section
    assert "[split](fig1-split.png)" in found["Figure 1"]
    assert sum(NOT_YET in line for line in found.values()) == ROWS - 1
    assert (out / "fig1-split.png").is_file()
    # Smaller results take nothing away from what was there.
    for budget in ("tiny", "short"):
        assert write_gallery([fig1(tmp_path / budget, budget)], out) == ["fig1"]
        assert "--budget default" in rows(out / "README.md")["Figure 1"]


def test_settings_say_where_runs_differ_from_the_paper() -> None:
    cells = [line.strip("| ").split(" | ") for line in settings_table() if line.startswith("| ")]
    rows = {name: values for name, *values in cells}
    assert rows["lambda"] == ["none (equation 2)", "0.95", "0.95"]
    assert rows["V(s_t)"][1:] == ["the learner's"] * 2
    assert rows["distillers that work on a student"] == ["4, or 1 (Figure 10)", "1", "1"]
    _, pong, small = rows["annealing of learning rate and entropy cost"]
    assert pong == "none (most other games: to 20% of them in 4,000 updates)"
    assert small == "none"


def test_of_several_sources_the_one_of_full_size_counts(tmp_path: Path) -> None:
    real, short = fig1(tmp_path / "real", "default"), fig1(tmp_path / "short", "short")
    for place, sources in enumerate(([real, short], [short, real])):
        out = tmp_path / f"gallery-{place}"
        assert write_gallery(sources, out) == ["fig1"]
        assert "--budget default" in rows(out / "README.md")["Figure 1"]


def test_an_interrupted_study_says_what_is_left(tmp_path: Path) -> None:
    source = fig1(tmp_path / "real", "default")
    result = json.loads((source / "fig1.json").read_text()) | {"runs_made": 3, "runs": 8}
    (source / "fig1.json").write_text(json.dumps(result))
    write_gallery([source], tmp_path / "out")
    page = (tmp_path / "out" / "README.md").read_text()
    assert page.count("Not finished: 3 of 8 runs are made.") == 2  # its row, and its section
    assert "stand in for Atari's" not in page  # nothing here is of MinAtar


def test_a_folder_without_results_costs_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="does not exist; give the --out of"):
        write_gallery([tmp_path / "none"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert command(["study", "page", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    for text, message in {
        "{}": "is incomplete or damaged: it has no .*budget, .*; remove it and run the study again",
        "[]": "must hold a JSON object",
        '{"budget": "short", "command": "", "verdicts": 5}': "is .* has no figure",
        '{"study": "bits", "budget": "short"}': "is .* no command, fingerprint, verdicts, games",
    }.items():
        (tmp_path / "fig8.json").write_text(text)
        with pytest.raises(UserError, match=rf"fig8\.json {message}"):
            write_gallery([tmp_path], tmp_path / "out")
    (tmp_path / "fig8.json").unlink()
    whole = json.loads((fig1(tmp_path, "short") / "fig1.json").read_text())
    for name, damaged, message in (
        ("fingerprint", {}, "fingerprint is incomplete or damaged: it has no cpu, cores"),
        (
            "verdicts",
            [{"claim": "", "outcome": "", "what": ""}],
            r"verdicts\[0\] is .* no estimate",
        ),
    ):
        (tmp_path / "fig1.json").write_text(json.dumps({**whole, name: damaged}))
        with pytest.raises(UserError, match=message):
            write_gallery([tmp_path], tmp_path / "out")
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_page_in_the_repository_is_that_of_its_results(tmp_path: Path) -> None:
    here = Path(__file__).parents[4] / "analysis" / "gallery" / "papers"
    results = [*here.glob("*.json")]
    for path in results:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for path in here.glob("*.png"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_gallery([], tmp_path)
    assert (tmp_path / "README.md").read_text() == (here / "README.md").read_text()


def test_of_the_interval_of_a_bound_stands_what_bounds_it() -> None:
    found = {"estimate": 0.65, "low": 0.5, "high": 0.8}
    texts = [interval_text({**found, "bound": bound}) for bound in ("", "<", ">", "~")]
    assert texts == ["0.65 (0.50 to 0.80)", "<0.65 (up to 0.80)", ">0.65 (from 0.50)", "~0.65"]


def test_a_share_of_runs_is_of_as_many_as_can_tell() -> None:
    seeds = {name: at_budget(FIGURES[name], "short").panels[0].seeds for name in ("fig7", "fig10")}
    assert seeds == {"fig7": 6, "fig10": 5}
