"""Students that several distillers share: what each adds is what acts."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest
import torch

from accerl.compress.compliance import VECTOR, decided_policy, random_states
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.distillation.sharing import SHARED_STEP, Shown, StudentShares
from accerl.networks.graph_policy import Policy
from accerl.spec import CompressionSpec, StudentKey

NET3, PRUNED = CompressionSpec(student="net3"), CompressionSpec(sparsity=0.5)
KEY = StudentKey("net3", 0.0)


def compressor(seed: int) -> Compressor:
    config = CompressionConfig(calibration_states=256, distill_batch=16)
    made = Compressor(VECTOR, 5, config, torch.Generator().manual_seed(seed))
    made.observe(random_states(VECTOR, 256))
    return made


class Team:
    """Distillers of one student that take turns, as if each had a core."""

    def __init__(self, size: int, spec: CompressionSpec = NET3) -> None:
        self.spec = spec
        self.policy: Policy = decided_policy(VECTOR)
        self.members = [StudentShares(compressor(seed), seed) for seed in range(size)]
        self.shown = Shown(size)

    def round(
        self, *, only: int | None = None, sharers: int | None = None, updates: int = 4
    ) -> list[int]:
        """Have all do a piece side by side, then show it; return the updates of each."""
        done = []
        for index, member in enumerate(self.members):
            if only not in (None, index):
                continue
            done.append(
                member.train(
                    self.spec,
                    self.policy,
                    updates,
                    0,
                    leads=index == 0,
                    sharers=sharers or len(self.members),
                    shown=self.shown.besides(index),
                )
            )
        for index, member in enumerate(self.members):
            self.shown.put(index, member.entries([self.spec.student_key or KEY]))
        return done

    def student(self) -> dict[str, torch.Tensor]:
        (entry,) = self.shown.students()
        return entry["weights"]

    def kl(self) -> float:
        publisher = compressor(9)
        publisher.take_students(self.shown.students())
        kl = publisher.student_kl_nats(self.spec, self.policy)
        assert kl is not None
        return kl


def deltas(team: Team) -> list[dict[str, Any]]:
    return [entry["delta"] for i in range(len(team.members)) for entry in team.shown.of(i)]


def test_a_distiller_alone_shows_what_it_has() -> None:
    team, alone = Team(1), compressor(0)
    for _ in range(3):
        assert team.round() == [4]
        alone.distill(team.policy, [NET3], 0, 4)
    expected = alone.pool.trainer(KEY).net.state_dict()
    for name, weights in team.student().items():
        assert torch.equal(weights, expected[name])


def test_a_student_is_where_it_began_plus_what_all_have_added() -> None:
    team = Team(3)
    assert team.round() == [4, 0, 0]  # who helps needs somewhere to begin
    base = team.student()
    assert team.round() == [4, 4, 4]
    added = deltas(team)
    assert len(added) == 3
    for name, weights in team.student().items():
        torch.testing.assert_close(weights, base[name] + sum(each[name] for each in added))
    # Each began its piece there: what it has made of that differs by its own step alone.
    for index, member in enumerate(team.members):
        net = member._pool.trainer(KEY).net.state_dict()
        for name, weights in net.items():
            step = added[index][name] * 3**SHARED_STEP
            torch.testing.assert_close(weights, base[name] + step, rtol=1e-4, atol=1e-5)
    # They drew different states.
    assert not torch.equal(*(each["policy_head.weight"] for each in added[1:]))


def test_who_is_late_or_dead_holds_nobody_up_and_loses_nothing() -> None:
    team = Team(3)
    for _ in range(3):
        team.round()
    before, stuck = team.student(), deltas(team)[2]
    for _ in range(4):
        team.round(only=1)
    after = team.student()
    assert not torch.equal(before["policy_head.weight"], after["policy_head.weight"])
    for name, delta in deltas(team)[2].items():
        assert torch.equal(delta, stuck[name])


@pytest.mark.parametrize("index", [0, 1])
def test_a_successor_goes_on_from_what_was_shown(index: int) -> None:
    team = Team(2)
    for _ in range(4):
        team.round()
    before = team.student()
    team.members[index] = StudentShares(compressor(20 + index), index)
    team.members[index].recover(team.shown.of(index), decided_policy(VECTOR))
    (entry,) = team.members[index].entries([KEY])
    assert (entry["generation"], entry["base"]) == (0, 1)
    team.shown.put(index, [entry])
    after = team.student()
    assert all(torch.equal(weights, after[name]) for name, weights in before.items())
    far = team.kl()
    for _ in range(10):
        assert team.round() == [4, 4]
    assert team.kl() < far


def test_a_network_that_is_begun_anew_leaves_what_was_added_to_the_old_one_behind() -> None:
    team = Team(2)
    for _ in range(3):
        team.round()
    leader = team.members[0]._pool
    leader.trainer(KEY).generation += 1
    with torch.no_grad():
        for weight in leader.trainer(KEY).net.parameters():
            weight.zero_()
    # Its last piece was added to the old one; from the next on, all have the new one.
    team.round(only=0)
    assert {entry["generation"] for entry in team.shown.students()} == {1}
    team.round()
    assert all(entry["generation"] == 1 for index in (0, 1) for entry in team.shown.of(index))


def test_who_helped_may_leave_and_come_back() -> None:
    team = Team(2)
    for _ in range(3):
        team.round()
    together = team.student()
    team.round(only=0, sharers=1)
    (entry,) = team.shown.of(0)
    assert "delta" not in entry
    # It went on from what both had made.
    drift = max(float((entry["weights"][n] - w).abs().max()) for n, w in together.items())
    assert 0.0 < drift < 0.05
    assert team.round() == [4, 0]
    assert team.round() == [4, 4]


def test_pruned_networks_are_shared_too() -> None:
    team = Team(2, PRUNED)
    team.round()
    assert team.round() == [4, 4]


def test_four_bring_a_student_as_close_in_the_same_time_as_one() -> None:
    one, four = Team(1), Team(4)
    for _ in range(30):
        one.round()
        four.round()
    assert four.kl() < 1.1 * one.kl()


def test_a_share_of_the_updates_each_is_no_match_for_one_with_all_of_them() -> None:
    """Why a limit is given to one: four with 3 updates each against one with 12, on the move."""

    def kl(size: int, updates: int) -> float:
        team, dice, found = Team(size), torch.Generator().manual_seed(3), []
        for turn in range(20):
            with torch.no_grad():
                for weight in team.policy.parameters():
                    step = 0.05 * weight.abs().mean()
                    weight += step * torch.randn(weight.shape, generator=dice)
            team.round(updates=updates)
            if turn >= 12 and turn % 2 == 0:
                found.append(team.kl())
        return fmean(found)

    assert kl(4, 3) > 2.0 * kl(1, 12)


def test_a_state_goes_on_to_the_bit() -> None:
    team, other = Team(2), Team(2)
    for _ in range(3):
        team.round()
    for mine, theirs in zip(team.members, other.members, strict=True):
        theirs._compressor.load_state_dict(mine._compressor.state_dict())
        theirs.load_state_dict(mine.state_dict())
    other.shown.load_state_dict(team.shown.state_dict())
    for _ in range(2):
        assert team.round() == other.round()
    mine, theirs = team.student(), other.student()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
