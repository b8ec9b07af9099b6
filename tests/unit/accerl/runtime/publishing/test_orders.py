"""Orders and their work: when publications are due, what they cost, and who acted with which."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.charges import Charges
from accerl.runtime.publishing.delivery import Delivery, Shadow, Tag
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import Made, make_publication, sample_states
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.weights import Publication

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


class Publisher(PublicationOrders):
    """Orders, and all that it takes to carry them out at once."""

    def __init__(self, publish_every: int = 3) -> None:
        super().__init__(publish_every)
        self.compressor = Compressor(OBSERVATION, 3, CONFIG, torch.Generator().manual_seed(1))
        self.compressor.observe(np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32))
        self.probe = KLProbe()
        self.recorder = IntervalRecorder(3)

    def publish(
        self,
        policy: PolicyNet,
        updates: int,
        current: Publication | None = None,
        seconds: float = 0.0,
    ) -> Made:
        """Order, make and book a publication that is said to have taken so many seconds."""
        order = self.order(updates)
        made = make_publication(self.compressor, self.probe, policy, order, current)
        self.book(replace(made.delivery, seconds=seconds), self.recorder)
        return made

    def distill(self, policy: PolicyNet) -> list[int]:
        """Distil what acts; return the updates of each network."""
        charges = Charges(0, CONFIG.distill_updates).left_to_compressor(self.in_use)
        return [self.compressor.distill(policy, [each.spec], 0, each.updates) for each in charges]


def test_publications_are_due_every_so_many_updates_and_at_once_after_a_decision(
    policy: PolicyNet,
) -> None:
    publisher = Publisher(publish_every=3)
    with pytest.raises(RuntimeError, match="no decision"):
        publisher.order(0)
    assert not publisher.is_due(0)
    publisher.request(Decision.of(IDENTITY))
    assert publisher.is_due(0)
    publisher.publish(policy, 0)
    assert [publisher.is_due(updates) for updates in range(1, 5)] == [False, False, True, True]
    publisher.request(Decision.of(IDENTITY))  # nothing new was asked for
    assert not publisher.is_due(1)
    publisher.request(Decision.of(INT8))
    assert publisher.is_due(1)
    publisher.request(Decision.of(IDENTITY))  # changed its mind before it took effect
    assert not publisher.is_due(1)
    assert publisher.decision == Decision.of(IDENTITY)


def test_nobody_waits_for_an_order_that_was_lost(policy: PolicyNet) -> None:
    publisher = Publisher(publish_every=3)
    publisher.request(Decision.of(IDENTITY))
    publisher.publish(policy, 0)
    publisher.order(3)
    assert publisher.last_ordered == 1
    publisher.lost()
    assert publisher.last_ordered == 0
    assert publisher.is_due(3)
    assert publisher.order(3).number == 2


def test_what_a_lost_order_was_to_measure_the_next_one_measures() -> None:
    orders = PublicationOrders(publish_every=1, check_every=50)
    orders.request(Decision.of(IDENTITY))
    assert orders.order(0).check
    orders.lost()
    assert orders.order(1).check
    assert not orders.order(2).check
    orders.lost()
    assert [orders.order(updates).check for updates in (3, 50, 51)] == [False, False, True]


def test_only_a_change_of_decision_is_a_switch(policy: PolicyNet) -> None:
    publisher = Publisher()
    costs = []
    for decision, seconds in (
        (Decision.of(IDENTITY), 1.0),
        (Decision.of(IDENTITY), 2.0),
        (Decision.of(INT8), 4.0),
        (Decision.of(INT8), 8.0),
    ):
        publisher.request(decision)
        publisher.publish(policy, 0, seconds=seconds)
        costs.append(publisher.end_interval())
    assert costs == [0.0, 0.0, 4.0, 0.0]


def test_a_shadow_is_ordered_once_an_interval_and_is_no_switch(policy: PolicyNet) -> None:
    publisher = Publisher(publish_every=3)
    publisher.request(Decision.of(IDENTITY))
    publisher.publish(policy, 0, seconds=1.0)
    publisher.request(Decision(((IDENTITY, 1.0),), INT8))
    assert [publisher.is_due(updates) for updates in (1, 3)] == [False, True]
    assert publisher.in_use == (IDENTITY,)
    order = publisher.publish(policy, 3, seconds=2.0).delivery.order
    assert order.shadow == INT8
    assert publisher.in_use == (IDENTITY, INT8)
    assert publisher.publish(policy, 6).delivery.order.shadow == INT8  # nothing came of the first
    publisher.book_shadow(Shadow(spec=INT8), publisher.recorder)  # too few states
    assert publisher.order(7).shadow == INT8
    publisher.book_shadow(Shadow(spec=INT8, kl_nats=0.5), publisher.recorder)
    assert publisher.order(8).shadow is None
    publisher.request(Decision(((IDENTITY, 1.0),), CompressionSpec(bits=16)))
    assert publisher.order(9).shadow == CompressionSpec(bits=16)
    publisher.book_shadow(Shadow(spec=INT8, kl_nats=0.25), publisher.recorder)  # comes late
    assert publisher.order(10).shadow == CompressionSpec(bits=16)
    failed = Shadow(spec=CompressionSpec(bits=16), rejected="it is broken")
    for _ in range(2):
        publisher.book_shadow(failed, publisher.recorder)
    assert publisher.order(11).shadow is None
    assert [event.cause for event in publisher.take_events(1.0)] == ["it is broken"]
    assert publisher.end_interval() == 0.0
    other = Publisher()
    other.load_state_dict(json.loads(json.dumps(publisher.state_dict())))
    assert other.order(12).shadow == CompressionSpec(bits=16)
    assert Shadow.from_json(json.loads(json.dumps(failed.to_json()))) == failed


def test_tags_say_who_acted_and_with_which_weights(policy: PolicyNet) -> None:
    publisher = Publisher()
    publisher.request(Decision(((IDENTITY, 0.25), (NET3, 0.75))))
    first = publisher.publish(policy, 7)
    publisher.request(Decision.of(INT8))
    second = publisher.publish(policy, 9)
    assert (first.delivery.order.number, second.delivery.order.number) == (0, 1)
    assert first.publication is not None
    assert first.publication.shares == [0.25, 0.75]
    assert publisher.tag(0, 0) == Tag(IDENTITY, 7)
    assert publisher.tag(0, 1) == Tag(NET3, 7)
    assert publisher.tag(1, 0) == Tag(INT8, 9)
    for made in (first, second):
        for index, part in enumerate(made.parts):
            tag = publisher.tag(made.delivery.order.number, index)
            assert tag == Tag(part.artifact.spec, part.artifact.version)
            assert part.seconds > 0.0


def test_tags_are_not_kept_for_ever(policy: PolicyNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "REMEMBERED", 3)
    publisher = Publisher()
    publisher.request(Decision.of(IDENTITY))
    for _ in range(6):
        publisher.publish(policy, 0)
    assert publisher.tag(3, 0) == Tag(IDENTITY, 0)
    assert publisher.tag(0, 0) is None
    assert publisher.tag(2, 0) is None


def settled(publisher: Publisher, policy: PolicyNet, spec: CompressionSpec) -> Publication:
    """Publish until the ranges have forgotten that they were once measured on more states."""
    publisher.request(Decision.of(spec))
    for version in range(99):
        publisher.publish(policy, version)
    made = publisher.publish(policy, 99)
    assert made.publication is not None
    assert not made.delivery.unchanged
    assert made.delivery.size_bytes == len(made.publication.artifacts[0].payload)
    return made.publication


def test_where_nothing_changed_tags_name_what_acts_and_not_what_waits(policy: PolicyNet) -> None:
    publisher = Publisher()
    publisher.request(Decision.of(NET3_INT8))
    stand_in = (Tag(INT8, 1),)
    first = Delivery(order=publisher.order(1), acted=stand_in, waiting={NET3_INT8: 0.9})
    publisher.book(first, publisher.recorder)
    number = first.order.number
    again = replace(first, order=publisher.order(4), acted=(Tag(INT8, 4),), unchanged=True)
    publisher.book(again, publisher.recorder)
    assert publisher.tag(number, 0) == Tag(INT8, 4)
    refused = replace(again, order=publisher.order(7), rejected={NET3_INT8: "cannot be built"})
    publisher.book(refused, publisher.recorder)
    (event,) = publisher.take_events(0.0)  # though what acts instead is as it was
    assert event.cause == "cannot be built"


def test_integers_that_did_not_change_are_not_sent(policy: PolicyNet) -> None:
    publisher = Publisher()
    acting = settled(publisher, policy, INT8)
    number = acting.number
    again = publisher.publish(policy, 500, acting)
    assert again.publication is None
    assert again.delivery.unchanged
    assert again.delivery.size_bytes == 0
    assert publisher.last_ordered == number  # nobody need wait for it
    assert publisher.tag(number, 0) == Tag(INT8, 500)  # what acts is as good as new
    for _ in range(publisher.REMEMBERED + 10):  # however long that lasts
        delivery = replace(again.delivery, order=publisher.order(500))
        publisher.book(delivery, publisher.recorder)
    assert publisher.tag(number, 0) == Tag(INT8, 500)
    with torch.no_grad():
        policy.policy_head.weight.mul_(1.1)
    moved = publisher.publish(policy, 501, acting)
    assert not moved.delivery.unchanged
    assert publisher.last_ordered == moved.delivery.order.number > number
    assert publisher.tag(moved.delivery.order.number, 0) == Tag(INT8, 501)


def test_it_is_sent_before_anything_is_compared(
    policy: PolicyNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher()
    acting = settled(publisher, policy, INT8)
    seen: list[object] = []
    measure = publisher.probe.measure
    monkeypatch.setattr(
        publisher.probe, "measure", lambda *a, **k: (seen.append("compared"), measure(*a, **k))[1]
    )
    parts = (publisher.compressor, publisher.probe, policy)
    made = make_publication(*parts, publisher.order(500), acting, seen.append)
    assert seen == [None, "compared"]
    assert made.delivery.seconds > 0.0
    made = make_publication(*parts, publisher.order(500), None, seen.append)
    assert seen[2:] == [made.publication, "compared"]


@pytest.mark.parametrize("spec", [IDENTITY, CompressionSpec(bits=16)], ids=lambda spec: spec.label)
def test_floats_are_sent_always(policy: PolicyNet, spec: CompressionSpec) -> None:
    publisher = Publisher()
    acting = settled(publisher, policy, spec)
    assert not publisher.publish(policy, 500, acting).delivery.unchanged


def test_another_decision_is_a_change(policy: PolicyNet) -> None:
    publisher = Publisher()
    acting = settled(publisher, policy, INT8)
    for decision in (Decision(((INT8, 0.5), (NET3_INT8, 0.5))), Decision.of(NET3_INT8)):
        publisher.request(decision)
        assert not publisher.publish(policy, 500, acting).delivery.unchanged


def test_a_students_distance_from_the_learner_is_known(policy: PolicyNet) -> None:
    publisher = Publisher()
    publisher.request(Decision(((INT8, 0.5), (NET3_INT8, 0.5))))
    found = publisher.publish(policy, 0).delivery.student_kl_nats
    assert set(found) == {NET3_INT8}
    assert 0.0 < found[NET3_INT8] < 10.0


def test_a_student_is_warmed_up_before_it_acts_and_again_after_a_rest(policy: PolicyNet) -> None:
    publisher = Publisher()
    warmups = []
    for version, spec in enumerate([NET3, NET3, NET3_INT8, IDENTITY, IDENTITY, NET3]):
        publisher.request(Decision.of(spec))
        (part,) = publisher.publish(policy, version).parts
        warmups.append(part.warmup_states)
    warmup = 5 * 16  # updates times states
    assert warmups == [warmup, 0, 0, 0, 0, warmup]


def test_students_in_use_are_distilled_once_each(policy: PolicyNet) -> None:
    publisher = Publisher()
    assert publisher.distill(policy) == []
    expected = {
        Decision.of(IDENTITY): [],
        Decision.of(INT8): [],
        Decision.of(NET3): [3],
        Decision(((NET3, 0.5), (NET3_INT8, 0.5))): [3],  # the same student twice
        Decision(((NET3, 0.5), (CompressionSpec(sparsity=0.5), 0.5))): [3, 3],
    }
    for decision, updates in expected.items():
        publisher.request(decision)
        publisher.publish(policy, 0)
        assert publisher.distill(policy) == updates, decision.label


@pytest.mark.parametrize(("steps", "envs"), [(16, 16), (20, 32), (6, 2), (2, 3)])
def test_it_observes_every_environment_at_every_time(steps: int, envs: int) -> None:
    """A calibration on one environment's game would clip what the others see."""
    publisher = Publisher()
    shape = RolloutShape(unroll=steps, num_envs=envs, num_actions=3, observation=OBSERVATION)
    rollout = Rollout.allocate(shape)
    rollout.obs[..., 0] = np.arange(steps + 1)[:, None]
    rollout.obs[..., 1] = np.arange(envs)
    publisher.compressor.observe(sample_states(rollout, CONFIG))
    seen = publisher.compressor.states
    newest = min(8, steps * envs)
    seen = np.roll(seen, -publisher.compressor.state_dict()["next"], axis=0)[-newest:]
    assert len({(step, env) for step, env in seen[:, :2]}) == newest
    assert set(seen[:, 1]) == set(range(min(envs, newest)))
    assert seen[0, 0] == 0
    assert seen[-1, 0] == steps - 1  # the last row of obs belongs to the next rollout


def test_saved_orders_go_on_bit_by_bit(policy: PolicyNet) -> None:
    publisher, other = Publisher(), Publisher()
    publisher.request(Decision.of(NET3_INT8))
    publisher.publish(policy, 1, seconds=2.0)
    publisher.distill(policy)
    publisher.request(Decision.of(NET3))
    publisher.publish(policy, 2, seconds=4.0)
    publisher.request(Decision(((INT8, 0.5), (NET3, 0.5))))
    other.load_state_dict(json.loads(json.dumps(publisher.state_dict())))
    other.compressor.load_state_dict(publisher.compressor.state_dict())
    assert other.decision == publisher.decision
    assert other.tag(0, 0) == Tag(NET3_INT8, 1)
    assert other.end_interval() == publisher.end_interval() == 4.0
    for version in (3, 4):
        mine, theirs = publisher.publish(policy, version), other.publish(policy, version)
        assert mine.publication is not None
        assert theirs.publication is not None
        assert mine.publication.to_bytes() == theirs.publication.to_bytes()
        assert [p.warmup_states for p in mine.parts] == [p.warmup_states for p in theirs.parts]
        for item in (publisher, other):
            item.distill(policy)


def test_what_fails_with_some_weights_is_given_up_after_many_in_a_row() -> None:
    publisher = Publisher()
    publisher.request(Decision.of(INT8))
    first = Delivery(order=publisher.order(0), acted=(Tag(IDENTITY, 0),))

    def failed(cause: str, *, is_refused: bool = False) -> list[tuple[str, bool]]:
        refused = (INT8,) if is_refused else ()
        delivery = replace(first, order=publisher.order(0), rejected={INT8: cause}, refused=refused)
        publisher.book(delivery, publisher.recorder)
        return [(event.cause, event.is_retried) for event in publisher.take_events(0.0)]

    def passed() -> None:
        delivery = replace(first, order=publisher.order(0), acted=(Tag(INT8, 0),))
        publisher.book(delivery, publisher.recorder)

    assert failed("off") == [("off", True)]
    assert failed("off") == []  # once is enough to know
    passed()
    assert failed("off again") == [("off again", True)]
    for _ in range(publisher.MOST_FAILURES - 2):
        assert failed("off") == []
    assert failed("off still") == [("off still", False)]
    assert failed("off") == []
    passed()
    assert failed("it is odd", is_refused=True) == [("it is odd", False)]
    passed()
    assert failed("off") == [("off", True)]
    assert failed("it is odd", is_refused=True) == [("it is odd", False)]


def test_saved_orders_still_report_what_was_rejected(policy: PolicyNet) -> None:
    publisher, other = Publisher(), Publisher()
    publisher.request(Decision.of(INT8))
    delivery = publisher.publish(policy, 1).delivery
    rejected = dict.fromkeys((NET3, NET3_INT8), "it is broken")
    recorder = IntervalRecorder(3)
    publisher.book(replace(delivery, rejected=rejected), recorder)
    state = json.loads(json.dumps(publisher.state_dict()))
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert set(other.in_use) == set(publisher.in_use)
    assert [event.cause for event in other.take_events(1.0)] == ["it is broken"] * 2
    other.book(replace(delivery, rejected=rejected), recorder)
    assert other.take_events(2.0) == ()  # once is enough to know


def test_a_delivery_survives_its_json(policy: PolicyNet) -> None:
    publisher = Publisher()
    publisher.request(Decision(((INT8, 0.5), (NET3_INT8, 0.5))))
    delivery = publisher.publish(policy, 0).delivery
    assert set(delivery.split.compression_nats) == {INT8, NET3_INT8}
    near = {CompressionSpec(sparsity=0.12): "far", CompressionSpec(sparsity=0.124): "off"}
    delivery = replace(delivery, rejected=near)
    assert Delivery.from_json(json.loads(json.dumps(delivery.to_json()))) == delivery
