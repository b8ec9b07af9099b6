"""What a controller chooses from: every combination of levels, or a list of presets.

Some combinations do not exist for some learners and machines. A mask says which do, one flag per
combination in the order of `Actions.all_indices`; an action that is masked is replaced by the
nearest milder combination.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np

from accerl.errors import UserError, did_you_mean
from accerl.monitor.strategies.search import all_specs
from accerl.spec import BITS, STUDENTS, CompressionSpec, Decision

HEADS = ("bits", "sparsity", "student")
"""The factored heads, in the order of every index tuple."""
_LEVELS = ("bits", "sparsities", "students")
"""the fields of `ActionSpace` that list the levels of HEADS"""


class Actions(ABC):
    """Specs to choose from, each named by one index per head."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Number of indices per head."""

    @abstractmethod
    def make_specs(self) -> Sequence[CompressionSpec]:
        """Return every spec, in the order of `all_indices`."""

    @property
    @abstractmethod
    def levels(self) -> str:
        """What the specs are made of, for error messages."""

    def indices(self, spec: CompressionSpec) -> tuple[int, ...]:
        """Return the indices of `spec`.

        Raises:
            UserError: it is not among the specs.
        """
        if spec not in self._indices:
            raise UserError(f"action space: {spec.label} is not in it; it has {self.levels}")
        return self._indices[spec]

    def all_indices(self) -> list[tuple[int, ...]]:
        """Return every index tuple, the last head's index running fastest."""
        return list(product(*map(range, self.sizes)))

    @cached_property
    def all_specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec, in the order of `all_indices`."""
        return tuple(self.make_specs())

    @cached_property
    def _indices(self) -> dict[CompressionSpec, tuple[int, ...]]:
        return dict(zip(self.all_specs, self.all_indices(), strict=True))

    def table(self) -> list[dict[str, Any]]:
        """Return every spec as a JSON object: indices per head, label, spec."""
        return [
            {"indices": list(indices), "label": spec.label, "spec": spec.to_json()}
            for indices, spec in zip(self.all_indices(), self.all_specs, strict=True)
        ]

    @cached_property
    def knobs(self) -> dict[str, tuple[Any, ...]]:
        """What the specs are combinations of: per head, its levels from mild to hard."""
        specs = self.all_specs
        students = {spec.student: CompressionSpec(student=spec.student) for spec in specs}
        return {
            "bits": tuple(sorted({spec.bits for spec in specs}, reverse=True)),
            "sparsity": tuple(sorted({spec.sparsity for spec in specs})),
            "student": tuple(sorted(students, key=lambda name: (students[name].mildness[0], name))),
        }

    def spec(self, indices: Sequence[int]) -> CompressionSpec:
        """Return the spec of one index per head; all zeros are the first one.

        Raises:
            UserError: there are too few or too many indices, or one is out of range.
        """
        return self.all_specs[self.position(indices)]

    def decision(self, indices: Sequence[int]) -> Decision:
        """Return the decision to act with the one spec that `indices` name."""
        return Decision.of(self.spec(indices))

    def position(self, indices: Sequence[int]) -> int:
        """Return the place of `indices` in `all_indices`.

        Raises:
            UserError: as `spec`.
        """
        if len(indices) != len(self.sizes):
            raise UserError(
                f"action: expected one index each for {len(self.sizes)} heads, got {list(indices)}"
            )
        for head, (index, size) in enumerate(zip(indices, self.sizes, strict=True)):
            if index not in range(size):  # neither is nan, nor what is no number
                raise UserError(f"action: index {index} of head {head} is not in 0..{size - 1}")
        return int(np.ravel_multi_index(tuple(map(int, indices)), self.sizes))

    def mask(self, has: Callable[[CompressionSpec], bool]) -> np.ndarray:
        """Return which combinations exist, bool [N] in the order of `all_indices`.

        Raises:
            UserError: none does.
        """
        mask = np.array([has(spec) for spec in self.all_specs])
        if not mask.any():
            raise UserError(
                "actions: no spec of the action space exists for this learner on this machine; "
                "choose other levels or another latency profile (`accerl profile show`)"
            )
        return mask

    def head_masks(self, mask: np.ndarray) -> np.ndarray:
        """Return which indices of each head are in any existing combination, bool [sum of sizes].

        This is what can be said about one head alone; all of it is True more often than not.
        """
        grid = mask.reshape(self.sizes)
        heads = range(grid.ndim)
        return np.concatenate(
            [grid.any(axis=tuple(other for other in heads if other != head)) for head in heads]
        )

    def nearest(self, mask: np.ndarray, position: int) -> int:
        """Return the place of the combination to act with where `position` is masked.

        It exists, none of its levels is harder, and the fewest steps are between the two; of
        equals the first. If nothing milder exists, it is the nearest existing one of all.
        """
        levels = np.array([hardness(spec) for spec in self.all_specs])
        steps = levels - levels[position]
        distance = np.abs(steps).sum(axis=1)
        milder = mask & (steps <= 0.0).all(axis=1)
        return int(np.argmin(np.where(milder if milder.any() else mask, distance, np.inf)))


def hardness(spec: CompressionSpec) -> tuple[float, float, float, float]:
    """Return how many levels a spec lies above none: bits, sparsity, rank, student.

    A quarter of sparsity or of rank is one, and another network as large as the learner's a half.
    """
    is_own = spec.student == STUDENTS[0]
    student = 0.0 if is_own else max(spec.size_rank, 0.5)
    return float(BITS.index(spec.bits)), 4.0 * spec.sparsity, 4.0 * (1.0 - spec.rank), student


@dataclass(frozen=True)
class ActionSpace(Actions):
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
        for name in _LEVELS:
            levels = tuple(getattr(self, name))
            if not levels:
                raise UserError(f"action space: {name} is empty; list at least one level")
            object.__setattr__(self, name, levels)
        self.make_specs()  # raises where a level or a combination is not allowed
        ranks = (
            [-bits for bits in self.bits],
            self.sparsities,
            [CompressionSpec(student=student).mildness[0] for student in self.students],
        )
        for name, ordered in zip(_LEVELS, ranks, strict=True):
            # Students of one's own are as mild as each other.
            falls = any(later < earlier for earlier, later in pairwise(ordered))
            if falls or len(set(getattr(self, name))) < len(ordered):
                raise UserError(
                    f"action space: {name} must run from mild to hard without repeats, "
                    f"got {list(getattr(self, name))}"
                )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels per head, in the order of HEADS."""
        return len(self.bits), len(self.sparsities), len(self.students)

    def make_specs(self) -> list[CompressionSpec]:
        """See `Actions.make_specs`; the first is the mildest combination."""
        return all_specs(self)

    @property
    def levels(self) -> str:
        """See `Actions.levels`."""
        return (
            f"bits {list(self.bits)}, sparsities {list(self.sparsities)}, "
            f"students {list(self.students)}, graph {self.graph}, rank 1"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the levels as a JSON object."""
        return {**{name: list(getattr(self, name)) for name in _LEVELS}, "graph": self.graph}


@dataclass(frozen=True)
class PresetActions(Actions):
    """A list of specs, chosen by one index: a single head.

    Raises:
        UserError: the list is empty or repeats a spec.
    """

    specs: tuple[CompressionSpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        if not self.specs or len(set(self.specs)) < len(self.specs):
            raise UserError("action space: list at least one preset, and none of them twice")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of presets."""
        return (len(self.specs),)

    def make_specs(self) -> tuple[CompressionSpec, ...]:
        """See `Actions.make_specs`."""
        return self.specs

    @property
    def levels(self) -> str:
        """See `Actions.levels`."""
        return f"the presets {', '.join(preset.label for preset in self.specs)}"


ACTION_SPACES: dict[str, Actions] = {
    "factored": ActionSpace(bits=(32, 16, 8), sparsities=(0.0, 0.25, 0.5, 0.75)),
    "joint": PresetActions(
        (
            CompressionSpec(),
            CompressionSpec(bits=16),
            CompressionSpec(bits=8),
            CompressionSpec(bits=8, sparsity=0.5),
            CompressionSpec(bits=8, student="net1"),
            CompressionSpec(bits=8, student="net2"),
            CompressionSpec(student="net3"),
            CompressionSpec(bits=8, student="net3"),
        )
    ),
}
"""the action spaces that environments know by name"""


def find_actions(name: str) -> Actions:
    """Return an action space by name.

    Raises:
        UserError: there is none of that name.
    """
    if name not in ACTION_SPACES:
        hint = did_you_mean(name, list(ACTION_SPACES))
        raise UserError(f"action space {name!r} does not exist; {hint}")
    return ACTION_SPACES[name]
