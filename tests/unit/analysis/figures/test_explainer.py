"""The decision explainer: what was believed, chosen and seen, from records that are made up."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.runtime.run import IntervalReport
from accerl.spec import Decision
from analysis.comparison.decisions import observed_rates, spec_order
from analysis.figures.explainer import explainer_table, run_explainers
from analysis.figures.export import write_run_figures
from analysis.figures.theme import Figure, render_svg
from analysis.formats import NOTHING
from analysis.records.load import RunRecord, load_run, load_study
from analysis.render import wandb_runs
from analysis.render.html import write_runs_report
from analysis.report.blocks import Heading
from analysis.report.controller import subject_explained
from analysis.report.runs import DECISIONS_SHOWN, decision_table, why_section
from analysis.report.table import Table
from tests.fixtures.studies.synthetic_study import (
    FULL,
    INT8,
    PRUNED,
    SMALL,
    make_report,
    write_run,
    write_study,
)

EVENT = {"at_seconds": 4.0, "lasts_seconds": 100.0, "words": "other programs on 2 cores"}


def why(chosen: str, rate: float = 900.0) -> dict[str, dict[str, float]]:
    """Explain a decision: fp32, INT8 at twice its rate, and a pruned network that never acts."""
    known = {FULL.label: (rate, 1.0, 1e-5), INT8.label: (2 * rate, 0.9, 0.01)}
    known[PRUNED.label] = (2.5 * rate, 0.5, 0.8)
    return {
        label: {
            "env_steps_per_second": speed,
            "rate_doubt": 0.1,
            "efficiency": efficiency,
            "efficiency_doubt": 0.2,
            "kl_nats": kl,
            "score": 10.0 * math.log(speed * efficiency / rate),
            "preference": 1 / 3,
            "chosen": float(label == chosen),
        }
        for label, (speed, efficiency, kl) in known.items()
    }


def reports(choices: str = "FIIIFF", **changes: Any) -> list[IntervalReport]:
    """Return intervals of 2 s, by what was chosen in each: F is fp32, I is INT8."""
    specs = {"F": FULL, "I": INT8}
    made = []
    for index, letter in enumerate(choices):
        spec = specs[letter]
        values = {"explanation": why(spec.label), "learner_updates": 8} | changes
        values["conditions"] = (EVENT,) if index >= 2 else ()
        made.append(make_report(index, 2.0, None, Decision.of(spec), **values))
    return made


@pytest.fixture
def run(tmp_path: Path) -> RunRecord:
    return load_run(write_run(tmp_path / "run", reports()))


def of_kind(run: RunRecord, kind: str) -> list[dict[str, Any]]:
    return [row for row in explainer_table(run) if row["kind"] == kind]


def test_each_candidate_has_a_belief_at_each_decision_and_at_the_end(run: RunRecord) -> None:
    assert spec_order(run) == [FULL.label, INT8.label, PRUNED.label]
    beliefs = of_kind(run, "belief")
    assert [row["begins"] for row in beliefs[::3]] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    one = next(row for row in beliefs if row["spec"] == INT8.label)
    assert one["rate"] == 1800.0
    assert one["rate_high"] / one["rate"] == pytest.approx(math.exp(0.1))
    assert one["efficiency_low"] / one["efficiency"] == pytest.approx(math.exp(-0.2))
    assert one["kl"] == 0.01
    assert {row["kl"] for row in beliefs if row["spec"] == FULL.label} == {None}


def test_choices_are_stretches_and_events_are_spans(run: RunRecord) -> None:
    chosen = of_kind(run, "chosen")
    assert [row["stretch"] for row in chosen[::2]] == [0, 1, 1, 1, 2, 2]
    acted = [(row["spec"], row["begins"], row["ends"]) for row in of_kind(run, "acted")]
    assert acted == [(FULL.label, 0, 2), (INT8.label, 2, 8), (FULL.label, 8, 12)]
    assert INT8.label in {row["spec"] for row in of_kind(run, "name")}
    ((begins, ends, lane),) = ((r["begins"], r["ends"], r["lane"]) for r in of_kind(run, "event"))
    assert (begins, ends, lane) == (4.0, 12.0, 0)


def test_events_at_once_get_lanes_of_their_own(run: RunRecord) -> None:
    later = {**EVENT, "at_seconds": 5.0, "words": "bandwidth at 20%"}
    met = [replace(report, conditions=(EVENT, later)) for report in run.reports]
    lanes = of_kind(replace(run, reports=tuple(met)), "event")
    assert [row["lane"] for row in lanes] == [0, 1]


def test_a_mix_acts_as_its_parts_and_is_believed_as_one(tmp_path: Path) -> None:
    mix = Decision(((SMALL, 0.75), (FULL, 0.25)))
    known = why("") | {mix.label: {**why(FULL.label)[FULL.label], "kl_nats": 0.3}}
    mixed = [make_report(i, 2.0, 1.0, mix, explanation=known) for i in range(2)]
    run = load_run(write_run(tmp_path / "mixed", mixed))
    assert spec_order(run)[-1] == mix.label
    heights = {row["spec"]: row["high"] - row["low"] for row in of_kind(run, "acted")}
    assert heights == pytest.approx({SMALL.label: 0.75, FULL.label: 0.25})
    assert {row["spec"] for row in of_kind(run, "chosen")} == {mix.label}
    assert len(of_kind(run, "return")) == 2


def test_observed_rates_never_mix_specs_or_conditions() -> None:
    """INT8 acts at 2,200 steps/s and fp32 at 900, by `make_report`; an event begins at 4 s."""
    assert [(row["begins"], row["rate"]) for row in observed_rates(reports())] == [
        (1.0, 900.0),
        (3.0, 2200.0),
        (5.0, 2200.0),
        (7.0, 2200.0),
        (9.0, 900.0),
        (11.0, 900.0),
    ]
    coarse = list(observed_rates(reports(learner_updates=2)))
    assert [row["begins"] for row in coarse] == [6.0, 10.0]


def test_the_table_names_every_change_and_the_numbers_of_both(run: RunRecord) -> None:
    table = decision_table(run)
    assert isinstance(table, Table)
    texts = [[cell.text for cell in row] for row in table.rows]
    assert [row[:3] for row in texts] == [
        ["0", NOTHING, FULL.label],
        ["2.00", FULL.label, INT8.label],
        ["8.00", INT8.label, FULL.label],
    ]
    assert texts[1][3:] == [
        "0 to 5.88",
        "900 to 1,800",
        "1.00 to 0.900",
        "1.00e-05 to 0.0100",
        NOTHING,
    ]
    assert texts[2][-1] == EVENT["words"]


def test_many_changes_are_closed_at_first(tmp_path: Path) -> None:
    flapping = reports("FI" * (DECISIONS_SHOWN // 2 + 1))
    folded = decision_table(load_run(write_run(tmp_path / "run", flapping)))
    assert not isinstance(folded, Table)
    assert folded.title.startswith("Decisions that changed something")


def test_reports_show_why_only_where_records_say(run: RunRecord) -> None:
    silent = replace(run, reports=tuple(replace(r, explanation={}) for r in run.reports))
    assert why_section({"silent": silent}) is None
    found = why_section({"silent": silent, "a": run, "b": run})
    assert found is not None
    assert [figure.name for figure in found.figures] == [
        "decision-explainer",
        "decision-explainer-2",
    ]


OWN = {
    "labels and numbers": {"arm 1": {"score": 1.2}},
    "labels": {"arm 1": why("")[FULL.label]},
    "numbers": {FULL.label: {"score": 1.2, "efficiency": 0.5}},
}
"""what strategies of a user's own may say, by what of it nothing here knows"""


@pytest.mark.parametrize("said", OWN.values(), ids=OWN)
def test_what_a_strategy_of_your_own_says_is_recorded_and_not_drawn(
    said: dict[str, dict[str, float]], tmp_path: Path
) -> None:
    run = load_run(write_run(tmp_path / "run", reports("FI", explanation=said)))
    assert run.reports[0].explanation == said
    assert spec_order(run) == [FULL.label, INT8.label]
    assert why_section({"own": run}) is None
    rows = wandb_runs._run_job("own", run)["rows"]
    logged = {key for key in rows[0] if key.startswith("explanation/")}
    assert logged == {
        f"explanation/{key}/{label}"
        for label, row in said.items()
        for key in row
        if key in wandb_runs.EXPLAINED
    }


def test_an_explanation_of_others_does_not_hide_those_that_are_known(tmp_path: Path) -> None:
    made = [*reports("F", explanation=OWN["labels"]), *reports("FI")[1:]]
    run = load_run(write_run(tmp_path / "run", made))
    assert {row["begins"] for row in of_kind(run, "belief")} == {2.0, 4.0}
    assert spec_order(run) == [FULL.label, INT8.label, PRUNED.label]


def test_wandb_gets_no_explainer_that_it_would_cut_short(
    run: RunRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (figure,) = wandb_runs._run_job("a", run)["figures"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(wandb_runs, "MOST_ROWS", len(figure.table) - 1)
    assert wandb_runs._run_job("a", run)["figures"] == []
    told = capsys.readouterr().err
    assert told.startswith("a: left out of W&B: decision-explainer, ")
    assert told.count("\n") == 1


def test_it_is_drawn_with_many_specs_that_never_act(tmp_path: Path) -> None:
    labels = [FULL.label, *(f"original pruned {10 * n}% INT8" for n in range(1, 8))]
    row = why(FULL.label)[FULL.label]
    known = {label: {**row, "chosen": float(label == FULL.label)} for label in labels}
    made = reports("FFF", explanation=known)
    (figure,) = run_explainers({"a": load_run(write_run(tmp_path / "run", made))}).values()
    text = render_svg(figure)
    assert all(label in text for label in (*labels, EVENT["words"]))
    assert "KL of compression" not in text  # no row has one that could be drawn


@pytest.mark.parametrize(("rate", "scaled"), [(900.0, False), (60.0, True)])
def test_rates_far_apart_are_on_a_logarithmic_axis(
    rate: float, scaled: bool, tmp_path: Path
) -> None:
    """What was observed is 900 steps per second with fp32, and 2200 in INT8."""
    made = reports("FFFF", explanation=why(FULL.label, rate))
    (figure,) = run_explainers({"a": load_run(write_run(tmp_path / "run", made))}).values()
    assert ("observed (dots), logarithmic" in render_svg(figure)) == scaled


@pytest.mark.slow
def test_it_is_written_beside_the_curves_and_in_the_page(tmp_path: Path, run: RunRecord) -> None:
    written = write_run_figures([run.path], tmp_path / "figures")
    assert tmp_path / "figures" / "decision-explainer.png" in written
    page = write_runs_report([run.path], tmp_path / "page.html").read_text()
    assert 'id="why-it-decided-so"' in page
    assert EVENT["words"] in page


def test_a_study_shows_one_run_of_its_subject(tmp_path: Path) -> None:
    study = load_study(
        write_study(tmp_path, strategies=("learned",), games=("breakout",), seeds=(100, 101))
    )
    assert subject_explained(study) == []
    key = list(study.runs)[-1]
    met = {**study.runs, key: replace(study.runs[key], reports=tuple(reports()))}
    heading, figure, table = subject_explained(replace(study, runs=met))
    assert isinstance(heading, Heading)
    assert heading.text == "Why it decided so: breakout, seed 101"
    assert isinstance(figure, Figure)
    assert isinstance(table, Table)
