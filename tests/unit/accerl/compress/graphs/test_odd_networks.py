"""Networks that say what few do: heads that read each other, no critic, limits that are learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accerl.compress.check import kl_nats
from accerl.compress.engine import open_session
from accerl.compress.graphs.float_graph import graph_fp32
from accerl.compress.graphs.integer_graph import graph_int8
from accerl.compress.graphs.traced import trace
from accerl.compress.quantization.graph_ranges import measure_graph
from accerl.compress.quantization.ranges import RangeTracker
from accerl.errors import CannotCompressError
from accerl.networks.observation import ObservationSpec

OBSERVATION = ObservationSpec((6,), "float32")


class Odd(nn.Module):
    def __init__(self, values: int = 16) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 16)
        self.policy, self.value = nn.Linear(16, 3), nn.Linear(values, 1)
        self.register_buffer("low", torch.tensor(-0.5))

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.hidden(x))


class ValuesOfLogits(Odd):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.policy(self.features(x))
        return logits, self.value(logits)


class ValuesOfBoth(Odd):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.features(x)
        logits = self.policy(x)
        return logits, self.value(torch.cat([logits, x], 1))


class WithoutCritic(Odd):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(self.features(x)), torch.zeros(x.shape[0])


class LearnedLimit(Odd):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.clamp(self.features(x), min=self.get_buffer("low"))
        return self.policy(x), self.value(x)


def states(count: int = 64) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)


def int8(module: nn.Module) -> bytearray:
    obs = states()
    ranges = measure_graph(RangeTracker(), module, OBSERVATION, obs)
    return graph_int8(module, OBSERVATION, ranges, states=obs)


@pytest.mark.parametrize("module", [ValuesOfLogits(3), ValuesOfBoth(19)])
def test_a_head_that_another_one_reads_is_a_layer(module: Odd) -> None:
    module = module.eval()
    assert not trace(module, OBSERVATION)[1].heads  # none whose bias nothing else depends on
    logits, values = (each.detach().numpy() for each in module(torch.from_numpy(states())))
    outputs = open_session(int8(module)).run(("logits", "value"), {"obs": states()})
    found, critic = map(np.asarray, outputs)
    assert kl_nats(logits, found).mean() < 1e-3
    np.testing.assert_allclose(critic.ravel(), values.ravel(), atol=0.05)


@pytest.mark.parametrize("make", [graph_fp32, lambda module, _: int8(module)])
@pytest.mark.parametrize(
    ("module", "reason"), [(WithoutCritic(), "zeros"), (LearnedLimit(), "limits that are tensors")]
)
def test_what_has_no_counterpart_is_refused_in_any_precision(
    make: object, module: Odd, reason: str
) -> None:
    assert callable(make)
    with pytest.raises(CannotCompressError, match=reason):
        make(module.eval(), OBSERVATION)
