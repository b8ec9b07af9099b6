"""Random networks with branches: float32 equals torch, INT8 acts alike, templates are refilled."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import Phase, given, settings

from accerl.compress.check import kl_nats
from accerl.compress.engine import open_session
from accerl.compress.graphs.builder import TEMPLATES
from accerl.compress.graphs.float_graph import graph_fp32
from accerl.compress.graphs.integer_graph import graph_int8
from accerl.compress.graphs.onnx_payload import read_constants
from accerl.compress.quantization.graph_ranges import measure_graph
from accerl.compress.quantization.ranges import RangeTracker
from accerl.networks.observation import ObservationSpec
from tests.fixtures.graph_networks import Branched, branched


def states(observation: ObservationSpec, count: int) -> np.ndarray:
    """Smooth random images, as games have them."""
    generator = np.random.default_rng(0)
    channels, height, width = observation.shape
    coarse = generator.normal(size=(count, channels, (height + 3) // 4, (width + 3) // 4))
    images = coarse.repeat(4, 2).repeat(4, 3)[:, :, :height, :width]
    if observation.dtype == "uint8":
        return np.clip(images * 60 + 100, 0, 255).astype(np.uint8)
    return images.astype(np.float32)


def run(payload: bytearray, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    logits, values = open_session(payload).run(("logits", "value"), {"obs": obs})
    return np.asarray(logits), np.asarray(values)


def exact(net: Branched, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        logits, values = net(torch.from_numpy(obs))
    return logits.numpy(), values.numpy()


def integers(net: Branched, observation: ObservationSpec, obs: np.ndarray) -> bytearray:
    ranges = measure_graph(RangeTracker(), net, observation, obs)
    return graph_int8(net, observation, ranges, states=obs)


@settings(max_examples=10, phases=[Phase.generate])  # to shrink an example takes minutes
@given(branched())
def test_graphs_equal_torch_and_integers_act_alike(
    drawn: tuple[Branched, ObservationSpec],
) -> None:
    net, observation = drawn
    seen = states(observation, 64)
    logits, values = exact(net, seen)
    found, value = run(graph_fp32(net, observation), seen)
    np.testing.assert_allclose(found, logits, atol=1e-4)
    np.testing.assert_allclose(value, values, atol=1e-4)

    with torch.no_grad():  # a policy that depends on the state: logits around 0 of size one
        net.policy.weight.div_(torch.from_numpy(logits.std(0))[:, None])
        net.policy.bias.sub_(torch.from_numpy(exact(net, seen)[0].mean(0)))
    logits, _ = exact(net, seen)
    rounded, _ = run(integers(net, observation, seen), seen)
    # How far apart two states are differs by network, and so does what rounding does to it: in 120
    # networks at most 0.017 of that.
    apart = kl_nats(logits, np.roll(logits, 1, 0)).mean()
    assert kl_nats(logits, rounded).mean() < 0.03 * apart

    # New weights: the template of the old ones and a new one hold the same numbers.
    with torch.no_grad():
        for weight in net.parameters():
            weight += 0.05 * torch.randn_like(weight) * weight.std(correction=0)
    refilled = [graph_fp32(net, observation), integers(net, observation, seen)]
    TEMPLATES.clear()
    fresh = [graph_fp32(net, observation), integers(net, observation, seen)]
    assert refilled == fresh
    assert read_constants(fresh[1])
