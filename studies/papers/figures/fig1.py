"""Figure 1: where the time of a run goes, and what no compression can exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import Work
from accerl.runtime.latency.profile import LatencyProfile
from accerl.settings import configure
from accerl.spec import IDENTITY
from studies.papers.figure import Curves, Panel, PaperFigure
from studies.papers.verdict import FAILS, HOLDS, Verdict

PUBLISHED_MS = {"env": 48.0, "agent": 96.0, "learner": 25.0}
"""of a batch: sixteen steps of 3 and 6 ms, and an update"""
SPEEDUPS = (2.0, 4.13)
"""of the agent, as the paper measures INT8 alone and with a student"""
CLAIMED_SAVING = 0.403
"""of the training time, by INT8 alone (Figure 12)"""


def saved_share(parts: Mapping[str, float], speedup: float) -> float:
    """Return the share of the time that a faster agent saves (Amdahl's law)."""
    return parts["agent"] * (1.0 - 1.0 / speedup) / sum(parts.values())


def fits_the_bound(panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
    """Hold the saving of Figure 12 against what Figure 1 leaves for it.

    Args:
        panels: see `Check`; there are none.
    """
    bound = saved_share(PUBLISHED_MS, SPEEDUPS[0])
    return Verdict(
        claim=f"Figure 12's saving of {CLAIMED_SAVING:.1%} with INT8 fits this split",
        outcome=HOLDS if bound >= CLAIMED_SAVING else FAILS,
        what=f"the most that agents {SPEEDUPS[0]:g} times as fast can save, as published",
        estimate=bound,
        low=None,
        high=None,
        runs=0,
    )


FIGURE = PaperFigure(
    name="fig1",
    title="Where the time goes",
    claim="Collecting a batch of 160 takes 144 of 169 ms, and the agents' inference 96 of them: "
    "actors that are 2.0 times as fast save at most 28.4%, 4.13 times as fast 43.1%.",
    checks=(fits_the_bound,),
)


def time_split(machines: Mapping[str, LatencyProfile]) -> list[dict[str, Any]]:
    """Return where time goes: as published, and as Pong's core-seconds on each machine.

    Here an actor steps 32 environments at once and the learner passes three times over a rollout.
    """
    rows = [_row("published", "ms per batch", PUBLISHED_MS)]
    for name, latency in machines.items():
        config = configure("pong", {}, label="setting", network="original", seconds=1.0, seed=0)
        work = Work.of(times_of_run(latency, config), config, IDENTITY)
        actors = work.wiring.actors
        parts = {
            "env": (work.act - work.infer) * actors,
            "agent": work.infer * actors,
            "learner": work.learn,
        }
        rows.append(_row(name, "core-ms per env step", {k: 1e3 * v for k, v in parts.items()}))
    return rows


def _row(machine: str, unit: str, parts: Mapping[str, float]) -> dict[str, Any]:
    total = sum(parts.values())
    return {
        "machine": machine,
        "unit": unit,
        "parts": dict(parts),
        "shares": {name: value / total for name, value in parts.items()},
        "saved": {f"{speedup:g}": saved_share(parts, speedup) for speedup in SPEEDUPS},
        "bound": parts["agent"] / total,
    }
