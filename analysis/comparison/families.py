"""What specs are worth on machines of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accerl.spec import IDENTITY


def family_of(machine: str) -> str:
    """Return what a machine was drawn from: its name without the number; others are on their own.

    >>> family_of("gpu-few-cores-8001"), family_of("paper-1080ti")
    ('gpu-few-cores', 'paper-1080ti')
    """
    family, _, number = machine.rpartition("-")
    return family if number.isdecimal() else machine


def by_family(means: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what specs are worth over no compression, by family of machines: geometric means.

    Args:
        means: of a room.json, without the games that stand apart.

    Returns:
        rows with the family, its instances, the share of its runs that missed a target, that of
        those that were stopped and are filled in (`filled`), and by spec seconds to target
        (`seconds`) and env steps to target (`env_steps`, None: not known) of no compression over
        those of the spec, and what it reaches (`final`): the mean share of the way from random play
        to long runs without compression.
    """
    planned = max((row["seeds"] for row in means), default=0)
    cells: dict[str, dict[tuple[str, str], dict[str, Mapping[str, Any]]]] = {}
    for row in means:
        own = cells.setdefault(family_of(row["machine"]), {})
        own.setdefault((row["game"], row["machine"]), {})[row["label"]] = row
    found = []
    for family, instances in cells.items():
        specs = dict.fromkeys(spec for each in instances.values() for spec in each)
        rows = [row for each in instances.values() for row in each.values()]
        missed = sum(row["censored"] * row["seeds"] for row in rows)
        made = sum(row["seeds"] for row in rows)
        gains: dict[str, Any] = {
            **{"family": family, "instances": len(instances), "missed": missed / made},
            "filled": 1.0 - made / (planned * len(rows)),
        }
        having = {spec: [each for each in instances.values() if spec in each] for spec in specs}
        for what in ("seconds", "env_steps"):
            key = f"{what}_to_target"
            gains[what] = {
                spec: _gain([(each[IDENTITY.label][key], each[spec][key]) for each in own])
                for spec, own in having.items()
            }
        gains["final"] = {
            spec: float(np.mean([each[spec]["final_share"] for each in own]))
            for spec, own in having.items()
        }
        found.append(gains)
    return found


def _gain(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [np.log(before / after) for before, after in pairs if before and after]
    return float(np.exp(np.mean(known))) if known else None
