"""Policies of the outer problem as ONNX graphs, which any ONNX runtime evaluates alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from accerl.errors import UserError, one_line

INPUT = "features"


def make_model(
    name: str,
    nodes: Sequence[NodeProto],
    constants: Mapping[str, np.ndarray],
    num_features: int,
    outputs: Mapping[str, Sequence[int]],
) -> bytes:
    """Return a serialised graph from `INPUT` [N, F] to its outputs.

    Args:
        name: of the graph.
        nodes: in order.
        constants: by name.
        num_features: F.
        outputs: by name, their shape after [N].
    """
    graph = helper.make_graph(
        list(nodes),
        name,
        inputs=[_tensor(INPUT, (num_features,))],
        outputs=[_tensor(output, shape) for output, shape in outputs.items()],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    # Versions that the oldest supported ONNX Runtime reads; newer ones read them too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _tensor(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])


def run_model(model: bytes, outputs: Sequence[str], vectors: np.ndarray) -> list[np.ndarray]:
    """Return what ONNX Runtime computes for feature vectors [N, F], output by output.

    Raises:
        UserError: the model is not such a graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [np.asarray(each) for each in session.run(list(outputs), {INPUT: vectors})]
    except Exception as error:  # the errors of ONNX Runtime share no narrower base class
        raise UserError(
            f"not a controller graph that ONNX Runtime can run: {one_line(error)}"
        ) from error
