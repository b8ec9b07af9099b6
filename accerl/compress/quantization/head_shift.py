"""What rounding takes from logits and values on average, which the heads' biases can give back.

Rounding errors add up to a bias, because every state shares most of its pixels; removing it lowered
the KL on Pong tenfold where pixels are not centred, and up to 2.4 times where they are.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from accerl.compress.layers import Layer, apply_layer
from accerl.compress.quantization.quantize import Affine, Probe
from accerl.compress.quantization.ranges import ActivationRanges
from accerl.networks.policy_net import PolicyNet


class HeadShift:
    """Follows the states that `ranges` were measured on through the integers of an INT8 graph.

    It computes in float32 what the graph computes in integers, up to errors of float32. Running the
    graph itself takes a session of ONNX Runtime, and longer.
    """

    def __init__(
        self, net: PolicyNet, ranges: ActivationRanges, states: np.ndarray, entry: Affine
    ) -> None:
        """Start with recorded states [N, *shape], which enter the graph rounded by `entry`."""
        if ranges.features is None:
            raise ValueError("the ranges remember no features of the states")
        self._exact = ranges.features.cpu()
        with torch.no_grad():
            hidden = net.scale(torch.from_numpy(np.ascontiguousarray(states)))
            self._hidden = hidden if states.dtype == np.uint8 else entry.rounded(hidden)
        self._probe: Probe | None = None

    def probe(self, units: int) -> Probe:
        """Return what compares the float32 layer in front of the heads while it is rounded."""
        self._probe = Probe(self._exact, self._hidden.flatten(1), units)
        return self._probe

    def through(
        self, layer: Layer, integers: Tensor, scales: Tensor, bias: Tensor, output: Affine
    ) -> None:
        """Go on through a layer of integers, whose ReLU is folded into `output`."""
        weight = integers.float() * scales.view(-1, *([1] * (integers.ndim - 1)))
        self._hidden = output.rounded(apply_layer(layer, self._hidden, weight, bias))

    def finish(self, layer: Layer, bias: Tensor) -> None:
        """Go on through the layer that was probed."""
        assert self._probe is not None
        found = [product.add_(bias) for product in (self._probe.exact, self._probe.rounded)]
        self._exact, self._hidden = [v.relu_() if layer.relu else v for v in found]

    def of(self, heads: Tensor) -> Tensor:
        """Return what to add to both heads' biases [A + 1], given their weights [A + 1, F]."""
        return heads @ (self._exact.mean(0) - self._hidden.flatten(1).mean(0))
