"""Credit: a gain belongs to what acted while it was made, and to nothing that came later."""

from __future__ import annotations

import numpy as np
import pytest

from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.comparators.credit import CreditAssignment, highest, standardised
from tests.fixtures.runs.scripted_runs import ScriptedRun, credits_of

INT8, BF16 = CompressionSpec(bits=8), CompressionSpec(bits=16)
NET3 = CompressionSpec(student="net3")
RATES = {IDENTITY: 1.0, BF16: 2.0, INT8: 3.0, NET3: -4.0}


def rate(_: float, spec: CompressionSpec) -> float:
    return RATES[spec]


def test_every_arm_earns_what_it_made_itself() -> None:
    script = [IDENTITY, INT8, NET3, INT8, IDENTITY]
    first, *later = credits_of(ScriptedRun(rate, 5), [*script])
    assert first == []  # there is nothing to compare the first return with
    for spec, (credit,) in zip(script[1:], later, strict=True):
        assert (credit.spec, credit.share) == (spec, 1.0)
        assert credit.gain_per_second == pytest.approx(RATES[spec])
    # Credited to whatever is decided next, INT8 would have lost and NET3 would have won.
    gains = [credit.gain_per_second for (credit,) in later]
    slipped = dict(zip(script[2:], gains, strict=False))
    assert slipped[INT8] < 0.0 < slipped[NET3]


def test_nothing_is_credited_to_what_was_chosen_but_not_yet_served() -> None:
    script = [IDENTITY, INT8, NET3, BF16, IDENTITY]
    _, *later = credits_of(ScriptedRun(rate, 5, lag=1), [*script])
    for served, (credit,) in zip(script, later, strict=False):
        assert credit.spec == served
        assert credit.gain_per_second == pytest.approx(RATES[served])


def test_what_acted_in_an_interval_that_nothing_was_used_of_the_next_one_tells() -> None:
    script = [IDENTITY, INT8, NET3, NET3, BF16]
    run = ScriptedRun(rate, 5, lag=1, measured=range(5), unused={2})
    *_, unused, after, last = credits_of(run, [*script])
    assert unused == []
    assert [(each.spec, each.share) for each in after] == [(NET3, 1.0)]
    assert [each.spec for each in last] == [NET3]


def test_until_a_switch_is_served_the_last_spec_earns() -> None:
    script = [IDENTITY, IDENTITY, INT8, INT8]
    _, _, mixed, own = credits_of(ScriptedRun(rate, 4, late_share=0.25), [*script])
    assert {credit.spec: credit.share for credit in mixed} == pytest.approx(
        {INT8: 0.75, IDENTITY: 0.25}
    )
    assert [e.gain_per_second for e in mixed] == pytest.approx([0.75 * 3 + 0.25] * 2)
    assert [(credit.spec, credit.share) for credit in own] == [(INT8, 1.0)]


@pytest.mark.parametrize("told", [0.5, None])
def test_what_acts_while_a_student_waits_earns_in_its_name(told: float | None) -> None:
    """Choosing NET3 brings INT8, which is faster than what acted before and is not what earns."""
    script = [IDENTITY, IDENTITY, NET3, NET3]
    *_, first, second = credits_of(
        ScriptedRun(rate, 4, stand_ins={NET3: INT8}, told=told), [*script]
    )
    for (credit,) in (first, second):
        assert (credit.spec, credit.share) == (NET3, 1.0)
        assert credit.gain_per_second == pytest.approx(RATES[INT8])


def test_an_account_stays_open_until_an_episode_ends() -> None:
    script = [IDENTITY, INT8, INT8, NET3, BF16]
    _, *settled, last = credits_of(ScriptedRun(rate, 5, silent={1, 2}), [*script])
    assert settled[:2] == [[], []]
    shares = {credit.spec: credit.share for credit in settled[2]}
    assert shares == pytest.approx({INT8: 2 / 3, NET3: 1 / 3})
    assert [e.gain_per_second for e in settled[2]] == pytest.approx([(2 * 3.0 - 4.0) / 3] * 2)
    assert [e.spec for e in last] == [BF16]


def test_episodes_of_earlier_arms_earn_nothing_for_later_ones() -> None:
    """Of the last twenty episodes fifteen are older than each interval."""
    rises = {IDENTITY: 10.0, INT8: 0.0}
    run = ScriptedRun(lambda _, spec: rises[spec], 8, episodes=5)
    _, *later = credits_of(run, [*[IDENTITY] * 5, *[INT8] * 3])
    assert [credit.gain_per_second for (credit,) in later] == pytest.approx([10.0] * 4 + [0.0] * 3)


def test_before_the_first_episode_there_is_no_credit() -> None:
    settled = credits_of(ScriptedRun(rate, 4, silent={0, 1}), [IDENTITY, INT8, NET3, BF16])
    assert settled[:3] == [[], [], []]
    assert [credit.spec for credit in settled[3]] == [BF16]


def test_j_is_learned_from_where_it_is_measured() -> None:
    """Episodes may end too seldom, and say less: once there is a J they count no more."""
    script = [IDENTITY, INT8, NET3, BF16, INT8]
    run = ScriptedRun(rate, 5, silent={0, 1, 3}, measured={0, 1, 3, 4})
    first, second, unmeasured, both, last = credits_of(run, [*script])
    assert (first, unmeasured) == ([], [])
    assert [(e.spec, e.gain_per_second) for e in second] == [(INT8, pytest.approx(3.0))]
    assert {e.spec: e.gain_per_second for e in both} == pytest.approx({NET3: -1.0, BF16: -1.0})
    assert [(e.spec, e.gain_per_second) for e in last] == [(INT8, pytest.approx(3.0))]


def test_the_first_j_is_not_held_against_an_episode() -> None:
    run = ScriptedRun(rate, 3, measured={1, 2})
    _, turn, later = credits_of(run, [IDENTITY, INT8, BF16])
    assert turn == []
    assert [(e.spec, e.gain_per_second) for e in later] == [(BF16, pytest.approx(2.0))]


def test_a_mix_and_a_stranger_are_credited_to_nobody() -> None:
    mix = Decision(((IDENTITY, 0.5), (INT8, 0.5)))
    settled = credits_of(ScriptedRun(rate, 4), [IDENTITY, mix, Decision.of(NET3), IDENTITY])
    assert settled[1:3] == [[], []]
    assert [credit.spec for credit in settled[3]] == [IDENTITY]


def test_what_overrules_an_arm_does_not_earn_in_its_name() -> None:
    """As under a shield: INT8 was asked for, and BF16, an arm too, acted."""
    run, assignment = ScriptedRun(rate, 2), CreditAssignment([INT8, BF16])
    assignment.chosen = INT8
    run.step(Decision.of(INT8))
    assert assignment.update(run.features) == []
    run.step(Decision.of(BF16))
    assert [credit.spec for credit in assignment.update(run.features)] == [BF16]


def test_of_specs_that_look_alike_the_one_that_was_asked_earns() -> None:
    eager = CompressionSpec(graph="eager")
    for asked in (IDENTITY, eager):
        run, assignment = ScriptedRun(lambda *_: 1.0, 2), CreditAssignment([IDENTITY, eager])
        assignment.chosen = asked
        run.step(Decision.of(asked))
        assert assignment.update(run.features) == []
        run.step(Decision.of(asked))
        assert [credit.spec for credit in assignment.update(run.features)] == [asked]


def test_an_earning_remembers_when_its_account_was_opened() -> None:
    _, _, (credit,) = credits_of(ScriptedRun(rate, 4), [NET3, INT8, INT8])
    assert credit.time_fraction == pytest.approx(2 / 4)
    assert credit.return_level == pytest.approx(1.0)  # higher than ever


def test_standardised_gains_have_no_units() -> None:
    gains, weights = np.array([1.0, 2.0, 6.0]), np.array([1.0, 1.0, 0.5])
    once = standardised(gains, weights)
    np.testing.assert_allclose(standardised(1000.0 * gains - 7.0, weights), once)
    assert np.average(once, weights=weights) == pytest.approx(0.0)
    assert np.average(once**2, weights=weights) == pytest.approx(1.0)
    np.testing.assert_array_equal(standardised(np.full(3, 5.0), weights), np.zeros(3))
    assert standardised(np.empty(0), np.empty(0)).size == 0


def test_the_dice_decide_between_equals_only() -> None:
    rng = np.random.default_rng(0)
    assert {highest(np.array([1.0, 3.0, 3.0, 2.0]), rng) for _ in range(40)} == {1, 2}
    assert {highest(np.array([np.inf, 0.0, np.inf]), rng) for _ in range(40)} == {0, 2}
