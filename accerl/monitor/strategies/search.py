"""What the search spaces of the hand-set strategies are made of.

Every strategy declares its own space in its classmethod `suggest`, in the terms of Optuna, which
is needed by whoever calls it and not by this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from accerl.spec import IDENTITY, CompressionSpec

if TYPE_CHECKING:
    import optuna

MOST_HELD = 8
"""intervals: of the 12 to 40 of a study's runs, a few choices"""
SHARED = 20
"""intervals, half of a long run's: whoever learns within a run can try every spec twice"""


class Levels(Protocol):
    """The compression levels to choose from, each knob from mild to hard."""

    @property
    def students(self) -> tuple[str, ...]:
        """Members of the policy family."""
        ...

    @property
    def sparsities(self) -> tuple[float, ...]:
        """Fractions removed by structured pruning."""
        ...

    @property
    def bits(self) -> tuple[int, ...]:
        """Bit-widths."""
        ...

    @property
    def graph(self) -> str:
        """The graph of the specs of `all_specs`; all other suggested ones have graph "onnx"."""
        ...


def all_specs(actions: Levels) -> list[CompressionSpec]:
    """Return every combination of the levels, the mildest first."""
    return [
        CompressionSpec(bits=bits, sparsity=sparsity, student=student, graph=actions.graph)
        for bits, sparsity, student in product(actions.bits, actions.sparsities, actions.students)
    ]


def suggest_spec(trial: optuna.Trial, actions: Levels, name: str) -> dict[str, Any]:
    """Return a spec that takes any level of every knob; `name` begins the knobs' names."""
    return CompressionSpec(
        student=trial.suggest_categorical(f"{name}_student", list(actions.students)),
        sparsity=trial.suggest_categorical(f"{name}_sparsity", list(actions.sparsities)),
        bits=trial.suggest_categorical(f"{name}_bits", list(actions.bits)),
    ).to_json()


def suggest_pair(trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
    """Return an aggressive and a conservative spec, which are never the same.

    The aggressive one may be any that compresses: a rule that never switches is then a static spec,
    and its search no smaller than theirs.
    """
    aggressive = CompressionSpec(
        student=trial.suggest_categorical("student", list(actions.students)),
        sparsity=trial.suggest_categorical("sparsity", list(actions.sparsities)),
        bits=trial.suggest_categorical("bits", list(actions.bits)),
    )
    if aggressive == IDENTITY:
        aggressive = CompressionSpec(bits=8)
    # The other end: the paper relaxes one knob, here to full size at either bit-width.
    conservative = CompressionSpec(
        bits=trial.suggest_categorical("conservative_bits", list(actions.bits))
    )
    if aggressive == conservative:
        conservative = CompressionSpec(bits=32)
    return {"aggressive": aggressive.to_json(), "conservative": conservative.to_json()}


def suggest_arms(trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
    """Return specs to learn about within a run, and for how many intervals each is held.

    They are the whole grid, or a part that can be told apart with fewer choices: of bit-widths the
    smallest alone, of sparsities none, of students the largest and the smallest alone.
    """

    def levels(knob: str, every: Sequence[Any], few: Sequence[Any]) -> Sequence[Any]:
        return every if trial.suggest_categorical(f"all_{knob}", [True, False]) else few

    bits = levels("bits", actions.bits, actions.bits[-1:])
    sparsities = levels("sparsities", actions.sparsities, actions.sparsities[:1])
    ends = tuple(dict.fromkeys((actions.students[0], actions.students[-1])))
    students = levels("students", actions.students, ends)
    specs = [
        CompressionSpec(bits=each, sparsity=sparsity, student=student, graph=actions.graph)
        for each, sparsity, student in product(bits, sparsities, students)
    ]
    held = trial.suggest_int("hold_intervals", 1, MOST_HELD, log=True)
    return {
        "specs": [spec.to_json() for spec in specs],
        "hold_intervals": min(held, max(1, SHARED // len(specs))),
    }


def suggest_held(trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
    """Return the whole grid, and for how many intervals each spec is held, up to `MOST_HELD`."""
    return {
        "specs": [spec.to_json() for spec in all_specs(actions)],
        "hold_intervals": trial.suggest_int("hold_intervals", 1, MOST_HELD, log=True),
    }
