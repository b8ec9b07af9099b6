"""Publications with specs that wait: what acts for them, and what is reported of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from accerl.compress import compressor as module
from accerl.compress.admission import ADMISSION_STATES
from accerl.compress.artifact import Artifact
from accerl.compress.check import EngineMismatchError
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.distillation import beginnings
from accerl.compress.distillation.state_ring import StateRing
from accerl.errors import CannotCompressError, DivergedError
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet, make_policy
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.delivery import Delivery, Tag
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import Made, make_publication, try_shadow
from accerl.runtime.run import IntervalReport, Takeover
from accerl.spec import IDENTITY, CompressionSpec, Decision

OBSERVATION = ObservationSpec((4,), "float32")
INT8 = CompressionSpec(bits=8)
NET2 = CompressionSpec(student="net2", bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
PRUNED = CompressionSpec(sparsity=0.5, bits=8)
CONFIG = CompressionConfig(
    calibration_states=32,
    distill_batch=64,
    distill_updates=200,
    distill_learning_rate=1e-2,
    admit_kl_nats=0.02,
)
WITHOUT_ADMISSION = replace(CONFIG, admit_kl_nats=0.0)


class Room:
    """A learner, a compressor, orders and a clock."""

    def __init__(self, config: CompressionConfig = CONFIG) -> None:
        self.policy: PolicyNet = make_policy(
            "original", OBSERVATION, 3, torch.Generator().manual_seed(0)
        )
        with torch.no_grad():
            self.policy.policy_head.weight.mul_(1000.0)
        self.ring = StateRing(OBSERVATION, 3, 4096)
        self.compressor = Compressor(
            OBSERVATION, 3, config, torch.Generator().manual_seed(1), ring=self.ring
        )
        self.compressor.observe(np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32))
        self.seconds = 0.0
        self.orders = PublicationOrders(1, clock=lambda: self.seconds)
        self.recorder = IntervalRecorder(3)

    def play(self) -> None:
        obs = np.random.default_rng(1).normal(size=(400, 8, 4)).astype(np.float32)
        self.ring.add(obs, np.zeros((400, 8, 3), np.float32), 0)

    def ask(self, *mix: tuple[CompressionSpec, float]) -> None:
        self.orders.request(Decision(mix))

    def publish(self, updates: int = 1) -> Made:
        order = self.orders.order(updates)
        made = make_publication(self.compressor, KLProbe(), self.policy, order)
        self.orders.book(replace(made.delivery, seconds=0.5), self.recorder)
        return made

    def distill(self) -> None:
        self.compressor.distill(self.policy, self.orders.in_use)

    def report(self) -> IntervalReport:
        return self.recorder.report(
            seconds=1.0,
            total_seconds=self.seconds,
            learner_return=None,
            decision=self.orders.decision or Decision.of(IDENTITY),
            switch_seconds=self.orders.end_interval(),
        )


def held(made: Made) -> dict[CompressionSpec, float]:
    """Return what a publication holds and how often it acts."""
    publication = made.publication
    assert publication is not None
    assert [tag.spec for tag in made.delivery.acted] == [a.spec for a in publication.artifacts]
    specs = [artifact.spec for artifact in publication.artifacts]
    assert len(set(specs)) == len(specs)
    return dict(zip(specs, publication.shares, strict=True))


def test_something_milder_acts_until_the_student_is_close_and_all_of_it_is_reported() -> None:
    room = Room()
    room.seconds = 1.0
    room.ask((NET3, 1.0))
    room.seconds = 1.5
    made = room.publish(3)
    assert held(made) == {INT8: 1.0}
    assert made.delivery.waiting == {NET3: None}  # nobody has played yet
    assert made.parts[0].built == (INT8,)
    assert room.orders.tag(0, 0) == Tag(INT8, 3)
    assert set(room.orders.in_use) == {NET3, INT8}
    room.play()
    room.seconds = 2.0
    made = room.publish()
    assert held(made) == {INT8: 1.0}
    kl = made.delivery.waiting[NET3]
    assert kl is not None
    assert kl > CONFIG.admit_kl_nats
    assert made.parts[0].built == (NET3, INT8)  # it was built to be compared
    report = room.report()
    assert report.waiting_kl_nats == {NET3: kl}
    assert report.takeovers == ()
    assert report.decision == Decision.of(NET3)
    room.distill()
    room.seconds = 4.25
    made = room.publish()
    assert held(made) == {NET3: 1.0}
    assert made.parts[0].built == (NET3,)
    assert made.delivery.waiting == {}
    kl = made.delivery.admitted[NET3]
    assert kl <= CONFIG.admit_kl_nats
    report = room.report()
    assert report.waiting_kl_nats == {}
    expected = Takeover(spec=NET3, asked_seconds=1.0, seconds=3.25, kl_nats=kl)
    assert report.takeovers == (expected,)
    assert str(expected) == f"net3 INT8 acts after 3.25 s (KL {kl:.2g})"
    assert report.switch_seconds == 0.5  # that of the publication with which it began
    assert IntervalReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    made = room.publish()
    assert held(made) == {NET3: 1.0}
    assert made.delivery.admitted == {}
    assert room.report().takeovers == ()


def test_a_mix_has_a_stand_in_for_each_that_waits_and_every_engine_once() -> None:
    room = Room()
    room.ask((NET3, 0.25), (IDENTITY, 0.75))
    assert held(room.publish()) == {INT8: 0.25, IDENTITY: 0.75}
    for mix in (((NET3, 0.25), (INT8, 0.75)), ((INT8, 0.75), (NET3, 0.25))):
        room.ask(*mix)
        made = room.publish()
        assert held(made) == {INT8: 1.0}  # both act with the same
        assert sorted(part.built for part in made.parts) == [(), (INT8,)]
    room.ask((NET2, 0.5), (NET3, 0.5))
    assert held(room.publish()) == {INT8: 1.0}
    room.play()
    room.ask((NET2, 1.0))
    while NET2 not in held(room.publish()):
        room.distill()
    room.ask((NET3, 0.4), (INT8, 0.6))
    made = room.publish()
    assert held(made) == {NET2: 0.4, INT8: 0.6}
    assert set(made.delivery.waiting) == {NET3}
    assert set(room.orders.in_use) == {NET2, NET3, INT8}


def test_time_counts_from_the_last_decision_for_what_does_not_act() -> None:
    room = Room()

    def takeovers() -> list[tuple[CompressionSpec, float]]:
        room.publish()
        return [(taken.spec, taken.seconds) for taken in room.report().takeovers]

    room.ask((IDENTITY, 1.0))
    room.seconds = 1.0
    assert takeovers() == [(IDENTITY, 1.0)]
    room.ask((INT8, 1.0))
    room.seconds = 2.0
    room.ask((INT8, 1.0))  # again: it was asked for at 1.0
    room.seconds = 3.0
    assert takeovers() == [(INT8, 2.0)]
    room.ask((IDENTITY, 1.0))
    order = room.orders.order(0)  # on its way when the decision is taken back
    room.ask((INT8, 1.0))
    made = make_publication(room.compressor, KLProbe(), room.policy, order)
    room.orders.book(made.delivery, room.recorder)
    assert room.report().takeovers == ()
    room.seconds = 5.0
    assert takeovers() == [(INT8, 2.0)]


def test_saved_orders_know_who_waits_and_since_when() -> None:
    room, other = Room(), Room()
    room.seconds = other.seconds = 1.0
    room.ask((NET3, 1.0))
    room.publish()
    other.orders.load_state_dict(json.loads(json.dumps(room.orders.state_dict())))
    other.compressor.load_state_dict(room.compressor.state_dict())
    assert other.orders.in_use == room.orders.in_use == (NET3, INT8)
    for each in (room, other):
        each.play()
        each.seconds = 7.0
        each.compressor.distill(each.policy, [NET3])
        each.publish()
    assert other.report().takeovers == room.report().takeovers != ()
    assert other.orders.end_interval() == room.orders.end_interval()


def test_a_delivery_that_waits_survives_its_json() -> None:
    room = Room()
    room.ask((NET3, 1.0))
    for _ in range(2):
        delivery = room.publish().delivery
        assert Delivery.from_json(json.loads(json.dumps(delivery.to_json()))) == delivery
        assert delivery.waiting.keys() == {NET3}
        room.play()


def test_a_shadow_is_tried_beside_what_acts_and_changes_nothing_of_it() -> None:
    room, other = Room(), Room()
    for each, shadow in ((room, NET3), (other, None)):
        each.orders.request(Decision(((INT8, 1.0),), shadow))
    order = room.publish().delivery.order
    found, attempt = try_shadow(room.compressor, room.policy, order)
    assert (found.spec, found.kl_nats, found.is_settled) == (NET3, None, False)
    assert attempt.built == ()  # nobody has played yet
    room.play()
    room.distill()
    found, attempt = try_shadow(room.compressor, room.policy, order)
    assert (attempt.built, attempt.verdict.states) == ((NET3,), ADMISSION_STATES)
    room.orders.book_shadow(found, room.recorder)
    report = room.report()
    assert report.shadow_kl_nats == {NET3: found.kl_nats}
    assert report.waiting_kl_nats == {}
    assert room.compressor.state_dict()["last_good"] == INT8.to_json()
    other.publish()
    mine, theirs = room.publish(1).publication, other.publish(1).publication
    assert mine is not None
    assert theirs is not None
    assert mine.to_bytes() == theirs.to_bytes()
    room.ask((NET3, 1.0))
    assert held(room.publish(2)) == {NET3: 1.0}


def test_a_shadow_is_warmed_up_once_and_not_again_when_it_acts() -> None:
    room = Room(WITHOUT_ADMISSION)
    room.play()
    room.orders.request(Decision(((IDENTITY, 1.0),), NET3))
    warmups = []
    for version in range(4):
        order = room.publish(version).delivery.order
        if version in (1, 3):
            _, attempt = try_shadow(room.compressor, room.policy, order)
            warmups.append(attempt.warmup_states)
    room.ask((NET3, 1.0))
    warmups.append(room.publish(4).parts[0].warmup_states)
    assert warmups == [20 * 64, 0, 0]


@pytest.mark.parametrize("decision", [Decision.of(NET3), Decision(((NET3, 0.5), (INT8, 0.5)))])
def test_an_engine_that_fails_while_it_is_compared_is_reported_and_replaced(
    decision: Decision, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room()
    room.ask((INT8, 1.0))
    room.publish()
    room.play()

    def fail(artifact: Artifact, *_: object) -> None:
        if artifact.spec == NET3:
            raise EngineMismatchError("it is broken")

    monkeypatch.setattr(module, "check_engine", fail)
    room.orders.request(decision)
    made = room.publish()
    assert held(made) == {INT8: 1.0}
    assert made.delivery.rejected == {NET3: "it is broken"}
    assert made.delivery.waiting == {}


@pytest.mark.parametrize("spec", [NET3, PRUNED, replace(PRUNED, bits=32, rank=0.5)])
def test_a_student_that_has_diverged_is_replaced_and_its_setting_named(
    spec: CompressionSpec,
) -> None:
    room = Room(WITHOUT_ADMISSION)
    room.ask((spec, 1.0))
    assert held(room.publish()) == {spec: 1.0}
    assert spec.student_key is not None
    net = room.compressor.pool.trainer(spec.student_key).net
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
    made = room.publish(2)
    assert held(made) == {IDENTITY: 1.0}
    cause = "distilling has made its weights NaN or infinite; lower compression.distill_lear"
    assert cause in made.delivery.rejected[spec]
    with torch.no_grad():  # the learner's own come from it, and end the run
        next(room.policy.parameters()).fill_(torch.nan)
    with pytest.raises(DivergedError, match="lower the learning rate"):
        room.publish(3)


def test_a_student_whose_engine_failed_once_is_distilled_again_when_one_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were it not, it could never come close enough to be admitted."""
    room, broken = Room(), [True]
    room.ask((INT8, 1.0))
    room.publish()
    room.play()

    def check(artifact: Artifact, *_: object) -> None:
        if artifact.spec == NET3 and broken:
            broken.clear()
            raise EngineMismatchError("it is broken")

    monkeypatch.setattr(module, "check_engine", check)
    room.orders.request(Decision.of(NET3))
    room.publish(2)
    assert NET3 not in room.orders.in_use
    made = room.publish(3)
    assert [*made.delivery.waiting] == [NET3]
    assert NET3 in room.orders.in_use


TRIED: list[CompressionSpec] = []
"""what `refused` has refused"""


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pruning refused, as where it cannot follow a network of the user's own."""

    def refuse(*_: object, **__: object) -> None:
        TRIED.append(PRUNED)
        raise CannotCompressError("Own cannot be pruned: it is odd")

    TRIED.clear()
    monkeypatch.setattr(beginnings, "prune", refuse)


def test_what_cannot_be_built_ends_a_run_that_begins_with_it(refused: None) -> None:
    """Nothing is lost yet, and whoever asked for it hears why."""
    room = Room(WITHOUT_ADMISSION)
    room.ask((PRUNED, 1.0))
    with pytest.raises(CannotCompressError, match="it is odd"):
        room.publish()


def test_what_cannot_be_built_later_is_replaced_and_the_strategy_hears_of_it(
    refused: None,
) -> None:
    room = Room(WITHOUT_ADMISSION)
    room.ask((INT8, 1.0))
    room.publish()
    room.ask((PRUNED, 1.0))
    for updates, tried in ((2, (PRUNED,)), (3, ())):  # the clock charges what is tried, once
        made = room.publish(updates)
        assert [part.built for part in made.parts] == [(*tried, INT8)]
        assert held(made) == {INT8: 1.0}
        assert made.delivery.rejected == {PRUNED: "Own cannot be pruned: it is odd"}
        room.distill()
    (event,) = room.orders.take_events(1.0)
    assert event.label == PRUNED.label
    assert "cannot be pruned" in event.cause
    assert room.orders.in_use == (INT8,)
    assert len(TRIED) == 1


def test_a_shadow_that_cannot_be_built_is_charged_once(refused: None) -> None:
    room = Room(WITHOUT_ADMISSION)
    room.orders.request(replace(Decision.of(INT8), shadow=PRUNED))
    order = room.orders.order(1)
    made = make_publication(room.compressor, KLProbe(), room.policy, order)
    room.orders.book(made.delivery, room.recorder)
    room.play()
    attempts = [try_shadow(room.compressor, room.policy, order)[1] for _ in range(2)]
    assert [each.built for each in attempts] == [(PRUNED,), ()]
    assert [each.warmup_states for each in attempts] == [0, 0]
    assert len(TRIED) == 1


def test_a_shadow_that_cannot_be_built_is_rejected(refused: None) -> None:
    room = Room(WITHOUT_ADMISSION)
    room.orders.request(replace(Decision.of(INT8), shadow=PRUNED))
    order = room.orders.order(1)
    made = make_publication(room.compressor, KLProbe(), room.policy, order)
    room.orders.book(made.delivery, room.recorder)
    room.play()
    assert PRUNED in room.orders.in_use
    room.distill()  # before it was tried, as a distiller may that works meanwhile
    shadow, attempt = try_shadow(room.compressor, room.policy, order)
    assert shadow.rejected == "Own cannot be pruned: it is odd"
    assert attempt.built == ()
    room.orders.book_shadow(shadow, room.recorder)
    (event,) = room.orders.take_events(1.0)
    assert event.label == PRUNED.label
