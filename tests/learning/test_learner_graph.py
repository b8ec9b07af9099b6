"""A residual network of a user's own learns Catch, with pruned actors, and goes on bit by bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import pytest
import torch
from torch import nn

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.learner.learner import Learner
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import GraphPolicy
from accerl.presets import load_preset
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.serial.clock import VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import CompressionSpec, Decision
from tests.fixtures.own_networks import Bounded, Centred, Double, Fused
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch, weights_hash
from tests.fixtures.runs.learners import CONFIG, VECTOR, A, make_rollout

OWN = "tests.fixtures.own_networks:residual_board"
DENSE = CompressionSpec(graph="eager")
PRUNED = CompressionSpec(sparsity=0.5, graph="torchscript")
SOLVED = 0.9  # random play scores -0.6, perfect play 1


def virtual_clock() -> VirtualClock:
    return VirtualClock(replace(fast_profile(num_actors=1), network=OWN).for_network(OWN))


@pytest.mark.slow
def test_it_learns_while_pruned_copies_act() -> None:
    run = SerialRun(replace(load_preset("catch"), network=OWN), virtual_clock())
    run.apply(Decision.of(PRUNED))
    reports = [run.advance(0.3)]
    while reports[-1].total_env_steps < 40_000:
        reports.append(run.advance(0.3))
    run.close()
    first, last = reports[0].learner_return, reports[-1].learner_return
    assert isinstance(run.learner.policy, GraphPolicy)
    assert first is not None
    assert last is not None
    assert first < SOLVED <= last
    assert sum(reports[-1].episode_returns) / len(reports[-1].episode_returns) >= SOLVED - 0.15
    assert reports[-1].spec_seconds.keys() == {PRUNED}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_goes_on_bit_by_bit(precision: str, tmp_path: Path) -> None:
    config = replace(tiny_catch(), network=OWN).with_learner(precision=precision)

    def go_on(run: SerialRun) -> tuple[list[str], str]:
        lines = []
        for spec in (DENSE, PRUNED):
            run.apply(Decision.of(spec))
            lines.append(json.dumps(run.advance(0.013).to_json(), sort_keys=True))
        return lines, weights_hash(run.learner.policy)

    run, fresh = (SerialRun(config, virtual_clock()) for _ in range(2))
    run.apply(Decision.of(PRUNED))
    run.advance(0.02)
    save_checkpoint(tmp_path / "checkpoint", run.snapshot())
    expected = go_on(run)
    fresh.apply(Decision.of(DENSE))
    fresh.advance(0.01)
    fresh.restore(load_checkpoint(tmp_path / "checkpoint"))
    assert go_on(fresh) == expected
    run.close()
    fresh.close()


@pytest.mark.slow
def test_it_learns_in_processes() -> None:
    config = replace(tiny_catch(), network=OWN).with_learner(device="cpu")
    config = config.with_runtime(runtime="process", clock="real", num_distillers=1)
    run = ProcessRun(config)
    try:
        before = weights_hash(run.learner.policy)
        run.apply(Decision.of(PRUNED))
        reports, end = [run.advance(0.5)], perf_counter() + 60.0
        while PRUNED not in reports[-1].spec_seconds or not reports[-1].learner_updates:
            reports.append(run.advance(0.5))
            assert perf_counter() < end, "no rollouts of the pruned network arrive"
        assert weights_hash(run.learner.policy) != before
    finally:
        run.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", [Bounded, Centred, Fused, Double])
def test_heads_of_any_form_learn_in_any_precision(kind: type[nn.Module], precision: str) -> None:
    torch.manual_seed(0)
    policy = as_policy(kind(VECTOR, A), VECTOR)
    before = next(policy.parameters()).detach().clone()
    learner = Learner(policy, replace(CONFIG, precision=precision))
    logits, values, _ = learner._network(torch.randn(4, *VECTOR.shape))
    assert logits.dtype == values.dtype == torch.float32
    # Values that went through bfloat16 have no more than 8 bits.
    assert not torch.equal(values, values.bfloat16().float())
    learner.update(make_rollout())
    assert not torch.equal(next(policy.parameters()), before)
