"""The controller policy as an ONNX graph, written by hand: it is some eight nodes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from accerl.errors import UserError, one_line
from controller.actions import HEADS
from controller.policy.policy import ControllerPolicy

INPUT = "features"
STATE, NEXT_STATE = "state", "next_state"


def build_onnx(policy: ControllerPolicy) -> bytes:
    """Return the serialised graph: features [K, F] -> one logits output per head, by its name.

    The normaliser and the ordinal levels are constants inside the graph, so any ONNX runtime can
    ask the controller without this package. A recurrent policy's graph takes the K steps in their
    order, has the state [1, 1, hidden] as a second input (zeros at the start of an episode) and
    returns the next state as a last output.
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
    }
    body, more = _gru(policy, weights) if policy.recurrent else _hidden_layer(weights)
    nodes = [
        helper.make_node("Sub", [INPUT, "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "std"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "low", "high"], ["normalised"]),
        *body,
        helper.make_node("Gemm", ["hidden", "slopes_weight", "slopes_bias"], ["slopes"], transB=1),
        helper.make_node("Gemm", ["slopes", "levels", "offsets"], ["logits"]),
        helper.make_node("Split", ["logits", "sizes"], list(HEADS), axis=1),
    ]
    inputs = [_tensor(INPUT, ["batch", policy.num_features])]
    outputs = [
        _tensor(head, ["batch", size]) for head, size in zip(HEADS, policy.sizes, strict=True)
    ]
    if policy.recurrent:
        inputs.append(_tensor(STATE, [1, 1, policy.hidden]))
        outputs.append(_tensor(NEXT_STATE, [1, 1, policy.hidden]))
    graph = helper.make_graph(
        nodes,
        "compression_controller",
        inputs=inputs,
        outputs=outputs,
        initializer=[
            numpy_helper.from_array(array, name) for name, array in (constants | more).items()
        ],
    )
    # Versions that the oldest supported ONNX Runtime reads; newer ones read them too.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


Body = tuple[list[NodeProto], dict[str, np.ndarray]]
"""Nodes from "normalised" to "hidden", and their constants by name."""


def _tensor(name: str, shape: list[str | int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _hidden_layer(weights: dict[str, np.ndarray]) -> Body:
    nodes = [
        helper.make_node("Gemm", ["normalised", "body_weight", "body_bias"], ["summed"], transB=1),
        helper.make_node("Tanh", ["summed"], ["hidden"]),
    ]
    return nodes, {"body_weight": weights["body.weight"], "body_bias": weights["body.bias"]}


def _gru(policy: ControllerPolicy, weights: dict[str, np.ndarray]) -> Body:
    """Steps are the graph's time axis, and its batch is one; gates are ordered as ONNX has them."""

    def gates(name: str) -> np.ndarray:
        reset, update, new = np.split(weights[f"body.{name}_l0"], 3)
        return np.concatenate([update, reset, new])

    nodes = [
        helper.make_node("Unsqueeze", ["normalised", "batch_axis"], ["steps"]),
        helper.make_node(
            "GRU",
            ["steps", "gru_input", "gru_state", "gru_bias", "", STATE],
            ["every_state", NEXT_STATE],
            hidden_size=policy.hidden,
            linear_before_reset=1,
        ),
        helper.make_node("Squeeze", ["every_state", "other_axes"], ["hidden"]),
    ]
    return nodes, {
        "batch_axis": np.array([1], dtype=np.int64),
        "other_axes": np.array([1, 2], dtype=np.int64),
        "gru_input": gates("weight_ih")[None],
        "gru_state": gates("weight_hh")[None],
        "gru_bias": np.concatenate([gates("bias_ih"), gates("bias_hh")])[None],
    }


def onnx_logits(model: bytes, vectors: np.ndarray) -> list[np.ndarray]:
    """Return the logits per head, [K, size] each, that ONNX Runtime computes.

    To a recurrent policy the vectors are the first K steps of an episode.

    Raises:
        UserError: the model is not such a graph.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        shapes = {put.name: put.shape for put in session.get_inputs() if put.name != INPUT}
        fed = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
        return [np.asarray(each) for each in session.run(list(HEADS), {INPUT: vectors, **fed})]
    except Exception as error:  # the errors of ONNX Runtime share no narrower base class
        raise UserError(
            f"not a controller graph that ONNX Runtime can run: {one_line(error)}"
        ) from error
