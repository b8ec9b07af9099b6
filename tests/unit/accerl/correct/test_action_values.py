"""Q-forms: hand-computed numbers, identities on and off policy, episode ends and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from accerl.correct import (
    per_decision_importance_sampling,
    q_lambda,
    retrace,
    tree_backup,
)
from accerl.errors import UserError
from tests.fixtures.controllers import two_states

STEPS, BATCH, GAMMA = 6, 3, 0.9
ESTIMATORS: dict[str, Callable[..., Tensor]] = {
    "retrace": retrace,
    "per-decision": per_decision_importance_sampling,
    "tree-backup": tree_backup,
    "q(lambda)": q_lambda,
}


def run(name: str, data: dict[str, Any], **changes: Any) -> Tensor:
    """Call an estimator with those of `data` that it takes."""
    data = data | changes
    left_out = {
        "retrace": ("target_prob_t",),
        "per-decision": ("target_prob_t",),
        "tree-backup": ("behaviour_logp_t", "target_logp_t"),
        "q(lambda)": ("behaviour_logp_t", "target_logp_t", "target_prob_t"),
    }[name]
    return ESTIMATORS[name](**{key: data[key] for key in data if key not in left_out})


def batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(STEPS, BATCH, generator=generator, dtype=torch.float64)

    target_logp = -normal().abs()
    return {
        "q_t": normal(),
        "expected_q_tp1": normal(),
        "behaviour_logp_t": -normal().abs(),
        "target_logp_t": target_logp,
        "target_prob_t": target_logp.exp(),
        "reward_t": normal(),
        "discount_t": torch.full((STEPS, BATCH), GAMMA, dtype=torch.float64),
        "lam": torch.full((STEPS, BATCH), 0.95, dtype=torch.float64),
    }


@pytest.mark.parametrize(
    ("name", "trace"), [("retrace", 1.0), ("per-decision", 2.0), ("tree-backup", 0.5)]
)
def test_numbers_computed_by_hand(name: str, trace: float) -> None:
    # pi = 0.5 and mu = 0.25 at step 1; those of step 0 are of no account
    # target_1 = -1 + 0.5 * 3 = 0.5; target_0 = 1 + 0.5 * (4 + lam * c_1 * (0.5 - 2))
    def column(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).unsqueeze(1)

    data = {
        "q_t": column(1.0, 2.0),
        "expected_q_tp1": column(4.0, 3.0),
        "behaviour_logp_t": column(0.125, 0.25).log(),
        "target_logp_t": column(0.75, 0.5).log(),
        "target_prob_t": column(0.75, 0.5),
        "reward_t": column(1.0, -1.0),
        "discount_t": column(0.5, 0.5),
    }
    expected = 1.0 + 0.5 * (4.0 + 0.8 * trace * (0.5 - 2.0))
    assert run(name, data, lam=0.8).flatten().tolist() == pytest.approx([expected, 0.5])
    uncut = run("q(lambda)", data, lam=0.8).flatten().tolist()
    assert uncut == pytest.approx([1.0 + 0.5 * (4.0 + 0.8 * (0.5 - 2.0)), 0.5])


def test_on_policy_all_ratios_leave_q_lambda() -> None:
    data = batch()
    data["target_logp_t"] = data["behaviour_logp_t"]
    expected = run("q(lambda)", data)
    for name in ("retrace", "per-decision"):
        torch.testing.assert_close(run(name, data), expected)
    assert not torch.allclose(run("tree-backup", data), expected)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_under_a_deterministic_policy_targets_are_n_step_returns(name: str) -> None:
    """Then E_pi Q is the Q of the action that is taken, and all that is left of Q is its last."""
    data = batch()
    certain = torch.zeros_like(data["q_t"])
    data |= {
        "lam": 1.0,
        "behaviour_logp_t": certain,
        "target_logp_t": certain,
        "target_prob_t": certain.exp(),
    }
    data["expected_q_tp1"][:-1] = data["q_t"][1:]
    targets = run(name, data)
    for start in range(STEPS):
        expected = GAMMA ** (STEPS - start) * data["expected_q_tp1"][-1]
        for step in range(start, STEPS):
            expected = expected + GAMMA ** (step - start) * data["reward_t"][step]
        torch.testing.assert_close(targets[start], expected)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_without_traces_targets_are_expected_sarsa(name: str) -> None:
    data = batch()
    expected = data["reward_t"] + GAMMA * data["expected_q_tp1"]
    torch.testing.assert_close(run(name, data, lam=0.0), expected)
    assert not torch.allclose(run(name, data)[:-1], expected[:-1])


def test_retrace_cuts_only_ratios_above_one() -> None:
    data = batch()
    rarer = torch.minimum(data["target_logp_t"], data["behaviour_logp_t"])
    small = run("per-decision", data, target_logp_t=rarer)
    torch.testing.assert_close(run("retrace", data, target_logp_t=rarer), small)
    likelier = torch.maximum(data["target_logp_t"], data["behaviour_logp_t"])
    torch.testing.assert_close(run("retrace", data, target_logp_t=likelier), run("q(lambda)", data))


def test_tree_backup_backs_up_the_tree() -> None:
    """Precup et al.: the leaves not taken count with their Q, the branch taken with its target."""
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(STEPS + 1, 4, generator=generator, dtype=torch.float64)
    pi = torch.randn(STEPS + 1, 4, generator=generator, dtype=torch.float64).softmax(-1)
    reward = torch.randn(STEPS, generator=generator, dtype=torch.float64)
    actions = [0, 3, 1, 1, 2, 0]
    rows = list(range(STEPS))
    expected = [reward[-1] + GAMMA * (pi[-1] * q[-1]).sum()]
    for step in reversed(range(STEPS - 1)):
        leaves = pi[step + 1] * q[step + 1]
        leaves[actions[step + 1]] = pi[step + 1, actions[step + 1]] * expected[0]
        expected.insert(0, reward[step] + GAMMA * leaves.sum())
    targets = tree_backup(
        q_t=q[rows, actions].unsqueeze(1),
        expected_q_tp1=(pi * q).sum(-1)[1:].unsqueeze(1),
        target_prob_t=pi[rows, actions].unsqueeze(1),
        reward_t=reward.unsqueeze(1),
        discount_t=torch.full((STEPS, 1), GAMMA, dtype=torch.float64),
    )
    torch.testing.assert_close(targets.squeeze(1), torch.stack(expected))


def played(q: Tensor) -> dict[str, Any]:
    """Every way that the game of two states can go, as seen with the action values `q`."""
    states, actions = two_states.every_way()
    now = states[:-1], actions
    return {
        "q_t": q[now],
        "expected_q_tp1": (two_states.TARGET * q).sum(1)[states[1:]],
        "behaviour_logp_t": two_states.BEHAVIOUR[now].log(),
        "target_logp_t": two_states.TARGET[now].log(),
        "target_prob_t": two_states.TARGET[now],
        "reward_t": two_states.REWARD[now],
        "discount_t": torch.full(actions.shape, two_states.GAMMA, dtype=torch.float64),
    }


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_true_action_values_are_the_fixed_point(name: str) -> None:
    _, q = two_states.true_values()
    data = played(q)
    torch.testing.assert_close(run(name, data), data["q_t"])
    wrong = played(torch.zeros_like(q))
    assert not torch.allclose(run(name, wrong), wrong["q_t"])


def test_per_decision_targets_are_unbiased_whatever_q_is() -> None:
    """But for the last step, which bootstraps: there Q is right."""
    _, true = two_states.true_values()
    guess = torch.tensor([[5.0, -1.0], [2.0, 0.0]], dtype=torch.float64)
    data = played(guess)
    data["expected_q_tp1"][-1] = played(true)["expected_q_tp1"][-1]
    later = data["behaviour_logp_t"][1:].sum(0).exp()  # of what follows the first action
    for name, unbiased in (("per-decision", True), ("retrace", False), ("q(lambda)", False)):
        targets = run(name, data)[0] * later
        means = torch.stack([part.sum() for part in targets.chunk(2)])  # by the first action
        assert torch.allclose(means, true[0]) == unbiased, name


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("ending", ["discount_t", "lam"])
def test_nothing_leaks_from_the_next_episode(name: str, ending: str) -> None:
    at, env = 2, 1
    data = batch()
    data[ending][at, env] = 0.0
    disturbed = {key: value.clone() for key, value in data.items()}
    for key in ("q_t", "expected_q_tp1", "reward_t", "target_logp_t", "target_prob_t"):
        disturbed[key][at + 1 :, env] += 3.0
    first, second = run(name, data), run(name, disturbed)
    assert first[: at + 1, env].numel() == at + 1
    assert torch.equal(first[: at + 1, env], second[: at + 1, env])
    rest = [index for index in range(BATCH) if index != env]
    assert torch.equal(first[:, rest], second[:, rest])
    assert not torch.isclose(first[at + 1 :, env], second[at + 1 :, env]).any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_first_action_is_given_and_not_judged(name: str) -> None:
    data = batch()
    other = {key: value.clone() for key, value in data.items()}
    other["target_logp_t"][0] -= 1.0
    other["target_prob_t"][0] /= 2.0
    targets = run(name, data)
    assert torch.equal(targets, run(name, other))
    if name != "q(lambda)":
        other["target_logp_t"][1] = data["behaviour_logp_t"][1] - 1.0
        other["target_prob_t"][1] /= 2.0
        assert not torch.isclose(run(name, other)[0], targets[0]).any()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_gradient_flows_into_the_targets(name: str) -> None:
    data = {key: value.requires_grad_() for key, value in batch().items()}
    targets = run(name, data)
    assert not targets.requires_grad
    (0.5 * (targets - data["q_t"]).square().sum()).backward()
    torch.testing.assert_close(data["q_t"].grad, (data["q_t"] - targets).detach())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_mistakes_are_named(name: str) -> None:
    narrow = torch.zeros(STEPS, BATCH - 1, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"reward_t is \(6, 2\) but q_t is \(6, 3\)"):
        run(name, batch(), reward_t=narrow)
    with pytest.raises(ValueError, match=r"lam is .* but q_t is"):
        run(name, batch(), lam=narrow)
    with pytest.raises(UserError, match=r"lam must lie in \[0, 1\], got 2.0"):
        run(name, batch(), lam=2.0)
    judged = {"tree-backup": "target_prob_t", "q(lambda)": "expected_q_tp1"}
    with pytest.raises(ValueError, match=rf"{judged.get(name, 'target_logp_t')} is \(6, 2\) but"):
        run(name, batch(), **{judged.get(name, "target_logp_t"): narrow})
