"""The papers' figures: their plans, what is drawn and said of them, and one made for real."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import fingerprint
from accerl.runtime.latency.profiles import load_profile
from analysis.figures.studies.papers import paper_figures
from analysis.figures.theme import BASELINE_COLOUR
from studies.cli.study import STUDIES
from studies.jobs.executor import Outcome
from studies.learning.interval import mean_interval
from studies.learning.job import LearningJob, described
from studies.options import StudyOptions
from studies.papers.figure import PAPER, PaperFigure, PaperRun
from studies.papers.figures.fig1 import PUBLISHED_MS, saved_in_turn, saved_overlapped, time_split
from studies.papers.page import PAGE, write_page
from studies.papers.plan import FIGURES, at_budget, core_seconds
from studies.papers.results import figure_result, ratio_text
from studies.papers.run import _run, run_papers
from studies.papers.verdict import HOLDS, OPEN, SecondsAtMost
from tests.fixtures.studies.paper_curves import PANEL, curve, curves


def test_curves_without_processor_seconds_say_nothing_of_them() -> None:
    found = curves({"Original": [1.0] * 4, "INT8": [2.0] * 4})
    check = SecondsAtMost(
        claim="cheaper", label="INT8", machine=PAPER, at_most=0.9, by="core_seconds"
    )
    assert check([(PANEL, found)]).outcome == HOLDS
    bare = {key: replace(each, processor_seconds={}) for key, each in found.items()}
    verdict = check([(PANEL, bare)])
    assert (verdict.outcome, verdict.runs) == (OPEN, 0)
    key = (PAPER, "INT8", 0)
    verdict = check([(PANEL, {**found, key: bare[key]})])
    assert (verdict.outcome, verdict.runs) == (HOLDS, 3)
    assert verdict.what.endswith("left out: 1 pairs without processor seconds")
    result = figure_result(figure(), [bare])
    known = result["panels"][0]["machines"][PAPER]["lines"][1]
    assert (known["core_seconds_ratio"], known["processor_seconds"]) == (None, None)
    costs = paper_figures(result)[-1]
    assert costs.name == "fig8-costs"
    assert "processor seconds" not in (json.dumps(costs.spec) + costs.caption).lower()


def test_results_of_another_version_are_known_by_their_key() -> None:
    one = figure()
    assert one.key == figure().key
    assert replace(one, title="Another").key == one.key
    assert replace(one, num_actors=8).key != one.key
    assert replace(one, panels=(replace(PANEL, env_steps=9),)).key != one.key
    assert replace(one, checks=()).key != one.key


def test_intervals_are_those_of_student() -> None:
    assert mean_interval([1.0, 3.0]) == pytest.approx((2.0, 2.0 - 12.7062, 2.0 + 12.7062), abs=1e-3)
    assert mean_interval([1.0]) == (1.0, -math.inf, math.inf)


def test_the_published_split_gives_the_published_bounds() -> None:
    assert saved_in_turn(PUBLISHED_MS, 2.0) == pytest.approx(0.284, abs=5e-4)
    assert saved_in_turn(PUBLISHED_MS, 4.13) == pytest.approx(0.431, abs=5e-4)
    assert saved_overlapped(PUBLISHED_MS, 2.0) == pytest.approx(48.0 / 144.0)
    assert saved_overlapped({**PUBLISHED_MS, "learner": 120.0}, 4.13) == pytest.approx(1 / 6)
    rows = time_split(FIGURES["fig1"].machines())
    assert [row["machine"] for row in rows] == ["published", PAPER, "two-core"]
    assert all(sum(row["shares"].values()) == pytest.approx(1.0) for row in rows)
    # Twelve actors of 3 and 6 ms a step are by far the most; a batch's split hides that.
    assert rows[1]["shares"]["learner"] < 0.1
    assert rows[1]["saved"]["INT8, predicted"] == pytest.approx(1 / 3, abs=0.02)
    elsewhere = replace(load_profile("two-core"), num_hosts=1)  # actors count where they are too
    hosts, alone = time_split({"hosts": elsewhere, "alone": load_profile("two-core")})[1:]
    assert hosts["parts"]["agent"] == pytest.approx(alone["parts"]["agent"])


@pytest.mark.parametrize("name", [name for name in FIGURES if FIGURES[name].panels])
def test_every_run_of_a_figure_can_begin(name: str) -> None:
    figure = FIGURES[name]
    assert f"paper-{name}" in STUDIES
    jobs = figure.jobs()
    assert len({json.dumps(job.to_json(), sort_keys=True) for job in jobs.values()}) == len(jobs)
    assert all(
        job.latency.num_actors == figure.num_actors
        for job in jobs.values()
        if job.latency.name == PAPER
    )
    for run in {run.label: run for panel in figure.panels for run in panel.runs}.values():
        described(run.strategy)


def test_figures_share_runs() -> None:
    keys = {
        name: {json.dumps(job.to_json(), sort_keys=True) for job in FIGURES[name].jobs().values()}
        for name in ("fig9", "fig10")
    }
    assert len(keys["fig9"] & keys["fig10"]) == 2  # Original: seeds, on two cores


def test_what_distils_nothing_is_shared_by_figures_that_differ_in_distillers() -> None:
    keys = {
        name: {json.dumps(job.to_json(), sort_keys=True) for job in FIGURES[name].jobs().values()}
        for name in ("fig5", "fig10", "fig11", "fig12")
    }
    assert len(keys["fig5"] & keys["fig10"]) == 2 * 2  # Original: machines, seeds
    assert len(keys["fig11"] & keys["fig12"]) == 4 * 2 * 2  # Original: games, machines, seeds


def test_a_seed_is_played_first_on_the_papers_machine() -> None:
    keys = list(FIGURES["fig11"].jobs())
    own, first = [key[1] for key in keys], len(FIGURES["fig11"].panels) * 2
    assert set(own[:first]) == {PAPER}
    assert PAPER not in own[first : 2 * first]
    assert [key[3] for key in keys] == [0] * 2 * first + [1] * 2 * first


def figure() -> PaperFigure:
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=0.702)
    return PaperFigure(
        name="fig8",
        title="A title",
        claim="It is faster.",
        panels=(PANEL,),
        checks=(check,),
        bound_kl_max_nats=14.0,
        shows_stages=True,
        shows_switches=True,
        shows_costs=True,
    )


def test_a_figure_shows_what_is_left_where_a_network_diverged() -> None:
    result = figure_result(figure(), [curves({"Original": [1.0] * 2, "INT8": [2.0] * 2})])
    plain = paper_figures(result)[2]
    _, line = result["panels"][0]["machines"][PAPER]["lines"]
    line["curves"][0]["kl_max_nats"][:2] = [math.nan, math.inf]
    drawn = paper_figures(result)[2]
    assert "What is not finite is not drawn" in drawn.caption
    assert "What is not finite" not in plain.caption
    assert [row["kl_max"] for row in drawn.table].count(None) == 2
    assert not {"NaN", "Infinity"} & set(json.dumps(drawn.spec).replace('"', " ").split())


def test_a_figure_is_drawn_and_explained(tmp_path: Path) -> None:
    result = figure_result(figure(), [curves({"Original": [1.0] * 2, "INT8": [2.0] * 2})])
    pictures = paper_figures(result)
    assert [each.name for each in pictures] == [
        "fig8-by-env-steps", "fig8-by-seconds", "fig8-kl-max", "fig8-costs",
    ]  # fmt: skip
    assert {row["stage"] for row in pictures[0].table} == {None, "exploration", "improving"}
    assert "convergence" not in json.dumps(pictures[0].spec)  # it never begins
    base, line = result["panels"][0]["machines"][PAPER]["lines"]
    assert line["seconds_ratio"]["estimate"] < 0.7
    assert line["core_seconds_ratio"]["estimate"] == pytest.approx(
        sum(line["processor_seconds"].values()) / sum(base["processor_seconds"].values())
    )
    assert line["processor_seconds"]["actors"] == pytest.approx(
        6.0 * line["processor_seconds"]["learner"]
    )
    assert {row["what"] for row in pictures[3].table} == {
        "seconds", "processor seconds", "env steps",
    }  # fmt: skip
    assert "geometric mean of 2 pairs of runs" in pictures[3].caption
    for each in pictures:
        (tmp_path / f"{each.name}.png").touch()
    whole = {**result, "command": "accerl", "git_revision": None, "fingerprint": fingerprint()}
    whole["budget"] = "default"
    (tmp_path / "fig8.json").write_text(json.dumps(whole, sort_keys=True))
    text = write_page(tmp_path).read_text()
    assert FIGURES["fig8"].claim in text  # whatever an earlier version said
    used = line["processor_seconds"]
    parts = " + ".join(f"{used[name]:,.0f}" for name in ("actors", "learner", "compression"))
    assert "of actors + learner + compression (>: some ended before):" in text
    assert f"| {parts} |" in text
    assert "revision unknown on " in text
    assert "| faster | **holds** |" in text
    assert all(f"\n\n*{each.caption}*\n\n" in text for each in pictures)
    assert " Its rule was not run yet." in text


@pytest.mark.parametrize(
    ("acting", "told", "marked"),
    [
        (["original INT8"] * 20, "The rule never changes its decision here", []),
        (["original INT8"] * 10 + ["original bf16"] * 10, "Triangles: where the rule changes", [9]),
    ],
)
def test_switches_are_told_and_marked(acting: list[str], told: str, marked: list[int]) -> None:
    """At the end of the interval after which the rule has decided."""
    rule = PaperRun(label="rule", strategy={"name": "kl-threshold", "params": {}, "label": "rule"})
    ruled = replace(figure(), panels=(replace(PANEL, runs=(*PANEL.runs, rule)),))
    found = curves({"Original": [1.0], "INT8": [2.0], "rule": [2.0]})
    key = (PAPER, "rule", 0)
    found = {**found, key: replace(found[key], acting=acting)}
    _, seconds, *_ = paper_figures(figure_result(ruled, [found]))
    assert told in seconds.caption
    assert [row["index"] for row in seconds.table if row["acts"]] == marked


@pytest.mark.slow
def test_a_panel_with_a_baseline_alone_is_not_drawn_beside_others() -> None:
    found = curves({"Original": [1.0], "INT8": [2.0]})
    alone = {("two-core", label, seed): each for (_, label, seed), each in found.items()}
    del alone["two-core", "INT8", 0]
    first, *_ = paper_figures(figure_result(figure(), [{**found, **alone}]))
    assert {row["panel"] for row in first.table} == {f"catch on {PAPER}"}
    first, *_ = paper_figures(figure_result(figure(), [alone]))
    assert {row["panel"] for row in first.table} == {"catch on two-core"}


@pytest.mark.slow
def test_a_line_looks_as_it_will_beside_the_baseline_that_is_not_run_yet() -> None:
    """And it is named, though it is alone."""
    found = curves({"INT8": [2.0]})
    looks = []
    for some in (found, {**found, **curves({"Original": [1.0]})}):
        first, *_ = paper_figures(figure_result(figure(), [some]))
        colours = _encoding(first.spec, "color")
        assert colours["legend"] is not None
        looks.append(dict(zip(colours["scale"]["domain"], colours["scale"]["range"], strict=True)))
    assert list(looks[0]) == ["INT8"]
    assert looks[0]["INT8"] == looks[1]["INT8"]
    assert looks[1]["Original"] == BASELINE_COLOUR != looks[0]["INT8"]


def _encoding(spec: Any, channel: str) -> dict[str, Any]:
    """Return the first encoding of a channel by label anywhere in a figure."""
    if isinstance(spec, dict):
        own = spec.get("encoding", {}).get(channel, {})
        if own.get("field") == "label" and "scale" in own:
            return own
    inside = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    return next((found for each in inside if (found := _encoding(each, channel))), {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": "tny"}, "did you mean 'tiny'"),
        ({"seed": -1}, "--seed must lie between"),
        ({"storage": "x"}, "leave --storage out"),
        ({"profile": "two-cor"}, "did you mean 'two-core'"),
        ({"saved_only": True}, "no study was begun in"),
    ],
)
def test_mistakes_cost_a_line_and_leave_nothing(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match=words):
        run_papers(out, StudyOptions(**{"budget": "tiny", **options}), names=("fig8",))
    assert not out.exists()


def test_a_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    run_papers(tmp_path, StudyOptions(budget="tiny"), names=("fig1",))
    assert (tmp_path / "fig1-split.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(UserError, match="another plan"):
        run_papers(tmp_path, StudyOptions(budget="tiny", seed=1), names=("fig1",))


@pytest.mark.parametrize("count", [7, 100, 149, 150, 151])
def test_a_curve_in_a_small_file_ends_where_the_run_ended(count: int) -> None:
    whole = curve(1.0, count=count)
    kept = whole.thinned(50, ("seconds", "scores"))
    assert (kept["seconds"][-1], kept["scores"][-1]) == (count, whole.scores[-1])
    assert min(count, 50) <= len(kept["seconds"]) == len(kept["scores"]) < 100
    steps = {after - before for before, after in pairwise(kept["seconds"])}
    assert steps == {max(count // 50, 1)}


def test_a_page_of_somebody_elses_is_not_overwritten(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("my own notes\n")
    with pytest.raises(UserError, match="would be lost"):
        run_papers(tmp_path, StudyOptions(budget="tiny"), names=("fig1",))
    assert [*tmp_path.iterdir()] == [page]


def test_a_page_that_a_full_disk_refused_can_be_written_again(tmp_path: Path) -> None:
    run_papers(tmp_path, StudyOptions(budget="tiny"), names=("fig1",))
    page = tmp_path / PAGE
    whole = page.read_text()
    (tmp_path / f".{PAGE}.{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_page(tmp_path)
    assert page.read_text() == whole
    page.write_text("")  # as programs leave it that write in place
    run_papers(tmp_path, StudyOptions(budget="tiny"), names=("fig1",))
    assert page.read_text() == whole


def test_an_interrupted_figure_shows_all_that_was_made_before(tmp_path: Path) -> None:
    figure = FIGURES["fig12"]
    last = len(figure.panels) - 1
    saved = [job for (panel, machine, *_), job in figure.jobs().items() if panel == last]

    class Interrupted:
        workers = 1

        def is_saved(self, job: LearningJob) -> bool:
            return job in saved

        def map(self, jobs: Sequence[LearningJob], _on_done: Any) -> list[Outcome]:
            if not all(map(self.is_saved, jobs)):
                raise KeyboardInterrupt
            return [Outcome(key="", result=curve(1.0), cpu_seconds=0.0) for _ in jobs]

    executor: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, executor, figure, StudyOptions())
    found = json.loads((tmp_path / "fig12.json").read_text())
    assert found["runs_made"] == len(saved) > 0
    assert found["runs"] == len(figure.jobs())


def test_what_is_saved_can_be_shown_alone(tmp_path: Path) -> None:
    figure = FIGURES["fig12"]
    first = next(iter(figure.jobs().values()))

    class Executor:
        workers = 1

        def is_saved(self, job: LearningJob) -> bool:
            return job == first

        def map(self, jobs: Sequence[LearningJob], _on_done: Any) -> list[Outcome]:
            assert [*jobs] == [first]
            return [Outcome(key="", result=curve(1.0), cpu_seconds=0.0, git_revision="0123abc")]

    executor: Any = Executor()
    found = _run(tmp_path, executor, figure, StudyOptions(saved_only=True))
    assert found["runs_made"] == 1
    assert found["runs_by"] == {"0123abc": 1}


@pytest.mark.slow
def test_a_figure_is_made_for_real_and_not_made_twice(tmp_path: Path) -> None:
    result = run_papers(tmp_path, StudyOptions(budget="tiny"), names=("fig10",))["fig10"]
    assert {line["label"] for line in result["panels"][0]["machines"][PAPER]["lines"]} == {
        "Original", "pruned 50%",
    }  # fmt: skip
    assert len(result["verdicts"]) == 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    assert run_papers(tmp_path, StudyOptions(budget="tiny"), names=("fig10",))["fig10"] == result
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()} == before


def test_tiny_figures_play_one_small_game() -> None:
    small = at_budget(FIGURES["fig12"], "tiny")
    assert [panel.game for panel in small.panels] == ["catch"]


@pytest.mark.parametrize("name", [name for name in FIGURES if FIGURES[name].panels])
def test_short_figures_hold_the_same_lines_against_each_other_in_small_games(name: str) -> None:
    figure, short = FIGURES[name], at_budget(FIGURES[name], "short")
    assert short.panels
    labels = [run.label for run in figure.panels[0].runs]
    for panel in short.panels:
        assert panel.game.startswith("minatar-")
        assert [run.label for run in panel.runs] == labels
        assert all(run.settings["learner.precision"] == "auto" for run in panel.runs)
    games = [panel.game for panel in short.panels]
    assert len(set(games)) == len(games)
    assert all(50.0 < core_seconds(job) < 200.0 for job in short.jobs().values())


def test_the_reward_gap_of_a_short_figure_is_on_its_games_scale() -> None:
    gaps = {
        panel.game: panel.runs[-1].strategy["params"]["gap"]
        for budget in ("short", "default")
        for panel in at_budget(FIGURES["fig7"], budget).panels
    }
    assert gaps == {"minatar-breakout": 2.5, "pong": 10.0}


def test_the_paper_s_machine_cannot_stand_beside_itself() -> None:
    with pytest.raises(UserError, match="is there already"):
        FIGURES["fig10"].machines(PAPER)
    assert FIGURES["fig10"].machines()[PAPER].num_distillers == 1


def test_an_interval_that_two_seeds_leave_open_is_not_written() -> None:
    found = {"estimate": 0.65, "low": 0.04, "high": 10.96, "bound": ""}
    assert ratio_text(found) == "0.65 (too few seeds)"
    assert ratio_text({**found, "low": 0.2}) == "0.65 (0.20 to 10.96)"
    assert ratio_text({**found, "low": None}) == "0.65"
    assert ratio_text(None) == "-"
