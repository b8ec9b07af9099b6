"""General graphs: every operator equals torch, what has no counterpart is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from accerl.compress.check import kl_nats
from accerl.compress.engine import open_session
from accerl.compress.graphs.float_graph import graph_fp32
from accerl.compress.graphs.integer_graph import IN_FLOAT, graph_int8
from accerl.compress.graphs.operators import Window
from accerl.compress.graphs.traced import trace
from accerl.compress.quantization.graph_plan import plan_of
from accerl.compress.quantization.graph_ranges import measure_graph
from accerl.compress.quantization.quantize import Affine
from accerl.compress.quantization.ranges import RangeTracker
from accerl.compress.quantization.widen import widen
from accerl.errors import UserError
from accerl.networks.impala import make_impala
from accerl.networks.observation import ObservationSpec

IMAGES = ObservationSpec((4, 8, 8), "float32")
PIXELS = ObservationSpec((4, 32, 32), "uint8", centre=30, unit=60.0)


class Net(nn.Module):
    """What a function makes of images [B, 4, 8, 8], behind a convolution and before the heads."""

    def __init__(self, function: Callable[[Tensor], Tensor], features: int = 256) -> None:
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.hidden = nn.Linear(features, 16)
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.function(self.conv(x)).flatten(1)
        x = torch.relu(self.hidden(x))
        return self.policy(x), self.value(x)


def images(count: int = 3) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 4, 8, 8)).astype(np.float32)


def pixels(count: int) -> np.ndarray:
    coarse = np.random.default_rng(0).normal(size=(count, 4, 8, 8)).repeat(4, 2).repeat(4, 3)
    return np.clip(coarse * 50 + 80, 0, 255).astype(np.uint8)


def run(payload: bytearray, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    logits, values = open_session(payload).run(("logits", "value"), {"obs": obs})
    return np.asarray(logits), np.asarray(values)


def activations(x: Tensor) -> Tensor:
    x = functional.silu(x) + functional.gelu(x, approximate="tanh") - torch.tanh(x) / 3.0
    x = functional.hardswish(functional.mish(x)) * functional.softplus(x).sqrt()
    x = functional.relu6(3.0 * x) + functional.elu(x, 0.5) + torch.clamp(x, min=-0.5)
    return torch.tanh(1.0 - torch.maximum(x, -x).pow(2.0) + x.neg().exp() * 0.1)


def shapes(x: Tensor) -> Tensor:
    first, second = x.split([1, 3], 1)
    x = torch.cat([second, first], 1).permute(0, 2, 3, 1)
    x = x.reshape(x.shape[0], 64, 4).transpose(1, 2)
    x = torch.softmax(x @ x.transpose(1, 2), -1) @ x
    return functional.pad(x.view(-1, 4, 8, 8)[:, :, 1:, ::2], (1, 3, 1, 0))


def pools(x: Tensor) -> Tensor:
    x = functional.max_pool2d(x, 3, 1, 1) + functional.avg_pool2d(x, 3, 1, 1)
    gate = torch.sigmoid(x.mean((2, 3), keepdim=True) + functional.adaptive_avg_pool2d(x, 1))
    x = x * gate + x.amax(1, keepdim=True) - x[:, 0].unsqueeze(1)
    halves = functional.max_pool2d(x, 2) + functional.avg_pool2d(x, (2, 2))  # as far apart as wide
    return functional.pad(halves, (0, 4, 0, 4)) + x


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch, self.group = nn.BatchNorm2d(4), nn.GroupNorm(2, 4, affine=False)
        self.layer, self.last = nn.LayerNorm([4, 8, 8]), nn.LayerNorm(8, bias=False)
        self.wide = nn.Linear(8, 8)  # of the last axis of images
        self.scale = nn.Parameter(torch.rand(4, 1, 1))
        self.register_buffer("shift", torch.tensor(0.5))
        nn.init.uniform_(self.batch.running_mean)  # pyright: ignore

    def forward(self, x: Tensor) -> Tensor:
        x = self.batch(torch.relu_(x)) * self.scale - self.shift
        return self.wide(self.last(self.layer(self.group(x))))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 8, 3, padding="same", dilation=2, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 8, (1, 3), padding=(0, 1), groups=8),
            nn.Dropout(0.5),
            nn.Conv2d(8, 4, 2, padding="same", groups=2),
        )
        nn.init.uniform_(self.layers[1].running_mean)  # pyright: ignore

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class TwoNorms(nn.Module):
    """As where a stem that ends with a norm meets a block that begins with one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4))
        for norm in (self.layers[1], self.layers[2]):
            for tensor in (norm.running_mean, norm.weight, norm.bias):
                nn.init.uniform_(tensor)  # pyright: ignore

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Tokens(nn.Module):
    """A linear layer over 4 tokens, and a batch norm that has a mean for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(4)
        nn.init.uniform_(self.norm.running_mean)  # pyright: ignore

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.wide(x.flatten(2)))


@pytest.mark.parametrize("weights_only", [False, True])
@pytest.mark.parametrize(
    "make",
    [lambda: activations, lambda: shapes, lambda: pools, Norms, TwoNorms, Convolutions, Tokens],
    ids=["activations", "shapes", "pools", "norms", "two norms", "convolutions", "tokens"],
)
def test_float32_graphs_equal_torch(
    make: Callable[[], Callable[[Tensor], Tensor]], weights_only: bool
) -> None:
    torch.manual_seed(0)
    net = Net(make()).eval()
    with torch.no_grad():
        logits, values = net(torch.from_numpy(images()))
    payload = graph_fp32(net, IMAGES, weights_only_int8=weights_only)
    found, value = run(payload, images())
    limit = 0.1 if weights_only else 1e-4
    np.testing.assert_allclose(found, logits.numpy(), atol=limit)
    np.testing.assert_allclose(value, values[:, 0].numpy(), atol=limit)


def test_an_element_is_selected_along_an_axis_counted_from_the_back() -> None:
    torch.manual_seed(0)
    net = Net(lambda x: x.select(-2, 0), 32).eval()
    with torch.no_grad():
        logits = net(torch.from_numpy(images()))[0].numpy()
    np.testing.assert_allclose(run(graph_fp32(net, IMAGES), images())[0], logits, atol=1e-4)


class Halved(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.flatten(1).view(-1, 2, 128).flatten(0, 1)
        return x[:, :3], x[:, 4]


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (Net(lambda x: torch.cumsum(x, 1)), r"Net cannot .* 'cumsum' \(cumsum\) is not known here"),
        (Net(lambda x: functional.max_pool2d(x, 3, 1, 1, ceil_mode=True)), "ceil_mode=True"),
        (Net(lambda x: x if x.sum() > 0 else -x), "torch.export cannot read its forward"),
        (Net(lambda x: x - x.mean(0)), "the first axis must be the states|over the states"),
        (Net(lambda x: functional.adaptive_avg_pool2d(x, 3), 36), r"from \(8, 8\) to \(3, 3\)"),
        (Halved(), "the first axis must be the states"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(
    net: nn.Module, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=said):
        graph_fp32(net.eval(), IMAGES)
    assert capsys.readouterr().err == ""  # of torch's, who says it on many lines


class Mixed(nn.Module):
    """Linear layers over the channels of images, in the way of ConvNeXt and of MLP-Mixer."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.back = nn.Linear(4, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        last = x.permute(0, 2, 3, 1)
        return x + self.back(torch.relu(self.wide(last))).permute(0, 3, 1, 2)


def test_linear_layers_over_the_channels_of_images_stay_in_float32() -> None:
    """The integer product takes matrices alone; the rest of the network is rounded all the same."""
    torch.manual_seed(0)
    net, obs = Net(Mixed()).eval(), images(64)
    ranges = measure_graph(RangeTracker(), net, IMAGES, obs)
    payload = graph_int8(net, IMAGES, ranges, states=obs)
    with torch.no_grad():
        logits = net(torch.from_numpy(obs))[0].numpy()
    assert kl_nats(logits, run(payload, obs)[0]).mean() < 1e-3
    plan = plan_of(trace(net, IMAGES)[1])
    assert {"linear (linear)", "linear (linear_1)"} <= set(plan.in_float)
    assert "conv2d" in plan.integer


class Bytes(nn.Module):
    """Lets pixels meet floats, as torch does, and in one place both of them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net(torch.relu, 1024)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = x[:, :, ::2, ::2] / 50.0
        return self.net(scaled + torch.maximum(1.0 - x[:, :, 1::2, 1::2], scaled))


def test_pixels_may_meet_floats_without_a_cast() -> None:
    torch.manual_seed(0)
    net, obs = Bytes().eval(), pixels(64)
    with torch.no_grad():
        logits = net(torch.from_numpy(obs))[0].numpy()
    np.testing.assert_allclose(run(graph_fp32(net, PIXELS), obs)[0], logits, atol=1e-4)
    ranges = measure_graph(RangeTracker(), net, PIXELS, obs)
    acted = run(graph_int8(net, PIXELS, ranges, states=obs), obs)[0]
    assert kl_nats(logits, acted).mean() < 1e-2
    divided = Divided(None, cast=False)
    entry = plan_of(trace(divided, ObservationSpec((4, 16, 16), "uint8"))[1]).entry
    assert len(entry) == 3


class Divided(nn.Module):
    def __init__(self, how: str | None, *, cast: bool = True) -> None:
        super().__init__()
        self.how, self.cast, self.net = how, cast, Net(torch.relu, 1024)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.net(torch.div(x.float() if self.cast else x, 50.0, rounding_mode=self.how))


def test_a_division_that_rounds_is_no_scale_of_pixels() -> None:
    entries = [
        plan_of(trace(Divided(how), ObservationSpec((4, 16, 16), "uint8"))[1]).entry
        for how in (None, "floor")
    ]
    assert [len(entry) for entry in entries] == [3, 2]


class Vectors(nn.Module):
    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.hidden, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        self.relu = nn.ReLU(inplace=in_place)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.relu(self.hidden(x.flatten(1))).reshape(-1, 8)
        return self.policy(x), self.value(x).squeeze(-1)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_reshape_that_changes_nothing_is_no_operation(in_place: bool) -> None:
    """However torch.export writes it down: in place, another way of reading is taken."""
    _, traced = trace(Vectors(in_place=in_place), ObservationSpec((4,), "float32"))
    found = [op.kind for op in traced.ops]
    assert found == ["linear", "relu", "linear", "linear", "squeeze"]


def test_a_network_of_heads_alone_has_nothing_to_quantise() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(256, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.both(x.flatten(1))
            return x[:, :3], x[:, 3]

    with pytest.raises(UserError, match="INT8 needs a convolution of images or a linear"):
        measure_graph(RangeTracker(), Heads(), IMAGES, images())


def test_weights_that_are_not_finite_are_refused() -> None:
    net = Net(torch.relu).eval()
    with torch.no_grad():
        net.conv.weight[0] = torch.nan
    with pytest.raises(UserError, match="training has diverged"):
        graph_fp32(net, IMAGES)


def test_impala_is_integers_from_its_pixels_to_its_hidden_layer() -> None:
    net = make_impala("impala-small", PIXELS, 3, torch.Generator().manual_seed(0))
    _, traced = trace(net, PIXELS)
    plan = plan_of(traced)
    assert plan.in_float == ()
    assert plan.entry[traced.ops[2].name] == Affine(pytest.approx(1 / 60.0), 30)  # pyright: ignore
    layers = [op.name for op in traced.ops if op.kind in ("conv2d", "linear")]
    assert set(layers[:15]) <= plan.integer
    assert plan.floating_layers == {layers[15]}
    assert len(layers) == 18


def test_what_stays_in_float32_is_named_in_the_graph() -> None:
    net = Net(nn.Sequential(nn.GELU(), nn.Conv2d(4, 4, 1), nn.LayerNorm([4, 8, 8]))).eval()
    ranges = measure_graph(RangeTracker(), net, IMAGES, images(64))
    session = open_session(graph_int8(net, IMAGES, ranges))
    said = session.get_modelmeta().custom_metadata_map[IN_FLOAT]
    assert said == "gelu (gelu); layer_norm (layer_norm)"


def test_integers_act_as_their_network_does_and_heads_keep_their_means() -> None:
    net = make_impala("impala-small", PIXELS, 3, torch.Generator().manual_seed(0))
    seen = pixels(64)
    with torch.no_grad():  # logits around 0 of size one
        net.policy_head.weight /= net(torch.from_numpy(seen))[0].std(0)[:, None]
        net.policy_head.bias -= net(torch.from_numpy(seen))[0].mean(0)
        logits, values = (one.numpy() for one in net(torch.from_numpy(seen)))
    ranges = measure_graph(RangeTracker(), net, PIXELS, seen)
    rough, _ = run(graph_int8(net, PIXELS, ranges), seen)
    found, value = run(graph_int8(net, PIXELS, ranges, states=seen), seen)
    assert kl_nats(logits, found).mean() < 0.01
    assert kl_nats(logits, np.roll(logits, 1, 0)).mean() > 0.1
    np.testing.assert_allclose(found.mean(0), logits.mean(0), atol=1e-3)
    np.testing.assert_allclose(value.mean(), values.mean(), atol=1e-3)
    assert np.abs(rough.mean(0) - logits.mean(0)).max() > 1e-2


@pytest.mark.parametrize(("outputs", "stride", "width"), [(8, 1, 12), (4, 2, 9), (6, 1, 11)])
def test_a_wider_convolution_is_the_same_image(outputs: int, stride: int, width: int) -> None:
    torch.manual_seed(0)
    weight = torch.randint(-9, 9, (outputs, 3, 3, 3)).float()
    image = torch.randint(-9, 9, (2, 3, 7, width)).float()
    exact = functional.conv2d(image, weight, stride=stride, padding=1)
    window = Window((3, 3), (stride, stride), (1, 1, 1, 1), (1, 1))
    wider = widen(tuple(weight.shape), window, 1, exact.shape[3])
    assert wider.columns > 1 or width == 11
    wide = functional.conv2d(
        image, wider.weight(weight), stride=wider.window.strides, padding=1
    ).permute(0, 2, 3, 1)
    found = wide.reshape(2, exact.shape[2], exact.shape[3], outputs).permute(0, 3, 1, 2)
    assert torch.equal(found, exact)


def test_ranges_of_a_graph_shrink_slowly_and_resume_exactly() -> None:
    net = make_impala("impala-tiny", PIXELS, 3, torch.Generator().manual_seed(0))
    tracker, resumed = RangeTracker(), RangeTracker()
    first = measure_graph(tracker, net, PIXELS, pixels(4))
    resumed.load_state_dict(tracker.state_dict())
    with torch.no_grad():
        for conv in (module for module in net.modules() if isinstance(module, nn.Conv2d)):
            conv.weight *= 0.5
    second = measure_graph(tracker, net, PIXELS, pixels(4))
    assert measure_graph(resumed, net, PIXELS, pixels(4)) == second
    alone = measure_graph(RangeTracker(), net, PIXELS, pixels(4))
    for old, new, fresh in zip(first.layers, second.layers, alone.layers, strict=True):
        assert new[1] == pytest.approx(0.9 * old[1] + 0.1 * fresh[1])
        assert fresh[1] < new[1] < old[1]


def test_reading_a_network_leaves_no_semaphore_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.delattr(tqdm, "_lock", raising=False)
    lock = "tqdm.std.TqdmDefaultWriteLock"
    monkeypatch.setattr(f"{lock}.create_mp_lock", lambda: made.append(1))
    monkeypatch.setattr(f"{lock}.mp_lock", None, raising=False)
    trace(Net(lambda x: x * 0.123), IMAGES)
    assert made == []
