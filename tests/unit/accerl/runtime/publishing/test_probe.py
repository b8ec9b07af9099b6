"""KLProbe: what is compression and what is staleness, each against numbers made elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from accerl.compress.check import kl_nats
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.engine import make_engine
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import make_policy
from accerl.runtime.publishing.probe import KLProbe
from accerl.spec import IDENTITY, CompressionSpec
from accerl.weights import Publication

KIND = ObservationSpec((6,), "float32")
INT8 = CompressionSpec(bits=8)


class Room:
    """A policy, its compressor, and states to compare them on."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.policy = make_policy("original", KIND, 4, generator)
        with torch.no_grad():
            self.policy.policy_head.weight *= 300.0  # an opinion, or nothing tells policies apart
        self.compressor = Compressor(KIND, 4, CompressionConfig(), generator)
        self.states = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)
        self.compressor.observe(self.states)

    def publication(self, number: int, *specs: CompressionSpec) -> Publication:
        artifacts = [self.compressor.build(spec, self.policy, 10 * number) for spec in specs]
        return Publication(number, artifacts, [1.0 / len(specs)] * len(specs))

    def logits(self, states: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.policy(torch.from_numpy(states))[0].numpy()

    def move(self) -> None:
        with torch.no_grad():
            self.policy.policy_head.weight[0] += 1.0


@pytest.fixture
def room() -> Room:
    return Room()


def test_compression_is_what_the_engine_does_to_the_same_weights(room: Room) -> None:
    states = room.states[: KLProbe.STATES]
    publication = room.publication(1, IDENTITY, INT8)
    split = KLProbe().measure(room.policy, publication, states, check=True)
    acted, _ = make_engine(publication.artifacts[1]).infer(states)
    expected = float(kl_nats(room.logits(states), acted).mean())
    assert expected > 1e-5
    assert split.compression_nats[INT8] == pytest.approx(expected)
    assert split.compression_nats[IDENTITY] < 1e-6
    assert split.staleness_nats is None


def test_what_does_not_act_is_compared_as_what_does(room: Room) -> None:
    publication = room.publication(1, INT8)
    split = KLProbe().measure(room.policy, publication, room.states, check=True)
    verdict = KLProbe.compare(room.policy, publication.artifacts[0], room.states)
    assert verdict.kl_nats == split.compression_nats[INT8] > 1e-5
    assert verdict.states == KLProbe.STATES


def test_staleness_is_what_the_learner_did_between_two_publications(room: Room) -> None:
    states, probe = room.states[: KLProbe.STATES], KLProbe()
    probe.measure(room.policy, room.publication(1, INT8), states, check=True)
    before = room.logits(states)
    room.move()
    # Other states have come in meanwhile: the learner is compared on the same ones.
    split = probe.measure(room.policy, room.publication(4, INT8), room.states[50:], check=False)
    expected = float(kl_nats(room.logits(states), before).mean())
    assert expected > 1e-3
    assert split.staleness_nats == pytest.approx(expected)
    assert split.staleness_updates == 30
    assert split.compression_nats == {}


def test_between_checks_nothing_is_measured(room: Room) -> None:
    probe, publication = KLProbe(), room.publication(1, INT8)
    probe.measure(room.policy, publication, room.states, check=True)
    probe.measure(room.policy, publication, room.states, check=False)
    split = probe.measure(room.policy, publication, room.states, check=False)
    assert (split.compression_nats, split.staleness_nats) == ({}, None)


def test_a_restored_probe_goes_on(room: Room) -> None:
    first, second = KLProbe(), KLProbe()
    first.measure(room.policy, room.publication(1, INT8), room.states, check=True)
    second.load_state_dict(first.state_dict())
    room.move()
    publication = room.publication(2, INT8)
    splits = [
        probe.measure(room.policy, publication, room.states, check=False)
        for probe in (first, second)
    ]
    assert splits[0].staleness_nats == splits[1].staleness_nats is not None


@pytest.mark.parametrize(
    ("samples", "macs", "updates"),
    [(160, 1e7, 26), (1024, 3e6, 4), (100_000, 1e6, 1), (1024, 2e4, 32)],
)
def test_checks_are_rare_enough_to_be_cheap(samples: int, macs: float, updates: int) -> None:
    assert KLProbe.check_every(samples, macs) == updates
