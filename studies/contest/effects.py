"""Which features move a controller's choices, and which way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from accerl.monitor.features import FEATURE_NAMES, FEATURES
from controller.actions import HEADS, ActionSpace
from controller.policy.policy import ControllerPolicy

GRID_POINTS = 9
QUANTILES = (0.05, 0.95)
"""of what was seen: between them a feature is varied"""
MAX_STATES = 2000


def effects(
    policy: ControllerPolicy, actions: ActionSpace, vectors: np.ndarray, rng: np.random.Generator
) -> dict[str, Any]:
    """Return importance and partial dependence of every feature, most important first.

    Importance is the mean total variation distance, over heads and states, between the policy's
    choices as they are and with the feature shuffled among the states. Partial dependence is the
    mean probability of every level with the feature set to a value in all states.

    Args:
        policy: the controller.
        actions: what its heads mean.
        vectors: states that it met, [N, F].
        rng: draws states and shuffles.
    """
    if len(vectors) > MAX_STATES:
        vectors = vectors[rng.choice(len(vectors), MAX_STATES, replace=False)]
    base = _probabilities(policy, vectors)
    rows = []
    for place, feature in enumerate(FEATURES):
        shuffled = vectors.copy()
        shuffled[:, place] = rng.permutation(shuffled[:, place])
        moved = _probabilities(policy, shuffled)
        distances = [
            0.5 * np.abs(a - b).sum(axis=1).mean() for a, b in zip(base, moved, strict=True)
        ]
        low, high = np.quantile(vectors[:, place], QUANTILES)
        grid = np.linspace(float(low), float(high), GRID_POINTS)
        heads: dict[str, list[list[float]]] = {head: [] for head in HEADS}
        for value in grid:
            fixed = vectors.copy()
            fixed[:, place] = value
            for head, probabilities in zip(HEADS, _probabilities(policy, fixed), strict=True):
                heads[head].append([float(p) for p in probabilities.mean(axis=0)])
        rows.append(
            {
                "name": feature.name,
                "text": f"{feature.source}: {feature.text}" if feature.text else feature.source,
                "importance": float(np.mean(distances)),
                "values": [float(value) for value in grid],
                "heads": heads,
            }
        )
    levels: Sequence[Sequence[Any]] = (actions.bits, actions.sparsities, actions.students)
    return {
        "features": sorted(rows, key=lambda row: -row["importance"]),
        "levels": {head: list(level) for head, level in zip(HEADS, levels, strict=True)},
        "states": len(vectors),
    }


@torch.no_grad()
def _probabilities(policy: ControllerPolicy, vectors: np.ndarray) -> list[np.ndarray]:
    """Return the probabilities of each head's levels, [N, levels], heads by themselves."""
    assert vectors.shape[1] == len(FEATURE_NAMES)
    logits = policy(torch.from_numpy(vectors))
    return [torch.softmax(head, dim=-1).numpy() for head in logits]
