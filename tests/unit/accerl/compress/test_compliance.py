"""Every compressor obeys the contract that a user's own link must obey too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accerl.compress import (
    ONNX,
    CompressionState,
    Distillation,
    Eager,
    LowRank,
    Pruning,
    Quantizer,
    SimulatedQuantizer,
    TorchScript,
)
from accerl.compress.compliance import BOARD, VECTOR, LinkCompliance
from accerl.compress.links import Link, Stage
from accerl.compress.lowrank import LowRankMethod
from accerl.compress.pruning.criteria import PruneMethod
from accerl.errors import UserError
from accerl.networks.policy_net import make_policy


class TestPruning(LinkCompliance):
    def make(self) -> Link:
        return Pruning(None, 0.25)

    def make_identity(self) -> Link:
        return Pruning(None, 0.0)

    def make_harder(self) -> Link:
        return Pruning(None, 0.75)


class TestPruningThatCompensates(TestPruning):
    METHOD = PruneMethod(criterion="geometric-median", compensate=True)

    def make(self) -> Link:
        return Pruning(None, 0.25, self.METHOD)

    def make_identity(self) -> Link:
        return Pruning(None, 0.0, self.METHOD)

    def make_harder(self) -> Link:
        return Pruning(None, 0.75, self.METHOD)


class TestLowRank(LinkCompliance):
    def make(self) -> Link:
        return LowRank(0.4)

    def make_identity(self) -> Link:
        return LowRank(1.0)

    def make_harder(self) -> Link:
        return LowRank(0.1)


class TestTucker(TestLowRank):
    OBSERVATIONS = (BOARD,)
    METHOD = LowRankMethod(convolutions=True)

    def make(self) -> Link:
        return LowRank(0.4, self.METHOD)

    def make_identity(self) -> Link:
        return LowRank(1.0, self.METHOD)

    def make_harder(self) -> Link:
        return LowRank(0.1, self.METHOD)


class TestINT8(LinkCompliance):
    def make(self) -> Link:
        return Quantizer("INT8")


class TestBF16(LinkCompliance):
    def make(self) -> Link:
        return Quantizer("BF16")

    def make_harder(self) -> Link:
        return Quantizer("INT8")


class TestSimulatedBits(LinkCompliance):
    def make(self) -> Link:
        return SimulatedQuantizer(6)

    def make_harder(self) -> Link:
        return SimulatedQuantizer(3)


class TestTuning(LinkCompliance):
    def make(self) -> Link:
        return Distillation(updates=3)

    def make_identity(self) -> Link:
        return Distillation(updates=0)


class TestStudent(LinkCompliance):
    OBSERVATIONS = (VECTOR,)

    def make(self) -> Link:
        return Distillation(
            student=make_policy("net3", VECTOR, 5, torch.Generator().manual_seed(1))
        )


class TestONNX(LinkCompliance):
    def make(self) -> Link:
        return ONNX()

    make_identity = make


class TestTorchScript(LinkCompliance):
    def make(self) -> Link:
        return TorchScript()

    make_identity = make


class TestEager(LinkCompliance):
    def make(self) -> Link:
        return Eager()

    make_identity = make


@dataclass
class Forgetful:
    """A link that compresses harder each time: what the suite must catch."""

    stage = Stage.PRUNE
    calls = 0

    def apply(self, state: CompressionState) -> CompressionState:
        Forgetful.calls += 1
        with torch.no_grad():
            next(state.net.parameters()).mul_(1.0 / Forgetful.calls)
        return state


@pytest.mark.parametrize(
    "test", ["test_the_policy_is_left_as_it_is", "test_equal_inputs_give_equal_artifacts"]
)
def test_the_suite_catches_a_link_that_cheats(test: str) -> None:
    class Suspect(LinkCompliance):
        def make(self) -> Link:
            return Forgetful()

    with pytest.raises(AssertionError):
        getattr(Suspect(), test)()


def test_the_suite_catches_an_identity_that_is_none() -> None:
    class Suspect(TestPruning):
        def make_identity(self) -> Link:
            return Pruning(None, 0.5)

        def make_harder(self) -> Link:
            return Pruning(None, 0.0)

    for test in ("test_compressing_nothing_changes_nothing", "test_harder_compression_costs_more"):
        with pytest.raises(AssertionError):
            getattr(Suspect(), test)()


@pytest.mark.parametrize(
    ("link", "arguments", "reason"),
    [
        (Pruning, {"sparsity": -0.1}, "fraction removed"),
        (Pruning, {"sparsity": 1.0}, "fraction removed"),
        (Pruning, {"sparsity": float("nan")}, "fraction removed"),
        (Pruning, {"sparsity": "0.5"}, "fraction removed"),
        (LowRank, {"rank": 0.0}, "fraction of singular values"),
        (LowRank, {"rank": 1.5}, "fraction of singular values"),
        (LowRank, {"rank": "all"}, "fraction of singular values"),
        (Quantizer, {"precision": "INT4"}, "does not exist"),
        (SimulatedQuantizer, {"bits": 1}, "2..16"),
        (SimulatedQuantizer, {"bits": 17}, "2..16"),
        (Distillation, {"updates": -1}, "a whole number that is not negative"),
        (Distillation, {"updates": 1.5}, "a whole number that is not negative"),
        (Distillation, {"learning_rate": 0.0}, "must be positive"),
    ],
)
def test_bad_arguments_are_refused_at_once(
    link: Any, arguments: dict[str, Any], reason: str
) -> None:
    if link is Pruning:
        arguments = {"policy": None, **arguments}
    with pytest.raises(UserError, match=reason):
        link(**arguments)
