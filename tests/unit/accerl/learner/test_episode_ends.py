"""What the learner makes of the ends of episodes: terminations, truncations and lost lives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.fixtures.runs.learners import CONFIG, B, T, make_learner, make_rollout, tensors


@pytest.mark.parametrize("end", ["terminated", "truncated", "neither"])
def test_the_next_episode_does_not_leak_into_targets(end: str) -> None:
    """Step 2 of environment 1 is an episode's last: what follows belongs to another one."""
    learner, rollout = make_learner(), make_rollout(ends=0.0)
    if end != "neither":
        getattr(rollout, end)[2, 1] = True

    def targets() -> tuple[Tensor, Tensor]:
        batch = tensors(rollout)
        with torch.no_grad():
            logits, values, _ = learner._forward(batch["obs"])
            log_policy = torch.log_softmax(logits[:-1], -1)
            log_prob = log_policy.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1)
            return learner._targets(batch, values, log_prob)[:2]

    before = targets()
    rollout.obs[3:, 1] += 2.0
    rollout.reward[3:, 1] -= 1.0
    for old, new in zip(before, targets(), strict=True):
        same = torch.isclose(old, new, atol=0.0, rtol=0.0)
        assert same[:, [0, 2, 3, 4]].all()
        assert not same[3:, 1].any()
        assert same[:3, 1].all() == (end != "neither")


def test_a_lost_life_ends_the_episode_only_where_that_is_asked_for() -> None:
    rollout = make_rollout(ends=0.0)
    values, on_policy = torch.full((T + 1, B), 7.0), tensors(rollout)["log_prob"]

    def targets(field: str, *, life_loss_ends: bool) -> Tensor:
        learner = make_learner(replace(CONFIG, life_loss_ends=life_loss_ends))
        ended = torch.zeros(T, B, dtype=torch.bool)
        ended[2, 1] = True
        ending = {**tensors(rollout), field: ended}
        return learner._targets(ending, values, on_policy).value_targets

    as_death = targets("life_lost", life_loss_ends=True)
    torch.testing.assert_close(as_death, targets("terminated", life_loss_ends=True))
    kept = targets("life_lost", life_loss_ends=False)
    torch.testing.assert_close(kept, targets("unused", life_loss_ends=False))
    assert not torch.isclose(as_death[2, 1], kept[2, 1])


def test_a_truncated_episode_is_worth_more_than_its_last_reward() -> None:
    """At a termination that is all there is to come; at a truncation the value goes on."""
    learner = make_learner(replace(CONFIG, clip_rho=100.0, clip_c=100.0, lam=1.0))
    batch = tensors(make_rollout(ends=0.0))
    on_policy, values = batch["log_prob"], torch.full((T + 1, B), 7.0)
    for end, to_come in (("terminated", 1.0), ("truncated", 1.0 + 0.99 * 7.0)):
        ended = {**batch, "reward": torch.ones(T, B)}
        ended[end] = torch.zeros(T, B, dtype=torch.bool)
        ended[end][2] = True
        targets = learner._targets(ended, values, on_policy)
        torch.testing.assert_close(targets.advantages[2], torch.full((B,), to_come - 7.0))
        before = targets.value_targets[1]
        torch.testing.assert_close(before, torch.full((B,), 1.0 + 0.99 * to_come))


def test_an_end_as_time_is_up_is_an_end() -> None:
    """As where an environment terminates in the step that its limit allows last."""
    learner, batch = make_learner(), tensors(make_rollout(ends=0.0))
    ends = torch.zeros(T, B, dtype=torch.bool)
    ends[2, 1] = True
    values = torch.randn((T + 1, B), generator=torch.Generator().manual_seed(0))
    ended = {**batch, "terminated": ends}
    alone, both = (
        learner._targets(each, values, batch["log_prob"])
        for each in (ended, {**ended, "truncated": ends})
    )
    for one, other in zip(alone[:2], both[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


def test_what_is_paid_as_time_is_up_is_not_counted_for_ever() -> None:
    """The value of the state before a cut stands in for the one after it, so it must not chase
    itself: with a discount of 0.99 it would settle at a hundred times the reward."""
    learner, batch = make_learner(), tensors(make_rollout(ends=0.0))
    batch["truncated"] = torch.zeros(T, B, dtype=torch.bool)
    batch["truncated"][2, 1] = True
    values = torch.randn((T + 1, B), generator=torch.Generator().manual_seed(0))
    fitted = learner._targets(batch, values, batch["log_prob"]).value_targets
    assert fitted[2, 1] == values[2, 1]
    assert (fitted != values[:-1]).sum() == T * B - 1
