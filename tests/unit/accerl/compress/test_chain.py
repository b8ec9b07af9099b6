from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from accerl.compress import (
    ONNX,
    CompressionState,
    CompressorChain,
    Distillation,
    Eager,
    LowRank,
    Pruning,
    Quantizer,
    TorchScript,
    make_engine,
)
from accerl.compress.links import Link, Stage
from accerl.compress.policy import compress_policy
from accerl.compress.pruning.prune import prune
from accerl.errors import UserError
from accerl.networks.adopt import require_chain
from accerl.networks.policy_net import Architecture, ObservationSpec, PolicyNet, make_policy
from accerl.spec import CompressionSpec

OBSERVATION = ObservationSpec((6,), "float32")


def make(student: str = "original") -> PolicyNet:
    net = make_policy(student, OBSERVATION, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def states(count: int = 64) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)


def test_the_papers_listing_works() -> None:
    policy = make()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    chain = CompressorChain()
    chain.add(Pruning(policy, 0.5)).add(Distillation(policy)).add(Quantizer("INT8")).add(ONNX())
    artifact = chain.compress(observations=states(), version=3)
    assert artifact.spec == CompressionSpec(sparsity=0.5, bits=8)
    assert artifact.version == 3
    logits, _ = make_engine(artifact).infer(states())
    tuned = float(np.abs(logits - policy(torch.from_numpy(states()))[0].detach().numpy()).mean())
    plain_artifact = CompressorChain.from_spec(artifact.spec).compress(
        policy, observations=states()
    )
    plain, _ = make_engine(plain_artifact).infer(states())
    untuned = float(np.abs(plain - policy(torch.from_numpy(states()))[0].detach().numpy()).mean())
    assert tuned < untuned
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ([Quantizer("INT8"), Pruning(None, 0.5)], "Pruning cannot come after Quantizer: removing"),
        ([ONNX(), Quantizer("INT8")], "Quantizer cannot come after ONNX: an exported graph"),
        ([ONNX(), TorchScript()], "does the same step twice"),
        ([Pruning(None, 0.5), Pruning(None, 0.2)], "does the same step twice"),
        ([Pruning(None, 0.5), Distillation(student=make("net3"))], "replaces the whole network"),
        ([LowRank(0.5), Pruning(None, 0.5)], "Pruning cannot come after LowRank"),
        ([Quantizer("INT8"), Distillation()], "Distillation cannot come after Quantizer: training"),
        ([Quantizer("INT8"), LowRank(0.5)], "LowRank cannot come after Quantizer: factorising"),
        ([Quantizer("INT8"), TorchScript()], "INT8 runs in ONNX Runtime only"),
        ([Quantizer("INT8"), Eager()], "INT8 runs in ONNX Runtime only"),
    ],
)
def test_senseless_orders_are_refused_with_a_reason(links: list[Link], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        CompressorChain(links)


class Noted:
    """A link of somebody's own, at the stage of a shipped one."""

    stage = Stage.QUANTISE

    def apply(self, state: CompressionState) -> CompressionState:
        return state


class NotedToo(Noted):
    """Another one."""


def test_links_of_ones_own_share_a_stage_by_hand_as_in_a_run() -> None:
    first, second = Noted(), NotedToo()
    chain = CompressorChain([first, second, Quantizer("INT8"), ONNX()])
    asked = CompressorChain.from_spec(CompressionSpec(bits=8), own_links=[first, second])
    assert [type(link) for link in asked.links] == [type(link) for link in chain.links]
    assert asked.own_links == chain.own_links == (first, second)
    with pytest.raises(UserError, match="Noted after Noted does the same step twice"):
        CompressorChain([first, Noted()])


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (make(), states().astype(np.uint8)),
        (make(), states()[:, :5]),
        (make_policy("net1", ObservationSpec((6,), "uint8"), 4, torch.Generator()), states()),
    ],
)
def test_states_that_the_policy_does_not_take_are_refused(
    policy: PolicyNet, given: np.ndarray
) -> None:
    chain = CompressorChain([Quantizer("INT8"), ONNX()])
    with pytest.raises(UserError, match=r"PolicyNet: it takes states of .* \[6\], and is given"):
        chain.compress(policy, observations=given)
    with pytest.raises(UserError, match=r"PolicyNet: it takes states of .* \[6\], and is given"):
        compress_policy(policy, observations=given)


def test_a_link_that_is_added_later_counts() -> None:
    chain = CompressorChain([Pruning(make(), 0.5)])
    pruned, _ = chain.policy.infer(states())
    assert np.array_equal(chain.policy.infer(states())[0], pruned)
    chain.add(Quantizer("INT8"))
    rounded, _ = chain.policy.infer(states())
    assert not np.array_equal(rounded, pruned)
    assert np.abs(rounded - pruned).max() < 0.05 * np.abs(pruned).max()


def test_unknown_precision_is_refused() -> None:
    with pytest.raises(UserError, match="allowed: INT8, BF16"):
        Quantizer("INT4")


def test_a_run_is_asked_to_distil_a_pruned_network_or_a_student() -> None:
    pruned = CompressorChain([Pruning(None, 0.5), Distillation(), ONNX()])
    assert pruned.spec == CompressionSpec(sparsity=0.5)
    alone = CompressorChain([Distillation(), ONNX()])
    with pytest.raises(UserError, match="needs Pruning before it, or student="):
        _ = alone.spec


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (CompressionSpec(), ["ONNX"]),
        (CompressionSpec(graph="torchscript"), ["TorchScript"]),
        (CompressionSpec(graph="eager", bits=16), ["Quantizer", "Eager"]),
        (
            CompressionSpec(student="net2", sparsity=0.5, rank=0.5, bits=8),
            ["Distillation", "LowRank", "Quantizer", "ONNX"],
        ),
    ],
)
def test_a_spec_means_a_chain(spec: CompressionSpec, names: list[str]) -> None:
    distilled = None if spec.student_key is None else prune(make("net2"), spec.sparsity)
    chain = CompressorChain.from_spec(spec, distilled)
    assert [type(link).__name__ for link in chain.links] == names
    assert chain.compress(make(), observations=states()).spec == spec


class Broken:
    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        raise ValueError("no such\nweights")


def test_a_link_of_the_user_s_that_raises_is_named() -> None:
    chain = CompressorChain([Broken(), Eager()])
    with pytest.raises(UserError, match=r"^Broken: its apply\(\) raised ValueError: no such"):
        chain.compress(make(), observations=states())


class Dividing:
    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        net = copy.deepcopy(state.net)
        with torch.no_grad():
            next(net.parameters()).div_(0.0)
        return replace(state, net=net)


def test_a_link_of_the_user_s_that_makes_nan_of_weights_is_named() -> None:
    chain = CompressorChain([Dividing(), Eager()])
    with pytest.raises(UserError, match=r"^Dividing: its apply\(\) made weights NaN or infinite"):
        chain.compress(make(), observations=states())


class Forgetful:
    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        return None  # pyright: ignore[reportReturnType]


def test_a_link_of_the_user_s_that_returns_nothing_is_named() -> None:
    chain = CompressorChain([Forgetful(), ONNX()])
    with pytest.raises(UserError, match=r"^Forgetful: its apply\(\) returned NoneType, not"):
        chain.compress(make(), observations=states())


class Dropping(nn.Module):
    """A network that is no chain of layers, as its owner trains it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBSERVATION.shape[0], 8), nn.Tanh(), nn.Dropout(0.5))
        self.policy, self.value = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden)


def test_a_module_of_the_user_s_stays_as_it_is() -> None:
    module = Dropping()
    for _ in range(2):
        CompressorChain([Eager()]).compress(module, observations=states())
        student = Distillation(student=module)
        CompressorChain([student, Eager()]).compress(make(), observations=states())
    assert all(part.training for part in module.modules())
    assert not any(part._forward_hooks for part in module.modules())


def test_a_copy_of_a_frozen_network_can_be_distilled() -> None:
    net = make().requires_grad_(False)
    chain = CompressorChain([Pruning(net, 0.5), Distillation(net, updates=2), Eager()])
    assert chain.compress(net, observations=states()).spec.sparsity == 0.5
    copied = CompressorChain([Distillation(net, updates=2), Eager()])
    copied.compress(net, observations=states())
    assert not any(weight.requires_grad for weight in net.parameters())


def test_a_student_must_be_given() -> None:
    with pytest.raises(UserError, match="needs a distilled net3"):
        CompressorChain.from_spec(CompressionSpec(student="net3"))


def test_a_student_of_other_actions_or_states_is_refused() -> None:
    other = make_policy("net3", OBSERVATION, 6, torch.Generator())
    with pytest.raises(UserError, match="distil: student must have the policy's actions, got 6"):
        CompressorChain([Distillation(student=other)]).compress(make(), observations=states())
    seen = ObservationSpec((7,), OBSERVATION.dtype)
    other = make_policy("net3", seen, 4, torch.Generator())
    with pytest.raises(UserError, match="it takes states of"):
        CompressorChain([Distillation(student=other)]).compress(make(), observations=states())


def test_a_student_of_a_local_class_is_named_after_it() -> None:
    class Local(PolicyNet):
        """Of a function."""

    chain = CompressorChain([Distillation(student=Local(Architecture((), (7,)), OBSERVATION, 4))])
    artifact = chain.compress(make(), observations=states())
    assert artifact.spec.student == f"{__name__}:Local"


def test_a_student_of_other_sizes_is_named_after_its_class() -> None:
    stranger = PolicyNet(Architecture((), (5,)), OBSERVATION, 4)
    chain = CompressorChain([Distillation(student=stranger)])
    artifact = chain.compress(make(), observations=states())
    assert artifact.spec.student == "accerl.networks.policy_net:PolicyNet"


def test_a_chain_needs_a_policy() -> None:
    with pytest.raises(UserError, match="which policy"):
        CompressorChain([Quantizer("INT8")]).compress(observations=states())


def test_chains_without_an_export_still_give_something_that_acts() -> None:
    plain = CompressorChain().compress(make(), observations=states())
    assert plain.spec == CompressionSpec(graph="eager")
    rounded = CompressorChain([Quantizer("INT8")]).compress(make(), observations=states())
    assert rounded.spec == CompressionSpec(bits=8)


@dataclass(frozen=True)
class HalveLogits:
    """A user's own link: nothing but these two members."""

    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        net = prune(require_chain(state.net), 0.0)
        with torch.no_grad():
            net.policy_head.weight.mul_(0.5)
            net.policy_head.bias.mul_(0.5)
        return replace(state, net=net)


def test_a_users_own_link_takes_part() -> None:
    policy = make()
    artifact = CompressorChain([HalveLogits(), ONNX()]).compress(policy, observations=states())
    logits, _ = make_engine(artifact).infer(states())
    expected = policy(torch.from_numpy(states()))[0].detach().numpy() * 0.5
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    with pytest.raises(UserError, match="HalveLogits cannot come after ONNX"):
        CompressorChain([ONNX(), HalveLogits()])


class MyRounding:
    """A user's own link that says 8 bits, and measures no ranges."""

    stage = Stage.QUANTISE

    def apply(self, state: CompressionState) -> CompressionState:
        return replace(state, bits=8)


def test_what_was_not_quantised_is_not_recorded_as_int8() -> None:
    chain = CompressorChain([MyRounding(), ONNX()])
    with pytest.raises(UserError, match="8 bits need activation ranges, which Quantizer"):
        chain.compress(make(), observations=states())
