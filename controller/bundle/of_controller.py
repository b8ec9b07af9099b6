"""What a bundle carries of a controller that reads the whole run: see `ControllerPolicy`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES, FEATURES_VERSION, LIMIT
from accerl.monitor.strategy import Strategy
from controller.actions import HEADS, ActionSpace
from controller.bundle.content import Content
from controller.bundle.files import (
    CONTROLLER,
    MANIFEST,
    WEIGHTS,
    Manifest,
    check_version,
    refuse_malformed,
)
from controller.policy.onnx_graph import build_onnx, onnx_logits
from controller.policy.policy import ControllerPolicy, LearnedStrategy


class ControllerContent(Content):
    """A controller policy and its action space.

    Raises:
        UserError: they do not fit, or the policy reads other features.
    """

    kind: ClassVar[str] = CONTROLLER
    graph_in_words: ClassVar[str] = f"maps features [N, {len(FEATURE_NAMES)}] to logits per knob"

    def __init__(self, policy: ControllerPolicy, actions: ActionSpace) -> None:
        super().__init__(policy, actions, feature_table())
        LearnedStrategy(policy, actions)  # raises where heads and action space do not fit
        if policy.num_features != len(FEATURE_NAMES):
            raise UserError(
                f"bundle: the policy must read the {len(FEATURE_NAMES)} features, it reads "
                f"{policy.num_features}"
            )
        self._policy, self._actions = policy, actions

    def form(self) -> dict[str, Any]:
        """See `Content.form`."""
        described = self._policy.to_json()
        del described["weights"]
        return {
            "kind": self.kind,
            "features_version": FEATURES_VERSION,
            "actions": self._actions.to_json(),
            **described,
        }

    def graph(self) -> bytes:
        """See `Content.graph`."""
        return build_onnx(self._policy)

    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """Return the logits of all heads side by side, [N, sum of sizes]."""
        with torch.no_grad():
            return torch.cat(self._policy(torch.from_numpy(vectors)), dim=-1).numpy()

    def graph_logits(self, graph: bytes, vectors: np.ndarray) -> np.ndarray:
        """See `Content.graph_logits`."""
        return np.concatenate(onnx_logits(graph, vectors), axis=-1)

    def strategy(self, min_dwell_intervals: int) -> Strategy:
        """See `Content.strategy`."""
        return LearnedStrategy(self._policy, self._actions, min_dwell_intervals=min_dwell_intervals)

    def sizes(self) -> dict[str, Any]:
        """See `Content.sizes`."""
        return {
            "features_version": FEATURES_VERSION,
            "heads": dict(zip(HEADS, self._actions.sizes, strict=True)),
        }

    def introduction(self) -> str:
        """See `Content.introduction`."""
        return (
            f"It reads {len(self.features)} unitless features of the run (version "
            f"{FEATURES_VERSION}: KL between actors and learner, entropy, return, speed, time) and "
            "picks one level per knob."
        )

    def in_words(self) -> list[str]:
        """See `Content.in_words`."""
        actions = self._actions
        sparsities = ", ".join(f"{value:g}" for value in actions.sparsities)
        return [
            f"bits: {', '.join(map(str, actions.bits))}",
            f"sparsity, the fraction of channels removed: {sparsities}",
            f"student network: {', '.join(actions.students)}",
        ]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return every combination: a row per student, a column per bit-width, sparsities in it."""
        actions = self._actions
        sparsities = ", ".join(f"{value:.0%}" for value in actions.sparsities)
        rows = [
            {"student": student, **{f"{bits} bits: sparsity": sparsities for bits in actions.bits}}
            for student in actions.students
        ]
        return {f"Actions: {len(actions.all_specs)} combinations": rows}

    @classmethod
    def read(cls, path: Path, manifest: Manifest, weights: Mapping[str, Any]) -> Self:
        """See `Content.read`."""
        with refuse_malformed(str(path / MANIFEST)):
            check_version(manifest.policy, "features_version", FEATURES_VERSION)
        with refuse_malformed(f"{path / MANIFEST} is not what its schema promises"):
            actions = ActionSpace.from_json(manifest.policy["actions"])
        with refuse_malformed(f"{path / WEIGHTS} does not hold this controller"):
            policy = ControllerPolicy.from_json({**manifest.policy, "weights": weights})
            return cls(policy, actions)


def feature_table() -> list[dict[str, Any]]:
    """Return the features that a controller reads, as bundle.json lists them.

    Each is an indicator (`source`, in `unit`), put through `transform` and clipped to
    [-`clip`, `clip`]; it has no unit any more, and is `unknown` while nothing was measured.
    """
    return [
        {
            "name": feature.name,
            "source": feature.source,
            "unit": _unit(feature.source),
            "transform": feature.text or "x",
            "unknown": feature.unknown,
            "clip": LIMIT,
        }
        for feature in FEATURES
    ]


def _unit(indicator: str) -> str:
    """Return the unit of a raw indicator; 1 stands for none."""
    if indicator.endswith("_nats"):
        return "nats"
    units = {
        "kl_var": "nats^2",
        "policy_lag": "learner updates",
        "intervals_since_switch": "intervals",
    }
    return units.get(indicator, "1")
