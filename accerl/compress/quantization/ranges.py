"""Activation ranges: what integers must cover, measured on recorded states and kept up to date."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.layers import Layer, body_layers
from accerl.errors import DivergedError, UserError, require_choice, require_fields
from accerl.networks.policy_net import PolicyNet

Range = tuple[float, float]
METHODS = ("minmax", "percentile", "entropy")
INPUT_HEADROOM = 0.25
"""float observations drift while a policy learns: ranges reach a quarter further on each side"""
_BINS, _LEVELS, _STRIDE = 1024, 256, 16
_FLOOR = 1e-6  # probability of a bin that no value fell into: what is clipped has to go somewhere


@dataclass(frozen=True)
class ActivationRanges:
    """What values flow through a network, as (low, high) with low <= 0 <= high."""

    input: Range
    """of the observation; (0, 0) for uint8, which needs none"""
    layers: tuple[Range, ...]
    """of each convolution's and linear layer's output, behind its ReLU; (0, 0) for a linear layer
    in front of the heads, which is never rounded"""
    features: Tensor | None = field(default=None, compare=False, repr=False)
    """what enters that last linear layer (or the heads, if there is none) for each state [N, F]"""
    means: np.ndarray | None = field(default=None, compare=False, repr=False)
    """of a general graph: mean logits and, last, the mean value of the states [A + 1]"""


@dataclass(frozen=True, kw_only=True)
class RangeMethod:
    """How ranges follow from what was seen.

    Raises:
        UserError: a value is not allowed.
    """

    name: str = "minmax"
    """minmax; percentile (clips the largest values); entropy (the clipping whose 256 levels lose
    least information about the distribution, by KL)"""
    percentile: float = 99.99
    """of absolute values, for `percentile`"""
    memory: float = 0.9
    """share of old statistics that survives the next measurement, in [0, 1)"""

    def __post_init__(self) -> None:
        require_choice("quantise: range method", self.name, METHODS)
        check = partial(require_fields, self, "quantise")
        check("percentile", "must lie in (50, 100]", lambda percent: 50.0 < percent <= 100.0)
        check("memory", "must lie in [0, 1)", lambda share: 0.0 <= share < 1.0)


class RangeTracker:
    """Ranges of one network over its publications: few new states refresh what many have shown.

    minmax grows at once and shrinks slowly, because clipping costs more than coarse steps;
    percentiles move by a moving average. Entropy clips such a slow range by a histogram, which
    forgets by decay.
    """

    def __init__(self, method: RangeMethod = RangeMethod()) -> None:
        self.method = method
        self._input: Range | None = None
        self._names: list[str] = []
        self._layers: list[Range] = []
        self._histograms: list[_Histogram] = []
        self.seen_states = 0
        """that it has measured so far"""
        self.measured_at = -1
        """learner updates of the network that it has measured last; -1: none"""

    def forget(self) -> None:
        """Begin anew: a moving average of a network that has moved on is nobody's range.

        Ranges of minmax stay, for they grow at once, but count as those of no state: the few that
        refresh them would show too little of it.
        """
        if self.method.name == "minmax":
            self.seen_states = 0
        else:
            self.load_state_dict(RangeTracker(self.method).state_dict())

    def measure(self, net: PolicyNet, obs: np.ndarray) -> ActivationRanges:
        """Return the ranges of `net` after it has seen recorded states obs [N, *shape] too.

        Raises:
            UserError: there are no states, or something is NaN or infinite.
        """
        require_states(obs)
        layers, states = body_layers(net), torch.from_numpy(np.ascontiguousarray(obs))
        outputs, features = layer_outputs(net, states, rounded_layers(layers))
        ranges = self.update(obs, outputs, [_name(layer) for layer in layers[: len(outputs)]])
        unused = [(0.0, 0.0)] * (len(layers) - len(outputs))
        return ActivationRanges(ranges.input, (*ranges.layers, *unused), features)

    def update(
        self, obs: np.ndarray, outputs: Iterable[Tensor], names: Sequence[str]
    ) -> ActivationRanges:
        """Return the ranges of a network after some states, whatever its form.

        If it has other layers than before, what was seen of those is forgotten.

        Args:
            obs: recorded states [N, *shape].
            outputs: what is rounded, for these states, always in the same order.
            names: what tells each of these tensors from those of other layers.

        Raises:
            UserError: there are no states, or something is NaN or infinite.
        """
        require_states(obs)
        if self._names != [*names]:  # the first, or another network
            self.seen_states, self._names, self._layers = 0, [*names], []
            self._histograms = [_Histogram() for _ in names]
        self.seen_states += len(obs)
        self._input = self._blend(self._input, _input_range(obs))
        pairs = zip(outputs, self._histograms, strict=True)
        seen = [self._seen(values, histogram) for values, histogram in pairs]
        olds = self._layers or [None] * len(names)
        self._layers = [self._blend(old, new) for old, new in zip(olds, seen, strict=True)]
        layers = self._layers
        if self.method.name == "entropy":
            known = zip(layers, self._histograms, strict=True)
            layers = [_clipped(pair, histogram.threshold()) for pair, histogram in known]
        return ActivationRanges(self._input, tuple(layers))

    def _seen(self, values: Tensor, histogram: _Histogram) -> Range:
        """Return the range of `values`, clipped where that takes no histogram."""
        pair = finite_range(values)
        if self.method.name == "entropy":
            histogram.add(values, self.method.memory)
        if self.method.name == "percentile":
            return _clipped(pair, _percentile(values, self.method.percentile))
        return pair

    def _blend(self, old: Range | None, new: Range) -> Range:
        if old is None:
            return new
        kept = self.method.memory
        low, high = (kept * a + (1.0 - kept) * b for a, b in zip(old, new, strict=True))
        if self.method.name == "percentile":
            return low, high
        return min(low, new[0]), max(high, new[1])

    def state_dict(self) -> dict[str, Any]:
        """Return everything that an exact resume needs, as a plain tree."""
        return {
            "seen_states": self.seen_states,
            "measured_at": self.measured_at,
            "input": None if self._input is None else list(self._input),
            "names": [*self._names],
            "layers": [list(pair) for pair in self._layers],
            "histograms": [
                {"counts": histogram.counts.copy(), "top": histogram.top}
                for histogram in self._histograms
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the tracker that `state` was taken from."""
        self.seen_states = int(state["seen_states"])
        self.measured_at = int(state["measured_at"])
        given = state["input"]
        self._input = None if given is None else (float(given[0]), float(given[1]))
        self._names = [*state["names"]]
        self._layers = [(float(low), float(high)) for low, high in state["layers"]]
        self._histograms = [
            _Histogram(np.array(entry["counts"], np.float64), float(entry["top"]))
            for entry in state["histograms"]
        ]


class _Histogram:
    """Counts of absolute values in equal bins from 0 to `top`, which doubles when it must."""

    def __init__(self, counts: np.ndarray | None = None, top: float = 0.0) -> None:
        self.counts = np.zeros(_BINS) if counts is None else counts
        self.top = top

    def add(self, values: Tensor, memory: float) -> None:
        """Count `values`; what was counted before keeps the share `memory` of its weight."""
        sizes = values.abs()
        largest = max(float(sizes.max()), 1e-12)
        if not self.top:
            self.top = largest
        while self.top < largest:
            pairs = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.concatenate([pairs, np.zeros(_BINS // 2)])
            self.top *= 2.0
        fresh = torch.histc(sizes.float().cpu(), _BINS, 0.0, self.top).double().numpy()
        self.counts = memory * self.counts + fresh

    def threshold(self) -> float:
        """Return where to clip: the least KL between the counts and their 256 levels."""
        counts = self.counts.copy()
        counts[0] = counts[1]  # what a ReLU cut off is exact at any scale
        used = int(np.flatnonzero(counts).max(initial=_LEVELS - 1)) + 1
        tried = range(_LEVELS, max(used, _LEVELS) + 1, _STRIDE)
        best = min(tried, key=lambda bins: _information_lost(counts, bins))
        return self.top * (best if best + _STRIDE <= used else used) / _BINS


def _information_lost(counts: np.ndarray, bins: int) -> float:
    """Return KL(counts || their 256 levels) in nats if what lies above `bins` bins is clipped."""
    kept = counts[:bins].copy()
    levels = np.floor(np.arange(bins) * (_LEVELS / bins)).astype(int)
    live = kept > 0
    mass = np.bincount(levels, kept, _LEVELS)
    filled = np.maximum(np.bincount(levels, live, _LEVELS), 1)
    rounded = np.where(live, (mass / filled)[levels], 0.0)
    kept[-1] += counts[bins:].sum()
    if not mass.any():  # everything would be clipped: nothing tells it from nothing at all
        return math.inf if kept.any() else 0.0
    live = kept > 0
    p, q = kept[live] / kept.sum(), np.maximum(rounded[live] / rounded.sum(), _FLOOR)
    return float((p * np.log(p / q)).sum())


@torch.no_grad()
def layer_outputs(net: PolicyNet, states: Tensor, count: int) -> tuple[list[Tensor], Tensor]:
    """Return what each of the first `count` layers puts out behind its ReLU, and what follows.

    Args:
        net: in float32.
        states: recorded ones [N, *shape].
        count: of layers of the body, from the first on.

    Returns:
        One tensor for each layer, and what enters the layer that follows them [N, F].
    """
    found: list[Tensor] = []
    hidden = net.scale(states.to(net.device))
    for layer in body_layers(net)[:count]:
        hidden = layer.module(hidden.flatten(1) if layer.flatten else hidden)
        if layer.relu:
            hidden = hidden.relu_()
        found.append(hidden)
    return found, hidden.flatten(1)


def rounded_layers(layers: Sequence[Layer]) -> int:
    """Return how many layers have integer outputs: all but a linear one in front of the heads.

    Rounding its output was the largest single error, and leaving it in float32 costs nothing.
    """
    last = len(layers) > 0 and isinstance(layers[-1].module, nn.Linear)
    return len(layers) - 1 if last else len(layers)


def _name(layer: Layer) -> str:
    """Return what tells a layer from those that may take its place: a factor is thin, or flat."""
    module = layer.module
    size = module.kernel_size if isinstance(module, nn.Conv2d) else ()
    return f"{type(module).__name__}{size} {module.bias is not None} {layer.relu}"


def require_states(obs: np.ndarray) -> None:
    """Refuse to measure anything on no states at all."""
    if len(obs) == 0:
        raise UserError("quantise: no recorded states to calibrate on; call observe() first")


def _input_range(obs: np.ndarray) -> Range:
    if obs.dtype == np.uint8:
        return 0.0, 0.0
    low, high = float(obs.min()), float(obs.max())  # NaN if there is one
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError("quantise: the recorded states hold NaN or infinite values")
    low, high = min(0.0, low), max(0.0, high)
    margin = INPUT_HEADROOM * (high - low)
    return low - margin if low < 0.0 else 0.0, high + margin if high > 0.0 else 0.0


def finite_range(values: Tensor) -> Range:
    """Return (low, high) of values and zero.

    Raises:
        DivergedError: a value is NaN or infinite: training has diverged.
    """
    low, high = map(float, values.aminmax())  # NaN if there is one
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DivergedError(
            "quantise: a layer outputs NaN or infinite values, so training has diverged; "
            "lower the learning rate or clip gradients"
        )
    return min(0.0, low), max(0.0, high)


def _percentile(values: Tensor, percentile: float) -> float:
    """Return the largest absolute value that is left when the share above is dropped."""
    sizes = values.abs().flatten()
    dropped = int(len(sizes) * (1.0 - percentile / 100.0))
    return float(sizes.topk(dropped + 1).values[-1])


def _clipped(pair: Range, limit: float) -> Range:
    return max(pair[0], -limit), min(pair[1], limit)
