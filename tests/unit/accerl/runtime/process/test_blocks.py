"""The memory that a run's processes share: what a mix takes, and whether the machine has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from accerl.compress.compressor import Compressor
from accerl.errors import UserError
from accerl.runtime.process.blocks import MIXED
from accerl.runtime.process.run import ProcessRun
from accerl.spec import CompressionSpec, Decision
from accerl.weights import Publication
from tests.fixtures.runs.process_runs import quick_catch


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
