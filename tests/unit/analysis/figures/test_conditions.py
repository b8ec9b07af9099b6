"""Events in a report: bands with their names over the speed of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accerl.spec import Decision
from analysis.figures.conditions import run_conditions
from analysis.figures.theme import render_svg
from analysis.records.load import load_run
from tests.fixtures.studies.synthetic_study import FULL, make_report, write_run


def test_events_are_bands_with_their_names(tmp_path: Path) -> None:
    reports = [make_report(i, 2.0, 1.0, Decision.of(FULL)) for i in range(3)]
    run = load_run(write_run(tmp_path / "run", reports))
    assert run_conditions({"plain": run}) is None
    event = {"at_seconds": 1.0, "lasts_seconds": 1e6, "words": "bandwidth at 20%"}
    met = [replace(report, conditions=(event,)) for report in run.reports]
    figure = run_conditions({"plain": run, "changing": replace(run, reports=met)})
    assert figure is not None
    (band,) = [row for row in figure.table if row["kind"] == "event"]
    assert (band["run"], band["event"], band["begins"]) == ("changing", event["words"], 1.0)
    assert band["ends"] == run.reports[-1].total_seconds
    assert len(figure.table) == 1 + len(run.reports)
    assert "bandwidth at 20%" in render_svg(figure)
