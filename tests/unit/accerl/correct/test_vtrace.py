"""V-trace: hand-computed numbers, algebraic identities, episode ends and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from accerl.correct import VTraceReturns, leaky_vtrace, vtrace
from accerl.errors import UserError

STEPS, BATCH, GAMMA = 6, 3, 0.9


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape or (STEPS, BATCH), generator=generator, dtype=torch.float64)

    return {
        "behaviour_logp_t": -normal().abs(),
        "target_logp_t": -normal().abs(),
        "reward_t": normal(),
        "discount_t": torch.full((STEPS, BATCH), GAMMA, dtype=torch.float64),
        "value_t": normal(),
        "bootstrap_value": normal(BATCH),
    }


def with_following(data: dict[str, Any]) -> dict[str, Any]:
    """Return `data` with the values that follow written out."""
    following = torch.cat([data["value_t"][1:], data["bootstrap_value"].unsqueeze(0)])
    return data | {"value_tp1": following, "lam": torch.full_like(following, 0.95)}


def on_policy(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"target_logp_t": data["behaviour_logp_t"]}


def run(data: dict[str, Any], **changes: Any) -> VTraceReturns:
    return vtrace(**{**data, **changes})


def ratio(data: dict[str, Any], bar: float = math.inf) -> Tensor:
    return (data["target_logp_t"] - data["behaviour_logp_t"]).exp().clamp(max=bar)


def test_numbers_computed_by_hand() -> None:
    # rho = [2, 0.5]; delta = [1 * (1 + 0.5 * 2 - 1), 0.5 * (-1 + 0.5 * 3 - 2)] = [1, -0.75]
    # err = [1 + 0.5 * 1 * -0.75, -0.75]; q = [1 + 0.5 * 1.25, -1 + 0.5 * 3]
    vs, pg_advantage = vtrace(
        behaviour_logp_t=column(0.25, 0.5).log(),
        target_logp_t=column(0.5, 0.25).log(),
        reward_t=column(1.0, -1.0),
        discount_t=column(0.5, 0.5),
        value_t=column(1.0, 2.0),
        bootstrap_value=torch.tensor([3.0], dtype=torch.float64),
    )
    assert vs.flatten().tolist() == pytest.approx([1.625, 1.25])
    assert pg_advantage.flatten().tolist() == pytest.approx([0.625, -0.75])


def test_leaky_numbers_computed_by_hand() -> None:
    # rho = 3, 0.5 * 3 + 0.5 * min(bar, 3): 2 for rho_bar 1, and 1.75 for c_bar 0.5
    # delta = [2 * (1 + 0.5 * 2 - 1), 2 * (-1 + 0.5 * 4 - 2)]; err = [2 + 0.5 * 1.75 * -2, -2]
    vs, pg_advantage = leaky_vtrace(
        behaviour_logp_t=column(0.25, 0.25).log(),
        target_logp_t=column(0.75, 0.75).log(),
        reward_t=column(1.0, -1.0),
        discount_t=column(0.5, 0.5),
        value_t=column(1.0, 2.0),
        bootstrap_value=torch.tensor([4.0], dtype=torch.float64),
        c_bar=0.5,
        alpha=0.5,
    )
    assert vs.flatten().tolist() == pytest.approx([1.0 + 0.25, 0.0])
    # q = [1 + 0.5 * 0, -1 + 0.5 * 4]; the weight of the policy gradient does not leak
    assert pg_advantage.flatten().tolist() == pytest.approx([0.0, -1.0])


def test_alpha_goes_from_importance_sampling_to_vtrace() -> None:
    data = batch()
    kept, none = leaky_vtrace(**data, alpha=1.0), leaky_vtrace(**data, alpha=0.0)
    untruncated = run(data, rho_bar=math.inf, c_bar=math.inf)
    for plain, leaky in ((run(data), kept), (untruncated, none)):
        for first, second in zip(plain, leaky, strict=True):
            torch.testing.assert_close(first, second)
    assert not torch.allclose(kept.vs, leaky_vtrace(**data, alpha=0.9).vs)


def test_on_policy_targets_are_n_step_returns() -> None:
    data = on_policy(batch())
    output = run(data)
    for start in range(STEPS):
        expected = GAMMA ** (STEPS - start) * data["bootstrap_value"]
        for step in range(start, STEPS):
            expected = expected + GAMMA ** (step - start) * data["reward_t"][step]
        torch.testing.assert_close(output.vs[start], expected)
        torch.testing.assert_close(output.pg_advantage[start], expected - data["value_t"][start])


def test_without_traces_targets_are_one_step_corrections() -> None:
    data = batch()
    output = run(data, lam=0.0, pg_rho_bar=math.inf)
    following = with_following(data)["value_tp1"]
    one_step = data["reward_t"] + GAMMA * following - data["value_t"]
    torch.testing.assert_close(output.vs, data["value_t"] + ratio(data, 1.0) * one_step)
    torch.testing.assert_close(output.pg_advantage, ratio(data) * one_step)


@pytest.mark.parametrize(
    "zeroed",
    [{"rho_bar": 0.0, "c_bar": 0.0}, {"target_logp_t": torch.full((STEPS, BATCH), -math.inf)}],
    ids=["truncated to 0", "impossible"],
)
def test_nothing_is_learned_from_a_policy_that_never_acts_so(zeroed: dict[str, Any]) -> None:
    data = batch()
    zeroed = {k: v.double() if isinstance(v, Tensor) else v for k, v in zeroed.items()}
    assert torch.equal(run(data, **zeroed).vs, data["value_t"])


def test_ratios_above_every_bar_count_as_the_bar() -> None:
    data = batch()
    bars = {"rho_bar": 1.5, "c_bar": 1.5, "pg_rho_bar": 1.5}
    behaviour = data["behaviour_logp_t"]
    at_bar = run(data, target_logp_t=behaviour + math.log(1.5) + 1e-9, **bars)
    above = run(data, target_logp_t=behaviour + 1e4, **bars)  # overflows
    for first, second in zip(at_bar, above, strict=True):
        torch.testing.assert_close(first, second)


def test_rho_bar_moves_the_target_and_c_bar_only_the_trace() -> None:
    data = batch()
    last = run(data, rho_bar=1.0, c_bar=1.0).vs[-1]
    assert torch.equal(run(data, rho_bar=1.0, c_bar=0.2).vs[-1], last)
    assert not torch.allclose(run(data, rho_bar=0.2, c_bar=0.2).vs[-1], last)


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_nothing_leaks_from_the_next_episode(ending: str) -> None:
    at, env = 2, 1
    data = with_following(batch())
    data["discount_t" if ending == "terminated" else "lam"][at, env] = 0.0
    plain = run(data)
    disturbed = {name: value.clone() for name, value in data.items()}
    for name in ("value_t", "value_tp1", "reward_t", "target_logp_t"):
        disturbed[name][at + 1 :, env] += 3.0
    other = run(disturbed)
    for first, second in zip(plain, other, strict=True):
        before, after = slice(0, at + 1), slice(at + 1, None)
        assert first[before, env].numel() == at + 1
        assert torch.equal(first[before, env], second[before, env])
        rest = [index for index in range(BATCH) if index != env]
        assert torch.equal(first[:, rest], second[:, rest])
        assert not torch.equal(first[after, env], second[after, env])


def test_a_truncated_episode_bootstraps_from_its_own_last_value() -> None:
    at, env, bump = 2, 1, 10.0
    data = with_following(batch())
    data["lam"][at, env] = 0.0
    raised = data | {"value_tp1": data["value_tp1"].clone()}
    raised["value_tp1"][at, env] += bump
    plain, change = run(data), run(raised)
    rho = ratio(data, 1.0)[at, env]
    torch.testing.assert_close(change.vs[at, env] - plain.vs[at, env], rho * GAMMA * bump)
    moved = change.pg_advantage[at, env] - plain.pg_advantage[at, env]
    torch.testing.assert_close(moved, rho * GAMMA * bump)


def test_a_terminated_episode_ignores_what_follows() -> None:
    data = with_following(batch())
    data["discount_t"][2, 1] = 0.0
    raised = data | {"value_tp1": data["value_tp1"].clone()}
    raised["value_tp1"][2, 1] += 10.0
    for first, second in zip(run(data), run(raised), strict=True):
        assert torch.equal(first, second)


def test_no_gradient_flows_into_the_outputs() -> None:
    data = {name: value.requires_grad_() for name, value in batch().items()}
    for output in (run(data, lam=0.9), leaky_vtrace(**data)):
        assert not any(field.requires_grad for field in output)
        data["value_t"].grad = None
        loss = 0.5 * (output.vs - data["value_t"]).square().sum()
        loss.backward()
        torch.testing.assert_close(data["value_t"].grad, (data["value_t"] - output.vs).detach())
    assert all(value.grad is None for name, value in data.items() if name != "value_t")


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"reward_t": torch.zeros(STEPS, BATCH + 1).double()}, "reward_t is .* but value_t is"),
        ({"value_tp1": torch.zeros(STEPS).double()}, r"value_tp1 must be a non-empty \[T, B\]"),
        ({"reward_t": torch.zeros(STEPS, BATCH).int()}, "reward_t must be floating point"),
        ({"reward_t": torch.zeros(STEPS, BATCH)}, "reward_t is torch.float32 but value_t is"),
        ({"lam": torch.zeros(1, BATCH).double()}, "lam is .* but value_t is"),
        ({"value_t": torch.zeros(0, BATCH).double()}, "value_t must be a non-empty"),
        (
            {"bootstrap_value": torch.zeros(1, BATCH).double()},
            r"bootstrap_value is \(1, 3\), not \[B\] with B 3",
        ),
    ],
)
def test_wrong_shapes_are_named(replaced: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(batch(), **replaced)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"rho_bar": -1.0}, "rho_bar is a truncation level and must be at least 0, got -1.0"),
        ({"c_bar": math.nan}, "c_bar is a truncation level"),
        ({"pg_rho_bar": -0.1}, "pg_rho_bar is a truncation level"),
        ({"lam": 1.5}, r"lam must lie in \[0, 1\], got 1.5"),
        ({"alpha": -0.1}, r"alpha must lie in \[0, 1\], got -0.1"),
    ],
)
def test_numbers_out_of_range_are_refused(replaced: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        leaky_vtrace(**batch(), **replaced)
