"""The controller policy as an ONNX graph, written by hand: it is eight nodes."""

from __future__ import annotations

import numpy as np
from onnx import helper

from controller.actions import HEADS
from controller.policy.onnx_model import INPUT, make_model, run_model
from controller.policy.policy import ControllerPolicy


def build_onnx(policy: ControllerPolicy) -> bytes:
    """Return the serialised graph: features [N, F] -> one logits output per head, by its name.

    The normaliser and the ordinal levels are constants inside the graph, so any ONNX runtime can
    evaluate the controller without this package.
    """
    weights = {name: value.numpy() for name, value in policy.state_dict().items()}
    limit = weights["normaliser.limit"]
    constants = {
        "mean": weights["normaliser.mean"],
        "std": weights["normaliser.std"],
        "low": -limit,
        "high": limit,
        "slopes_weight": weights["slopes.weight"],
        "slopes_bias": weights["slopes.bias"],
        "levels": policy.levels.numpy(),
        "offsets": weights["offsets"],
        "sizes": np.array(policy.sizes, dtype=np.int64),
        "body_weight": weights["body.weight"],
        "body_bias": weights["body.bias"],
    }
    nodes = [
        helper.make_node("Sub", [INPUT, "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "low", "high"], ["normalised"]),
        helper.make_node("Gemm", ["normalised", "body_weight", "body_bias"], ["summed"], transB=1),
        helper.make_node("Tanh", ["summed"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "slopes_weight", "slopes_bias"], ["slopes"], transB=1),
        helper.make_node("Gemm", ["slopes", "levels", "offsets"], ["logits"]),
        helper.make_node("Split", ["logits", "sizes"], list(HEADS), axis=1),
    ]
    outputs = {head: (size,) for head, size in zip(HEADS, policy.sizes, strict=True)}
    return make_model("compression_controller", nodes, constants, policy.num_features, outputs)


def onnx_logits(model: bytes, vectors: np.ndarray) -> list[np.ndarray]:
    """Return the logits per head, [N, size] each, that ONNX Runtime computes for [N, F].

    Raises:
        UserError: the model is not such a graph.
    """
    return run_model(model, HEADS, vectors)
