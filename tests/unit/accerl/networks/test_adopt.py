"""A user's module becomes a PolicyNet that computes the same, or it is said why it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from accerl.errors import UserError
from accerl.learner.learner import Learner
from accerl.networks.adopt import adopt, as_policy
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from tests.fixtures.own_networks import OwnConv, OwnMLP, Silent, Steered
from tests.fixtures.runs.learners import CONFIG, make_rollout

BOARD = ObservationSpec((2, 10, 10), "uint8")
VECTOR = ObservationSpec((6,), "float32")


def states(observation: ObservationSpec) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if observation.dtype == "uint8":
        return torch.randint(0, 256, (9, *observation.shape), generator=generator).to(torch.uint8)
    return torch.randn(9, *observation.shape, generator=generator)


def outputs(module: nn.Module, obs: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        logits, values = module.eval()(obs)
    return logits, values.reshape(len(logits))


@pytest.mark.parametrize(
    ("make", "observation"),
    [
        (lambda: OwnConv(BOARD, 4), BOARD),
        (lambda: OwnConv(BOARD, 4, norm=True), BOARD),
        (lambda: OwnMLP(VECTOR, 3), VECTOR),
        (lambda: OwnMLP(VECTOR, 3, norm=True), VECTOR),
    ],
)
def test_chains_compute_the_same(
    make: Callable[[], nn.Module], observation: ObservationSpec
) -> None:
    torch.manual_seed(0)
    module = make()
    obs = states(observation)
    module.train()(obs)  # batch norms have seen something
    expected = outputs(module, obs)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    net = adopt(module, observation)
    for found, wanted in zip(outputs(net, obs), expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_what_is_done_to_pixels_becomes_centre_and_unit() -> None:
    net = adopt(OwnConv(BOARD, 4), BOARD)
    assert (net.observation.centre, net.observation.unit) == (7, 255.0)
    assert net.arch.convs[0].padding == 1


def test_a_policy_net_is_taken_as_it_is() -> None:
    net = make_policy("net1", VECTOR, 4, torch.Generator())
    assert adopt(net, VECTOR) is net
    assert isinstance(net, PolicyNet)


class Changed(OwnMLP):
    """An MLP with one thing changed."""

    def __init__(self, change: str) -> None:
        super().__init__(VECTOR, 3)
        self.change = change
        if change == "batched":
            self.body[1] = nn.BatchNorm1d(16, track_running_stats=False)
        if change == "wide value":
            self.value = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.change == "scaled":
            x = x / 2.0
        if self.change == "positive":
            x = x.relu()
        hidden = self.body[3](self.body[0](x)) if self.change == "no relu" else self.body(x)
        if self.change == "dropped":
            hidden = functional.dropout(hidden, training=True)
        if self.change == "fewer":
            return self.policy(hidden)[:, :2], self.value(hidden)
        if self.change == "alone":
            return (self.policy(hidden),)
        if self.change == "headless":
            return hidden, self.value(hidden)
        return self.policy(hidden), self.value(hidden)


class Flattened(OwnMLP):
    """A convolution whose outputs are flattened, and then normalised one by one."""

    def __init__(self) -> None:
        super().__init__(ObservationSpec((128,), "float32"), 3)
        self.conv, self.norm = nn.Conv2d(2, 2, 3), nn.BatchNorm1d(128)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return super().forward(self.norm(self.conv(x.float()).flatten(1)).relu())


def test_a_relu_that_changes_no_pixel_may_come_first() -> None:
    module = nn.Sequential(nn.ReLU(), OwnConv(BOARD, 4))
    assert adopt(module, BOARD).observation.centre == 7


class Kept(OwnMLP):
    """Keeps its first layers as they were."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        layers = [*self.body]
        with torch.no_grad():
            for layer in layers[:4]:
                x = layer(x)
        for layer in layers[4:]:
            x = layer(x)
        return self.policy(x), self.value(x)


def restrained(how: str) -> OwnMLP:
    """Return a chain whose weights are not free to learn each for itself."""
    module = (Kept if how == "no_grad" else OwnMLP)(VECTOR, 3)
    middle, last = nn.Linear(16, 16), nn.Linear(16, 16)
    module.body = nn.Sequential(
        *(nn.Linear(6, 16), nn.ReLU(), middle, nn.ReLU(), last, nn.ReLU()),
        *(nn.Linear(16, 12), nn.ReLU()),
    )
    if how == "frozen":
        middle.weight.requires_grad_(False)
    if how == "tied":
        last.weight = middle.weight
    if how == "repeated":
        module.body[4] = middle
    if how == "spectral":
        nn.utils.parametrizations.spectral_norm(middle)
    if how == "weight norm":
        module.body[2] = nn.utils.parametrizations.weight_norm(middle)
    return module


def get_weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("frozen", "some of its weights are frozen"),
        ("tied", "layers share weights"),
        ("repeated", "layers share weights"),
        ("spectral", "'body.2' is parametrised"),
        ("weight norm", "'body.2' is parametrised"),
        ("no_grad", "its forward keeps some weights from learning"),
    ],
)
def test_weights_go_on_learning_as_the_user_wants(how: str, reason: str) -> None:
    torch.manual_seed(0)
    module = restrained(how)
    with pytest.raises(UserError, match=reason):
        adopt(module, VECTOR)
    learner = Learner(as_policy(module, VECTOR), CONFIG)
    layers = module.body[2], module.body[4]
    before, _ = (get_weight(layer).clone() for layer in layers)
    learner.update(make_rollout(observation=VECTOR))
    first, last = map(get_weight, layers)
    assert torch.equal(first, before) == (how in ("frozen", "no_grad"))
    assert torch.equal(first, last) == (how in ("tied", "repeated"))
    if how == "spectral":
        assert torch.linalg.matrix_norm(first, 2).item() == pytest.approx(1.0, abs=0.05)


def test_a_frozen_module_is_compressed_as_any_other() -> None:
    module = OwnMLP(VECTOR, 3).requires_grad_(False)
    assert isinstance(adopt(module, VECTOR), PolicyNet)


@pytest.mark.parametrize(
    ("module", "observation", "reason"),
    [
        (OwnConv(BOARD, 4, residual=True), BOARD, "read by 'conv2' and 'add': a residual"),
        (OwnConv(BOARD, 4, pool=True), BOARD, "'max_pool2d' .* is not part of a chain"),
        (OwnMLP(VECTOR, 3, activation=nn.Tanh), VECTOR, "'Tanh' .* is not part of a chain"),
        (Steered(VECTOR, 3), VECTOR, "cannot be traced"),
        (Silent(VECTOR, 3), VECTOR, "cannot be traced.*AssertionError"),
        (Changed("scaled"), VECTOR, "scale float observations in the environment|'truediv'"),
        (Changed("positive"), VECTOR, "a ReLU changes its input; begin with a layer"),
        (Changed("dropped"), VECTOR, "its logits are not those of the chain of layers"),
        (Changed("fewer"), VECTOR, "its logits are not those of the chain of layers"),
        (Changed("batched"), VECTOR, "has no statistics of its own"),
        (Flattened(), BOARD, r"BatchNorm1d\(.* does not fold into Conv2d"),
        (Changed("no relu"), VECTOR, "no ReLU follows Linear"),
        (Changed("alone"), VECTOR, "return logits, values"),
        (Changed("headless"), VECTOR, "not a linear head"),
        (Changed("wide value"), VECTOR, "returns 2 values per state"),
        (OwnConv(BOARD, 4), ObservationSpec((2, 12, 12), "uint8"), "states of"),
    ],
)
def test_what_is_no_chain_is_refused_with_the_reason(
    module: nn.Module, observation: ObservationSpec, reason: str
) -> None:
    with pytest.raises(UserError, match=reason) as error:
        adopt(module, observation)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{type(module).__name__} cannot be compressed: ")


def test_convolutions_that_no_kernel_here_has_are_refused() -> None:
    for conv in (
        nn.Conv2d(2, 8, (3, 5)),
        nn.Conv2d(2, 8, 3, groups=2),
        nn.Conv2d(2, 8, 3, dilation=2),
        nn.Conv2d(2, 8, 3, padding="same"),
        nn.Conv2d(2, 8, 3, padding=1, padding_mode="circular"),
    ):
        module = OwnConv(BOARD, 4)
        module.conv1 = conv
        with pytest.raises(UserError, match="not a plain square convolution"):
            adopt(module, BOARD)


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (VECTOR, "give images"),
        (ObservationSpec((10, 5), "float32"), "give images"),
        (ObservationSpec((2, 1, 10), "float32"), "too large"),
    ],
)
def test_convolutions_that_do_not_fit_are_refused(
    observation: ObservationSpec, reason: str
) -> None:
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten())

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.policy, self.value = module, nn.Linear(8, 3), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.body(x)
            return self.policy(hidden), self.value(hidden)

    with pytest.raises(UserError, match=reason):
        adopt(Net(), observation)


def test_weights_in_bfloat16_are_refused_in_a_line() -> None:
    net = OwnConv(BOARD, 4).bfloat16()
    with pytest.raises(UserError, match=r"its weights are bfloat16, .*; call \.float\(\) on it"):
        as_policy(net, BOARD)
