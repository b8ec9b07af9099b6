"""The memory that a run's processes share: what a mix takes, and whether the machine has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from accerl.compress.compressor import Compressor
from accerl.errors import UserError
from accerl.runtime.process.blocks import MIXED, shared_bytes
from accerl.runtime.process.run import ProcessRun
from accerl.spec import CompressionSpec, Decision
from accerl.weights import Publication
from tests.fixtures.runs.process_runs import quick_catch
from tests.fixtures.runs.processes import shared_memory


@pytest.fixture
def run() -> Iterator[ProcessRun]:
    run = ProcessRun(quick_catch())
    yield run
    run.close()


def test_the_mailbox_has_room_for_the_largest_mix(run: ProcessRun) -> None:
    policy, config = run.learner.policy, run.config.compression
    compressor = Compressor(policy.observation, 3, config, torch.Generator())
    compressor.observe(run._rollout(0).obs[0])
    specs = [CompressionSpec(graph=graph) for graph in ("onnx", "eager", "torchscript")]
    largest = max(
        (compressor.build(spec, policy, 0) for spec in specs), key=lambda made: len(made.payload)
    )
    run._blocks.mailbox.put(Publication(0, [largest] * MIXED, [1.0 / MIXED] * MIXED))
    assert len(run._blocks.mailbox.get().artifacts) == MIXED


def test_a_larger_mix_is_refused_before_anything_starts(run: ProcessRun) -> None:
    specs = [CompressionSpec(sparsity=0.1 * tenths) for tenths in range(MIXED + 1)]
    with pytest.raises(UserError, match=r"a mix of 9 specs, and .* takes 8 at most"):
        run.apply(Decision(tuple((spec, 1.0 / len(specs)) for spec in specs)))
    assert run.orders.decision is None


@pytest.mark.parametrize("criterion", ["l1", "taylor"])
def test_what_a_run_may_take_is_what_its_segments_hold(criterion: str) -> None:
    config = quick_catch(num_distillers=2)
    config = replace(config, compression=replace(config.compression, prune_criterion=criterion))
    others = shared_memory(os.getpid())
    run = ProcessRun(config)
    held = sum(path.stat().st_size for path in shared_memory(os.getpid()) - others)
    slots = len(run._slots)
    assert shared_bytes(config, run.learner.policy, run._shape, slots, distillers=2) == held
    run.close()


def test_a_run_that_shared_memory_has_no_room_for_is_one_line() -> None:
    config = quick_catch()
    config = replace(config, compression=replace(config.compression, distill_states=10**10))
    others = shared_memory(os.getpid())
    with pytest.raises(
        UserError, match=r"may take .* MB; lower .*distill_states.*--shm-size="
    ) as no:
        ProcessRun(config)
    assert "\n" not in str(no.value)
    assert shared_memory(os.getpid()) == others
