"""Operations of users' networks in ONNX: each acts as torch's does, in float32 and beside INT8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import accerl
from accerl.compress.check import kl_nats
from accerl.compress.graphs.float_graph import graph_fp32
from accerl.compress.graphs.integer_graph import graph_int8
from accerl.compress.graphs.traced import trace
from accerl.compress.lowrank import factorise
from accerl.compress.quantization.graph_plan import plan_of
from accerl.compress.quantization.graph_ranges import measure_graph
from accerl.compress.quantization.ranges import RangeTracker
from accerl.errors import UserError
from accerl.networks.adopt import as_policy
from accerl.networks.observation import ObservationSpec
from accerl.spec import CompressionSpec
from tests.unit.accerl.compress.graphs.test_graphs import IMAGES, Net, images, run

BYTES = ObservationSpec((6,), "uint8")


def pointwise(x: Tensor) -> Tensor:
    x = torch.log(x.abs() + 1.0) + torch.log1p(x.square()) + torch.rsqrt(x.abs() + 0.5)
    x = x + torch.sin(x) * torch.cos(x) + torch.erf(x).sign() + torch.reciprocal(x.abs() + 1.0)
    x = functional.selu(x) + functional.celu(x, 0.7) + functional.logsigmoid(x)
    x = functional.hardsigmoid(x) + x.clamp_min(-1.0).clamp_max(2.0) + torch.floor(x) * 0.1
    return torch.add(x, x.round(), alpha=0.5) - torch.rsub(x, 1.0, alpha=0.25)


def masks(x: Tensor) -> Tensor:
    small = x < 0.2
    x = torch.where(small & (x != 0.0), x * 0.5, x).masked_fill(x.ge(1.5), -3.0)
    x = torch.where(x > 0.0, x, torch.tensor(-0.1)) * (x <= 1.0)
    return x + torch.logical_not(small).float()


def reductions(x: Tensor) -> Tensor:
    x = x + x.amin(1, keepdim=True) + x.max(1, keepdim=True).values - x.min(2, keepdim=True)[0]
    x = x + torch.logsumexp(x, (2, 3), keepdim=True) * 0.1
    return functional.normalize(x, dim=1) + functional.normalize(x, p=1.0, dim=1)


def arrangements(x: Tensor) -> Tensor:
    first, *_, last = x.unbind(1)
    pair = torch.stack([first, last], 1)
    x = torch.cat([pair, pair.expand(-1, -1, 8, 8)], 1)
    wide = functional.interpolate(functional.max_pool2d(x, 2), scale_factor=2)
    return x + wide + functional.pixel_shuffle(torch.cat([x[:, :, ::2, ::2]] * 4, 1), 2)


def attention(x: Tensor) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2).reshape(-1, 2, 32, 4)
    mixed = functional.scaled_dot_product_attention(tokens, tokens * 0.5, tokens + 1.0)
    mixed = mixed + functional.scaled_dot_product_attention(tokens, tokens, mixed, is_causal=True)
    return mixed.reshape(-1, 64, 4).transpose(1, 2).reshape(-1, 4, 8, 8)


class Computed(nn.Module):
    """Weights that are computed from others, and constants that are made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.slope = nn.PReLU(4)
        self.signal = nn.Conv1d(4, 4, 3, padding=1)
        self.log_scale = nn.Parameter(torch.rand(4, 1, 1) - 0.5)
        self.start = nn.Parameter(torch.rand(1, 1, 64))
        self.register_buffer("few", torch.tensor([True, False, True, True]).view(4, 1, 1))
        self.register_buffer("counts", torch.tensor([255, 1, 2, 3]).view(4, 1, 1))
        self.register_buffer("bytes", torch.tensor([1, 0, 1, 1], dtype=torch.uint8).view(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.slope(x) * self.log_scale.exp() - torch.tensor([0.1]) + torch.arange(8) * 0.1
        few, counts, some = (self.get_buffer(name) for name in ("few", "counts", "bytes"))
        x = x * few / counts + x * some
        x = self.normed(x)
        tokens = torch.cat([self.start.expand(x.shape[0], -1, -1), x.flatten(2)], 1)
        return x + self.signal(tokens[:, 1:] + tokens[:, :1]).view(-1, 4, 8, 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pointwise,
        lambda: masks,
        lambda: reductions,
        lambda: arrangements,
        lambda: attention,
        Computed,
    ],
    ids=["pointwise", "masks", "reductions", "arrangements", "attention", "computed"],
)
def test_operations_act_as_torch_s(make: Callable[[], Callable[[Tensor], Tensor]]) -> None:
    torch.manual_seed(0)
    net, obs = Net(make()).eval(), images(64)
    with torch.no_grad():
        logits, values = net(torch.from_numpy(obs))
    found, value = run(graph_fp32(net, IMAGES), obs)
    np.testing.assert_allclose(found, logits.numpy(), atol=1e-4)
    np.testing.assert_allclose(value, values[:, 0].numpy(), atol=1e-4)
    ranges = measure_graph(RangeTracker(), net, IMAGES, obs)
    acted, _ = run(graph_int8(net, IMAGES, ranges, states=obs), obs)
    assert kl_nats(logits.numpy(), acted).mean() < 1e-2


def test_weights_that_are_computed_follow_those_that_they_are_computed_from() -> None:
    torch.manual_seed(0)
    net, obs = Net(Computed()).eval(), images()
    graph_fp32(net, IMAGES)
    with torch.no_grad():
        net.function.log_scale += 1.0  # pyright: ignore
        logits, _ = net(torch.from_numpy(obs))
    np.testing.assert_allclose(run(graph_fp32(net, IMAGES), obs)[0], logits.numpy(), atol=1e-4)


class Categories(nn.Module):
    """Bytes that are names of things: an embedding, and a one-hot code of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 4)
        self.hidden = nn.Linear(6 * 4 + 256, 16)
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        names = x.long()
        coded = functional.one_hot(names[:, 0], 256).float()
        seen = torch.cat([self.embedding(names).flatten(1), coded], 1)
        hidden = torch.relu(self.hidden(seen))
        logits = self.policy(hidden).masked_fill(x[:, :3] == 0, -1e9)
        return logits, self.value(hidden)[:, 0]


def test_categories_are_looked_up_in_onnx_and_in_integers() -> None:
    torch.manual_seed(0)
    net = Categories().eval()
    obs = np.random.default_rng(0).integers(0, 4, (64, 6)).astype(np.uint8)
    with torch.no_grad():
        logits, values = net(torch.from_numpy(obs))
    found, value = run(graph_fp32(net, BYTES), obs)
    np.testing.assert_allclose(found, logits.numpy(), atol=1e-4)
    np.testing.assert_allclose(value, values.numpy(), atol=1e-4)
    ranges = measure_graph(RangeTracker(), net, BYTES, obs)
    acted, _ = run(graph_int8(net, BYTES, ranges, states=obs), obs)
    assert kl_nats(logits.numpy(), acted).mean() < 1e-2


def test_a_value_that_is_taken_out_of_its_axis_is_a_head_still() -> None:
    plain = Net(torch.relu).eval()

    class Taken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            logits, values = self.net(x)
            return logits, values[:, 0]

    assert len(trace(Taken().eval(), IMAGES)[1].heads) == 2


class Dueling(nn.Module):
    """Advantages less their mean, so that no linear layer puts out the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 64)
        self.advantage, self.value = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.hidden(x))
        advantage, value = self.advantage(hidden), self.value(hidden)
        return value + advantage - advantage.mean(1, keepdim=True), value


def test_what_puts_out_the_actions_keeps_its_rank() -> None:
    torch.manual_seed(0)
    policy = as_policy(Dueling(), ObservationSpec((6,), "float32"))
    thin = factorise(policy, 0.25)
    assert isinstance(thin.get_submodule("module.advantage"), nn.Linear)


class Encoder(nn.Module):
    """Torch's own encoder of tokens, which it computes by other kernels where nothing learns."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True)
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.encoder(self.enter(x).unsqueeze(1).expand(-1, 3, -1))
        hidden = tokens.mean(1)
        return self.policy(hidden), self.value(hidden)


@pytest.mark.parametrize(
    "spec",
    [
        CompressionSpec(graph="torchscript"),
        CompressionSpec(graph="eager", bits=16),
        CompressionSpec(graph="torchscript", rank=0.25),
    ],
    ids=lambda spec: spec.label,
)
def test_encoders_of_torch_act_in_torch(spec: CompressionSpec) -> None:
    torch.manual_seed(0)
    states = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    net = Encoder()
    acting = accerl.compress(net, spec, states)
    with torch.no_grad():
        logits = net.eval()(torch.from_numpy(states))[0].numpy()
    limit = 0.5 if spec.rank < 1.0 else 1e-2
    assert kl_nats(logits, acting.logits(states)).mean() < limit


def test_who_asks_how_many_states_there_are_is_told_how() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(torch.relu)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.net(x.reshape(len(x), *x.shape[1:]))

    with pytest.raises(UserError, match=r"write x\.shape\[0\] for len\(x\)") as refused:
        graph_fp32(Counted().eval(), IMAGES)
    assert str(refused.value).count("torchscript") == 1


def test_whole_numbers_are_not_computed_with() -> None:
    with pytest.raises(UserError, match=r"wraps in torch\.int64; call \.float\(\) before it"):
        graph_fp32(Net(lambda x: x + (x > 0).sum((1, 2, 3), keepdim=True)).eval(), IMAGES)


class Mixer(nn.Module):
    """Linear layers over tokens, and behind them one over all features."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.hidden = nn.Linear(64, 16), nn.Linear(64, 16)
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = torch.relu(self.mix(x.flatten(2)))
        hidden = torch.relu(self.hidden(tokens.flatten(1)))
        return self.policy(hidden), self.value(hidden)


def test_layers_over_tokens_are_named_among_what_stays_in_float32() -> None:
    plan = plan_of(trace(Mixer().eval(), IMAGES)[1])
    assert plan.in_float[0] == "linear (linear)"
    assert "linear_1" in {*plan.integer, *plan.floating_layers}


class Tables(nn.Module):
    """Constants in float64 and float16, and bytes that one operation reads twice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.linspace(0.0, 1.0, 6, dtype=torch.float64))
        self.register_buffer("halves", torch.linspace(0.0, 1.0, 6, dtype=torch.float16))
        self.hidden = nn.Linear(18, 16)
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        placed = x * self.get_buffer("places").float() + self.get_buffer("halves").float()
        hidden = torch.relu(self.hidden(torch.cat([x, x, placed], 1)))
        return self.policy(hidden) * (x == x)[:, :3], self.value(hidden)


def test_tables_of_other_types_are_cast_as_torch_does() -> None:
    torch.manual_seed(0)
    net, obs = Tables().eval(), np.random.default_rng(0).integers(0, 9, (8, 6)).astype(np.uint8)
    with torch.no_grad():
        logits, _ = net(torch.from_numpy(obs))
    np.testing.assert_allclose(run(graph_fp32(net, BYTES), obs)[0], logits.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x + torch.randn(8), "'randn' draws random numbers"),
        (lambda x: functional.linear(x, torch.ones(8))[..., None] + x, "by a vector of weights"),
    ],
)
def test_dice_and_vectors_are_refused(function: Callable[[Tensor], Tensor], said: str) -> None:
    with pytest.raises(UserError, match=said):
        graph_fp32(Net(function).eval(), IMAGES)


def test_bytes_are_not_computed_with() -> None:
    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Categories()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.net(x.clamp(0, 3))

    with pytest.raises(UserError, match=r"clamp wraps in torch\.uint8; call \.float\(\) before it"):
        graph_fp32(Clamped().eval(), BYTES)
