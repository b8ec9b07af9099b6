"""Figure 1: where the time of a run goes, and what faster actors can save of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import Work, predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.settings import configure
from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import Curves, Panel, PaperFigure
from studies.papers.verdict import FAILS, HOLDS, Verdict

PUBLISHED_MS = {"env": 48.0, "agent": 96.0, "learner": 25.0}
"""of a batch: sixteen steps of 3 and 6 ms, and an update"""
SPEEDUPS = (2.0, 4.13)
"""the range of how much faster the paper's compressed agents are; INT8 (3 of 6 ms) is the lower"""
CLAIMED_SAVINGS = (0.298, 0.403)
"""of the training time, by INT8 alone (Figure 12)"""
INT8 = CompressionSpec(bits=8)


def saved_in_turn(parts: Mapping[str, float], speedup: float) -> float:
    """Return the share of the time that faster agents save if the learner waits for them.

    Amdahl's law over the parts of a batch.
    """
    return parts["agent"] * (1.0 - 1.0 / speedup) / sum(parts.values())


def saved_overlapped(parts: Mapping[str, float], speedup: float) -> float:
    """Return the same if the learner learns from one batch while the next is collected."""

    def seconds(speedup: float) -> float:
        return max(parts["env"] + parts["agent"] / speedup, parts["learner"])

    return 1.0 - seconds(speedup) / seconds(1.0)


@dataclass(frozen=True)
class SavingFits:
    """A saving that Figure 12 names is at most what Figure 1 leaves for INT8, overlapped."""

    saving: float

    def __call__(self, panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
        """See `Check`; there are no panels."""
        most = saved_overlapped(PUBLISHED_MS, SPEEDUPS[0])
        return Verdict(
            claim=f"Figure 12's saving of {self.saving:.1%} with INT8 fits this split, if "
            "collecting and learning overlap",
            outcome=HOLDS if most >= self.saving else FAILS,
            what=f"the most that agents {SPEEDUPS[0]:g} times as fast can save, by the published "
            "times, where collecting and learning overlap; "
            f"{saved_in_turn(PUBLISHED_MS, SPEEDUPS[0]):.1%} where they take turns",
            estimate=most,
            low=None,
            high=None,
            runs=0,
        )


FIGURE = PaperFigure(
    name="fig1",
    title="Where the time goes",
    claim="Collecting a batch of 160 takes 144 of 169 ms (85.2%), and the agents' inference 96 of "
    "them (56.8%). What faster agents can save of that is worked out here.",
    checks=tuple(map(SavingFits, CLAIMED_SAVINGS)),
)


def time_split(machines: Mapping[str, LatencyProfile]) -> list[dict[str, Any]]:
    """Return where time goes: as published, and as Pong's core-seconds on each machine.

    Here an actor steps 32 environments at once and the learner passes three times over a rollout.
    What is saved of the clock is worked out from the published times, and predicted of machines.
    """
    saved = {}
    for speedup in SPEEDUPS:
        saved[f"{speedup:g}x in turn"] = saved_in_turn(PUBLISHED_MS, speedup)
        saved[f"{speedup:g}x overlapped"] = saved_overlapped(PUBLISHED_MS, speedup)
    rows = [_row("published", "ms per batch", PUBLISHED_MS, saved)]
    for name, latency in machines.items():
        config = configure("pong", {}, label="setting", network="original", seconds=1.0, seed=0)
        times = times_of_run(latency, config)
        work = Work.of(times, config, IDENTITY)
        near = replace(times, num_hosts=0)  # actors take cores wherever they are
        cores = work.wiring.actors * near.group_cores(config.runtime.num_envs)
        parts = {
            "env": 1e3 * (work.act - work.infer) * cores,
            "agent": 1e3 * work.infer * cores,
            "learner": 1e3 * work.learn,
        }
        slow, fast = (predict(times, config, spec) for spec in (IDENTITY, INT8))
        share = 1.0 - slow.env_steps_per_second / fast.env_steps_per_second
        rows.append(_row(name, "core-ms per env step", parts, {"INT8, predicted": share}))
    return rows


def _row(
    machine: str, unit: str, parts: Mapping[str, float], saved: Mapping[str, float]
) -> dict[str, Any]:
    total = sum(parts.values())
    return {
        "machine": machine,
        "unit": unit,
        "parts": dict(parts),
        "shares": {name: value / total for name, value in parts.items()},
        "saved": dict(saved),
    }
