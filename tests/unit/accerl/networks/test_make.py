"""Students of a user's own: found by import path, checked, distilled, compressed, resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress import (
    CompressionConfig,
    Compressor,
    CompressorChain,
    Distillation,
    Pruning,
    make_engine,
)
from accerl.compress.compliance import VECTOR, decided_policy, random_states
from accerl.compress.distillation.trainer import DistillMethod, FixedStates, StudentTrainer
from accerl.compress.links import ONNX, TorchScript
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import check_students
from accerl.networks.adopt import as_policy
from accerl.networks.graph_policy import GraphPolicy
from accerl.networks.make import make_network
from accerl.networks.policy_net import PolicyNet, make_policy
from accerl.presets import load_preset
from accerl.spec import CompressionSpec, Decision
from tests.fixtures.own_networks import OwnMLP

OWN = "tests.fixtures.own_networks"
SMALL = CompressionSpec(student=f"{OWN}:small")
TANH = CompressionSpec(student=f"{OWN}:tanh", graph="torchscript")
ACTIONS = 5


def compressor(**settings: Any) -> Compressor:
    config = CompressionConfig(calibration_states=64, **settings)
    made = Compressor(VECTOR, ACTIONS, config, torch.Generator().manual_seed(0))
    made.observe(random_states(VECTOR))
    return made


@pytest.mark.parametrize(
    "spec",
    [
        SMALL,
        CompressionSpec(student=f"{OWN}:small", bits=8),
        CompressionSpec(student=f"{OWN}:small", sparsity=0.5, rank=0.5, bits=8),
        CompressionSpec(student=f"{OWN}:small", bits=16),
        TANH,
        CompressionSpec(student=f"{OWN}:tanh", graph="eager"),
        CompressionSpec(student=f"{OWN}:tanh", bits=16),
        CompressionSpec(student=f"{OWN}:tanh", sparsity=0.25, rank=0.5, graph="eager"),
        CompressionSpec(student=f"{OWN}:tanh", bits=16, graph="torchscript"),
    ],
    ids=lambda spec: spec.label,
)
def test_an_own_student_learns_and_acts(spec: CompressionSpec) -> None:
    made, policy = compressor(distill_learning_rate=1e-2), decided_policy(VECTOR)
    artifact = made.build(spec, policy, 1)
    assert artifact.spec == spec
    first = made.student_kl_nats(spec, policy)
    for _ in range(60):
        made.distill(policy, [spec])
    last = made.student_kl_nats(spec, policy)
    assert first is not None
    assert last is not None
    assert last < 0.5 * first
    logits, values = make_engine(made.build(spec, policy, 2)).infer(random_states(VECTOR, 3))
    assert logits.shape == (3, ACTIONS)
    assert values.shape == (3,)


@pytest.mark.parametrize("spec", [SMALL, TANH])
def test_an_own_student_goes_on_from_disk(spec: CompressionSpec, tmp_path: Path) -> None:
    made, policy = compressor(), decided_policy(VECTOR)
    made.build(spec, policy, 1)
    save_checkpoint(tmp_path / "c", made.state_dict())
    other = Compressor(VECTOR, ACTIONS, made.config, torch.Generator())
    other.load_state_dict(load_checkpoint(tmp_path / "c"))
    states = random_states(VECTOR)
    results = []
    for each in (made, other):
        each.distill(policy, [spec])
        results.append(make_engine(each.build(spec, policy, 2)).infer(states)[0])
    assert np.array_equal(*results)


def test_equal_seeds_give_equal_students_and_leave_torchs_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    nets = [make_network(TANH.student, VECTOR, 4, torch.Generator().manual_seed(1)) for _ in "ab"]
    assert torch.equal(before, torch.get_rng_state())
    for first, second in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(first, second)
    assert isinstance(nets[0], GraphPolicy)
    small = make_network(SMALL.student, VECTOR, 4, torch.Generator())
    assert isinstance(small, PolicyNet)


@pytest.mark.parametrize(
    ("student", "reason"),
    [
        ("no.such.module:small", "No module named 'no'; give the import path"),
        (f"{OWN}:nothing", "has no attribute 'nothing'"),
        (f"{OWN}:wrong", "returns logits of 6 actions, and the game has 5$"),
        (f"{OWN}:silent", "cannot act on .*: AssertionError"),
        ("builtins:print", "returned NoneType, not a torch module"),
    ],
)
def test_a_student_that_does_not_fit_is_refused(student: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        make_network(student, VECTOR, ACTIONS, torch.Generator())


@pytest.mark.parametrize("student", ["mynets", "my nets:small", ":small", "a.b:", "net4"])
def test_what_is_no_import_path_is_no_student(student: str) -> None:
    with pytest.raises(UserError, match="does not exist"):
        CompressionSpec(student=student)


@pytest.mark.parametrize("bits", [32, 8])
def test_what_is_no_chain_acts_in_onnx_runtime(bits: int) -> None:
    spec = CompressionSpec.from_json({**TANH.to_json(), "graph": "onnx", "bits": bits})
    artifact = compressor().build(spec, decided_policy(VECTOR), 0)
    assert (artifact.kind, artifact.spec) == ("onnx", spec)


@pytest.mark.parametrize("student", ["huge", "heavy"])
def test_a_student_larger_than_the_learner_is_refused(student: str) -> None:
    spec = CompressionSpec(student=f"{OWN}:{student}")
    with pytest.raises(UserError, match=r"more than the learner's network .*give a smaller one"):
        compressor().build(spec, decided_policy(VECTOR), 0)


def test_a_student_s_name_is_no_network() -> None:
    with pytest.raises(UserError, match=r"must be a network, such as .*, got 'net3'"):
        Distillation(student="net3")  # pyright: ignore[reportArgumentType]


def test_a_student_that_is_not_there_is_refused_before_a_run_begins() -> None:
    check_students(FixedStrategy(SMALL), load_preset("catch"))
    with pytest.raises(UserError, match="nowhere"):
        check_students(FixedStrategy(CompressionSpec(student="nowhere:net")), load_preset("catch"))


def test_own_students_go_with_any_learner() -> None:
    Decision.of(SMALL).check_students("net3")
    assert SMALL.label == f"{OWN}:small fp32"
    assert 0.0 < SMALL.size_rank < 3.0


def test_chains_take_modules_as_policy_and_as_student() -> None:
    torch.manual_seed(0)
    states = random_states(VECTOR)
    module = OwnMLP(VECTOR, ACTIONS, norm=True).eval()
    chain = CompressorChain([Pruning(module, 0.5), ONNX()])
    assert chain.compress(observations=states).spec.sparsity == 0.5
    tanh = OwnMLP(VECTOR, ACTIONS, activation=torch.nn.Tanh)
    chain = CompressorChain([Distillation(student=tanh), TorchScript()])
    artifact = chain.compress(decided_policy(VECTOR), observations=states)
    assert artifact.spec.student == f"{OWN}:OwnMLP"
    with torch.no_grad():
        wanted = tanh.eval()(torch.from_numpy(states))[0].numpy()
    np.testing.assert_allclose(make_engine(artifact).infer(states)[0], wanted, atol=1e-6)


def test_a_policy_that_is_no_chain_can_teach_a_student() -> None:
    torch.manual_seed(0)
    states = torch.from_numpy(random_states(VECTOR))
    teacher = as_policy(OwnMLP(VECTOR, ACTIONS, activation=torch.nn.Tanh), VECTOR)
    assert isinstance(teacher, GraphPolicy)
    student = make_policy("net1", VECTOR, ACTIONS, torch.Generator().manual_seed(1))
    trainer = StudentTrainer(
        student,
        DistillMethod(learning_rate=1e-2, entropy_cost=0.0, sync_every=1),
        torch.Generator().manual_seed(2),
    )

    def distance() -> float:
        with torch.no_grad():
            policies = (Categorical(logits=net(states)[0]) for net in (teacher, student))
            return kl_divergence(*policies).mean().item()

    before = distance()
    for _ in range(60):
        trainer.update(FixedStates(states.numpy()), teacher)
    assert distance() < 0.3 * before
