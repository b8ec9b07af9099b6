"""Machines of the outer problem: splits of the families, and what compressing is worth on them.

`python -m controller.env.machines [DRAWS]` prints that calculation; the families themselves are
those of `accerl.runtime.latency.families`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from accerl.config import RunConfig
from accerl.errors import UserError, did_you_mean
from accerl.presets import load_preset
from accerl.runtime.latency.families import FAMILIES, check_family, sample_machine
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.seeds import Role, generator
from accerl.spec import BITS, IDENTITY, STUDENTS, CompressionSpec
from controller.arguments import one_line_mistakes, read_count
from controller.env.instances import keeping_pace

NUMBERS = {"train": range(8_000), "validation": range(8_000, 9_000), "test": range(9_000, 10_000)}
"""by split, which machines of every family"""
SPECS = {
    "fp32": IDENTITY,
    "INT8": CompressionSpec(bits=8),
    "pruned 50% INT8": CompressionSpec(bits=8, sparsity=0.5),
    "Net1 INT8": CompressionSpec(student="net1", bits=8),
    "Net2 INT8": CompressionSpec(student="net2", bits=8),
    "Net3 INT8": CompressionSpec(student="net3", bits=8),
}
"""what the calculation compares"""
DRAWS = 60
LAG_HALVES = 20.0
"""policy lag, in learner updates, at which a step is assumed to teach half as much"""
FIDELITY_COST = 0.3
"""the most of a step's worth that Net3 in INT8 is assumed to cost in a game"""
STUDENT_SEVERITY = (0.0, 0.2, 0.3, 0.45)
BITS_SEVERITY = (0.0, 0.02, 0.15)
"""how hard every student, and every number of bits, is assumed to compress"""


def severity(spec: CompressionSpec) -> float:
    """Return how hard `spec` compresses, in [0, 1), 0 for the identity."""
    kept = (1.0 - STUDENT_SEVERITY[STUDENTS.index(spec.student)]) * (1.0 - 0.5 * spec.sparsity)
    kept *= (1.0 - BITS_SEVERITY[BITS.index(spec.bits)]) * (0.6 + 0.4 * spec.rank)
    return 1.0 - kept


def split_machines(split: str, family: str, count: int) -> list[LatencyProfile]:
    """Return the first machines of a family in a split; no machine is in two splits.

    Args:
        split: a key of `NUMBERS`.
        family: a key of `FAMILIES`.
        count: how many.

    Raises:
        UserError: there is no such split or family, or it has fewer machines.
    """
    if split not in NUMBERS:
        raise UserError(f"split {split!r} does not exist; {did_you_mean(split, list(NUMBERS))}")
    check_family(family)
    numbers = NUMBERS[split]
    if not 1 <= count <= len(numbers):
        raise UserError(f"split {split!r} has 1 to {len(numbers):,} machines of {family}")
    return [sample_machine(family, number) for number in numbers[:count]]


@dataclass(frozen=True, kw_only=True)
class Worth:
    """Steps x efficiency over fp32 on the machines of a family, one row a machine."""

    family: str
    ratios: np.ndarray
    """[machines, specs], in the order of `SPECS`"""

    @property
    def means(self) -> np.ndarray:
        """Geometric means, [specs]."""
        return np.exp(np.log(self.ratios).mean(0))

    def left_by(self, spec: int) -> float:
        """Return how much faster the best spec of each machine is than one spec everywhere."""
        return float(np.exp(np.log(self.ratios.max(1) / self.ratios[:, spec]).mean()) - 1.0)


def calculate(draws: int = DRAWS) -> list[Worth]:
    """Return what compressing is worth on the first machines of each family's train split.

    A run's worth is its env steps per second, as `predict` says, times

        (1 - f severity(spec) / severity(Net3 INT8)) / (1 + lag / 20),

    where f, drawn from 0 to 0.3, is the game's and lag the predicted policy lag. Students and
    pruned networks are distilled as often as Atari's (`keeping_pace`).

    Args:
        draws: machines of each family.
    """
    config = keeping_pace(load_preset("minatar-breakout"))
    hardest = severity(SPECS["Net3 INT8"])
    found = []
    for index, family in enumerate(FAMILIES):
        rows = []
        for number, machine in enumerate(split_machines("train", family, draws)):
            cost = generator(number, Role.MACHINE, index, 1).uniform(0.0, FIDELITY_COST)
            worths = [
                _worth(machine, config, spec) * (1.0 - cost * severity(spec) / hardest)
                for spec in SPECS.values()
            ]
            rows.append([worth / worths[0] for worth in worths])
        found.append(Worth(family=family, ratios=np.array(rows)))
    return found


def _worth(machine: LatencyProfile, config: RunConfig, spec: CompressionSpec) -> float:
    row = predict(times_of_run(machine, config), config, spec)
    return row.env_steps_per_second / (1.0 + row.policy_lag / LAG_HALVES)


def table(worths: Sequence[Worth]) -> str:
    """Return the calculation as a table in Markdown, and what the best spec for all leaves."""
    names = list(SPECS)
    overall = fmean_log([worth.means for worth in worths])
    best = int(np.argmax(overall))
    lines = [
        f"| family | {' | '.join(names[1:])} | {names[best]} (best for all) leaves |",
        f"|---|{'---|' * len(names)}",
    ]
    for worth in worths:
        cells = " | ".join(f"{mean:.2f}" for mean in worth.means[1:])
        lines.append(f"| {worth.family} | {cells} | {worth.left_by(best):.0%} |")
    everywhere = math.exp(fmean(math.log1p(worth.left_by(best)) for worth in worths)) - 1.0
    cells = " | ".join(f"{mean:.2f}" for mean in overall[1:])
    return "\n".join([*lines, f"| all | {cells} | {everywhere:.0%} |"])


def fmean_log(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the geometric mean of arrays, element by element."""
    return np.exp(np.mean(np.log(values), 0))


def main(arguments: list[str]) -> None:
    """Print the calculation; a user's mistake is one line and exit code 2."""
    with one_line_mistakes("machines"):
        print(table(calculate(read_count(arguments, DRAWS, "DRAWS"))))


if __name__ == "__main__":
    main(sys.argv[1:])
