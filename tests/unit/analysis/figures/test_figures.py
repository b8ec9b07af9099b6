from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.spec import BITS, STUDENTS, CompressionSpec, Decision
from analysis import formats
from analysis.comparison.contest import build_contest
from analysis.figures import costs as figures_costs
from analysis.figures import forest as figures_forest
from analysis.figures import learning_curves as figures
from analysis.figures import runs as figures_runs
from analysis.figures import strips as figures_strips
from analysis.figures.export import contest_summary
from analysis.figures.theme import (
    BASELINE_COLOUR,
    COLOURS,
    SUBJECT_COLOUR,
    compression_rank,
    ramp,
    render_svg,
    strategy_colours,
    strategy_dashes,
)
from analysis.records.load import StudyRecord, load_run, load_study
from analysis.render.html import TEMPLATES
from analysis.report import table
from analysis.report.machines import profile_tables
from analysis.report.study import StudyReport
from tests.fixtures.studies.synthetic_contest import write_contest_study
from tests.fixtures.studies.synthetic_study import (
    FULL,
    INT8,
    SMALL,
    make_report,
    write_run,
    write_study,
)

FIGURES = {
    "latency",
    "phases",
    "oracle-gap",
    "seconds-to-target",
    "secondary-metrics",
    "seconds-to-target-exploratory",
    "reach",
    "reach-by-game",
    "time-to-target",
    "reach-exploratory",
    "reach-by-game-exploratory",
    "time-to-target-exploratory",
    "by-instance-kl_max",
    "by-instance-static",
    "learning-curves",
    "learning-curves-env-steps",
    "learning-curves-exploratory",
    "schedule-story",
    "schedules",
    "schedules-2",
    "schedules-exploratory",
    "schedules-exploratory-2",
    "variants",
    "transfer",
    "real-clock",
    "replay-phases",
    "meta-training",
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return load_study(
        write_study(
            tmp_path_factory.mktemp("study"),
            strategies=("fp32", "linear", "learned"),
            games=("breakout", "freeway"),
            seeds=(100, 101, 102),
        )
    )


@pytest.fixture(scope="module")
def contest_study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return load_study(write_contest_study(tmp_path_factory.mktemp("contest"), seeds=(100, 101)))


@pytest.mark.slow
def test_every_figure_of_a_study_renders_without_links_or_scripts(
    study: StudyRecord, contest_study: StudyRecord
) -> None:
    made = {}
    for each in (study, contest_study):
        found = StudyReport(each, build_contest(each)).figures
        assert len({figure.name for figure in found}) == len(found)
        made |= {figure.name: figure for figure in found}
    assert set(made) == FIGURES
    for figure in made.values():
        json.dumps(figure.vega_lite())  # one plain JSON specification with its tidy table
        svg = render_svg(figure)
        assert svg.startswith("<svg ")
        assert "http" not in svg
        assert "<script" not in svg
        assert "NaN" not in svg
        assert svg.count("<path") > 5


def test_figures_say_instances_and_mark_the_trained_ones(contest_study: StudyRecord) -> None:
    found = StudyReport(contest_study, build_contest(contest_study)).figures
    known = {figure.name: figure for figure in found}
    figure = known["by-instance-kl_max"]
    assert figure.title == f"Instance by instance against {contest_study.labels['kl_max']}"
    for row in figure.table:
        assert row["instance"].endswith("*") == (row["group"] == "trained")
    assert {row["group"] for row in figure.table} > {"trained"}
    assert "trained on instances with a star" in figure.caption
    assert "(instance, seed)" in known["seconds-to-target"].caption
    assert "game" not in known["reach"].caption + known["reach-by-game"].title
    assert "Busy" not in json.dumps(known["phases"].spec) + known["phases"].caption


def test_the_story_of_a_schedule_has_reward_and_kl_of_the_subject(study: StudyRecord) -> None:
    table = figures_strips.schedule_story(study).table
    runs = [study.runs["learned", "freeway", seed] for seed in study.test_seeds]
    last = {
        row["panel"]: row["value"]
        for row in table
        if row["game"] == "freeway" and row["start"] == pytest.approx(100.0) and "value" in row
    }
    game = study.games["freeway"]
    ends = [(run.reports[-1].learner_return or 0.0) / game.reference_return for run in runs]
    assert last["return"] == pytest.approx(sum(ends) / len(ends), abs=1e-5)
    assert last["kl"] == pytest.approx(runs[0].reports[-1].kl_mean_nats, abs=1e-5)
    strips = [row for row in table if row["panel"] == "specs" and row["game"] == "freeway"]
    assert sum(row["high"] - row["low"] for row in strips) == pytest.approx(30, abs=0.01)


def test_reach_curves_end_at_the_share_that_reached(contest_study: StudyRecord) -> None:
    contest = build_contest(contest_study)
    table = figures.reach_curves(contest_study, contest, contest_study.names).table
    for level in contest["levels"]:
        own = [row for row in table if row["strategy"] == level["label"]]
        assert own[0]["share"] == 0.0
        assert own[-1]["x"] == pytest.approx(1.0)
        # Every run was watched to its horizon, and of the games only one has lost a run.
        if level["strategy"] != "random":
            assert own[-1]["share"] == pytest.approx(level["reached"] / level["runs"])


def test_times_that_are_all_alike_have_a_tick_of_their_own(contest_study: StudyRecord) -> None:
    """Rounded to the distance between ticks, 0.3 s would be 0."""
    figure = figures.time_strip(contest_study, build_contest(contest_study), contest_study.names)
    alike = [{**row, "seconds": 0.3} for row in figure.table]
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", render_svg(replace(figure, table=alike)))
    assert labels.count("0.3") == len(contest_study.games)


def test_forest_table_holds_the_contrasts(study: StudyRecord) -> None:
    contest = build_contest(study)
    rows = [r for r in figures_forest.time_forest(study, contest).table if r["kind"] == "all games"]
    wanted = [c for c in contest["contrasts"] if c["metric"] == "seconds_to_target"]
    assert [(r["ratio"], r["low"], r["high"]) for r in rows] == [
        (c["ratio"], c["low"], c["high"]) for c in wanted
    ]


def test_curves_over_seconds_start_at_the_random_return(study: StudyRecord) -> None:
    table = figures.learning_curves(study, "seconds", study.names).table
    starts = [row for row in table if row["kind"] == "curve" and row["x"] == 0.0]
    assert len(starts) == 3 * 2
    assert all(row["iqm"] == study.games[row["game"]].random_return for row in starts)
    ends = [r["x"] for r in table if r["kind"] == "curve" and r["game"] == "freeway"]
    assert max(ends) == pytest.approx(90.0)


def test_curves_over_env_steps_end_where_each_strategy_ends(study: StudyRecord) -> None:
    drawn = figures.learning_curves(study, "env_steps", study.names)
    table = [row for row in drawn.table if row["kind"] == "curve"]
    last = {}
    for row in table:
        if row["game"] == "freeway":
            last[row["strategy"]] = max(row["x"], last.get(row["strategy"], 0.0))
    assert last["fp32 only"] < last["Linear KL mix"] < last["Learned controller"]


def spec_colours(part: Any) -> dict[str, str]:
    """The colours of specs anywhere in a figure."""
    found: dict[str, str] = {}
    for value in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        if isinstance(value, dict) and value.get("field") == "spec":
            found |= dict(zip(value["scale"]["domain"], value["scale"]["range"], strict=True))
        found |= spec_colours(value)
    return found


def test_a_spec_has_one_colour_in_all_figures_of_a_study(study: StudyRecord) -> None:
    story = spec_colours(figures_strips.schedule_story(study).spec)
    (strips,) = figures_strips.study_strips(study, study.names)
    assert story
    assert story.items() <= spec_colours(strips.spec).items()
    (few,) = figures_strips.study_strips(study, [study.subject])
    assert spec_colours(few.spec) == story


def test_strip_shares_fill_every_interval(study: StudyRecord) -> None:
    (figure,) = figures_strips.study_strips(study, study.names)
    table = figure.table
    tops: dict[tuple[str, str, float], float] = {}
    for row in table:
        key = (row["row"], row["column"], row["start"])
        tops[key] = max(tops.get(key, 0.0), row["high"])
        assert row["low"] < row["high"]
        assert 0.0 <= row["start"] < row["end"] <= 100.0
    assert len(tops) == 3 * 2 * 30
    assert all(top == pytest.approx(1.0, abs=1e-3) for top in tops.values())
    mixed = [r for r in table if r["row"] == "Linear KL mix" and r["start"] == 0.0]
    assert {r["spec"]: r["high"] - r["low"] for r in mixed if r["column"] == "freeway (90 s)"} == {
        FULL.label: pytest.approx(0.1),
        SMALL.label: pytest.approx(0.9),
    }


def test_rare_specs_are_gathered_and_no_share_is_lost(tmp_path: Path) -> None:
    specs = [
        CompressionSpec(student=s, bits=b, sparsity=p)
        for s in STUDENTS
        for b in BITS
        for p in (0.0, 0.5)
    ]
    reports = [make_report(i, 2.0, 1.0, Decision.of(spec)) for i, spec in enumerate(specs)]
    run = load_run(write_run(tmp_path / "run", reports))
    figure = figures_strips.run_strips({"run": run})
    names = {row["spec"] for row in figure.table}
    assert figures_strips.OTHER in names
    assert len(names) == 10
    assert sum(row["high"] - row["low"] for row in figure.table) == pytest.approx(len(specs))


def test_an_interval_without_actor_seconds_shows_what_was_asked_for(tmp_path: Path) -> None:
    decision = Decision(((SMALL, 0.25), (FULL, 0.75)))
    run = load_run(
        write_run(tmp_path / "run", [make_report(0, 2.0, 1.0, decision, spec_seconds={})])
    )
    table = figures_strips.run_strips({"run": run}).table
    assert {row["spec"]: row["high"] - row["low"] for row in table} == {
        FULL.label: pytest.approx(0.75),
        SMALL.label: pytest.approx(0.25),
    }


def test_run_figures_render_and_hold_every_interval(study: StudyRecord) -> None:
    run = study.runs["learned", "freeway", 100]
    curves = figures_runs.run_curves({"a": run}, "seconds")
    assert [row["value"] for row in curves.table] == [r.learner_return for r in run.reports]
    (indicators,) = figures_runs.run_indicators({"a": run})
    # What was not measured has no panel: memory on a virtual clock, what a monitor did not add.
    shown = {row["panel"] for row in indicators.table}
    kl = "KL of the actors to the learner, mean (nats)"
    assert {kl, "Env steps per second", "Queue fill"} <= shown
    assert "Resident memory of the learner (MB)" not in shown
    assert len(indicators.table) == len(shown) * len(run.reports)
    assert all(math.isfinite(row["value"]) for row in indicators.table)
    known = [replace(report, indicators={"stage": 1.0}) for report in run.reports]
    (watched,) = figures_runs.run_indicators({"a": replace(run, reports=known)})
    stages = [row["value"] for row in watched.table if row["panel"].startswith("Training stage")]
    assert stages == [1.0] * len(run.reports)
    for figure in (curves, indicators, figures_strips.run_strips({"a": run})):
        assert "<svg" in render_svg(figure)


def test_latency_bars_and_tables_of_a_profile() -> None:
    profile = {
        "name": "paper",
        "specs": [
            {"spec": FULL.to_json(), "infer_us": {"1": 6000.0, "16": 400.0}, "publish_ms": 100.0},
            {"spec": INT8.to_json(), "infer_us": {"1": 700.0}, "publish_ms": 7.0},
        ],
    }
    found = figures_costs.latency_bars(profile).table
    assert [(row["spec"], row["batch"], row["us"]) for row in found] == [
        (FULL.label, "batch 1", 6000.0),
        (FULL.label, "batch 16", 400.0),
        (INT8.label, "batch 1", 700.0),
    ]
    one, many = figures_costs.ONE, figures_costs.MANY
    assert figures_costs.acting_costs(profile) == {
        FULL.label: {one: 6000.0, many: 400.0},
        INT8.label: {one: 700.0},
    }
    settings, specs = profile_tables({"edge": profile})
    assert settings.rows == ((table.Cell("edge"), table.Cell("paper")),)
    assert [name for name, _ in specs.headings] == [
        "spec",
        "infer_us 1",
        "infer_us 16",
        "publish_ms",
    ]
    assert specs.rows[1][0].text == INT8.label
    assert specs.rows[1][1].value == 700.0
    assert specs.rows[1][2].text == formats.NOTHING


def test_meta_training_shows_gain_and_spread_of_every_iteration() -> None:
    rows = [
        {"iteration": i, "game": "catch", "runs": 8, "gain": 0.1 * i, "spread": 1.0}
        for i in range(3)
    ]
    table = figures_costs.meta_training_curves(rows).table
    assert [row["value"] for row in table if row["metric"] == "gain"] == pytest.approx(
        [0.0, 0.1, 0.2]
    )
    assert {row["metric"] for row in table} == {"gain", "spread"}


def test_colours_and_dashes_tell_strategies_apart() -> None:
    names = ["fp32", "static", "kl_max", "reward_gap", "linear", "timed", "bandit", "learned"]
    colours = strategy_colours(names, "learned")
    assert len(set(colours.values())) == len(names)
    # A figure of fewer strategies keeps who is who.
    assert strategy_colours(["fp32", "static", "learned"], "learned").items() <= colours.items()
    dashes = strategy_dashes(names, "learned")
    assert dashes["learned"] == [1, 0]
    assert len({str(value) for value in dashes.values()}) == len(names)


def test_planned_strategies_have_colours_of_their_own() -> None:
    names = ["subject", "fp32", *(f"planned-{n}" for n in range(6)), *(f"x-{n}" for n in range(12))]
    names = names[::-1]
    planned = [name for name in names if not name.startswith("x-")]
    colours = strategy_colours(names, "subject", planned)
    assert colours["subject"] == SUBJECT_COLOUR
    assert len({colours[name] for name in planned}) == len(planned)
    dashes = strategy_dashes(names, "subject", planned)
    assert len({(colours[name], str(dashes[name])) for name in names}) == len(names)


@pytest.mark.parametrize("colour", [*COLOURS, SUBJECT_COLOUR, BASELINE_COLOUR])
def test_marks_can_be_seen_on_both_pages(colour: str) -> None:
    def light(code: str) -> float:
        parts = [int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        lin = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * lin[0] + 0.7152 * lin[1] + 0.0722 * lin[2]

    style = (TEMPLATES / "style.css").read_text()
    pages = set(re.findall(r"--page: (#\w+)", style))
    assert len(pages) == 2  # a light one and a dark one
    for page in pages:
        high, low = sorted((light(page), light(colour)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3.0


def test_ramp_runs_from_no_compression_to_the_hardest() -> None:
    assert compression_rank(FULL) < compression_rank(INT8) < compression_rank(SMALL)
    assert ramp(1) == ramp(9)[:1]
    assert len(set(ramp(9))) == 9


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1234.6, "1,235"),
        (0.01234, "0.0123"),
        (99.96, "100.0"),
        (2_630_000.0, "2.63M"),
        (-20.5, "-20.5"),
        (0.00000123, "1.23e-06"),
        (None, formats.NOTHING),
        (math.nan, formats.NOTHING),
    ],
)
def test_numbers_are_printed_with_the_digits_they_mean(value: float | None, text: str) -> None:
    assert formats.significant(value) == text


def test_durations_and_other_values_for_people() -> None:
    assert [formats.duration(s) for s in (12.0, 600.0, 9000.0)] == ["12.0 s", "10.0 min", "2.5 h"]
    assert formats.compact({"b": 1, "a": [True]}) == '{"a": [true], "b": 1}'
    assert formats.compact("x" * 500).endswith("…")
    assert formats.interval(None, 1.0) == formats.NOTHING


def test_a_small_copy_of_a_contest_has_all_but_its_rows(tmp_path: Path) -> None:
    study = load_study(write_contest_study(tmp_path, seeds=(100, 101)))
    contest = build_contest(study)
    small = contest_summary(study, contest)
    assert contest["rows"]
    assert "rows" not in small
    assert small["contrasts"] == contest["contrasts"]
    assert [item["name"] for item in small["strategies"]] == [s.name for s in study.strategies]
    assert small["checks"] == list(study.checks) != []
    assert len(small["instances"]) == len(study.games)
