"""ONNX payloads: templates, their cache, alignment, ordinary models, damage."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from accerl.compress.engine import graph_of, open_session
from accerl.compress.graphs.builder import TEMPLATES
from accerl.compress.graphs.onnx_export import onnx_fp32, onnx_int8
from accerl.compress.graphs.onnx_payload import (
    Template,
    TemplateCache,
    read_constants,
    same_integers,
    standalone,
)
from accerl.compress.layers import body_layers
from accerl.compress.pruning.prune import prune
from accerl.compress.quantization.ranges import RangeTracker
from accerl.errors import UserError
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy

PIXELS = ObservationSpec((4, 84, 84), "uint8")
OBS = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84)).astype(np.uint8)


def make(seed: int = 0) -> PolicyNet:
    return make_policy("net3", PIXELS, 6, torch.Generator().manual_seed(seed))


def payloads(net: PolicyNet) -> dict[str, bytearray]:
    return {
        "fp32": onnx_fp32(net),
        "int8": onnx_int8(net, RangeTracker().measure(net, OBS), states=OBS),
    }


def outputs(payload: bytes | bytearray) -> np.ndarray:
    return np.asarray(open_session(payload).run(("logits",), {"obs": OBS})[0])


@pytest.mark.parametrize(("nats", "same"), [(0.0, True), (0.005, True), (0.35, False)])
def test_the_value_s_bias_hides_no_change_of_the_policy(nats: float, same: bool) -> None:
    net = make()
    with torch.no_grad():
        net.value_head.bias.fill_(100.0)
    ranges, moved = RangeTracker().measure(net, OBS), copy.deepcopy(net)
    with torch.no_grad():
        moved.policy_head.bias[0] += nats
    assert same_integers(onnx_int8(net, ranges), onnx_int8(moved, ranges)) is same


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_a_payload_is_an_ordinary_model_in_another_order(kind: str) -> None:
    payload = payloads(make())[kind]
    model = standalone(payload)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_array_equal(session.run(("logits",), {"obs": OBS})[0], outputs(payload))


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_publications_of_one_network_share_their_graph(kind: str) -> None:
    first, second = payloads(make(0))[kind], payloads(make(1))[kind]
    known = len(TEMPLATES)
    again = payloads(make(0))[kind]
    assert len(TEMPLATES) == known
    assert again == first
    assert graph_of(second) == graph_of(first)
    assert second != first
    assert np.abs(outputs(second) - outputs(first)).max() > 1e-6


def test_a_pruned_network_has_a_graph_of_its_own() -> None:
    net = make()
    whole, narrow = onnx_fp32(net), onnx_fp32(prune(net, 0.5))
    assert graph_of(whole) != graph_of(narrow)
    assert len(narrow) < 0.7 * len(whole)


def test_constants_are_aligned_and_complete() -> None:
    net = make()
    payload = payloads(net)["int8"]
    constants = read_constants(payload)
    weights = [layer.module.weight for layer in body_layers(net)]
    assert [constants[f"w{index}"].shape for index in range(len(weights))] == [
        tuple(weight.shape) for weight in weights
    ]
    start = np.frombuffer(payload, np.uint8).__array_interface__["data"][0]
    for value in constants.values():
        assert (value.__array_interface__["data"][0] - start) % 64 == 0


def test_the_least_used_template_is_forgotten() -> None:
    made: list[str] = []

    def template(name: str) -> Template:
        made.append(name)
        return Template(name.encode(), {}, 0)

    cache = TemplateCache(most=2)
    for name in ["a", "b", "a", "c", "a", "b"]:
        assert cache.get(name, lambda name=name: template(name)).head == name.encode()
    assert made == ["a", "b", "c", "b"]
    assert len(cache) == 2


def test_constants_of_another_network_do_not_fit() -> None:
    template = Template(b"", {"w": 0}, 4)
    with pytest.raises(ValueError, match="for places"):
        template.fill({"v": np.zeros(1, np.float32)})


@pytest.mark.parametrize("kept", [0, 5, 100, 2000])
def test_a_damaged_payload_is_refused(kept: int) -> None:
    with pytest.raises(UserError, match="damaged"):
        open_session(payloads(make())["int8"][:kept])
