"""The studies of small actors: what is read off learning curves, and a real job of each kind."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.families import FAMILIES
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.saved_policy import evaluate_checkpoint
from analysis.comparison.scores import reached
from analysis.figures.studies.students import learning_figures
from analysis.figures.theme import render_svg
from studies.learning.curve import LearningCurve, Ratios
from studies.learning.job import EPISODES, INTERVALS, LearningJob
from studies.options import StudyOptions
from studies.students.fleet import ASSUMED, fleet_worth
from studies.students.plan import CORRECTORS, NET3, STUDENTS, Case, Start, acting, on_machine
from studies.students.run import _job, run_learning_study
from studies.students.show import _fleet, case_tables
from studies.students.table import compare, row_of
from tests.fixtures.reports.reports import interval_report
from tests.fixtures.studies.synthetic_study import make_report


def curve(scores: list[float | None], seconds_each: float = 1.0) -> LearningCurve:
    count = len(scores)
    return LearningCurve(
        seconds=[seconds_each * (i + 1) for i in range(count)],
        env_steps=[100 * (i + 1) for i in range(count)],
        scores=scores,
        compression_kl_nats=[None, 9.0, *[0.5] * (count - 2)],
        kl_nats=[0.1] * count,
        distill_core_seconds=2.0,
    )


def test_processor_seconds_add_up_by_process() -> None:
    used = {"actor-0": 1.0, "actor-11": 2.5, "learner": 4.0, "compressor": 0.2, "distiller-1": 0.1}
    changes = {"cpu_seconds": used, "distill_core_seconds": 0.2}
    reports = [
        make_report(index, 10.0, 0.0, Decision.of(IDENTITY), **changes) for index in range(3)
    ]
    found = LearningCurve.of(reports)
    assert found.processor_seconds["actors"] == pytest.approx([3.5, 7.0, 10.5])
    assert found.processor_seconds["learner"] == pytest.approx([4.0, 8.0, 12.0])
    assert found.processor_seconds["compression"] == pytest.approx([0.3, 0.6, 0.9])
    assert found.core_seconds == pytest.approx([7.8, 15.6, 23.4])
    assert found.distill_core_seconds == pytest.approx(0.6)  # what is compressed beside is no part
    assert LearningCurve(**found.to_json()) == found


@pytest.mark.parametrize(
    ("scores", "where"),
    [
        ([None, 0.0, 4.0], (250.0, True)),  # halfway between two points
        ([None, 3.0, 1.0], (200.0, True)),  # the first score that is known is there already
        ([0.0, 1.0, 1.5], (300.0, False)),
        ([2.0, 0.0, 0.0], (100.0, True)),  # what was reached counts, whatever follows
        ([None, None, None], (300.0, False)),
    ],
)
def test_a_score_is_reached_where_the_line_first_crosses_it(
    scores: list[float | None], where: tuple[float, bool]
) -> None:
    assert reached([100, 200, 300], scores, 2.0) == where


def test_ratios_are_geometric_means_of_pairs_and_say_where_they_are_bounds() -> None:
    slow, fast, never = curve([0.0, 1.0, 2.0, 3.0]), curve([2.0] * 4, 0.5), curve([0.0] * 4)
    base = [row_of(slow, (2.0,), 0), row_of(slow, (2.0,), 1)]
    same = compare(base, base, (2.0,))["to_score"][0]
    assert (same["env_steps_ratio"], same["seconds_ratio"], same["bound"]) == (1.0, 1.0, "")
    other = compare([row_of(fast, (2.0,), 0), row_of(never, (2.0,), 1)], base, (2.0,))
    found = other["to_score"][0]
    assert found["env_steps_ratio"] == pytest.approx((100 / 300 * 400 / 300) ** 0.5)
    assert found["seconds_ratio"] == pytest.approx((0.5 / 3.0 * 4.0 / 3.0) ** 0.5)
    assert (found["reached"], found["bound"]) == (1, ">")
    assert other["compression_kl_nats"] == 0.5  # of the last half alone
    assert other["distill_cores"] == pytest.approx(4.0 / 6.0)


def test_ratios_say_on_which_side_they_are_wrong_and_leave_out_what_says_nothing() -> None:
    there, never, later = (100.0, True), (400.0, False), (200.0, True)
    assert Ratios.of([(later, there), (there, there)]).bound == ""
    found = Ratios.of([(never, there), (never, never)])
    assert (found.logs, found.bound, found.left_out) == ([pytest.approx(math.log(4.0))], "~", 1)
    assert Ratios.of([(never, there)]).bound == ">"
    assert Ratios.of([(there, never)]).bound == "<"
    assert Ratios.of([(there, never), (never, there)]).bound == "~"
    assert Ratios.of([(never, never)]).logs == []
    nothing = (0.0, False)  # not one env step was made
    assert Ratios.of([(nothing, there), (there, nothing)]).left_out == 2


def test_what_is_only_looked_at_does_not_act() -> None:
    shown = replace(Decision.of(CompressionSpec(bits=8)), shadow=CompressionSpec(rank=0.25))
    assert LearningCurve.of([interval_report(decision=shown)]).acting == ["original INT8"]


def test_scores_are_the_actors_where_the_learner_s_are_measured_too() -> None:
    reports = [
        make_report(
            index,
            10.0,
            9.0,
            Decision.of(IDENTITY),
            episode_returns=[float(index)] * 20,
        )
        for index in range(3)
    ]
    assert LearningCurve.of(reports).scores == [0.0, 1.0, 2.0]


def job(
    spec: CompressionSpec = CompressionSpec(bits=8, student="net3"), **changes: object
) -> LearningJob:
    values = {
        "game": "catch",
        "network": "original",
        "latency": load_profile("paper-1080ti"),
        "settings": {},
        "env_steps": 8_000,
        "seed": 0,
    }
    return LearningJob.with_spec(spec, **{**values, **changes})


def test_a_job_makes_about_the_env_steps_that_it_was_given_and_repeats_itself() -> None:
    first = job().run()
    assert len(first.seconds) == INTERVALS
    assert 0.75 * 8_000 < first.env_steps[-1] < 1.25 * 8_000
    assert first.distill_core_seconds > 0.0
    assert first.learner_score is not None
    assert -1.0 <= first.learner_score <= 1.0  # Catch's scores
    again = job().run()
    assert again == first
    assert LearningJob.read_result(json.loads(json.dumps(first.to_json()))) == first


def test_the_learner_plays_by_itself_whatever_its_actors_do(tmp_path: Path) -> None:
    recorded = replace(job(), out=tmp_path / "run")
    curve = recorded.run()
    assert curve.learner_score == evaluate_checkpoint(tmp_path / "run", EPISODES)["mean_return"]
    assert curve == job().run()  # without records too
    rows = [row_of(curve, (0.0,), 0), row_of(replace(curve, learner_score=None), (0.0,), 1)]
    assert compare(rows, rows, (0.0,))["learner_score"] == curve.learner_score


def test_jobs_differ_by_whatever_their_result_depends_on() -> None:
    others = [
        job(),
        job(seed=1),
        job(spec=IDENTITY),
        job(settings={"learner.clip_rho": 2.0}),
        job(latency=load_profile("gpu-learner")),
        job(env_steps=9_000),
    ]
    assert len({json.dumps(each.to_json(), sort_keys=True) for each in others}) == len(others)


@pytest.mark.parametrize("plans", [STUDENTS, CORRECTORS], ids=["students", "correctors"])
def test_cases_of_a_plan_have_titles_of_their_own(plans: dict[str, tuple[Case, ...]]) -> None:
    for cases in plans.values():
        assert len({case.title() for case in cases}) == len(cases)


@pytest.mark.parametrize("plans", [STUDENTS, CORRECTORS], ids=["students", "correctors"])
def test_every_planned_run_has_settings_and_times(plans: dict[str, tuple[Case, ...]]) -> None:
    for case in (case for cases in plans.values() for case in cases):
        assert len({variant.label for variant in case.variants}) == len(case.variants)
        for variant in case.variants:
            planned = job(
                game=case.game,
                network=case.network,
                latency=load_profile(case.profile),
                spec=variant.spec,
                settings={**case.settings, **variant.settings},
            )
            assert planned.config().seconds > 0.0


@pytest.mark.slow
def test_a_study_compares_draws_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(
        game="catch",
        profile="paper-1080ti",
        network="original",
        env_steps=2_000,
        scores=(-2.0,),
        variants=acting(IDENTITY, CompressionSpec(bits=8)),
        seeds=1,
        start=Start(score=-0.9, env_steps=20_000, profile="paper-1080ti"),
    )
    monkeypatch.setitem(STUDENTS, "tiny", (case,))  # pyright: ignore[reportArgumentType]
    result = run_learning_study(tmp_path, StudyOptions(budget="tiny", workers=1), name="students")
    fp32, int8 = result["cases"][0]["variants"]
    assert fp32["to_score"][0]["env_steps_ratio"] == 1.0
    assert int8["seeds"] == 1
    (start,) = result["cases"][0]["starts"]
    assert start["env_steps"] > 0
    assert start["score"] >= -0.9
    assert (tmp_path / "students-scores.png").read_bytes()[1:4] == b"PNG"
    jobs = sorted((tmp_path / "jobs").iterdir())
    before = [path.stat().st_mtime_ns for path in jobs]
    assert (
        run_learning_study(tmp_path, StudyOptions(budget="tiny", workers=1), name="students")
        == result
    )
    assert [path.stat().st_mtime_ns for path in jobs] == before


def test_runs_without_a_sample_leave_no_gap_in_the_figures() -> None:
    entry = {"seed": 0, "env_steps": [1, 2], "scores": [None, 1.0]}
    entry["compression_kl_nats"] = [None, 0.0]
    variant = {"label": "net3", "curves": [entry]}
    case = {"title": "catch", "variants": [variant]}
    scores, kl = learning_figures("students", [case])
    assert (scores.name, kl.name) == ("students-scores", "students-kl")
    assert [row["kl"] for row in kl.table] == [None, 1e-4]
    assert learning_figures("students", []) == []
    entry["compression_kl_nats"] = [None, None]
    (only,) = learning_figures("students", [case])
    assert only.name == "students-scores"


def test_a_run_of_one_sample_is_a_point() -> None:
    entry = {"seed": 0, "env_steps": [1, 2], "scores": [1.0, 2.0]}
    entry["compression_kl_nats"] = [None, 0.1]
    case = {"title": "catch", "variants": [{"label": "net3", "curves": [entry]}]}
    _, kl = learning_figures("students", [case])
    assert render_svg(kl).count('aria-roledescription="point"') == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"budget": "tine"}, "tiny"),
        ({"seed": -1}, "--seed"),
        ({"storage": "sqlite://"}, "Optuna"),
        ({"profile": "nowhere"}, "nowhere"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    options = StudyOptions(**{"budget": "tiny", **changes})
    with pytest.raises(UserError, match=text):
        run_learning_study(tmp_path / "s", options, name="students")
    assert not (tmp_path / "s" / "jobs").exists()


@pytest.mark.parametrize("budget", ["short", "onwards"])
def test_runs_of_the_students_study_end_at_the_last_score(budget: str, tmp_path: Path) -> None:
    for case in STUDENTS[budget]:
        jobs = [_job(case, variant, 0, "", tmp_path) for variant in case.variants]
        assert {job.config().until_score for job in jobs} == {case.scores[-1]}
        endless = _job(replace(case, ends_at_score=False), case.variants[0], 0, "", tmp_path)
        assert endless.config().until_score is None


@pytest.mark.parametrize("case", STUDENTS["onwards"], ids=lambda case: case.title())
def test_variants_of_a_seed_go_on_from_the_same_run(case: Case, tmp_path: Path) -> None:
    jobs = [_job(case, variant, 0, "", tmp_path) for variant in case.variants]
    starts = [job.start for job in jobs]
    assert case.start is not None
    assert starts[0] is not None
    assert starts == [starts[0]] * len(jobs)
    assert starts[0].config().until_score == case.start.score < case.scores[0]
    untrained = _job(replace(case, start=None), case.variants[0], 0, "", tmp_path)
    assert untrained.start is None
    assert untrained.to_json() != jobs[0].to_json()


def test_a_job_goes_on_from_the_learner_of_another(tmp_path: Path) -> None:
    trained = job(IDENTITY, env_steps=40_000, out=tmp_path / "start")
    score = trained.run().learner_score
    onwards = job(IDENTITY, env_steps=2_000, start=trained)
    further, untrained = onwards.run(), job(IDENTITY, env_steps=2_000).run()
    assert further.learner_score is not None
    assert untrained.learner_score is not None
    assert score is not None
    assert further.learner_score > untrained.learner_score + 0.3
    assert further == onwards.run()
    assert onwards.to_json()["start"] == trained.to_json()


def test_seconds_elsewhere_are_env_steps_over_the_predicted_pace() -> None:
    found = {"score": 2.0, "env_steps": 3_000.0, "reached": 1, "seconds": 3_000.0}
    found |= {"env_steps_ratio": 1.0, "seconds_ratio": None, "bound": ">"}
    variant = {
        "label": "net3",
        "seeds": 2,
        "compression_kl_nats": 0.25,
        "kl_nats": 0.5,
        "distill_cores": 0.0,
        "last_score": 1.0,
        "learner_score": None,
        "to_score": [found],
        "predicted_pace": {"here": 1.0, "there": 20.0},
    }
    tables = case_tables(
        {"title": "catch", "profile": "here", "scores": [2.0], "variants": [variant]}
    )
    cells = [[next(iter(column.cells)) for column in table.columns] for table in tables]
    assert cells == [
        ["net3", "0.250", "0.500", "0.00", "1.0", "-"],
        ["net3", "1/2", ">3,000", ">1.00", ">3,000.0", ">-"],
        ["net3", ">150.0"],
    ]
    assert tables[2].columns[1].header == "there\nto 2"


def test_what_measured_env_steps_are_worth_on_drawn_machines() -> None:
    jobs = {spec.label: job(spec) for spec in (IDENTITY, NET3)}
    free = fleet_worth(jobs, {IDENTITY.label: 1.0, NET3.label: 1.0}, draws=3)
    dear = fleet_worth(jobs, {IDENTITY.label: 1.0, NET3.label: 2.0}, draws=3)
    assert free["labels"] == [IDENTITY.label, NET3.label, ASSUMED]
    assert [row["family"] for row in free["families"]] == [*FAMILIES, "all"]
    for cheap, cost in zip(free["families"], dear["families"], strict=True):
        assert cheap["speedups"][0] == cost["speedups"][0] == 1.0
        assert cheap["speedups"][1] == pytest.approx(2.0 * cost["speedups"][1])
        assert cheap["left"] >= 0.0
    assert [sum(row["soonest"]) for row in free["families"]] == [3, 3, 3, 3, 12]
    # Where env steps are a lower bound, what they are worth is an upper one.
    fleet = {**dear, "bounds": ["", "<", ""]}
    case = {"scores": [2.0], "baseline": IDENTITY.label, "fleet": fleet}
    table = _fleet(case)
    cells = [str(cell) for cell in table.columns[1].cells]
    assert cells[1].startswith("<")
    assert cells[-1].startswith("~")
    # What no run reached is left out.
    assert fleet_worth(jobs, {IDENTITY.label: 1.0}, draws=1)["labels"] == [IDENTITY.label, ASSUMED]


def test_cases_that_are_equal_on_one_machine_are_one() -> None:
    cases = STUDENTS["default"]
    alone = on_machine(cases, "two-core")
    titles = [case.title() for case in alone]
    assert len(set(titles)) == len(titles) < len(cases)
    assert {case.profile for case in alone} == {"two-core"}
    assert max(case.seeds for case in alone) == max(case.seeds for case in cases)
    assert on_machine(cases, "") == list(cases)
