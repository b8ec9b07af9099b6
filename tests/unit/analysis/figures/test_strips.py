"""Strips: what waits to be admitted is shown beside what acted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.runtime.run import Takeover
from accerl.spec import Decision
from analysis.figures import strips as figures_strips
from analysis.figures.theme import render_svg
from analysis.records.load import load_run, load_study
from analysis.report.runs import takeover_table
from tests.fixtures.studies.synthetic_study import FULL, SMALL, make_report, write_run, write_study


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
    assert (shown.columns[2], times.text) == ("#Takeovers", "2")


def test_what_waits_and_never_acts_has_a_colour_too(tmp_path: Path) -> None:
    decision = Decision.of(SMALL)
    waits = make_report(0, 2.0, 1.0, decision, spec_seconds={FULL: 2.0}, waiting_kl_nats={SMALL: 1})
    figure = figures_strips.run_strips({"run": load_run(write_run(tmp_path / "run", [waits]))})
    assert [row["spec"] for row in figure.table] == [FULL.label, SMALL.label]
    assert json.dumps({"domain": [FULL.label, SMALL.label]})[1:-1] in json.dumps(figure.spec)


def test_a_strategy_s_long_label_leaves_the_figure_as_wide_as_a_page(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [make_report(0, 2.0, 1.0, Decision.of(FULL))]))
    rule = "kl-threshold (aggressive net3 INT8, conservative INT8, threshold_nats 0.021)"
    strips = {label: figures_strips.run_strips({label: run}) for label in ("fp32", rule, 3 * rule)}
    assert [figure.spec["width"] for figure in strips.values()] == [620, 339, 330]
    for figure in strips.values():
        found = re.search(r'viewBox="0 0 ([\d.]+)', render_svg(figure))
        assert found is not None
        assert float(found[1]) < 984.0  # the page, without its margins


def test_strips_show_a_short_first_interval_as_it_was(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, strategies=("learned",), games=("breakout",)))
    name, game = next(iter(study.games.items()))
    tenth = 0.1 * game.interval_seconds
    ((key, run),) = [item for item in study.runs.items() if item[0] == (study.subject, name, 100)]
    # As if nine tenths of the first interval had not been.
    late = [replace(r, total_seconds=r.total_seconds - 9.0 * tenth) for r in run.reports]
    late[0] = replace(late[0], seconds=tenth)
    short = replace(game, first_interval_seconds=tenth)
    cut = replace(study, games={name: short}, runs={key: replace(run, reports=late)})
    (figure,) = figures_strips.study_strips(cut, cut.names)
    starts = sorted({row["start"] for row in figure.table})
    assert starts[:3] == pytest.approx([0.0, 10.0 / 30.0, 110.0 / 30.0], abs=1e-3)
    assert len(starts) == len(late)
