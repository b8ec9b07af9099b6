"""What verdicts say of curves that are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from studies.learning.interval import mean_interval, mean_over_games
from studies.papers.figure import PAPER, Curves
from studies.papers.verdict import (
    FAILS,
    HOLDS,
    OPEN,
    EndsWithin,
    SecondsAtMost,
    end_score,
    learned,
)
from studies.papers.within_runs import Happens, MovesTogether
from tests.fixtures.studies.paper_curves import PANEL, curves


def seconds(found: Curves, at_most: float = 0.702) -> str:
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=at_most)
    return check([(PANEL, found)]).outcome


def test_a_claim_holds_fails_or_stays_open_by_its_interval() -> None:
    slow = [1.0, 1.01, 0.99, 1.0]
    assert seconds(curves({"Original": slow, "INT8": [2.0, 2.02, 1.98, 2.0]})) == HOLDS
    assert seconds(curves({"Original": slow, "INT8": slow})) == FAILS
    assert seconds(curves({"Original": slow, "INT8": [3.0, 1.2, 2.0, 1.0]})) == OPEN
    assert seconds(curves({"Original": slow[:1], "INT8": [2.0]})) == OPEN  # one seed is none
    assert seconds({}) == OPEN


def test_a_run_that_never_arrives_cannot_make_a_claim_hold() -> None:
    found = curves({"Original": [1.0] * 4, "INT8": [0.99, 0.99, 0.99, 0.1]})
    assert seconds(found, at_most=1000.0) == OPEN
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=1000.0)
    assert check([(PANEL, found)]).what.endswith(
        "too low: 1 of the runs ended before they reached it"
    )


def test_a_pair_of_which_neither_arrives_cannot_make_a_claim_hold() -> None:
    """Three of four hold, and of the fourth pair nothing is known."""
    found = curves({"Original": [1.0, 1.0, 1.0, 0.2], "INT8": [2.0, 2.0, 2.0, 0.2]})
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=0.9)
    verdict = check([(PANEL, found)])
    assert (verdict.outcome, verdict.runs) == (OPEN, 3)
    assert verdict.high
    assert verdict.high < 0.9


def test_a_baseline_that_never_arrives_cannot_make_a_claim_fail() -> None:
    # The target is the median of the baseline's own: two of its four runs do not reach it.
    found = curves({"Original": [1.0, 1.0, 0.2, 0.2], "INT8": [1.0] * 4})
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=0.01)
    verdict = check([(PANEL, found)])
    assert verdict.outcome == OPEN
    assert "2 of the baseline's ended before" in verdict.what
    found = curves({"Original": [1.0, 1.0, 0.2, 0.2], "INT8": [1.0, 1.0, 0.2, 0.2]})
    verdict = check([(PANEL, found)])
    assert verdict.what.endswith("left out: 2 pairs, of which neither reached it")
    assert verdict.runs == 2


def test_ends_are_compared_as_shares_of_what_the_baseline_has_learned() -> None:
    found = curves({"Original": [1.0] * 4, "INT8": [0.80, 0.81, 0.79, 0.80]})

    def outcome(at_least: float = -math.inf, at_most: float = math.inf) -> str:
        check = EndsWithin(
            claim="ends", label="INT8", machine=PAPER, at_least=at_least, at_most=at_most
        )
        return check([(PANEL, found)]).outcome

    assert outcome(at_most=-0.05) == HOLDS
    assert outcome(at_least=-0.1) == FAILS
    assert outcome(at_least=-0.205) == OPEN


def test_beside_baselines_that_learned_nothing_no_end_is_known() -> None:
    """Three pairs of four end alike, and of the fourth nothing is known."""
    check = EndsWithin(claim="ends", label="INT8", machine=PAPER, at_least=-0.1)
    found = curves({"Original": [1.0] * 4, "INT8": [1.0] * 4})
    assert check([(PANEL, found)]).outcome == HOLDS
    verdict = check([(PANEL, curves({"Original": [1.0] * 3 + [0.0], "INT8": [1.0] * 4}))])
    assert (verdict.outcome, verdict.runs, verdict.low) == (OPEN, 3, 0.0)
    told = "left out: 1 pairs whose baseline learned nothing or that have no score"
    assert verdict.what.endswith(told)
    key = (PAPER, "INT8", 0)
    unscored = {**found, key: replace(found[key], scores=[None] * 20)}
    assert check([(PANEL, unscored)]).what.endswith(told)
    three = curves({name: [1.0] * 4 for name in ("Original", "INT8", "Net3")})
    key = (PAPER, "Original", 0)
    unscored = {**three, key: replace(three[key], scores=[None] * 20)}
    assert replace(check, over="Net3")([(PANEL, unscored)]).what.endswith(told)


def test_ends_are_held_against_another_line_in_shares_of_what_the_baseline_has_learned() -> None:
    found = curves({"Original": [2.0] * 4, "INT8": [1.5] * 4, "Net3": [1.0] * 4})
    check = EndsWithin(claim="ends", label="INT8", over="Net3", machine=PAPER, at_least=0.0)
    verdict = check([(PANEL, found)])
    assert (verdict.outcome, verdict.runs) == (HOLDS, 4)
    assert verdict.estimate == pytest.approx(0.25, abs=0.02)
    assert "INT8 - Net3" in verdict.what


def test_pairs_without_processor_seconds_are_left_out_and_the_rest_is_judged() -> None:
    """That they are missing follows from the revision that made them, not from what came out."""
    found = curves({"Original": [1.0] * 5, "INT8": [2.0, 2.02, 1.98, 2.0, 2.0]})
    key = (PAPER, "INT8", 4)
    found = {**found, key: replace(found[key], processor_seconds={})}
    check = SecondsAtMost(
        claim="cheaper", label="INT8", machine=PAPER, at_most=0.702, by="core_seconds"
    )
    verdict = check([(PANEL, found)])
    assert (verdict.outcome, verdict.runs) == (HOLDS, 4)
    assert verdict.what.endswith("left out: 1 pairs without processor seconds")
    # Of a game where all are missing nothing is known, and it may be the one that costs more.
    missing = {key: replace(each, processor_seconds={}) for key, each in found.items()}
    verdict = check([(PANEL, found), (replace(PANEL, game="acrobot"), missing)])
    assert (verdict.outcome, verdict.runs) == (OPEN, 4)
    assert verdict.what.endswith("left out: 6 pairs without processor seconds, all of 1 game")


def test_what_is_as_long_as_the_other_is_not_shorter() -> None:
    alike = [1.0, 1.1, 0.9, 1.0]
    assert seconds(curves({"Original": alike, "INT8": alike}), at_most=1.0) == OPEN
    assert seconds(curves({"Original": alike, "INT8": alike}), at_most=1.01) == HOLDS


def test_a_baseline_has_learned_by_how_much_its_best_tenth_is_above_its_first_score() -> None:
    rising = curves({"Original": [1.0]})[PAPER, "Original", 0]
    assert learned(rising) == pytest.approx(18.0)  # from the second point on
    peak = replace(rising, scores=[None, *[0.0, 1.0] * 8, 40.0, 1.0, 0.0])  # luck of one point
    assert learned(peak) == pytest.approx(20.5)
    rng = np.random.default_rng(0)
    noise = [replace(rising, scores=[*rng.normal(size=50)]) for _ in range(200)]
    assert sum(learned(each) is not None for each in noise) < 10
    assert learned(replace(rising, scores=[None])) is None


def test_what_never_switched_says_nothing_of_a_switch() -> None:
    found = curves({"Original": [1.0] * 4, "INT8": [1.0] * 4})
    check = EndsWithin(claim="ends", label="INT8", machine=PAPER, at_least=-0.1, switched=True)
    verdict = check([(PANEL, found)])
    assert (verdict.outcome, verdict.runs, verdict.estimate) == (OPEN, 0, None)
    assert "left out: 4 runs whose decision did not change before that" in verdict.what
    acting = ["original INT8"] * 10 + ["original bf16"] * 10
    for seed in range(3):
        key = (PAPER, "INT8", seed)
        found = {**found, key: replace(found[key], acting=acting)}
    verdict = check([(PANEL, found)])
    assert (verdict.outcome, verdict.runs) == (HOLDS, 3)
    late = ["original INT8"] * 19 + ["original bf16"]  # after the end has begun
    found = {key: replace(each, acting=late) for key, each in found.items()}
    assert check([(PANEL, found)]).runs == 0


def test_what_happens_in_a_few_runs_says_nothing_of_the_others() -> None:
    for happens, outcome in ((True, HOLDS), (False, FAILS)):
        check = Happens(
            claim="it does",
            label="INT8",
            machine=PAPER,
            what="it does",
            happens=lambda _, happens=happens: happens,
        )
        few, enough = (check([(PANEL, curves({"INT8": [1.0] * seeds}))]) for seeds in (5, 6))
        assert (few.outcome, few.estimate, few.runs) == (OPEN, float(happens), 5)
        assert (enough.outcome, enough.estimate, enough.runs) == (outcome, float(happens), 6)
    assert check([]).outcome == OPEN


def test_largest_kl_and_score_move_together_where_they_change_together() -> None:
    check = MovesTogether(claim="both move", label="INT8", machine=PAPER)
    found = curves({"INT8": [1.0] * 4})
    rng = np.random.default_rng(0)
    changes = rng.normal(1.0, 0.5, (2, len(found), 20))  # all rise, each in its own way
    scores, other = changes.cumsum(axis=-1)
    alike, opposed, apart = (
        {
            key: replace(each, scores=[*score], kl_max_nats=[*kl])
            for (key, each), score, kl in zip(found.items(), scores, kls, strict=True)
        }
        for kls in (3.0 * scores, 100.0 - scores, other)
    )
    verdict = check([(PANEL, alike)])
    assert (verdict.outcome, verdict.runs, verdict.over) == (HOLDS, 4, "seeds")
    assert verdict.estimate == pytest.approx(1.0)
    assert check([(PANEL, opposed)]).outcome == FAILS
    assert check([(PANEL, apart)]).outcome == OPEN
    key = (PAPER, "INT8", 0)
    assert check([(PANEL, {key: alike[key]})]).outcome == OPEN  # one run
    still = {
        key: replace(each, kl_max_nats=[1.0] * len(each.scores)) for key, each in found.items()
    }
    assert (check([(PANEL, still)]).runs, check([]).outcome) == (0, OPEN)


def test_what_has_gone_on_longer_can_be_compared_where_the_baseline_ends() -> None:
    """Both end alike, but one of them was there first."""
    names = ("Original", "INT8", "Net3")
    found = {key: each for key, each in curves({name: [1.0] * 4 for name in names}).items()}
    for (where, label, seed), each in list(found.items()):
        if label != "Original":
            steps = [4 * step for step in each.env_steps]
            last = max(score for score in each.scores if score is not None)
            scores = [last if label == "INT8" or n >= 15 else -20.0 for n in range(len(steps))]
            found[where, label, seed] = replace(each, env_steps=steps, scores=scores)
    check = EndsWithin(claim="ends", label="INT8", over="Net3", machine=PAPER, at_least=0.01)
    assert check([(PANEL, found)]).outcome == FAILS
    early = replace(check, up_to_baseline=True)([(PANEL, found)])
    assert early.outcome == HOLDS
    assert "score after the baseline's env steps, INT8 - Net3" in early.what


def test_fast_and_slow_runs_end_alike_where_their_curves_are_the_same() -> None:
    """The fast one has fewer points a step, and its last one lies beyond what is compared."""
    slow = curves({"Original": [1.0]})[PAPER, "Original", 0]
    ends = []
    for every in (1_000, 12_000):
        at = list(range(every, 500_001, every))
        scores = [step / 1_000 for step in at]
        ends.append(end_score(replace(slow, env_steps=at, scores=scores), 491_999.0))
    assert ends == pytest.approx([469.86, 469.86], abs=0.01)
    assert end_score(replace(slow, env_steps=[10], scores=[None])) is None
    assert end_score(replace(slow, env_steps=[10], scores=[1.0]), 9.0) is None


def test_who_fails_beside_the_runs_that_a_score_was_taken_from_does_not_fail() -> None:
    found = curves({"Original": [20.0] * 4, "INT8": [10.0, 10.1, 9.9, 10.0]})
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=0.7)
    panel = replace(PANEL, game="minatar-asterix")
    assert check([(PANEL, found)]).outcome == FAILS
    verdict = check([(panel, found)])  # one seed of four is another
    assert verdict.outcome == OPEN
    assert "beside 3 runs that the score was taken from" in verdict.what
    later = {(where, label, seed + 3): each for (where, label, seed), each in found.items()}
    assert check([(panel, later)]).outcome == FAILS
    assert check([(replace(panel, score=3.0), found)]).outcome == FAILS  # a score of its own


def test_a_game_counts_once_however_many_seeds_it_has() -> None:
    mean, low, high, over = mean_over_games([[1.0, 3.0], [2.0], [], [5.0]])
    assert (mean, over) == (3.0, "games")
    assert mean_interval([2.0, 2.0, 5.0]) == (mean, low, high)
    mean, low, high, over = mean_over_games([[1.0, 3.0], [5.0]])  # of two games: their seeds
    assert ((mean, low, high), over) == (mean_interval([1.0, 3.0, 5.0]), "seeds")

    found = curves({"Original": [1.0] * 4, "INT8": [2.0] * 4})
    slow = curves({"Original": [1.0] * 4, "INT8": [0.5] * 4})
    check = SecondsAtMost(claim="faster", label="INT8", machine=PAPER, at_most=10.0)
    games = [(replace(PANEL, game=name), found) for name in ("cartpole", "acrobot")]
    verdict = check([*games, (replace(PANEL, game="catch"), slow)])
    assert (verdict.over, verdict.runs, verdict.bound) == ("games", 12, ">")
    assert verdict.high
    assert verdict.high > 2.0  # twelve pairs, but three games
    assert check(games).over == "seeds"
