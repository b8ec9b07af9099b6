"""Content: what a bundle carries, a policy with all that it takes to act by it.

There are two kinds, `of_indicator` and `of_controller`; everything else in a bundle is the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from accerl.errors import UserError
from accerl.monitor.strategy import Strategy
from controller.actions import Actions
from controller.bundle.files import MANIFEST, Manifest, refuse_malformed
from controller.policy.module import PolicyModule

PROBES = 16
"""feature vectors on which torch and ONNX Runtime are compared"""
PROBE_RANGE = 3.0
"""they lie between this and its negative"""


class Content(ABC):
    """A policy, what it chooses from, and what else belongs to it.

    Args:
        policy: what was trained.
        actions: what is chosen from.
        features: what the policy reads, a row each: ``name`` and what it is made of.
    """

    kind: ClassVar[str]
    """of policy, as the manifest names it"""
    graph_in_words: ClassVar[str]
    """what the ONNX graph computes"""
    leaves_out_what_is_missing: ClassVar[bool] = False
    """whether it chooses, when it is bound to a run, from what the run can act with"""

    def __init__(
        self, policy: PolicyModule, actions: Actions, features: list[dict[str, Any]]
    ) -> None:
        self.policy = policy
        self.actions = actions
        self.features = features

    @abstractmethod
    def form(self) -> dict[str, Any]:
        """Return what the manifest says of the policy, its weights left out."""

    def own_files(self) -> dict[str, Any]:
        """Return what is in files of its own, as JSON, by name."""
        return {}

    @abstractmethod
    def graph(self) -> bytes:
        """Return the policy as an ONNX graph."""

    @abstractmethod
    def logits(self, vectors: np.ndarray) -> np.ndarray:
        """Return what torch computes for feature vectors [N, F]: [N, ...]."""

    @abstractmethod
    def graph_logits(self, graph: bytes, vectors: np.ndarray) -> np.ndarray:
        """Return the same of an ONNX graph.

        Raises:
            UserError: it is no graph of this kind.
        """

    @abstractmethod
    def strategy(self, min_dwell_intervals: int) -> Strategy:
        """Return what decides in a run; it never explores.

        Args:
            min_dwell_intervals: how long a decision is held at least.
        """

    @abstractmethod
    def sizes(self) -> dict[str, Any]:
        """Return how large its parts are, for the report of `verify_bundle`."""

    @abstractmethod
    def introduction(self) -> str:
        """Return what it is, in a few sentences."""

    @abstractmethod
    def in_words(self) -> list[str]:
        """Return what it chooses from, reads and believes, a line each."""

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return tables for people, by title: rows with the same keys."""
        return {}

    @classmethod
    @abstractmethod
    def read(cls, path: Path, manifest: Manifest, weights: Mapping[str, Any]) -> Self:
        """Read what a bundle's folder holds.

        Args:
            path: the folder; every file in it is as it was exported.
            manifest: its description.
            weights: of the policy.

        Raises:
            UserError: a part is of another form than expected, or does not fit the others.
        """

    def check(self, path: Path, manifest: Manifest) -> None:
        """Refuse a manifest whose tables are not those of this content.

        Raises:
            UserError: features or actions differ.
        """
        with refuse_malformed(f"{path / MANIFEST} is not what its schema promises"):
            if manifest.features != self.features:
                raise UserError("it lists other features than this AcceRL computes")
            if manifest.action_table != self.actions.table():
                raise UserError("the action table does not list its actions")

    def probe(self) -> np.ndarray:
        """Return feature vectors [PROBES, F] to compare two forms of the policy on."""
        shape = (PROBES, len(self.features))
        drawn = np.random.default_rng(0).uniform(-PROBE_RANGE, PROBE_RANGE, shape)
        return drawn.astype(np.float32)
