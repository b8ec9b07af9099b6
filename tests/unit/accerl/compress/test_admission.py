"""Admission: who waits, until when, and what acts meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accerl.compress import CompressionConfig, Compressor, make_engine
from accerl.compress.admission import ADMISSION_STATES, Verdict
from accerl.compress.check import kl_nats
from accerl.compress.distillation.state_ring import StateRing
from accerl.errors import UserError
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import IDENTITY, CompressionSpec

OBSERVATION = ObservationSpec((4,), "float32")
INT8 = CompressionSpec(bits=8)
NET2 = CompressionSpec(student="net2", bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
PRUNED = CompressionSpec(sparsity=0.5, bits=8)
THIN = CompressionSpec(rank=0.25, bits=8)
BOUND = 0.02


def make_learner() -> PolicyNet:
    net = make_policy("original", OBSERVATION, 3, torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.policy_head.weight.mul_(1000.0)
    return net


def played(ring: StateRing, states: int, seed: int = 0) -> None:
    """Add the states of a rollout."""
    obs = np.random.default_rng(seed).normal(size=(states // 8, 8, 4)).astype(np.float32)
    ring.add(obs, np.zeros((states // 8, 8, 3), np.float32), 0)


def make_compressor(ring: StateRing | None, bound: float = BOUND) -> Compressor:
    config = CompressionConfig(
        calibration_states=48,
        distill_batch=64,
        distill_updates=10,
        distill_learning_rate=1e-2,
        admit_kl_nats=bound,
    )
    made = Compressor(OBSERVATION, 3, config, torch.Generator().manual_seed(1), ring=ring)
    made.observe(np.random.default_rng(9).normal(size=(48, 4)).astype(np.float32))
    return made


@pytest.fixture
def ring() -> StateRing:
    return StateRing(OBSERVATION, 3, 8192)


def test_a_ring_that_keeps_no_held_out_state_has_none_to_compare_on() -> None:
    ring = StateRing(OBSERVATION, 3, 8)
    made = make_compressor(ring)
    played(ring, 8)
    assert made.admission.has_states  # the first state is held out
    played(ring, 8, seed=1)
    assert not made.admission.has_states


def test_nothing_learns_or_is_compared_before_enough_states_were_played(ring: StateRing) -> None:
    """What learned on the few states that it starts from would be far off on all others."""
    compressor, learner = make_compressor(ring), make_learner()
    for states in (0, ring.capacity // 2 - 8):
        if states:
            played(ring, states)
        assert compressor.distill(learner, [NET3]) == 0
        assert compressor.admit(NET3, learner, 1) == (None, Verdict(admitted=False))
        assert compressor.last_build_updates == 0
    played(ring, 8)
    assert compressor.distill(learner, [NET3]) == 10
    assert compressor.admit(NET3, learner, 1)[1].kl_nats is not None


def test_copies_of_a_learner_that_has_learned_nothing_act_at_once(ring: StateRing) -> None:
    compressor, learner = make_compressor(ring), make_learner()
    artifact, verdict = compressor.admit(NET3, learner, 0)
    assert artifact is not None
    assert artifact.spec == NET3
    assert verdict == Verdict()
    compressor.admission.acted([NET3])
    assert compressor.admit(NET3, learner, 1)[0] is not None  # and act on
    assert compressor.admit(NET2, learner, 1) == (None, Verdict(admitted=False))


def test_it_waits_while_its_engine_is_far_from_the_learner_on_states_that_it_never_saw(
    ring: StateRing,
) -> None:
    compressor, learner = make_compressor(ring), make_learner()
    played(ring, 4096)
    held_out = ring.held_out(ADMISSION_STATES)
    assert held_out is not None
    found: list[float] = []
    for version in range(1, 30):
        artifact, verdict = compressor.admit(NET3, learner, version)
        assert verdict.kl_nats is not None
        assert verdict.states == ADMISSION_STATES
        assert verdict.admitted == (verdict.kl_nats <= BOUND) == (artifact is not None)
        found.append(verdict.kl_nats)
        compressor.admission.acted([NET3 if artifact is not None else INT8])
        if artifact is not None:
            with torch.no_grad():
                logits = learner(torch.from_numpy(held_out.obs))[0].numpy()
            acted = make_engine(artifact).infer(held_out.obs)[0]
            assert kl_nats(logits, acted).mean() == pytest.approx(verdict.kl_nats)
            break
        compressor.distill(learner, [NET3], version)
    assert len(found) > 2
    assert found[0] > BOUND >= found[-1]


def test_what_acts_goes_on_until_it_is_sent_away_and_is_asked_anew_when_it_returns(
    ring: StateRing,
) -> None:
    compressor, learner = make_compressor(ring), make_learner()
    played(ring, 4096)
    compressor.admission.acted([NET3])  # as if it had been admitted once
    artifact, verdict = compressor.admit(NET3, learner, 1)
    assert artifact is not None
    assert verdict == Verdict()  # nothing was compared
    compressor.admission.acted([INT8])
    artifact, verdict = compressor.admit(NET3, learner, 2)
    assert artifact is None
    assert (verdict.kl_nats or 0.0) > BOUND


@pytest.mark.parametrize("bound", [0.0, BOUND])
def test_without_a_bound_or_states_of_a_run_everything_acts_at_once(
    ring: StateRing, bound: float
) -> None:
    compressor = make_compressor(None if bound else ring, bound)
    artifact, verdict = compressor.admit(NET3, make_learner(), 0)
    assert artifact is not None
    assert verdict == Verdict()
    assert compressor.last_build_updates == compressor.config.distill_warmup_updates


def test_the_learners_own_network_need_not_be_admitted(ring: StateRing) -> None:
    compressor, learner = make_compressor(ring), make_learner()
    for spec in (IDENTITY, INT8, THIN):
        artifact, verdict = compressor.admit(spec, learner, 0)
        assert artifact is not None
        assert (artifact.spec, verdict) == (spec, Verdict())


@pytest.mark.parametrize(
    ("acted", "asked", "expected"),
    [
        ((), NET3, INT8),
        ((IDENTITY,), NET3, INT8),  # nearer than float32
        ((INT8,), NET3, INT8),
        ((THIN,), NET3, THIN),
        ((NET2,), NET3, NET2),
        ((NET3,), NET2, INT8),  # harder than what is asked for
        ((PRUNED, INT8), NET2, PRUNED),
        ((NET2, PRUNED), NET3, NET2),
        ((NET2,), CompressionSpec(student="net3"), NET2),
        ((), CompressionSpec(student="net3", graph="eager"), CompressionSpec(graph="eager")),
        ((NET2,), CompressionSpec(student="mynets:small", bits=8), NET2),
        ((CompressionSpec(student="mynets:large", bits=8),), NET3, INT8),
    ],
    ids=str,
)
def test_the_nearest_of_what_is_milder_stands_in(
    ring: StateRing,
    acted: tuple[CompressionSpec, ...],
    asked: CompressionSpec,
    expected: CompressionSpec,
) -> None:
    admission = make_compressor(ring).admission
    admission.acted(acted)
    assert admission.stand_in(asked) == expected


def test_what_waits_does_not_stand_in_for_what_fails_its_check(ring: StateRing) -> None:
    compressor, learner = make_compressor(ring), make_learner()
    played(ring, 4096)
    assert compressor.admit(INT8, learner, 0)[0] is not None
    assert compressor.admit(NET3, learner, 1)[0] is None
    assert compressor.fallback(learner, 1).spec == INT8


def test_a_saved_compressor_admits_at_the_same_moment_to_the_bit(ring: StateRing) -> None:
    one, other, learner = make_compressor(ring), make_compressor(ring), make_learner()
    played(ring, 4096)
    for version in range(1, 4):
        one.admit(NET3, learner, version)
        one.distill(learner, [NET3], version)
    one.admission.acted([INT8])
    other.load_state_dict(one.state_dict())
    for version in range(4, 30):
        made = [compressor.admit(NET3, learner, version) for compressor in (one, other)]
        (artifact, verdict), (again, same) = made
        assert verdict == same
        if artifact is not None and again is not None:
            assert artifact.to_bytes() == again.to_bytes()
            break
        for compressor in (one, other):
            compressor.distill(learner, [NET3], version)
    else:
        pytest.fail("it was never admitted")
    for compressor in (one, other):
        compressor.admission.acted([NET3])
    other.load_state_dict(one.state_dict())
    assert not other.admission.concerns(NET3, 30)
    assert other.admission.concerns(NET2, 30)


@pytest.mark.parametrize("name", ["admit_kl_nats", "distill_rest_kl_nats"])
@pytest.mark.parametrize("bound", [-0.1, float("nan"), float("inf")])
def test_a_bound_is_a_number_that_is_not_negative(name: str, bound: Any) -> None:
    with pytest.raises(UserError, match=f"compression: {name} must be a number that is not"):
        CompressionConfig(**{name: bound})


def test_nobody_rests_who_waits_to_be_admitted_or_without_a_limit() -> None:
    def rest(**given: Any) -> float:
        config = CompressionConfig(distill_rest_kl_nats=0.25, **given)
        return config.distill_method.rest_kl_nats

    assert (rest(), rest(admit_kl_nats=0.5), rest(admit_kl_nats=0.1)) == (0.25, 0.25, 0.1)
    assert rest(distill_updates=0) == 0.0
