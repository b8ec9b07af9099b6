"""Charges: who distils what, and how much of it."""

from __future__ import annotations

import json

import pytest

from accerl.runtime.publishing.charges import MOST_IDLE, Charge, Charges, Pace
from accerl.spec import CompressionSpec, StudentKey

NET2, NET3 = CompressionSpec(student="net2", bits=8), CompressionSpec(student="net3", bits=8)
PRUNED, INT8 = CompressionSpec(sparsity=0.5), CompressionSpec(bits=8)


def _all(key: StudentKey, allowed: int) -> int:
    """Have every network need all that is allowed."""
    return allowed


def shares(charges: Charges, distillers: int, *acting: CompressionSpec) -> list[list[str]]:
    """Return what each distiller does: the student, its share, and whether it leads."""
    charges.assign(acting)
    return [
        [f"{c.spec.student} {c.updates}{'!' if c.leads else ''}" for c in charges.work(i, acting)]
        for i in range(distillers)
    ]


def test_without_a_limit_one_student_is_shared_by_all_and_two_by_half_of_them_each() -> None:
    assert shares(Charges(4, 0), 4, NET3) == [["net3 0!"], ["net3 0"], ["net3 0"], ["net3 0"]]
    two = shares(Charges(4, 0), 4, NET2, NET3, INT8)
    assert two == [["net2 0!"], ["net3 0!"], ["net2 0"], ["net3 0"]]


def test_a_limit_is_not_split_and_the_others_keep_what_rests() -> None:
    charges = Charges(3, 40)
    assert shares(charges, 3, NET2, NET3) == [["net2 40!"], ["net3 40!"], []]
    assert shares(charges, 3, NET2) == [["net2 40!"], ["net3 40!"], []]
    assert shares(charges, 3, INT8) == [["net2 40!"], ["net3 40!"], []]


def test_who_shares_a_core_or_a_gpu_lets_rest_what_rests() -> None:
    charges = Charges(3, 4, follow_idle=False)
    assert shares(charges, 3, NET2, NET3) == [["net2 4!"], ["net3 4!"], []]
    assert shares(charges, 3, NET2) == [["net2 4!"], [], []]
    assert shares(charges, 3, INT8) == [[], [], []]


def test_of_many_networks_those_that_acted_last_are_kept_close() -> None:
    charges, rising = Charges(1, 4), [CompressionSpec(sparsity=step / 20) for step in range(1, 12)]
    for spec in (*rising, rising[1]):
        charges.assign([spec])
    kept = [charge.spec for charge in charges.work(0, [INT8])]
    assert kept == [*rising[4:], rising[1]]
    assert len(kept) == MOST_IDLE
    known = Charges(1, 4)
    known.load_state_dict(json.loads(json.dumps(charges.state_dict())))
    assert known.work(0, [INT8]) == charges.work(0, [INT8])
    assert [charge.spec for charge in charges.work(0, [rising[0]])] == [rising[0]]  # if it acts


def test_all_that_a_student_is_allowed_is_given_to_one() -> None:
    for updates in range(1, 40):
        charges = Charges(5, updates)
        charges.assign([NET2, NET3, PRUNED])
        for acting in ([NET2], [NET2, PRUNED], [NET2, NET3, PRUNED]):
            for spec in acting:
                found = [
                    charge
                    for index in range(5)
                    for charge in charges.work(index, acting)
                    if charge.key == spec.student_key
                ]
                (charge,) = found
                assert (charge.updates, charge.leads, charge.sharers) == (updates, True, 1)


def test_without_distillers_the_compressor_distils_what_acts_once() -> None:
    acting = [NET3, CompressionSpec(student="net3"), INT8]
    (charge,) = Charges(0, 4).left_to_compressor(acting)
    assert (charge.key, charge.updates, charge.leads) == (NET3.student_key, 4, True)
    assert Charges(1, 4).left_to_compressor(acting) == ()


def test_a_student_gets_what_an_update_of_the_learner_allows_and_no_more() -> None:
    pace, charges = Pace(_all), (Charge(NET2, updates=6), Charge(NET3, updates=3))

    def pieces(version: int) -> list[tuple[str, int]]:
        found = []
        while (piece := pace.next(charges, version)) is not None:
            pace.add(*piece)
            found.append((piece[0].spec.student, piece[1]))
        return found

    expected = [("net2", 4), ("net3", 3), ("net2", 2)]
    assert pieces(7) == expected
    assert pieces(7) == []
    assert pieces(9) == expected  # what update 8 allowed has lapsed


def test_fractions_of_an_update_are_carried_to_the_next_learner_update() -> None:
    pace, charge = Pace(lambda key, allowed: 1.25), Charge(NET2, updates=4)
    done = []
    for version in range(10):
        while (piece := pace.next([charge], version)) is not None:
            pace.add(*piece)
            done.append((version, piece[1]))
    # The fourth fraction makes one more, and so does the eighth.
    assert sum(updates for _, updates in done) == 12
    assert [version for version, _ in done] == list(range(10))


def test_a_network_that_came_close_gets_no_more_until_the_learner_moves() -> None:
    due = [12.0]
    pace, charge = Pace(lambda key, allowed: due[0]), Charge(NET2, updates=12)
    assert pace.next([charge], 1) == (charge, 4)
    pace.add(charge, 4)
    due[0] = 0.5
    assert [pace.next([charge], version) for version in (1, 2, 3, 4)] == [
        None,
        None,  # half of an update: what was done before is not owed again
        (charge, 1),
        None,  # the whole one has lapsed
    ]


def test_without_a_limit_students_take_turns_for_ever() -> None:
    pace, charges = Pace(_all), (Charge(NET2), Charge(NET3))
    for turn in range(50):
        piece = pace.next(charges, 1)
        assert piece == (charges[turn % 2], 4)
        pace.add(charges[turn % 2], 4)


@pytest.mark.parametrize("begun", [False, True])
def test_pace_and_charges_survive_their_json(begun: bool) -> None:
    pace, other = (Pace(lambda key, allowed: 0.4 * allowed) for _ in range(2))
    charges, same = Charges(2, 8), Charges(2, 8)
    charges.assign([NET3, PRUNED])
    same.load_state_dict(json.loads(json.dumps(charges.state_dict())))
    assert [same.keys(index) for index in range(2)] == [charges.keys(index) for index in range(2)]
    (charge,) = charges.work(0, [NET3, PRUNED])
    assert Charge.from_json(json.loads(json.dumps(charge.to_json()))) == charge
    pace.next([charge], 3)
    if begun:
        pace.add(charge, 4)
    other.load_state_dict(json.loads(json.dumps(pace.state_dict())))
    assert other.begun(3) == begun
    for version in range(3, 9):  # fractions included
        assert other.left(charge, version) == pace.left(charge, version)
