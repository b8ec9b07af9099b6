"""What every link of a chain must hold: subclass `LinkCompliance` in a pytest file of your own."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.chain import CompressorChain
from accerl.compress.engine import make_engine
from accerl.compress.links import Link
from accerl.errors import UserError
from accerl.networks.observation import ObservationSpec
from accerl.networks.policy_net import PolicyNet, make_policy
from accerl.spec import CompressionSpec

BOARD = ObservationSpec((3, 10, 10), "uint8", centre=4, unit=50.0)
VECTOR = ObservationSpec((6,), "float32")
ACTIONS = 5


def decided_policy(observation: ObservationSpec) -> PolicyNet:
    """Return an Original whose logits differ: compressing a uniform policy would change nothing."""
    net = make_policy("original", observation, ACTIONS, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def random_states(observation: ObservationSpec, count: int = 64, seed: int = 0) -> np.ndarray:
    """Return states [count, *shape] of noise."""
    generator, shape = np.random.default_rng(seed), (count, *observation.shape)
    if observation.dtype == "uint8":
        return generator.integers(0, 256, shape).astype(np.uint8)
    return generator.normal(size=shape).astype(np.float32)


class LinkCompliance:
    """Tests of the Link contract, on pixels and on vectors.

    ``class TestMine(LinkCompliance): def make(self): return MyLink(0.5)``
    """

    OBSERVATIONS: Sequence[ObservationSpec] = (BOARD, VECTOR)
    IDENTITY_TOLERANCE = 1e-4
    """of logits, where `make_identity` compresses nothing"""

    def make(self) -> Link:
        """Return the link under test."""
        raise NotImplementedError

    def make_identity(self) -> Link | None:
        """Return the link set to compress nothing, if it can be."""
        return None

    def make_harder(self) -> Link | None:
        """Return the link set to compress harder than `make`'s, if it can be."""
        return None

    def __init_subclass__(cls) -> None:
        """Leave out tests that would ask nothing: two of them need a link that there may not be."""
        super().__init_subclass__()
        for make, test in (
            ("make_identity", "test_compressing_nothing_changes_nothing"),
            ("make_harder", "test_harder_compression_costs_more"),
        ):
            if test not in cls.__dict__:
                is_asked = getattr(cls, make) is not getattr(LinkCompliance, make)
                setattr(cls, test, getattr(LinkCompliance, test) if is_asked else None)

    def _compress(self, link: Link, observation: ObservationSpec) -> Artifact:
        net = decided_policy(observation)
        return CompressorChain([link]).compress(net, observations=random_states(observation))

    def _logits(self, link: Link, observation: ObservationSpec) -> np.ndarray:
        engine = make_engine(self._compress(link, observation))
        return engine.infer(random_states(observation, seed=1))[0]

    def _error(self, link: Link, observation: ObservationSpec) -> float:
        """Return the mean absolute error of the logits, on states that it has not seen."""
        with torch.no_grad():
            states = torch.from_numpy(random_states(observation, seed=1))
            logits = decided_policy(observation)(states)[0].numpy()
        return float(np.abs(logits - self._logits(link, observation)).mean())

    def test_outputs_have_their_shapes_at_every_batch(self) -> None:
        """Logits are [B, A], values [B], finite float32."""
        for observation in self.OBSERVATIONS:
            engine = make_engine(self._compress(self.make(), observation))
            for batch in (1, 3, 16):
                logits, values = engine.infer(random_states(observation, batch))
                assert logits.shape == (batch, ACTIONS)
                assert values.shape == (batch,)
                assert logits.dtype == values.dtype == np.float32
                assert np.isfinite(logits).all()
                assert np.isfinite(values).all()

    def test_the_policy_is_left_as_it_is(self) -> None:
        """The learner's network is not written to."""
        for observation in self.OBSERVATIONS:
            net = decided_policy(observation)
            before = {name: value.clone() for name, value in net.state_dict().items()}
            CompressorChain([self.make()]).compress(net, observations=random_states(observation))
            for name, value in net.state_dict().items():
                assert torch.equal(value, before[name]), name
            assert all(weight.requires_grad for weight in net.parameters())

    def test_equal_inputs_give_equal_artifacts(self) -> None:
        """Nothing depends on the time of day, or on how often it ran."""
        for observation in self.OBSERVATIONS:
            first, second = (self._compress(self.make(), observation) for _ in range(2))
            assert bytes(first.payload) == bytes(second.payload)
            assert first.spec == second.spec

    def test_compressing_nothing_changes_nothing(self) -> None:
        """At zero compression logits are those of the policy."""
        link = self.make_identity()
        assert link is not None
        for observation in self.OBSERVATIONS:
            assert self._error(link, observation) <= self.IDENTITY_TOLERANCE

    def test_harder_compression_costs_more(self) -> None:
        """The error of the logits does not shrink."""
        harder = self.make_harder()
        assert harder is not None
        for observation in self.OBSERVATIONS:
            assert self._error(self.make(), observation) <= self._error(harder, observation)

    def test_the_spec_survives_json(self) -> None:
        """What an artifact says it is can be written down and read back."""
        for observation in self.OBSERVATIONS:
            spec = self._compress(self.make(), observation).spec
            assert CompressionSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec

    def test_who_acts_elsewhere_acts_alike(self) -> None:
        """An engine made of the artifact's bytes has exactly these logits, whatever the batch.

        They are the behaviour policy: an actor records the log-probabilities that its own engine
        gave, one call for all its environments or several.
        """
        for observation in self.OBSERVATIONS:
            artifact = self._compress(self.make(), observation)
            states = random_states(observation, 16)
            here = make_engine(artifact)
            there = make_engine(Artifact.from_bytes(memoryview(bytes(artifact.to_bytes()))))
            logits = here.infer(states)[0]
            assert np.array_equal(logits, there.infer(states)[0])
            assert there.spec == artifact.spec
            apart = np.concatenate([here.infer(states[i : i + 1])[0] for i in range(len(states))])
            size = float(np.abs(logits).max())
            np.testing.assert_allclose(apart, logits, atol=self._batch_tolerance(artifact) * size)

    def _batch_tolerance(self, artifact: Artifact) -> float:
        """Sums in bfloat16 depend visibly on how a batch is cut."""
        return 0.02 if artifact.spec.bits == 16 else 1e-4

    def test_it_runs_once_per_chain(self) -> None:
        """A chain refuses it a second time."""
        chain = CompressorChain([self.make()])
        try:
            chain.add(self.make())
        except UserError:
            return
        raise AssertionError("the chain took it twice")
