from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from accerl.compress.distillation.loss import distillation_loss
from accerl.compress.distillation.state_ring import StateBatch
from accerl.compress.distillation.trainer import (
    DistillMethod,
    FixedStates,
    StudentTrainer,
)
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy

OBSERVATION = ObservationSpec((6,), "float32")


def oracle(
    teacher_logits: np.ndarray,
    teacher_values: np.ndarray,
    student_logits: np.ndarray,
    student_values: np.ndarray,
    entropy_cost: float,
) -> float:
    """Equation 1, one state and one action at a time."""
    total = 0.0
    for row in range(len(teacher_logits)):
        p = np.exp(teacher_logits[row]) / np.exp(teacher_logits[row]).sum()
        q = np.exp(student_logits[row]) / np.exp(student_logits[row]).sum()
        kl = sum(p[a] * np.log(p[a] / q[a]) for a in range(len(p)))
        entropy = -sum(q[a] * np.log(q[a]) for a in range(len(q)))
        squared = 0.5 * (teacher_values[row] - student_values[row]) ** 2
        total += kl + squared - entropy_cost * entropy
    return total / len(teacher_logits)


def test_loss_is_equation_1() -> None:
    generator = np.random.default_rng(0)
    logits, values = generator.normal(size=(2, 7, 4)), generator.normal(size=(2, 7))
    expected = oracle(logits[0], values[0], logits[1], values[1], 0.3)
    actual = distillation_loss(
        torch.from_numpy(logits[0]),
        torch.from_numpy(values[0]),
        torch.from_numpy(logits[1]),
        torch.from_numpy(values[1]),
        0.3,
    )
    assert float(actual) == pytest.approx(expected, rel=1e-10)


def test_gradient_flows_into_the_student_only() -> None:
    generator = torch.Generator().manual_seed(0)
    teacher_logits, student_logits = (
        torch.randn(5, 3, generator=generator, requires_grad=True) for _ in range(2)
    )
    teacher_values, student_values = (
        torch.randn(5, generator=generator, requires_grad=True) for _ in range(2)
    )
    distillation_loss(
        teacher_logits, teacher_values, student_logits, student_values, 0.1
    ).backward()
    assert teacher_logits.grad is None
    assert teacher_values.grad is None
    assert student_logits.grad is not None
    assert student_values.grad is not None
    torch.testing.assert_close(student_values.grad, (student_values - teacher_values).detach() / 5)
    assert float(student_logits.grad.abs().sum()) > 0.0


@pytest.mark.parametrize(
    ("logits", "values", "message"),
    [((4, 2), (4,), "logits"), ((4, 3), (4, 1), "values"), ((5, 3), (4,), "logits")],
)
def test_shapes_are_checked(logits: tuple[int, ...], values: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distillation_loss(
            torch.zeros(4, 3), torch.zeros(4), torch.zeros(logits), torch.zeros(values), 0.0
        )


def make(student: str, seed: int) -> PolicyNet:
    net = make_policy(student, OBSERVATION, 4, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)  # far from uniform
    return net


def make_trainer(*, sync_every: int = 10, **settings: Any) -> StudentTrainer:
    return StudentTrainer(
        make("net3", 5),
        DistillMethod(
            batch=32, learning_rate=3e-3, value_cost=1.0, sync_every=sync_every, **settings
        ),
        torch.Generator().manual_seed(3),
    )


def observations() -> torch.Tensor:
    return torch.randn(64, 6, generator=torch.Generator().manual_seed(9))


STATES = FixedStates(observations().numpy())


def mean_kl(teacher: nn.Module, student: nn.Module) -> float:
    with torch.no_grad():
        log_p = torch.log_softmax(teacher(observations())[0], -1)
        log_q = torch.log_softmax(student(observations())[0], -1)
    return float((log_p.exp() * (log_p - log_q)).sum(-1).mean())


def test_distilling_brings_the_student_to_the_teacher() -> None:
    teacher = make("original", 1)
    trainer = make_trainer()
    before = mean_kl(teacher, trainer.net)
    losses = [trainer.update(STATES, teacher) for _ in range(200)]
    assert mean_kl(teacher, trainer.net) < 0.1 * before
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_teacher_stands_still_between_synchronisations() -> None:
    learner = make("original", 1)
    trainer = make_trainer(sync_every=3)
    trainer.update(STATES, learner)
    first = learner.policy_head.bias.detach().clone()
    with torch.no_grad():
        learner.policy_head.bias.add_(1.0)
    seen = []
    for _ in range(3):
        trainer.update(STATES, learner)
        seen.append(trainer.state_dict()["teacher"]["policy_head.bias"])
    assert torch.equal(seen[0], first)
    assert torch.equal(seen[1], first)
    assert torch.equal(seen[2], first + 1.0)
    assert all(parameter.grad is None for parameter in learner.parameters())


def test_resuming_is_bit_exact() -> None:
    teacher = make("original", 1)
    one = make_trainer()
    for _ in range(5):
        one.update(STATES, teacher)
    saved = one.state_dict()
    other = make_trainer()
    other.load_state_dict(saved, teacher)
    slopes = dict(one.net.named_parameters())
    for name, weight in other.net.named_parameters():  # by which a milder network is narrowed
        mine, theirs = slopes[name].grad, weight.grad
        assert mine is not None
        assert theirs is not None
        assert torch.equal(mine, theirs)
    for _ in range(7):  # across a synchronisation
        assert one.update(STATES, teacher) == other.update(STATES, teacher)
    for name, value in one.net.state_dict().items():
        assert torch.equal(value, other.net.state_dict()[name])
    assert saved["updates"] == 5  # the saved tree holds copies


class Recorded:
    """Always the same states, with logits that were put out at update 10."""

    def __init__(self, logits: np.ndarray) -> None:
        self.logits = logits

    def draw(self, count: int, generator: torch.Generator) -> StateBatch:
        states = observations().numpy()[:count]
        return StateBatch(states, self.logits[: len(states)], np.full(len(states), 10))


@pytest.mark.parametrize(
    ("version", "followed"), [(11, "recorded"), (13, "recorded"), (14, "copy")]
)
def test_recent_logits_of_the_learner_take_the_place_of_its_copy(
    version: int, followed: str
) -> None:
    learner, other = make("original", 1), make("original", 2)
    with torch.no_grad():
        logits = other(observations())[0].numpy()
    trainer = make_trainer(recorded_updates=4)
    trainer.method = replace(trainer.method, value_cost=0.0)
    for _ in range(200):
        trainer.update(Recorded(logits), learner, version=version)
    nearer, further = (other, learner) if followed == "recorded" else (learner, other)
    assert mean_kl(nearer, trainer.net) < 0.5 * mean_kl(further, trainer.net)


def test_values_cost_what_they_are_asked_to_and_temperature_keeps_the_gradients_size() -> None:
    teacher, student = make("original", 1), make("net3", 2)
    with torch.no_grad():
        (given, values), (learned, own_values) = teacher(observations()), student(observations())
    loss = partial(distillation_loss, given, values, learned, own_values, 0.0)
    error = float((values - own_values).square().mean())
    assert float(loss(value_cost=3.0)) == pytest.approx(
        float(loss(value_cost=0.0)) + 1.5 * error, rel=1e-5
    )
    # At high temperatures the KL becomes half the variance of the difference of the logits.
    spread = float(0.5 * (given - learned).var(-1, unbiased=False).mean())
    assert float(loss(value_cost=0.0, temperature=1e3)) == pytest.approx(spread, rel=0.02)


def test_in_low_precision_a_student_gets_as_near() -> None:
    teacher = make("original", 1)
    trainer = make_trainer(precision="bf16")
    before = mean_kl(teacher, trainer.net)
    for _ in range(200):
        trainer.update(STATES, teacher)
    assert mean_kl(teacher, trainer.net) < 0.1 * before


def test_logits_of_newer_weights_than_the_learner_s_are_not_learned_from_either() -> None:
    """A distiller that lags meets states of updates whose weights it has not seen yet."""
    teacher = make_policy("original", OBSERVATION, 4, torch.Generator().manual_seed(0))
    obs = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)

    class Newer:
        def draw(self, count: int, generator: torch.Generator) -> StateBatch:
            logits = np.zeros((8, 4), np.float32)
            logits[:, 0] = 9.0
            return StateBatch(obs, logits, np.full(8, 7))

    losses = {}
    for recorded in (0, 4):
        student = make_policy("net1", OBSERVATION, 4, torch.Generator().manual_seed(1))
        method = DistillMethod(batch=8, entropy_cost=0.0, recorded_updates=recorded)
        trainer = StudentTrainer(student, method, torch.Generator())
        losses[recorded] = trainer.update(Newer(), teacher, version=6)
    assert losses[4] > 1.0
    assert losses[0] < 0.1


def test_a_student_trained_elsewhere_is_as_if_trained_here() -> None:
    """cpu:0 is not equal to cpu for torch, so that the trainer keeps a copy there, as on a GPU."""
    teacher = make_policy("original", OBSERVATION, 4, torch.Generator().manual_seed(0))
    obs = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)

    def make(device: str) -> StudentTrainer:
        student = make_policy("net1", OBSERVATION, 4, torch.Generator().manual_seed(1))
        generator = torch.Generator().manual_seed(2)
        return StudentTrainer(student, DistillMethod(batch=16), generator, device)

    here, there = make("cpu"), make("cpu:0")
    net = there.net
    for _ in range(2):
        losses = [trainer.update(FixedStates(obs), teacher, 3) for trainer in (here, there)]
        assert losses[0] == losses[1]
        assert there.net is net
        assert not net.training
        for name, weight in here.net.state_dict().items():
            assert torch.equal(there.net.state_dict()[name], weight), name
    begun = make("cpu:0")
    before = begun.net.state_dict()["policy_head.weight"].clone()
    begun.load_weights(here.net.state_dict())
    assert not torch.equal(begun.net.state_dict()["policy_head.weight"], before)
    resumed = make("cpu:0")
    resumed.load_state_dict(there.state_dict(), teacher)
    for trainer in (here, resumed):
        trainer.update(FixedStates(obs), teacher, 2)
    for name, weight in here.net.state_dict().items():
        assert torch.equal(resumed.net.state_dict()[name], weight), name
