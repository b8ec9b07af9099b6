"""Strips: what waits to be admitted is shown beside what acted."""

from __future__ import annotations

from pathlib import Path

from accerl.runtime.run import Takeover
from accerl.spec import Decision
from analysis.figures import strips as figures_strips
from analysis.records.load import load_run
from analysis.report.runs import takeover_table
from tests.fixtures.studies.synthetic_study import FULL, SMALL, make_report, write_run


def test_what_was_decided_and_not_admitted_yet_lies_above_what_acted(tmp_path: Path) -> None:
    decision = Decision.of(SMALL)
    waits = make_report(0, 2.0, 1.0, decision, spec_seconds={FULL: 2.0}, waiting_kl_nats={SMALL: 1})
    taken = Takeover(spec=SMALL, asked_seconds=0.0, seconds=3.0, kl_nats=0.25)
    acts = make_report(1, 2.0, 1.0, decision, takeovers=(taken, taken))
    run = load_run(write_run(tmp_path / "run", [waits, acts]))
    figure = figures_strips.run_strips({"run": run})
    found = [(row["start"], row["spec"], row["low"], row["high"]) for row in figure.table]
    assert found == [
        (0.0, FULL.label, 0.0, 1.0),
        (50.0, SMALL.label, 0.0, 1.0),
        (0.0, SMALL.label, 1.06, 1.2),
    ]
    assert "had to wait" in figure.caption
    only_acts = figures_strips.run_strips({"run": load_run(write_run(tmp_path / "b", [acts]))})
    assert "had to wait" not in only_acts.caption
    shown = takeover_table({"run": run})
    assert shown is not None
    ((_, spec, times, mean, longest, kl),) = shown.rows
    assert (spec.text, times.value, mean.value, longest.value) == (SMALL.label, 2, 3.0, 3.0)
    assert kl.value == 0.25
