from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accerl.compress import Artifact, CompressionConfig, Compressor, make_engine
from accerl.compress.check import kl_nats
from accerl.compress.distillation import beginnings
from accerl.envs import make_envs
from accerl.errors import CannotCompressError, UserError
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import CompressionSpec

OBSERVATION = ObservationSpec((6,), "float32")
NET3 = CompressionSpec(student="net3", bits=8)
PRUNED = CompressionSpec(sparsity=0.5)
INT8 = CompressionSpec(bits=8)
THIN = CompressionSpec(rank=0.1, bits=8)


RENEWED = {
    "distill_start": "learner",
    "distill_renew_every": 4,
    "distill_renew_share": 0.0,
    "distill_renew_margin": 0.0,
    "distill_learning_rate": 1e-5,
    "distill_decay_updates": 20,
    "prune_budget": "global",
    "prune_compensate": True,
}
"""networks that begin anew, perhaps with other widths, at every look"""


def make_learner(seed: int = 0) -> PolicyNet:
    net = make_policy("original", OBSERVATION, 4, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        net.policy_head.weight.mul_(200.0)
    return net


def make_compressor(seed: int = 0, **settings: Any) -> Compressor:
    config = CompressionConfig(calibration_states=48, distill_batch=32, **settings)
    return Compressor(OBSERVATION, 4, config, torch.Generator().manual_seed(seed))


def states(count: int = 48, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def kl_to(learner: PolicyNet, artifact: Artifact, obs: np.ndarray) -> np.ndarray:
    """KL(learner || artifact) of every state, in nats."""
    with torch.no_grad():
        logits = learner(torch.from_numpy(obs))[0].numpy()
    return kl_nats(logits, make_engine(artifact).infer(obs)[0])


def drift(learner: PolicyNet, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))


def test_the_newest_states_are_kept() -> None:
    compressor = make_compressor()
    numbered = np.repeat(np.arange(200, dtype=np.float32)[:, None], 6, axis=1)
    compressor.observe(numbered[:30])
    assert sorted(compressor.states[:, 0]) == list(range(30))
    compressor.observe(numbered[30:70])
    assert sorted(compressor.states[:, 0]) == list(range(22, 70))
    compressor.observe(numbered[70:200])
    assert sorted(compressor.states[:, 0]) == list(range(152, 200))
    with pytest.raises(ValueError, match="expected states"):
        compressor.observe(numbered[:, :5])
    with pytest.raises(ValueError, match="float64"):
        compressor.observe(numbered.astype(np.float64))


def test_states_must_be_recorded_first() -> None:
    compressor = make_compressor()
    with pytest.raises(UserError, match=r"call observe\(\) with the first observations"):
        compressor.build(INT8, make_learner(), 0)
    with pytest.raises(UserError, match=r"call observe\(\)"):
        compressor.distill(make_learner(), [NET3])


def test_distill_counts_one_network_once() -> None:
    compressor = make_compressor(distill_updates=3)
    compressor.observe(states())
    float_net3 = CompressionSpec(student="net3")
    assert compressor.distill(make_learner(), [INT8, CompressionSpec()]) == 0
    assert compressor.distill(make_learner(), [NET3, float_net3, INT8]) == 3
    assert compressor.distill(make_learner(), [NET3, PRUNED]) == 6


def test_warm_up_on_first_use_and_on_coming_back() -> None:
    compressor, learner = make_compressor(distill_warmup_updates=5), make_learner()
    compressor.observe(states())
    charged = []
    publications = [
        (0, [NET3, INT8]),  # first use
        (0, [NET3]),  # the same weights again
        (4, [NET3]),
        (8, [INT8]),
        (12, [NET3, PRUNED]),  # one comes back, one is new
        (16, [PRUNED]),
    ]
    for version, specs in publications:
        for spec in specs:
            artifact = compressor.build(spec, learner, version)
            assert (artifact.spec, artifact.version) == (spec, version)
            charged.append(compressor.last_build_updates)
    assert charged == [5, 0, 0, 0, 0, 5, 5, 0]


def test_a_build_that_fails_is_not_charged_for_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CannotCompressError("it is odd")

    compressor, learner = make_compressor(distill_warmup_updates=5), make_learner()
    compressor.observe(states())
    compressor.build(NET3, learner, 0)
    assert compressor.last_build_updates == 5
    monkeypatch.setattr(beginnings, "prune", refuse)
    for _ in range(2):  # the second time without trying
        with pytest.raises(CannotCompressError, match="it is odd"):
            compressor.build(PRUNED, learner, 0)
        assert compressor.last_build_updates == 0


def test_distillation_lowers_the_kl_of_students_and_pruned_networks() -> None:
    learner = make_learner()
    for spec in (NET3, PRUNED):
        compressor = make_compressor(distill_warmup_updates=0, distill_learning_rate=3e-3)
        compressor.observe(states())
        before = kl_to(learner, compressor.build(spec, learner, 0), states()).mean()
        for _ in range(40):
            compressor.distill(learner, [spec])
        after = kl_to(learner, compressor.build(spec, learner, 1), states()).mean()
        assert after < 0.3 * before


def minatar_states(count: int) -> tuple[ObservationSpec, np.ndarray]:
    envs, rng = make_envs("minatar-space-invaders", 8), np.random.default_rng(0)
    envs.reset(0)
    boards = [envs.step(rng.integers(envs.num_actions, size=8)).obs for _ in range(count // 8)]
    return envs.observation, np.concatenate(boards)


@pytest.mark.parametrize("network", [pytest.param("original", marks=pytest.mark.slow), "net1"])
def test_minatar_networks_take_every_kind_of_compression(network: str) -> None:
    observation, boards = minatar_states(128)
    learner = make_policy(network, observation, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        learner.policy_head.weight.mul_(200.0)
    config = CompressionConfig(
        calibration_states=128, distill_warmup_updates=0, distill_learning_rate=3e-3
    )
    compressor = Compressor(observation, 4, config, torch.Generator().manual_seed(0))
    compressor.observe(boards)
    for spec in (CompressionSpec(bits=8), CompressionSpec(bits=16), CompressionSpec(rank=0.7)):
        kl = kl_to(learner, compressor.build(spec, learner, 0), boards).mean()
        assert 0.0 < kl < 0.05, spec.label
    for spec in (NET3, PRUNED, CompressionSpec(sparsity=0.25, bits=8, rank=0.9)):
        before = kl_to(learner, compressor.build(spec, learner, 0), boards).mean()
        for _ in range(20):
            compressor.distill(learner, [spec])
        after = kl_to(learner, compressor.build(spec, learner, 1), boards).mean()
        assert after < 0.3 * before, spec.label


def test_a_network_that_began_anew_is_calibrated_anew() -> None:
    learner, compressor = make_learner(), make_compressor(**RENEWED)
    compressor.observe(states())
    widths, generations = set(), []
    for index in range(6):
        other = make_learner(seed=index)
        with torch.no_grad():  # so that a global budget leaves other widths each time
            next(other.body.parameters()).mul_(1.0 + index)
        learner.load_state_dict(other.state_dict())
        compressor.distill(learner, [PRUNED])
        spec = CompressionSpec(sparsity=0.5, bits=8)
        artifact = compressor.build(spec, learner, index)
        (entry,) = compressor.pool.send([spec.student_key])
        widths.add(tuple(entry["network"]["hidden"]))
        generations.append(entry["generation"])
        assert kl_to(learner, artifact, states()).mean() < 0.5
    assert generations == [0, 1, 2, 3, 4, 5]
    assert len(widths) > 1


def test_ranges_are_refreshed_by_few_states_once_enough_were_measured() -> None:
    learner, compressor = make_learner(), make_compressor()
    measured = []
    for version, count in enumerate((1, 47, 16, 16)):  # the first publication knows what resets to
        compressor.observe(states(count, seed=version))
        compressor.build(INT8, learner, version)
        (memory,) = compressor._memories.values()
        measured.append(memory.tracker.seen_states)
    assert measured == [1, 49, 97, 105]


@pytest.mark.parametrize(("ranges", "kept"), [("minmax", True), ("percentile", False)])
def test_what_comes_back_is_calibrated_on_all_states(ranges: str, kept: bool) -> None:
    """Averages of a network that has moved on are forgotten; ranges of minmax grow from theirs."""
    learner, compressor = make_learner(), make_compressor(quantise_ranges=ranges)
    compressor.observe(states())
    for version in (0, 1):
        compressor.build(INT8, learner, version)
    (memory,) = compressor._memories.values()
    assert memory.tracker.seen_states > 48
    before = memory.tracker._layers[0][1]
    for version in (2, 3, 4):  # without compression meanwhile
        compressor.build(CompressionSpec(), learner, version)
    with torch.no_grad():
        next(learner.body.parameters()).mul_(0.01)
    compressor.build(INT8, learner, 5)
    (memory,) = compressor._memories.values()
    assert memory.tracker.seen_states == 48
    assert (memory.tracker._layers[0][1] > 0.5 * before) == kept


def test_kl_to_an_exact_copy_is_zero() -> None:
    compressor, learner = make_compressor(), make_learner()
    compressor.observe(states())
    artifact = compressor.build(CompressionSpec(), learner, 0)
    assert kl_to(learner, artifact, states()).max() < 1e-9
    drift(learner, 1)
    assert kl_to(learner, artifact, states()).mean() > 1e-6


def steps(compressor: Compressor, learner: PolicyNet, first: int, last: int) -> list[bytes]:
    """Drive a compressor as a run does: observe, distil, publish, while the learner moves."""
    published = []
    for index in range(first, last):
        drift(learner, index)
        compressor.observe(states(16, seed=index))
        compressor.distill(learner, [NET3, PRUNED])
        specs = [NET3, THIN] if index % 3 else [INT8, PRUNED]
        published += [compressor.build(spec, learner, index).to_bytes() for spec in specs]
    return published


def test_equal_seeds_give_equal_bytes() -> None:
    runs = [steps(make_compressor(seed), make_learner(), 0, 4) for seed in (7, 7, 8)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prune_criterion": "taylor", "prune_budget": "global", "prune_compensate": True},
        RENEWED,
    ],
    ids=["default", "taylor", "renewed"],
)
def test_resuming_is_bit_exact(settings: dict[str, Any]) -> None:
    whole, learner = make_compressor(3, **settings), make_learner()
    logits, values = learner(torch.from_numpy(states()))
    (logits.square().sum() + values.square().sum()).backward()
    steps(whole, learner, 0, 4)
    saved = whole.state_dict()
    weights = {name: value.clone() for name, value in learner.state_dict().items()}
    expected = steps(whole, learner, 4, 9)

    resumed, other = make_compressor(99, **settings), make_learner(1)
    resumed.load_state_dict(saved)
    other.load_state_dict(weights)
    assert steps(resumed, other, 4, 9) == expected


@pytest.mark.parametrize(("pause", "fresh"), [(False, False), (True, True)])
def test_a_factorisation_starts_from_the_last_one_unless_that_is_old(
    pause: bool, fresh: bool
) -> None:
    spec, learner = CompressionSpec(rank=0.1), make_learner()
    compressor, other = make_compressor(), make_compressor()
    for each in (compressor, other):
        each.observe(states())
    compressor.build(spec, learner, 4)
    drift(learner, 0)
    compressor.build(INT8 if pause else spec, learner, 8)
    drift(learner, 1)
    found = compressor.build(spec, learner, 12)
    assert (found.payload == other.build(spec, learner, 12).payload) == fresh


def test_after_a_new_beginning_the_new_network_is_published() -> None:
    """A student that rested is warmed up, and begins anew where the learner has left it behind."""
    key = PRUNED.student_key
    assert key is not None
    compressor = make_compressor(3, **RENEWED, distill_warmup_updates=8)
    learner = make_learner()
    compressor.observe(states())
    compressor.build(PRUNED, learner, 0)
    compressor.build(INT8, learner, 25)
    learner.load_state_dict(make_learner(1).state_dict())
    before = compressor.pool.generation(key)
    artifact = compressor.build(PRUNED, learner, 50)
    assert compressor.pool.generation(key) == before + 1
    net = compressor.pool.network(key, learner, states())
    with torch.no_grad():
        logits = net(torch.from_numpy(states()))[0].numpy()
    np.testing.assert_allclose(make_engine(artifact).infer(states())[0], logits, atol=1e-4)


def test_pruning_follows_the_configuration() -> None:
    learner = make_learner()
    settings = {"prune_round_to": 8, "prune_compensate": True, "prune_criterion": "taylor"}
    built = {}
    for gradients in (False, True):
        compressor = make_compressor(**settings, distill_warmup_updates=0)
        compressor.observe(states())
        if gradients:
            logits, _ = learner(torch.from_numpy(states()))
            logits.square().sum().backward()
        built[gradients] = compressor.build(CompressionSpec(sparsity=0.3), learner, 0)
        (entry,) = compressor.state_dict()["students"]
        assert entry["network"]["hidden"] == [88, 88]  # 0.7 of 128, in eights
    # Before anything was learned there is no gradient, and the norm stands in.
    assert built[False].payload != built[True].payload


def test_the_saved_tree_is_plain() -> None:
    compressor = make_compressor()
    steps(compressor, make_learner(), 0, 3)
    leaves: list[object] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            assert all(isinstance(key, str) for key in node)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
        else:
            leaves.append(node)

    walk(compressor.state_dict())
    plain = (torch.Tensor, np.ndarray, int, float, str, type(None))
    assert all(isinstance(leaf, plain) for leaf in leaves)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"calibration_states": 0}, "compression: calibration_states"),
        ({"distill_states": 0}, "compression: distill_states"),
        ({"distill_warmup_updates": -1}, "compression: distill_warmup_updates"),
        ({"distill_sync_every": 0}, "distil: sync_every"),
        ({"distill_batch": -1}, "distil: batch"),
        ({"distill_learning_rate": 0.0}, "distil: learning_rate"),
        ({"distill_temperature": 0.0}, "distil: temperature"),
        ({"distill_entropy_cost": -1e-3}, "distil: entropy_cost"),
        ({"distill_value_cost": -1.0}, "distil: value_cost"),
    ],
)
def test_configuration_is_validated(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f"{said} must"):
        CompressionConfig(**settings)


@pytest.mark.parametrize(
    "settings", [{"prune_criterion": "l7"}, {"prune_budget": "local"}, {"prune_round_to": 0}]
)
def test_a_way_of_pruning_is_validated_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"prune: {next(iter(settings))[6:]}"):
        CompressionConfig(**settings)


def test_nobody_tries_again_and_again_to_follow_with_what_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compressor, learner, tries = make_compressor(distill_updates=2), make_learner(), []
    compressor.observe(states())

    def fail(*_: object) -> None:
        tries.append(1)
        raise CannotCompressError("Own cannot be pruned: it is odd")

    network = compressor.pool.network
    monkeypatch.setattr(compressor.pool, "network", fail)
    assert [compressor.distill(learner, [PRUNED]) for _ in range(3)] == [0, 0, 0]
    assert len(tries) == 1
    with pytest.raises(CannotCompressError, match="it is odd"):
        compressor.build(PRUNED, learner, 0)
    monkeypatch.setattr(compressor.pool, "network", network)
    assert compressor.distill(learner, [PRUNED, NET3]) == 2  # others are followed all the same
