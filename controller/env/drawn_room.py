"""What there is to win on drawn instances, exactly: `python -m controller.env.drawn_room [COUNT]`.

Every spec acts all along on every instance, without chance. The table says what the best spec of
each instance saves over the one that is best for all, and what one switch would add: the seconds
to 90% of the way from random play to the reference, cut off at the horizon.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.analytic.machine_run import MachineRun
from controller.arguments import one_line_mistakes, read_count
from controller.env.machine_instances import INT8, SPECS, DrawnInstances, MachineInstance

DRAWS = 200
"""of the validation split, unless another COUNT is given"""
TARGET = 0.9
SWITCHES = (2, 6, 12, 20)
"""intervals after which a schedule may change its spec"""


@dataclass(frozen=True, kw_only=True)
class Worth:
    """Seconds to the target on one instance."""

    instance: MachineInstance
    statics: np.ndarray
    """by spec, in the order of `SPECS`; NaN: the machine or learner has no such spec"""
    switched: float
    """of the best schedule with one switch at most"""


def seconds_to_target(run: MachineRun, instance: MachineInstance) -> float:
    """Return the clock at which a run without chance reaches the target, or else the horizon.

    Args:
        run: to go on with, with what acts.
        instance: of the run.
    """
    goal = instance.random_return + TARGET * instance.reference.span
    clock, score = run.seconds, run.game.score(run.skill)
    while score < goal and clock < instance.horizon_seconds * (1.0 - 1e-9):
        left = instance.horizon_seconds - clock
        run.advance(min(instance.interval_seconds, left))
        before, score, begun, clock = score, run.game.score(run.skill), clock, run.seconds
        if score >= goal:
            return begun + (clock - begun) * (goal - before) / (score - before)
    # The clock adds up intervals, and may end just below the horizon.
    return clock if score >= goal else instance.horizon_seconds


def measure(instance: MachineInstance, *, switches: Sequence[int] = SWITCHES) -> Worth:
    """Return what every spec and every schedule with one switch takes.

    Args:
        instance: of which all chance is taken away.
        switches: intervals after which a schedule may change its spec.
    """
    quiet = instance.quiet()
    specs = [spec for spec in SPECS if quiet.has(spec)]
    statics = np.full(len(SPECS), np.nan)
    best = quiet.horizon_seconds
    for spec in specs:
        run = MachineRun(quiet.pace, quiet.fidelity, 0)
        run.apply(Decision.of(spec))
        branches, done = [], 0
        goal = quiet.random_return + TARGET * quiet.reference.span
        for place in switches:
            if run.game.score(run.skill) >= goal:
                break
            run.advance((place - done) * quiet.interval_seconds)
            done = place
            branches.append(run.snapshot())
        run = MachineRun(quiet.pace, quiet.fidelity, 0)
        run.apply(Decision.of(spec))
        found = seconds_to_target(run, quiet)
        statics[SPECS.index(spec)] = found
        best = min(best, found)
        for snapshot, other in product(branches, specs):
            if other == spec or snapshot["seconds"] >= best:
                continue
            run.restore(snapshot)
            if run.game.score(run.skill) >= goal:
                continue
            run.apply(Decision.of(other))
            best = min(best, seconds_to_target(run, quiet))
    return Worth(instance=instance, statics=statics, switched=best)


def table(found: Sequence[Worth]) -> str:
    """Return what there is to win, by family and kind of conditions, in Markdown."""
    lines = [
        "| instances | count | fp32 | INT8 | best static for all | best of each | one switch |",
        "|---|---|---|---|---|---|---|",
    ]
    everywhere = best_for_all(found)
    groups: dict[str, list[Worth]] = {"all": list(found)}
    for worth in found:
        family = worth.instance.profile.rsplit("-", 1)[0]
        for name in (family, worth.instance.game, worth.instance.group):
            groups.setdefault(name, []).append(worth)
    for name, worths in groups.items():
        rows = [row_of(worths, SPECS.index(spec)) for spec in (IDENTITY, INT8, everywhere)]
        each = _mean([float(np.nanmin(worth.statics)) for worth in worths])
        switched = _mean([worth.switched for worth in worths])
        cells = [f"{seconds / rows[2]:.2f}" for seconds in (*rows, each, switched)]
        lines.append(f"| {name} | {len(worths)} | {' | '.join(cells)} |")
    lines += ["", f"Ratios of geometric mean seconds to {everywhere.label}'s. Best of each:"]
    wins = [SPECS[int(np.nanargmin(worth.statics))].label for worth in found]
    lines += [f"- {spec.label}: {wins.count(spec.label)}" for spec in SPECS]
    reached = [float(np.nanmin(w.statics)) < w.instance.horizon_seconds for w in found]
    lines.append(f"The target is reached on {np.mean(reached):.0%}.")
    return "\n".join(lines)


def best_for_all(found: Sequence[Worth]) -> CompressionSpec:
    """Return the spec with the least seconds over all; where it is missing, INT8 stands in."""
    return min(SPECS, key=lambda spec: row_of(found, SPECS.index(spec)))


def row_of(found: Sequence[Worth], place: int) -> float:
    """Return the geometric mean of a spec's seconds; where it is missing, INT8's."""
    int8 = SPECS.index(INT8)
    each = [w.statics[int8 if np.isnan(w.statics[place]) else place] for w in found]
    return _mean(each)


def _mean(seconds: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(seconds))))


def main(arguments: list[str]) -> None:
    """Print the table of so many draws; a user's mistake is one line and exit code 2."""
    with one_line_mistakes("drawn_room"):
        count = read_count(arguments, DRAWS, "COUNT")
        drawn = DrawnInstances("validation")
        print(table([measure(drawn[number]) for number in range(count)]))


if __name__ == "__main__":
    main(sys.argv[1:])
