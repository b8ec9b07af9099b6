"""ActionSpace: the compression levels a controller chooses from, one discrete head per knob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from accerl.errors import UserError
from accerl.spec import STUDENTS, CompressionSpec, Decision

HEADS = ("bits", "sparsity", "student")
"""The factored heads, in the order of every index tuple."""


@dataclass(frozen=True)
class ActionSpace:
    """Every combination of the listed levels; each head runs from mild to hard compression.

    The order carries meaning: policies share strength between neighbouring levels of a head.

    Raises:
        UserError: a head is empty, repeats a level, is out of order, or cannot be built.
    """

    bits: tuple[int, ...] = (32, 8)
    sparsities: tuple[float, ...] = (0.0, 0.25, 0.5)
    students: tuple[str, ...] = STUDENTS
    graph: str = "onnx"

    def __post_init__(self) -> None:
        for name in ("bits", "sparsities", "students"):
            levels = tuple(getattr(self, name))
            if not levels:
                raise UserError(f"action space: {name} is empty; list at least one level")
            object.__setattr__(self, name, levels)
        for indices in self.all_indices():
            self.spec(indices)  # raises where a level or a combination is not allowed
        hardness = {
            "bits": [-bits for bits in self.bits],
            "sparsities": list(self.sparsities),
            "students": [STUDENTS.index(student) for student in self.students],
        }
        for name, ranks in hardness.items():
            if any(later <= earlier for earlier, later in pairwise(ranks)):
                raise UserError(
                    f"action space: {name} must run from mild to hard without repeats, "
                    f"got {list(getattr(self, name))}"
                )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels per head, in the order of HEADS."""
        return len(self.bits), len(self.sparsities), len(self.students)

    def all_indices(self) -> list[tuple[int, ...]]:
        """Return every index tuple, the mildest combination first."""
        return list(product(*map(range, self.sizes)))

    def spec(self, indices: Sequence[int]) -> CompressionSpec:
        """Return the spec of one level index per head.

        Raises:
            UserError: there are too few or too many indices, or one is out of range.
        """
        if len(indices) != len(HEADS):
            raise UserError(f"action: expected one index each for {HEADS}, got {list(indices)}")
        for name, size, index in zip(HEADS, self.sizes, indices, strict=True):
            if not 0 <= index < size:
                raise UserError(f"action: index {index} of {name} is not in 0..{size - 1}")
        bits, sparsity, student = (int(index) for index in indices)
        return CompressionSpec(
            bits=self.bits[bits],
            sparsity=self.sparsities[sparsity],
            student=self.students[student],
            graph=self.graph,
        )

    def decision(self, indices: Sequence[int]) -> Decision:
        """Return the decision to act with the one spec that `indices` name."""
        return Decision.of(self.spec(indices))

    def indices(self, spec: CompressionSpec) -> tuple[int, ...]:
        """Return the level indices of `spec`.

        Raises:
            UserError: this action space does not contain the spec.
        """
        for indices in self.all_indices():
            if self.spec(indices) == spec:
                return indices
        raise UserError(
            f"action space: {spec.label} is not in it; bits {list(self.bits)}, sparsities "
            f"{list(self.sparsities)}, students {list(self.students)}, graph {self.graph}, rank 1"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the levels as a JSON object."""
        return {
            "bits": list(self.bits),
            "sparsities": list(self.sparsities),
            "students": list(self.students),
            "graph": self.graph,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ActionSpace:
        """Read an action space written by `to_json`.

        Raises:
            UserError: a key is missing or unknown, or a level is not allowed.
        """
        if not isinstance(data, Mapping) or set(data) != {
            "bits",
            "sparsities",
            "students",
            "graph",
        }:
            raise UserError("action space: expected the keys bits, sparsities, students, graph")
        if not all(isinstance(data[name], list) for name in ("bits", "sparsities", "students")):
            raise UserError("action space: bits, sparsities and students must be lists")
        return cls(
            bits=tuple(data["bits"]),
            sparsities=tuple(data["sparsities"]),
            students=tuple(data["students"]),
            graph=data["graph"],
        )
