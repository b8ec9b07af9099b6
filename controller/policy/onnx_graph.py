"""The controller policy as an ONNX graph, written by hand: it is eight nodes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from accerl.errors import UserError, one_line
from controller.actions import HEADS
from controller.policy.policy import ControllerPolicy

INPUT = "features"


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
    graph = helper.make_graph(
        nodes,
        "compression_controller",
        inputs=[_tensor(INPUT, policy.num_features)],
        outputs=[_tensor(head, size) for head, size in zip(HEADS, policy.sizes, strict=True)],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    # Versions that the oldest supported ONNX Runtime reads; newer ones read them too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _tensor(name: str, size: int) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])


def onnx_logits(model: bytes, vectors: np.ndarray) -> list[np.ndarray]:
    """Return the logits per head, [N, size] each, that ONNX Runtime computes for [N, F].

    Raises:
        UserError: the model is not such a graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [np.asarray(each) for each in session.run(list(HEADS), {INPUT: vectors})]
    except Exception as error:  # the errors of ONNX Runtime share no narrower base class
        raise UserError(
            f"not a controller graph that ONNX Runtime can run: {one_line(error)}"
        ) from error
