"""V-trace: hand-computed numbers, algebraic identities, episode ends and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from accerl.correct import VTraceOutput, vtrace

STEPS, BATCH, GAMMA = 6, 3, 0.9


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def batch() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(STEPS, BATCH, generator=generator, dtype=torch.float64)

    v_tm1 = normal()
    return {
        "v_tm1": v_tm1,
        "v_t": torch.cat([v_tm1[1:], normal()[:1]]),
        "r_t": normal(),
        "discount_t": torch.full_like(v_tm1, GAMMA),
        "rho_tm1": normal().exp(),
    }


def run(data: dict[str, Any], **changes: Any) -> VTraceOutput:
    return vtrace(**{**data, **changes})


def test_numbers_computed_by_hand() -> None:
    # delta = [1 * (1 + 0.5 * 2 - 1), 0.5 * (-1 + 0.5 * 3 - 2)] = [1, -0.75]
    # err = [1 + 0.5 * 1 * -0.75, -0.75]; q = [1 + 0.5 * 1.25, -1 + 0.5 * 3]
    output = vtrace(
        column(1.0, 2.0), column(2.0, 3.0), column(1.0, -1.0), column(0.5, 0.5), column(2.0, 0.5)
    )
    assert output.vs.flatten().tolist() == [1.625, 1.25]
    assert output.rhos.flatten().tolist() == [1.0, 0.5]
    assert output.advantages.flatten().tolist() == [0.625, -1.5]
    assert output.pg_advantages.flatten().tolist() == [0.625, -0.75]


def test_on_policy_targets_are_n_step_returns() -> None:
    data = batch()
    output = run(data, rho_tm1=torch.ones(STEPS, BATCH, dtype=torch.float64))
    for start in range(STEPS):
        expected = GAMMA ** (STEPS - start) * data["v_t"][-1]
        for step in range(start, STEPS):
            expected = expected + GAMMA ** (step - start) * data["r_t"][step]
        torch.testing.assert_close(output.vs[start], expected)
        torch.testing.assert_close(output.advantages[start], expected - data["v_tm1"][start])


def test_without_traces_targets_are_one_step_corrections() -> None:
    data = batch()
    output = run(data, lambda_=0.0)
    one_step = data["r_t"] + GAMMA * data["v_t"] - data["v_tm1"]
    torch.testing.assert_close(output.vs, data["v_tm1"] + data["rho_tm1"].clamp(max=1) * one_step)
    torch.testing.assert_close(output.advantages, one_step)


@pytest.mark.parametrize(
    "zeroed", [{"clip_rho": 0.0, "clip_c": 0.0}, {"rho_tm1": torch.zeros(STEPS, BATCH).double()}]
)
def test_nothing_is_learned_from_a_policy_that_never_acts_so(zeroed: dict[str, Any]) -> None:
    data = batch()
    output = run(data, **zeroed)
    assert torch.equal(output.vs, data["v_tm1"])


def test_ratios_above_every_clip_count_as_the_clip() -> None:
    clips = {"clip_rho": 1.5, "clip_c": 1.5, "clip_pg_rho": 1.5}
    at_clip = run(batch(), rho_tm1=torch.full((STEPS, BATCH), 1.5).double(), **clips)
    above = run(batch(), rho_tm1=torch.full((STEPS, BATCH), math.inf).double(), **clips)
    for first, second in zip(at_clip, above, strict=True):
        assert torch.equal(first, second)


def test_rho_bar_moves_the_target_and_c_bar_only_the_trace() -> None:
    data = batch()
    last = run(data, clip_rho=1.0, clip_c=1.0).vs[-1]
    assert torch.equal(run(data, clip_rho=1.0, clip_c=0.2).vs[-1], last)
    assert not torch.allclose(run(data, clip_rho=0.2, clip_c=0.2).vs[-1], last)


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_nothing_leaks_from_the_next_episode(ending: str) -> None:
    at, env = 2, 1
    data = batch() | {"lambda_": torch.full((STEPS, BATCH), 0.95, dtype=torch.float64)}
    data["discount_t" if ending == "terminated" else "lambda_"][at, env] = 0.0
    plain = run(data)
    disturbed = {name: value.clone() for name, value in data.items()}
    for name in ("v_tm1", "v_t", "r_t", "rho_tm1"):
        disturbed[name][at + 1 :, env] += 3.0
    other = run(disturbed)
    for first, second in zip(plain, other, strict=True):
        before, after = slice(0, at + 1), slice(at + 1, None)
        assert first[before, env].numel() == at + 1
        assert torch.equal(first[before, env], second[before, env])
        rest = [index for index in range(BATCH) if index != env]
        assert torch.equal(first[:, rest], second[:, rest])
        if first is not plain.rhos:
            assert not torch.equal(first[after, env], second[after, env])


def test_a_truncated_episode_bootstraps_from_its_own_last_value() -> None:
    at, env, bump = 2, 1, 10.0
    data = batch() | {"lambda_": torch.ones(STEPS, BATCH, dtype=torch.float64)}
    data["lambda_"][at, env] = 0.0
    plain = run(data)
    raised = data | {"v_t": data["v_t"].clone()}
    raised["v_t"][at, env] += bump
    change = run(raised)
    rho = data["rho_tm1"][at, env].clamp(max=1)
    torch.testing.assert_close(
        change.vs[at, env] - plain.vs[at, env], rho * GAMMA * bump, rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(
        change.advantages[at, env] - plain.advantages[at, env],
        torch.tensor(GAMMA * bump, dtype=torch.float64),
    )


def test_a_terminated_episode_ignores_what_follows() -> None:
    data = batch()
    data["discount_t"][2, 1] = 0.0
    plain = run(data)
    raised = data | {"v_t": data["v_t"].clone()}
    raised["v_t"][2, 1] += 10.0
    for first, second in zip(plain, run(raised), strict=True):
        assert torch.equal(first, second)


def test_no_gradient_flows_into_the_outputs() -> None:
    data = {name: value.requires_grad_() for name, value in batch().items()}
    output = run(data, lambda_=0.9)
    assert not any(field.requires_grad for field in output)
    loss = 0.5 * (output.vs - data["v_tm1"]).square().sum()
    loss.backward()
    torch.testing.assert_close(data["v_tm1"].grad, (data["v_tm1"] - output.vs).detach())
    assert all(data[name].grad is None for name in ("v_t", "r_t", "discount_t", "rho_tm1"))


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"r_t": torch.zeros(STEPS, BATCH + 1).double()}, "r_t is .* but v_tm1 is"),
        ({"v_t": torch.zeros(STEPS).double()}, r"v_t must be a non-empty \[T, B\]"),
        ({"r_t": torch.zeros(STEPS, BATCH, dtype=torch.int64)}, "r_t must be floating point"),
        ({"lambda_": torch.zeros(1, BATCH).double()}, "lambda_ is .* but v_tm1 is"),
        ({"v_tm1": torch.zeros(0, BATCH).double()}, "v_tm1 must be a non-empty"),
    ],
)
def test_wrong_shapes_are_named(replaced: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(batch(), **replaced)
