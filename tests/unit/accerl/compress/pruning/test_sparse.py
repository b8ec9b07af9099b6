"""Sparse topology: densities, masks that hold, moves by SET and RigL, resume, and learning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.checkpoint import load_checkpoint, save_checkpoint
from accerl.compress.layers import body_layers
from accerl.compress.pruning.sparse import (
    DENSITIES,
    METHODS,
    SparseTopology,
    TopologyConfig,
    layer_densities,
)
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.learner.config import LearnerConfig
from accerl.learner.group import GroupBrokenError, LearnerGroup
from accerl.learner.learner import Learner
from accerl.monitor.strategies import FixedStrategy
from accerl.networks.graph_policy import GraphPolicy
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from tests.fixtures.chains import as_chain
from tests.fixtures.own_networks import OwnMLP
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

VECTOR = ObservationSpec((8,), "float32")
PIXELS = ObservationSpec((4, 84, 84), "uint8")
RIGL = TopologyConfig(update_every=2, sparsity=0.8)
# Layers of the paper's Original.
SHAPES = [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (2048, 3136)]


class Tied(nn.Module):
    """Two hidden layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.policy, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.policy(x), self.value(x)


def make(observation: ObservationSpec = VECTOR, seed: int = 0) -> PolicyNet:
    return make_policy("original", observation, 3, torch.Generator().manual_seed(seed))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_rollout(seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    shape = RolloutShape(unroll=6, num_envs=4, num_actions=3, observation=VECTOR)
    rollout = Rollout.allocate(shape)
    rollout.obs[:] = rng.normal(size=rollout.obs.shape)
    rollout.action[:] = rng.integers(3, size=(6, 4))
    rollout.reward[:] = rng.normal(size=(6, 4))
    rollout.log_prob[:] = -np.log(3.0)
    return rollout


@settings(max_examples=60)
@given(sparsity=st.floats(0.0, 0.99), density=st.sampled_from(DENSITIES))
def test_densities_add_up_to_the_budget(sparsity: float, density: str) -> None:
    shares = layer_densities(SHAPES, TopologyConfig(sparsity=sparsity, density=density))
    sizes = np.array([np.prod(shape) for shape in SHAPES])
    assert np.dot(shares, sizes) == pytest.approx((1.0 - sparsity) * sizes.sum(), rel=1e-6)
    assert all(0.0 < share <= 1.0 + 1e-9 for share in shares)
    if density == "erk" and sparsity > 0.0:  # the giant pays for the small ones
        assert shares[-1] == min(shares)


def test_erk_is_what_its_paper_says() -> None:
    shares = layer_densities([(100, 100), (200, 100)], TopologyConfig(sparsity=0.9))
    assert shares[0] / shares[1] == pytest.approx((200 / 10_000) / (300 / 20_000))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block", [1, 4])
def test_what_is_masked_stays_zero_while_the_rest_learns(method: str, block: int) -> None:
    config = TopologyConfig(method=method, block=block, sparsity=0.75, update_every=3)
    learner = Learner(make(), LearnerConfig(device="cpu", sparse=config, reuse=3), generator())
    topology = learner.topology
    assert topology is not None
    before = [mask.clone() for mask in topology.masks]
    assert topology.sparsity() == pytest.approx(0.75, abs=0.01)
    for seed in range(8):
        learner.update(make_rollout(seed))
    assert topology.steps == 24
    assert topology.sparsity() == pytest.approx(0.75, abs=0.01)
    moved = 0
    for layer, mask, old in zip(
        body_layers(as_chain(learner.policy)), topology.masks, before, strict=True
    ):
        weight = layer.module.weight.detach()
        assert not weight[~mask].any()
        assert (weight[mask] != 0.0).float().mean() > 0.9
        assert int(mask.sum()) == int(old.sum())
        rows = mask.flatten(1).view(len(mask), -1, block)
        assert (rows.all(2) | ~rows.any(2)).all()  # blocks live and die together
        moved += int((mask != old).sum())
    assert (moved > 0) == (method != "static")


class Broken(LearnerGroup):
    """One whose other member is gone."""

    def mean(self, tensor: Tensor) -> Tensor:
        raise GroupBrokenError("it is gone")


@pytest.mark.parametrize("breaks", [True, False])
def test_a_step_that_is_not_taken_moves_no_mask(breaks: bool) -> None:
    config = LearnerConfig(device="cpu", sparse=replace(RIGL, update_every=1))
    learner = Learner(make(), config, generator())
    learner.update(make_rollout(0))
    topology = learner.topology
    assert topology is not None
    before, steps = [mask.clone() for mask in topology.masks], topology.steps
    rollout = make_rollout(1)
    if breaks:
        learner._group = Broken()
    else:
        rollout.reward[0, 0] = np.nan
    with pytest.raises(GroupBrokenError if breaks else FloatingPointError):
        learner.update(rollout)
    assert topology.steps == steps
    assert all(map(torch.equal, topology.masks, before))


def test_rigl_grows_where_the_gradient_is_largest() -> None:
    net = make()
    topology = SparseTopology(net, replace(RIGL, update_every=1, density="uniform"), generator())
    optimiser = torch.optim.Adam(net.parameters())
    weight = body_layers(net)[0].module.weight
    live = topology.masks[0].clone()
    with torch.no_grad():
        weight[live] = torch.linspace(1.0, 2.0, int(live.sum()))
    wanted = torch.zeros_like(live)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert weight.grad is not None
    places = (~live).nonzero()[:3]
    for row, column in places.tolist():
        wanted[row, column] = True
        weight.grad[row, column] = -5.0
    optimiser.state[weight] = {"step": torch.tensor(1.0), "exp_avg": torch.ones_like(weight)}
    topology.before_step(optimiser)
    now = topology.masks[0]
    assert now[wanted].all()
    assert not weight[wanted].any()  # they start from nothing
    assert not optimiser.state[weight]["exp_avg"][wanted].any()
    gone = live & ~now
    assert gone.any()
    lowest = weight.detach()[live].sort().values[: int(RIGL.drop_fraction * int(live.sum()))]
    assert weight[gone].max() <= lowest[-1]


def test_moves_fade_out_and_end() -> None:
    net = make()
    config = TopologyConfig(method="set", update_every=1, stop_after=20, drop_fraction=0.5)
    topology = SparseTopology(net, config, generator())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.0)
    changes = []
    for _ in range(25):
        before = topology.masks
        topology.before_step(optimiser)
        pairs = zip(before, topology.masks, strict=True)
        changes.append(sum(int((old != new).sum()) for old, new in pairs))
    assert changes[0] > 4 * changes[15] > 0
    assert not any(changes[19:])


def test_a_saved_topology_goes_on_bit_by_bit(tmp_path: Path) -> None:
    config = LearnerConfig(device="cpu", sparse=replace(RIGL, method="set"))
    whole, resumed = Learner(make(), config, generator(1)), Learner(make(seed=5), config)
    for seed in range(3):
        whole.update(make_rollout(seed))
    save_checkpoint(tmp_path / "learner", whole.state_dict())
    resumed.load_state_dict(load_checkpoint(tmp_path / "learner"))
    for seed in range(3, 9):
        for learner in (whole, resumed):
            learner.update(make_rollout(seed))
    pairs = zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_runs_remember_their_topology() -> None:
    config = tiny_catch().with_learner(sparse=RIGL)
    assert RunConfig.from_json(config.to_json()) == config
    data = config.to_json()
    data["learner"]["sparse"]["speed"] = 1
    with pytest.raises(UserError, match="not of this version"):
        RunConfig.from_json(data)
    int8 = FixedStrategy(CompressionSpec(bits=8))
    result = run_training(config, int8, profile=fast_profile())
    assert result.summary["learner_updates"] > 20
    assert all(report.kl_mean_nats < 0.5 for report in result.reports)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "riggl"}, "method 'riggl' does not exist; did you mean 'rigl'"),
        ({"density": "erc"}, "density 'erc' does not exist; did you mean 'erk'"),
        ({"sparsity": 1.0}, "fraction of zeros"),
        ({"drop_fraction": -0.1}, "drop_fraction must lie in"),
        ({"update_every": 0}, "update_every must be a whole number, at least 1, got 0"),
        ({"block": 2.0}, "block must be a whole number, at least 1, got 2.0"),
    ],
    ids=str,
)
def test_mistakes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TopologyConfig(**changes)


def test_blocks_must_fit() -> None:
    with pytest.raises(UserError, match="blocks of 3 do not divide a layer's 8 inputs"):
        SparseTopology(make(), replace(RIGL, block=3), generator())


def test_frozen_layers_keep_their_weights() -> None:
    net = make()
    first, second = (layer.module for layer in body_layers(net))
    first.requires_grad_(False)
    before = first.weight.clone()
    topology = SparseTopology(net, replace(RIGL, update_every=1), generator())
    (mask,) = topology.masks
    # Neither does a gradient have to be there: a forward may leave a layer out.
    topology.before_step(torch.optim.SGD(net.parameters(), lr=0.0))
    topology.after_step()
    assert torch.equal(first.weight, before)
    assert int(topology.masks[0].sum()) == int(mask.sum())
    assert not second.weight[~topology.masks[0]].any()


def test_layers_that_share_a_weight_share_its_mask() -> None:
    net = GraphPolicy(Tied(), VECTOR)
    topology = SparseTopology(net, replace(RIGL, sparsity=0.5, density="uniform"), generator())
    weight = net.get_parameter("module.first.weight")
    assert net.get_parameter("module.second.weight") is weight
    assert len(topology.masks) == 1
    assert float((weight == 0.0).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert topology.sparsity() == pytest.approx(0.5, abs=0.01)


def test_a_network_without_weights_to_mask_is_refused() -> None:
    with pytest.raises(UserError, match="no hidden layer that learns"):
        SparseTopology(make().requires_grad_(False), RIGL, generator())
    net = GraphPolicy(OwnMLP(VECTOR, 3), VECTOR)
    assert isinstance(net.module, OwnMLP)
    spectral_norm(net.module.body[3])
    with pytest.raises(UserError, match=r"'module\.body\.3' are parametrised"):
        SparseTopology(net, RIGL, generator())
