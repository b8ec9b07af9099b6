"""The scorer of candidates as an ONNX graph."""

from __future__ import annotations

import numpy as np
from onnx import helper

from controller.indicator.scorer import SCALE, SpecScorer
from controller.policy.onnx_model import INPUT, make_model, run_model

OUTPUT = "scores"


def build_onnx(scorer: SpecScorer) -> bytes:
    """Return the serialised graph: features of N candidates [N, F] -> their scores [N].

    How long a decision is held is no part of it: see `SpecScorer.dwell_intervals`.
    """
    weights = {name: value.numpy() for name, value in scorer.state_dict().items()}
    constants = {
        "scale": np.float32(SCALE).reshape(()),
        **{name: weights[name] for name in ("linear", "inner", "bias", "outer")},
    }
    nodes = [
        helper.make_node("Mul", [INPUT, "scale"], ["scaled"]),
        helper.make_node("Gemm", ["scaled", "inner", "bias"], ["summed"], transB=1),
        helper.make_node("Tanh", ["summed"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "outer"], ["bent"]),
        helper.make_node("MatMul", [INPUT, "linear"], ["straight"]),
        helper.make_node("Add", ["straight", "bent"], [OUTPUT]),
    ]
    return make_model(
        "compression_indicator", nodes, constants, weights["linear"].size, {OUTPUT: ()}
    )


def onnx_scores(model: bytes, vectors: np.ndarray) -> np.ndarray:
    """Return the scores [N] that ONNX Runtime computes for candidates with features [N, F].

    Raises:
        UserError: the model is not such a graph.
    """
    return run_model(model, [OUTPUT], vectors)[0]
