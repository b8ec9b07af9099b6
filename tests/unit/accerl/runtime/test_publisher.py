"""The publisher: when publications are due, what they cost, and who acted with which."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.rollout import Rollout, RolloutShape
from accerl.runtime.publishing.orders import Tag
from accerl.runtime.publishing.publisher import Built, Publisher
from accerl.spec import IDENTITY, CompressionSpec, Decision

OBSERVATION = ObservationSpec((4,), "float32")
CONFIG = CompressionConfig(
    calibration_states=32, distill_batch=16, distill_updates=3, distill_warmup_updates=5
)
INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3")
NET3_INT8 = CompressionSpec(student="net3", bits=8)


@pytest.fixture
def policy() -> PolicyNet:
    return make_policy("original", OBSERVATION, 3, torch.Generator().manual_seed(0))


def make(publish_every: int = 3) -> Publisher:
    generator = torch.Generator().manual_seed(1)
    compressor = Compressor(OBSERVATION, 3, CONFIG, generator)
    compressor.observe(np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32))
    return Publisher(compressor, publish_every)


def test_publications_are_due_every_so_many_updates_and_at_once_after_a_decision(
    policy: PolicyNet,
) -> None:
    publisher = make(publish_every=3)
    with pytest.raises(RuntimeError, match="no decision"):
        publisher.build(policy, 0)
    assert not publisher.is_due(0)
    publisher.request(Decision.of(IDENTITY))
    assert publisher.is_due(0)
    publisher.build(policy, 0)
    publisher.charge(1.0)
    assert [publisher.is_due(updates) for updates in range(1, 5)] == [False, False, True, True]
    publisher.request(Decision.of(IDENTITY))  # nothing new was asked for
    assert not publisher.is_due(1)
    publisher.request(Decision.of(INT8))
    assert publisher.is_due(1)
    publisher.request(Decision.of(IDENTITY))  # changed its mind before it took effect
    assert not publisher.is_due(1)
    assert publisher.decision == Decision.of(IDENTITY)


def test_only_a_change_of_decision_is_a_switch(policy: PolicyNet) -> None:
    publisher = make()
    costs = []
    for decision, seconds in (
        (Decision.of(IDENTITY), 1.0),
        (Decision.of(IDENTITY), 2.0),
        (Decision.of(INT8), 4.0),
        (Decision.of(INT8), 8.0),
    ):
        publisher.request(decision)
        publisher.build(policy, 0)
        publisher.charge(seconds)
        costs.append(publisher.take_switch_seconds())
    assert costs == [0.0, 0.0, 4.0, 0.0]


def test_tags_say_who_acted_and_with_which_weights(policy: PolicyNet) -> None:
    publisher = make()
    publisher.request(Decision(((IDENTITY, 0.25), (NET3, 0.75))))
    first = publisher.build(policy, 7)
    publisher.charge(0.0)
    publisher.request(Decision.of(INT8))
    second = publisher.build(policy, 9)
    assert (first.publication.number, second.publication.number) == (0, 1)
    assert first.publication.shares == [0.25, 0.75]
    assert publisher.tag(0, 0) == Tag(IDENTITY, 7)
    assert publisher.tag(0, 1) == Tag(NET3, 7)
    assert publisher.tag(1, 0) == Tag(INT8, 9)
    for built in (first, second):
        for index, part in enumerate(built.parts):
            tag = publisher.tag(built.publication.number, index)
            assert (part.artifact.spec, part.artifact.version) == (tag.spec, tag.version)
            assert part.seconds > 0.0


def test_tags_are_not_kept_for_ever(policy: PolicyNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "REMEMBERED", 3)
    publisher = make()
    publisher.request(Decision.of(IDENTITY))
    for _ in range(6):
        publisher.build(policy, 0)
    assert publisher.tag(3, 0) == Tag(IDENTITY, 0)
    with pytest.raises(KeyError):
        publisher.tag(2, 0)


def settled(publisher: Publisher, policy: PolicyNet, spec: CompressionSpec) -> Built:
    """Publish until the ranges have forgotten that they were once measured on more states."""
    publisher.request(Decision.of(spec))
    for version in range(99):
        publisher.build(policy, version)
    return publisher.build(policy, 99)


def test_integers_that_did_not_change_are_not_sent(policy: PolicyNet) -> None:
    publisher = make()
    acting = settled(publisher, policy, INT8)
    assert not acting.unchanged
    assert acting.size_bytes == len(acting.publication.artifacts[0].payload)
    number = acting.publication.number
    again = publisher.build(policy, 500, acting.publication)
    assert again.unchanged
    assert again.size_bytes == 0
    assert publisher.last_ordered == number  # nobody need wait for it
    assert publisher.tag(number, 0) == Tag(INT8, 500)  # what acts is as good as new
    for _ in range(publisher.REMEMBERED + 10):  # however long that lasts
        publisher.order(500)
        publisher.unchanged(publisher.last_ordered)
    assert publisher.tag(number, 0) == Tag(INT8, 500)
    with torch.no_grad():
        policy.policy_head.weight.mul_(1.1)
    moved = publisher.build(policy, 501, acting.publication)
    assert not moved.unchanged
    assert publisher.last_ordered == moved.publication.number > number
    assert publisher.tag(moved.publication.number, 0) == Tag(INT8, 501)


@pytest.mark.parametrize("spec", [IDENTITY, CompressionSpec(bits=16)], ids=lambda spec: spec.label)
def test_floats_are_sent_always(policy: PolicyNet, spec: CompressionSpec) -> None:
    publisher = make()
    acting = settled(publisher, policy, spec)
    assert not publisher.build(policy, 500, acting.publication).unchanged


def test_another_decision_is_a_change(policy: PolicyNet) -> None:
    publisher = make()
    acting = settled(publisher, policy, INT8)
    for decision in (Decision(((INT8, 0.5), (NET3_INT8, 0.5))), Decision.of(NET3_INT8)):
        publisher.request(decision)
        assert not publisher.build(policy, 500, acting.publication).unchanged


def test_a_students_distance_from_the_learner_is_known(policy: PolicyNet) -> None:
    publisher = make()
    publisher.request(Decision(((INT8, 0.5), (NET3_INT8, 0.5))))
    assert publisher.students_kl_nats(policy) == {}
    publisher.build(policy, 0)
    publisher.charge(0.0)
    found = publisher.students_kl_nats(policy)
    assert set(found) == {NET3_INT8}
    assert 0.0 < found[NET3_INT8] < 10.0


def test_a_student_is_warmed_up_before_it_acts_and_again_after_a_rest(policy: PolicyNet) -> None:
    publisher = make()
    warmups = []
    for version, spec in enumerate([NET3, NET3, NET3_INT8, IDENTITY, IDENTITY, NET3]):
        publisher.request(Decision.of(spec))
        (part,) = publisher.build(policy, version).parts
        publisher.charge(0.0)
        warmups.append(part.warmup_states)
    warmup = 5 * 16  # updates times states
    assert warmups == [warmup, 0, 0, 0, 0, warmup]


def test_students_in_use_are_distilled_once_each(policy: PolicyNet) -> None:
    publisher = make()
    assert publisher.distill(policy) == []
    expected = {
        Decision.of(IDENTITY): [],
        Decision.of(INT8): [],
        Decision.of(NET3): [3 * 16],
        Decision(((NET3, 0.5), (NET3_INT8, 0.5))): [3 * 16],  # the same student twice
        Decision(((NET3, 0.5), (CompressionSpec(sparsity=0.5), 0.5))): [3 * 16, 3 * 16],
    }
    for decision, states in expected.items():
        publisher.request(decision)
        publisher.build(policy, 0)
        publisher.charge(0.0)
        assert [count for _, count in publisher.distill(policy)] == states, decision.label


@pytest.mark.parametrize(("steps", "envs"), [(16, 16), (20, 32), (6, 2), (2, 3)])
def test_it_observes_every_environment_at_every_time(steps: int, envs: int) -> None:
    """A calibration on one environment's game would clip what the others see."""
    publisher = make()
    shape = RolloutShape(unroll=steps, num_envs=envs, num_actions=3, observation=OBSERVATION)
    rollout = Rollout.allocate(shape)
    rollout.obs[..., 0] = np.arange(steps + 1)[:, None]
    rollout.obs[..., 1] = np.arange(envs)
    publisher.observe(rollout)
    seen = publisher.compressor.states
    newest = min(8, steps * envs)
    seen = np.roll(seen, -publisher.compressor.state_dict()["next"], axis=0)[-newest:]
    assert len({(step, env) for step, env in seen[:, :2]}) == newest
    assert set(seen[:, 1]) == set(range(min(envs, newest)))
    assert seen[0, 0] == 0
    assert seen[-1, 0] == steps - 1  # the last row of obs belongs to the next rollout


def test_a_saved_publisher_goes_on_bit_by_bit(policy: PolicyNet) -> None:
    publisher, other = make(), make()
    publisher.request(Decision.of(NET3_INT8))
    publisher.build(policy, 1)
    publisher.charge(2.0)
    publisher.distill(policy)
    publisher.request(Decision.of(NET3))
    publisher.build(policy, 2)
    publisher.charge(4.0)
    publisher.request(Decision(((INT8, 0.5), (NET3, 0.5))))
    other.load_state_dict(publisher.state_dict())
    assert other.decision == publisher.decision
    assert other.tag(0, 0) == Tag(NET3_INT8, 1)
    assert other.take_switch_seconds() == publisher.take_switch_seconds() == 4.0
    for version in (3, 4):
        mine, theirs = publisher.build(policy, version), other.build(policy, version)
        assert mine.publication.to_bytes() == theirs.publication.to_bytes()
        assert [p.warmup_states for p in mine.parts] == [p.warmup_states for p in theirs.parts]
        for item in (publisher, other):
            item.charge(1.0)
            item.distill(policy)
