"""Figures of single runs: each game on its own scale, and few points are seen to be few."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.spec import Decision
from analysis.figures import runs as figures
from analysis.figures.costs import phase_bars
from analysis.figures.parts import FEW
from analysis.figures.theme import render_svg
from analysis.records.load import RunRecord, load_run
from analysis.render.html import label_runs
from tests.fixtures.studies.synthetic_study import FULL, make_report, write_run


def write(folder: Path, game: str, seed: int, intervals: int = 2) -> RunRecord:
    reports = [make_report(index, 2.0, 1.0, Decision.of(FULL)) for index in range(intervals)]
    path = write_run(folder / f"{game}-{seed}", reports)
    summary = read_json(path / "summary.json")
    (path / "summary.json").write_text(json.dumps({**summary, "env": game, "seed": seed}))
    return load_run(path)


def parts(spec: Any, key: str) -> list[Any]:
    """Return every value of a key, however deep."""
    if isinstance(spec, list):
        return [found for item in spec for found in parts(item, key)]
    if not isinstance(spec, dict):
        return []
    own = [spec[key]] if key in spec else []
    return own + [found for item in spec.values() for found in parts(item, key)]


def test_labels_say_in_what_runs_differ(tmp_path: Path) -> None:
    a, b = write(tmp_path, "catch", 0), write(tmp_path, "cartpole", 1)
    assert list(label_runs([a])) == [a.strategy]
    labels = list(label_runs([a, b]))
    assert labels == [f"{a.strategy} on catch, seed 0", f"{a.strategy} on cartpole, seed 1"]


def test_a_run_is_known_by_whatever_path(tmp_path: Path) -> None:
    run = write(tmp_path, "catch", 0)
    (tmp_path / "link").symlink_to(run.path)
    for other in (tmp_path / "link", run.path / ".." / run.path.name):
        with pytest.raises(UserError, match="given twice"):
            label_runs([run, load_run(other)])


def test_runs_without_env_steps_have_no_seconds_per_step(tmp_path: Path) -> None:
    a, b = write(tmp_path, "catch", 0), write(tmp_path, "catch", 1)
    idle = replace(b, summary={**b.summary, "env_steps": 0})
    both, one = phase_bars(label_runs([a, b])), phase_bars(label_runs([a, idle]))
    assert {row["run"] for row in both.table} == set(label_runs([a, b]))
    assert {row["run"] for row in one.table} == {next(iter(label_runs([a, b])))}
    assert "left out" in one.caption
    assert "left out" not in both.caption
    assert render_svg(phase_bars(label_runs([idle])))


def test_games_have_indicators_of_their_own(tmp_path: Path) -> None:
    runs = label_runs([write(tmp_path, "catch", 0), write(tmp_path, "cartpole", 0)])
    found = figures.run_indicators(runs)
    assert [figure.name for figure in found] == ["indicators", "indicators-2"]
    assert [figure.title for figure in found] == [
        "Indicators over the run: catch",
        "Indicators over the run: cartpole",
    ]
    for figure, label in zip(found, runs, strict=True):
        assert {row["run"] for row in figure.table} == {label}
        assert render_svg(figure).count("<path") > 5


def test_amounts_begin_at_zero_and_shares_reach_from_0_to_1(tmp_path: Path) -> None:
    (figure,) = figures.run_indicators({"a": write(tmp_path, "catch", 0)})
    panels = {" ".join(panel["title"]["text"]): panel for panel in figure.spec["concat"]}
    (scale,) = {json.dumps(y["scale"]) for y in parts(panels["Queue fill"], "y")}
    assert json.loads(scale) == {"domain": [0, 1]}
    assert all(y["scale"]["zero"] for y in parts(panels["Env steps per second"], "y"))
    assert figures.INDICATORS["Resident memory of the learner (MB)"][1]["zero"]


def test_a_kl_is_drawn_where_it_was_measured(tmp_path: Path) -> None:
    """Indicators keep what is known until the next sample: those are no points."""
    reports = [
        replace(
            make_report(index, 2.0, 1.0, Decision.of(FULL)),
            staleness_kl_nats=0.5 if index == 1 else None,
            indicators={
                "compression_kl_nats": 0.25,
                "compression_kl_is_new": float(index == 2),
                "staleness_kl_nats": 0.5,
            },
        )
        for index in range(4)
    ]
    run = load_run(write_run(tmp_path / "run", reports))
    (figure,) = figures.run_indicators({"a": run})
    drawn = {
        word: [row["x"] for row in figure.table if row["panel"].startswith(f"KL of {word}")]
        for word in ("compression", "staleness")
    }
    assert drawn == {"compression": [6.0], "staleness": [4.0]}


def test_tiny_numbers_are_written_without_their_zeros(tmp_path: Path) -> None:
    """KL of what is not compressed is a rounding error."""
    (figure,) = figures.run_indicators({"a": write(tmp_path, "catch", 0)})
    tiny = [{**row, "value": 1e-17 * row["x"]} for row in figure.table if "KL" in row["panel"]]
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", render_svg(replace(figure, table=tiny)))
    assert "2e-17" in labels
    assert not [label for label in labels if label.startswith("0.000")]


@pytest.mark.parametrize(("intervals", "marked"), [(2, True), (FEW + 1, False)])
def test_few_points_are_marked(intervals: int, marked: bool, tmp_path: Path) -> None:
    run = write(tmp_path, "catch", 0, intervals)
    svg = render_svg(figures.run_curves({"a": run}, "seconds"))
    assert ("mark-symbol" in svg and svg.count('aria-roledescription="point"') > 0) == marked


def test_a_title_may_hold_anything_that_a_folder_s_name_may(tmp_path: Path) -> None:
    run = write(tmp_path, "catch", 0, 3)
    figure = replace(figures.run_curves({"a": run}, "seconds"), title=r'runs\1\q "of" <us>')
    assert r'aria-label="runs\1\q &quot;of&quot; &lt;us>"' in render_svg(figure)
