"""Activation ranges of a general graph: what its plan rounds, measured in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress.graphs.traced import trace
from accerl.compress.quantization.graph_plan import plan_of
from accerl.compress.quantization.ranges import ActivationRanges, RangeTracker, require_states
from accerl.networks.graph_policy import GraphPolicy, Policy
from accerl.networks.observation import ObservationSpec


def measure(tracker: RangeTracker, net: Policy, obs: np.ndarray) -> ActivationRanges:
    """Return the ranges of a policy after `tracker` has seen it on recorded states obs too.

    Raises:
        UserError: there are no states, something is NaN or infinite, or `net` cannot be read.
    """
    if isinstance(net, GraphPolicy):
        return measure_graph(tracker, net.module, net.observation, obs)
    return tracker.measure(net, obs)


def measure_graph(
    tracker: RangeTracker, module: nn.Module, observation: ObservationSpec, obs: np.ndarray
) -> ActivationRanges:
    """Return the ranges of `module` after `tracker` has seen it on recorded states too.

    Args:
        tracker: what remembers earlier measurements.
        module: takes states [B, *shape] as recorded; returns logits [B, A] and values.
        observation: of the states.
        obs: recorded states [N, *shape].

    Raises:
        UserError: there are no states, something is NaN or infinite, or `module` cannot be read.
    """
    require_states(obs)
    _, traced = trace(module, observation)
    plan = plan_of(traced)
    wanted = set(plan.measured.values())
    order: list[str] = []
    results: dict[str, Tensor] = {}

    def outputs() -> Iterator[Tensor]:
        for name, values in traced.follow(module, obs):
            if name in (traced.logits, traced.values):
                results[name] = values
            if name in wanted:
                order.append(name)
                # In the order in which they lie in memory they are read ten times faster.
                yield values.permute(0, 2, 3, 1) if values.ndim == 4 else values

    names = [
        f"{op.name} {op.kind} {op.args.get('bias') is None}"
        for op in traced.ops
        if op.name in wanted
    ]
    ranges = tracker.update(obs, outputs(), names)
    found = dict(zip(order, ranges.layers, strict=True))
    pairs = tuple(found[where] for where in plan.measured.values())
    states = len(obs)
    both = [results[name].view(states, -1) for name in (traced.logits, traced.values)]
    return replace(ranges, layers=pairs, means=torch.cat(both, 1).mean(0).numpy())
