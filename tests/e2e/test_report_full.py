"""The report of a contest of full size: what it says of 16 entrants on 14 instances is true."""

from __future__ import annotations

import pytest

from analysis.figures.costs import acting_costs
from analysis.figures.parts import study_colours
from analysis.figures.theme import Figure
from analysis.records.entrants import best_score, tuning_rows
from analysis.records.load import StudyRecord, load_study
from analysis.render.html import write_study_report
from analysis.render.wandb_runs import check_size
from analysis.report.answer import study_lead
from analysis.report.cost import budget_sentences
from analysis.report.study import StudyReport
from tests.fixtures.studies.full_contest import MACHINES, OTHERS, PLANNED, write_full_contest
from tests.fixtures.studies.synthetic_study import FULL, INT8, SMALL


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return load_study(write_full_contest(tmp_path_factory.mktemp("full")))


@pytest.fixture(scope="module")
def report(study: StudyRecord) -> StudyReport:
    return StudyReport.of(study.path)


@pytest.fixture(scope="module")
def figures(report: StudyReport) -> dict[str, Figure]:
    return {figure.name: figure for figure in report.figures}


@pytest.fixture(scope="module")
def page(report: StudyReport, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    return write_study_report(report, path).read_text()


def part(page: str, first: str, then: str) -> str:
    return page[page.index(f'id="{first}"') : page.index(f'id="{then}"')]


def test_the_lead_counts_instances_and_seeds(study: StudyRecord) -> None:
    assert study_lead(study) == (
        "Learned controller against 15 other strategies on 14 instances (4 games on 7 machines), "
        "virtual clock. The planned comparison's 7 strategies have 2 test seeds each, the other 9 "
        "strategies have 1 test seed each."
    )


def test_no_table_is_larger_than_wandb_keeps(figures: dict[str, Figure]) -> None:
    for figure in figures.values():
        check_size(figure)
    assert len(figures["learning-curves-exploratory"].table) > 8_000


def test_planned_strategies_have_the_main_figures_to_themselves(
    study: StudyRecord, figures: dict[str, Figure]
) -> None:
    colours = study_colours(study)
    assert len({colours[name] for name in study.planned}) == len(PLANNED)
    planned = {study.labels[name] for name in PLANNED}
    others = {study.labels[name] for name in study.exploratory}
    assert others == {study.labels[name] for name in OTHERS} | {"Learned controller"}
    for name in ("reach", "reach-by-game", "time-to-target"):
        assert {row["strategy"] for row in figures[name].table} == planned
        assert {row["strategy"] for row in figures[f"{name}-exploratory"].table} == others


def test_the_plan_can_be_read(page: str) -> None:
    question = part(page, "plan", "latency")
    assert "tune: 0-9; validate: 50-51; test: 100-101" in question
    assert "seconds to target: geometric mean over pairs (instance, seed)" in question
    assert "Plan: instances (14 rows)" in question
    assert "Plan: budget (3 rows)" in question
    assert "0.30000000000000004" not in question
    assert "over all 14 instances (the comparisons are over 6 of them)" in page


def test_every_machine_is_drawn(study: StudyRecord, page: str, figures: dict[str, Figure]) -> None:
    names = {*MACHINES, "this machine, pong"}
    assert set(study.profiles) == names
    assert {row["machine"] for row in figures["machines"].table} == names
    costs = acting_costs(study.profiles["two-core"])
    assert set(costs) == {FULL.label, INT8.label, SMALL.label}
    assert costs[FULL.label] == {"one state at a time": 12000.0, "largest batch measured": 360.0}
    measured = {"specs": [{"spec": FULL.to_json(), "infer_us": {"32": 10.0}}]}
    assert acting_costs(measured) == {FULL.label: {"largest batch measured": 10.0}}
    latency = part(page, "latency", "provenance")
    assert all(name in latency for name in names)


def test_budgets_of_one_for_all_and_of_each_instance(study: StudyRecord) -> None:
    assert budget_sentences(study)[:3] == [
        "Every strategy that is one for all instances was given the same 384 inner runs.",
        "Ended when every spec had been tried: best static spec, one for all after 288.",
        "Tuned on each instance by itself, with 16 inner runs on each, 224 in all: best static "
        "spec of each instance and best hand-set rule of each instance.",
    ]
    entrants = {item.name: item for item in study.strategies}
    counts = {"static": 3, "static_each": 3 * 14, "rule_each": 2 * 3 * 14, "reward-gap": 0}
    for name, count in counts.items():
        assert len(tuning_rows(study, entrants[name])) == count
    rows = tuning_rows(study, entrants["static_each"])
    assert {row["strategy"].partition("@")[0] for row in rows} == {"static"}
    assert best_score(rows) == pytest.approx(0.5)
    assert entrants["static_each"].runs_per_instance == 16
    assert entrants["static"].runs_per_instance is None


def test_the_real_clock_has_labels_and_no_targets(page: str) -> None:
    transfer = part(page, "transfer", "oracle-gap")
    assert "not reached" not in transfer
    assert "slower by more than the interval" in transfer
    assert "KL threshold" in transfer
    assert f"{SMALL.label} 75%, {FULL.label} 25%" in transfer
    assert "catch on 4 machines" in transfer
    assert "p, uncorrected" in transfer
