"""Scores that are fixed beforehand, machines as the paper has them, and things that happen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.records import read_json, write_json
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import CompressionSpec
from studies.options import StudyOptions
from studies.papers.figure import PAPER, PaperRun
from studies.papers.figures.fig5 import passes_stages_in_order
from studies.papers.figures.fig6 import passes_threshold
from studies.papers.plan import FIGURES, at_budget
from studies.papers.run import _times_of, run_papers
from studies.papers.targets import FIXED_BY_SEEDS, HARDLY_LEARNED, TARGETS, target_score
from studies.papers.verdict import FAILS, HOLDS, OPEN, EndsWithin, SecondsAtMost
from studies.papers.within_runs import Happens
from tests.unit.studies.papers.test_papers import PANEL, curve, curves

ATARI = Path(__file__).parents[4] / "analysis" / "gallery" / "papers" / "atari"


def test_the_target_is_the_baselines_alone() -> None:
    assert target_score("catch", [curve(1.0)]) == pytest.approx(-19.0 + 0.8 * 18.0)
    assert target_score("catch", []) is None


def test_the_targets_of_the_papers_games_are_fixed_beforehand() -> None:
    assert target_score("pong", [curve(1.0)]) == target_score("pong", []) == TARGETS["pong"]
    for budget in ("default", "short"):
        games = {p.game for figure in FIGURES.values() for p in at_budget(figure, budget).panels}
        assert games <= set(TARGETS)


@pytest.mark.parametrize(
    ("name", "actors", "distillers"),
    [("fig8", 12, 4), ("fig9", 8, 4), ("fig10", 12, 1), ("fig11", 12, 4), ("fig12", 12, 0)],
)
def test_machines_have_as_many_processes_as_the_paper_says(
    name: str, actors: int, distillers: int
) -> None:
    figure = FIGURES[name]
    assert (figure.num_actors, figure.num_distillers) == (actors, distillers)
    assert figure.machines()[PAPER].num_actors == actors


def test_something_happens_in_most_runs_in_few_or_in_some() -> None:
    check = Happens(
        claim="it is high",
        label="INT8",
        machine=PAPER,
        what="the largest KL passes 14",
        happens=lambda each: max(each.kl_max_nats) > 14.0,
    )
    found = dict(curves({"Original": [1.0], "INT8": [1.0] * 6}))
    verdict = check([(PANEL, found)])
    assert (verdict.outcome, verdict.estimate, verdict.low) == (FAILS, 0.0, 0.0)
    assert verdict.high == pytest.approx(1.0 - 0.025 ** (1.0 / 6.0))  # Clopper and Pearson
    for seed in range(6):
        high = replace(found[PAPER, "INT8", seed], kl_max_nats=[20.0] * 20)
        found[PAPER, "INT8", seed] = high
        verdict = check([(PANEL, found)])
        assert verdict.estimate == pytest.approx((seed + 1) / 6)
        assert verdict.outcome == (HOLDS if seed == 5 else OPEN)
    assert check([(PANEL, {})]).outcome == OPEN
    elsewhere = replace(check, games=("road_runner",))
    assert elsewhere([(PANEL, found)]).runs == 0


def test_a_run_is_held_against_another_line_than_the_baseline() -> None:
    found = curves({"Original": [4.0] * 4, "INT8": [2.0, 2.02, 1.98, 2.0]})
    found = {**found, **{(PAPER, "Net1", seed): curve(1.0) for seed in range(4)}}
    check = SecondsAtMost(claim="sooner", label="INT8", over="Net1", machine=PAPER, at_most=1.0)
    runs = (*PANEL.runs, PaperRun.acting(CompressionSpec(student="net1"), "Net1"))
    low = replace(PANEL, runs=runs, game="pong")
    verdict = check([(low, found)])
    assert "INT8 / Net1" in verdict.what
    assert (verdict.outcome, verdict.runs) == (HOLDS, 4)


def test_games_that_are_hardly_learned_are_timed_apart() -> None:
    check, ends = (c for c in FIGURES["fig12"].checks if getattr(c, "left_out", ()))
    assert isinstance(check, SecondsAtMost)
    found = curves({"Original": [2.0] * 4, "INT8": [2.0] * 4})
    panels = [(replace(PANEL, game=game), found) for game in ("pong", *HARDLY_LEARNED)]
    assert check(panels).runs == 4
    told = "without bank_heist, beam_rider, name_this_game, which was chosen after seed 0 was seen"
    assert told in check(panels).what
    assert ends(panels).runs == 4
    assert told in ends(panels).what


def test_where_no_hardly_learned_game_is_played_nothing_is_asked_twice() -> None:
    """MinAtar's games are all learned: the claims that leave some out become those that do not."""
    every, short = (
        [check for check in checks if isinstance(check, SecondsAtMost | EndsWithin)]
        for checks in (FIGURES["fig12"].checks, at_budget(FIGURES["fig12"], "short").checks)
    )
    assert len({check.claim for check in every}) == 9
    assert not any(check.left_out for check in short)
    assert [check.claim for check in short] == [
        check.claim for check in every if not check.left_out
    ]
    (ends,) = (check for check in short if isinstance(check, EndsWithin))
    assert ends.claim == "INT8 ends where fp32 ends, in the mean"


def test_failing_beside_the_runs_that_set_the_score_is_failing_only_if_others_set_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FIXED_BY_SEEDS, "atari", 4)
    check = SecondsAtMost(claim="sooner", label="INT8", machine=PAPER, at_most=1.0)
    panels = [(replace(PANEL, game="pong"), curves({"Original": [3.0] * 4, "INT8": [1.8] * 4}))]
    verdict = check(panels)
    assert (verdict.outcome, verdict.runs) == (OPEN, 4)
    assert "beside 4 runs that the score was taken from" in verdict.what
    verdict = replace(check, is_scored_run=False)(panels)
    assert (verdict.outcome, verdict.runs) == (FAILS, 4)
    assert "that the score was taken from" not in verdict.what


def test_games_that_are_hardly_learned_are_those_of_the_rule() -> None:
    """By the runs of seed 0 that the gallery keeps, thinned."""
    result = read_json(ATARI / "fig12.json")
    hardly = []
    for panel in result["panels"]:
        (fp32,) = (
            each for each in panel["machines"][PAPER]["lines"] if each["label"] == "Original"
        )
        scores = [score for score in fp32["curves"][0]["scores"] if score is not None]
        tenth = len(scores) // 10
        first, last = np.mean(scores[:tenth]), np.mean(scores[-tenth:])
        if last - first < 0.2 * abs(first):
            hardly.append(panel["game"])
    assert tuple(hardly) == HARDLY_LEARNED


@pytest.mark.parametrize(
    ("kl_nats", "passes"),
    [([], False), ([14.0, 3.0], False), ([math.nan, 1.0], True), ([20.0], True)],
)
def test_a_kl_that_is_not_a_number_passes_the_threshold(kl_nats: list[float], passes: bool) -> None:
    """As the rule has it, which then acts in 16 bits."""
    assert passes_threshold(replace(curve(1.0), kl_max_nats=kl_nats)) == passes


@pytest.mark.parametrize(
    ("stages", "passes"),
    [([None, 0, 0, 1, 2, 2], True), ([0, 1, 1], False), ([0, 1, 2, 1, 2], False), ([None], False)],
)
def test_stages_come_one_after_the_other(stages: list[int | None], passes: bool) -> None:
    assert passes_stages_in_order(replace(curve(1.0), stages=stages)) == passes


@pytest.mark.parametrize(("name", "missing"), [("fig8", "net1 fp32"), ("fig9", "net3 fp32")])
def test_a_machine_without_times_of_what_acts_is_refused_before_anything_is_written(
    name: str, missing: str, tmp_path: Path
) -> None:
    profile = load_profile("two-core").to_json()
    profile["specs"] = [
        row
        for row in profile["specs"]
        if (row["spec"]["student"], row["spec"]["sparsity"]) == ("original", 0.0)
    ]
    write_json(tmp_path / "mine.json", {**profile, "name": "mine"})
    options = StudyOptions(budget="tiny", profile=str(tmp_path / "mine.json"))
    with pytest.raises(UserError, match=f"no times for '{missing}'; .*`accerl profile measure`"):
        run_papers(tmp_path / "out", options, names=(name,))
    assert not (tmp_path / "out").exists()


def test_a_folder_goes_on_with_the_same_times_alone() -> None:
    assert _times_of(StudyOptions()) == {}
    assert _times_of(StudyOptions(profile="edge")) == {"profile_hash": load_profile("edge").hash}
