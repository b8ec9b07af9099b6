"""Builder: collects an ONNX graph's nodes and constants and returns a payload.

Nodes are protobuf only when no graph with the same key was built before: from then on a
publication costs the constants, see `onnx_payload`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from accerl.compress.graphs.onnx_payload import Template, TemplateCache
from accerl.compress.quantization.quantize import Affine
from accerl.networks.observation import ObservationSpec

MICROSOFT = "com.microsoft"
"""domain of ONNX Runtime's own operators, QGemm and NhwcMaxPool among them"""
TEMPLATES = TemplateCache()
"""of this process; pruning to ever new widths must not fill its memory"""


class Mapping8(NamedTuple):
    """Scale and zero point of an activation, and the graph constants that hold them."""

    affine: Affine
    names: list[str]
    """of the scale and the zero point"""


class Builder:
    """Collects the constants of one policy graph, and its nodes if its template is not known."""

    def __init__(
        self,
        key: Hashable,
        observation: ObservationSpec,
        num_actions: int,
        *,
        opset: int,
        ir_version: int,
        batch: int | None = None,
        finished: bool = False,
    ) -> None:
        """Start without nodes.

        Args:
            key: what determines everything but the constants.
            observation: of the states, the graph's input `obs`.
            num_actions: A.
            opset: of ONNX's own operators.
            ir_version: of ONNX's format.
            batch: states per call, if it is always the same number; None: any.
            finished: whether ONNX Runtime has nothing left to fuse.
        """
        self._batch = batch or "batch"
        self._key = (key, self._batch, observation, num_actions)
        self._observation = observation
        self._num_actions = num_actions
        self._versions = opset, ir_version
        self._finished = finished
        self._nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self._fixed: dict[str, np.ndarray] = {}
        self._constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, value: np.ndarray | np.generic | Tensor) -> str:
        """Add a constant that a publication exchanges; return its name."""
        self._constants[name] = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        return name

    def fixed(self, name: str, value: np.ndarray | np.generic) -> str:
        """Add a constant that is part of the graph; return its name."""
        self._fixed[name] = np.asarray(value)
        return name

    def mapping(self, name: str, affine: Affine) -> Mapping8:
        """Add the constants of an activation's quantisation."""
        scale = self.constant(f"{name}_scale", np.float32(affine.scale))
        zero = self.constant(f"{name}_zero", np.uint8(affine.zero_point))
        return Mapping8(affine, [scale, zero])

    def axes(self, name: str, *numbers: int) -> str:
        """Add a list of axes or sizes, as Squeeze and Split take it; return its name."""
        return self.fixed(name, np.array(numbers, np.int64))

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        self._nodes.append((kind, inputs, [output], attributes))
        return output

    def split(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """Add a node with several outputs."""
        self._nodes.append((kind, inputs, outputs, attributes))

    def rename(self, names: Mapping[str, str]) -> None:
        """Give values other names, in the nodes that put them out and that read them."""
        self._nodes = [
            (
                kind,
                [names.get(one, one) for one in inputs],
                [names.get(one, one) for one in outputs],
                rest,
            )
            for kind, inputs, outputs, rest in self._nodes
        ]

    def payload(self, notes: Mapping[str, Sequence[str]] | None = None) -> bytearray:
        """Return the payload; `notes` become metadata of the graph when it is new."""
        template = TEMPLATES.get(self._key, lambda: self._template(notes or {}))
        return template.fill(self._constants)

    def _template(self, notes: Mapping[str, Sequence[str]]) -> Template:
        model = self._model()
        helper.set_model_props(model, {name: "; ".join(said) for name, said in notes.items()})
        return Template.of(model, self._constants, finished=self._finished)

    def _model(self) -> onnx.ModelProto:
        observation, actions = self._observation, self._num_actions
        kind = TensorProto.UINT8 if observation.dtype == "uint8" else TensorProto.FLOAT
        graph = helper.make_graph(
            [
                helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes)
                for kind, inputs, outputs, attributes in self._nodes
            ],
            "policy",
            [helper.make_tensor_value_info("obs", kind, [self._batch, *observation.shape])],
            [
                helper.make_tensor_value_info("logits", TensorProto.FLOAT, [self._batch, actions]),
                helper.make_tensor_value_info("value", TensorProto.FLOAT, [self._batch]),
            ],
            [numpy_helper.from_array(value, name) for name, value in self._fixed.items()],
        )
        opset, ir_version = self._versions
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
