"""The scorer of candidates as an ONNX graph, which any ONNX runtime evaluates alone."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from accerl.errors import UserError, one_line
from controller.indicator.scorer import SCALES, SpecScorer

INPUT, OUTPUT = "features", "scores"


def build_onnx(scorer: SpecScorer) -> bytes:
    """Return the serialised graph: features of N candidates [N, F] -> their scores [N].

    How long a decision is held is no part of it: see `SpecScorer.dwell_intervals`.
    """
    weights = {name: value.numpy() for name, value in scorer.state_dict().items()}
    constants = {
        "scale": np.array(SCALES, dtype=np.float32),
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
    graph = helper.make_graph(
        nodes,
        "compression_indicator",
        inputs=[_tensor(INPUT, weights["linear"].size)],
        outputs=[_tensor(OUTPUT)],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    # Versions that the oldest supported ONNX Runtime reads; newer ones read them too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _tensor(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])


def onnx_scores(model: bytes, vectors: np.ndarray) -> np.ndarray:
    """Return the scores [N] that ONNX Runtime computes for candidates with features [N, F].

    Raises:
        UserError: the model is not such a graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run([OUTPUT], {INPUT: vectors})[0])
    except Exception as error:  # the errors of ONNX Runtime share no narrower base class
        raise UserError(
            f"not a controller graph that ONNX Runtime can run: {one_line(error)}"
        ) from error
