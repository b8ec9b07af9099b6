"""A policy as an ONNX payload: chains of layers by hand, any other network by its operations."""

from __future__ import annotations

import numpy as np

from accerl.compress.graphs.float_graph import graph_fp32
from accerl.compress.graphs.integer_graph import graph_int8
from accerl.compress.graphs.onnx_export import onnx_fp32, onnx_int8
from accerl.compress.graphs.traced import trace
from accerl.compress.quantization.graph_plan import plan_of
from accerl.compress.quantization.ranges import ActivationRanges
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.make import make_network
from accerl.networks.observation import ObservationSpec
from accerl.spec import CompressionSpec


def policy_fp32(
    net: Policy, *, weights_only_int8: bool = False, batch: int | None = None
) -> bytearray:
    """Return the float32 graph of a policy, see `onnx_fp32` and `graph_fp32`.

    Raises:
        UserError: an operation has no counterpart, or weights are not finite.
    """
    if isinstance(net, GraphPolicy):
        return graph_fp32(
            net.module, net.observation, weights_only_int8=weights_only_int8, batch=batch
        )
    return onnx_fp32(net, weights_only_int8=weights_only_int8, batch=batch)


def policy_int8(
    net: Policy,
    ranges: ActivationRanges,
    *,
    states: np.ndarray | None = None,
    levels: int | None = None,
    batch: int | None = None,
) -> bytearray:
    """Return the static INT8 graph of a policy, see `onnx_int8` and `graph_int8`.

    Raises:
        UserError: an operation has no counterpart, or weights are not finite.
        ValueError: `ranges` were measured on another network.
    """
    if isinstance(net, GraphPolicy):
        return graph_int8(
            net.module, net.observation, ranges, states=states, levels=levels, batch=batch
        )
    return onnx_int8(net, ranges, states=states, levels=levels, batch=batch)


def check_own_student(
    spec: CompressionSpec, observation: ObservationSpec, num_actions: int
) -> None:
    """Refuse a spec that asks for a user's own student which cannot be made, or not like that.

    Raises:
        UserError: there is none, it does not fit, or ONNX Runtime cannot run it.
    """
    net = make_network(spec.student, observation, num_actions)
    if spec.graph != "onnx" or spec.bits == 16 or not isinstance(net, GraphPolicy):
        return
    policy_fp32(net)
    if spec.bits == 8:
        plan_of(trace(net.module, observation)[1])
