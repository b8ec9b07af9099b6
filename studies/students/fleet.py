"""What measured env steps are worth on other machines: which actors would be soonest where?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from accerl.runtime.latency.families import FAMILIES
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import IDENTITY
from controller.env.machines import DRAWS, Worth, split_machines
from studies.learning.job import LearningJob, acting_with
from studies.students.plan import INT8

ASSUMED = f"{INT8.label}, assumed"
"""the learner's own network in INT8, where no run measured it: to learn as float32 does"""


def fleet_worth(
    jobs: Mapping[str, LearningJob], env_steps_ratios: Mapping[str, float], draws: int = DRAWS
) -> dict[str, Any]:
    """Return how many times as soon as the first variant the others reach a score, by family.

    On each machine that is predicted env steps a second over the first variant's, divided by the
    measured ratio of env steps. That this ratio is the same on every machine, where weights have
    another age and students are distilled at another pace, is assumed.

    Args:
        jobs: by label of the variant, the first being what others are held against.
        env_steps_ratios: to the score, over the first variant's; variants without one are left out.
        draws: machines of each family.

    Returns:
        Labels of the variants, geometric means by family and over all, on how many of the machines
        each is the soonest, and how much sooner the best of each machine is than the best for all.
    """
    first = next(iter(jobs))
    known = {label: job for label, job in jobs.items() if label in env_steps_ratios}
    costs = dict(env_steps_ratios)
    if jobs[first].paced_by == IDENTITY and all(job.paced_by != INT8 for job in jobs.values()):
        known[ASSUMED] = replace(jobs[first], strategy=acting_with(INT8), paced_by=INT8)
        costs[ASSUMED] = costs[first]
    labels = list(known)
    worths = [
        Worth(
            family=family,
            ratios=np.array(
                [
                    _worths(machine, known, costs)
                    for machine in split_machines("train", family, draws)
                ]
            ),
        )
        for family in FAMILIES
    ]
    everywhere = Worth(family="all", ratios=np.concatenate([worth.ratios for worth in worths]))
    best = int(everywhere.means.argmax())
    return {
        "draws": draws,
        "labels": labels,
        "best": labels[best],
        "families": [
            {
                "family": worth.family,
                "speedups": worth.means.tolist(),
                "soonest": np.bincount(worth.ratios.argmax(1), minlength=len(labels)).tolist(),
                "left": worth.left_by(best),
            }
            for worth in (*worths, everywhere)
        ],
    }


def _worths(
    machine: LatencyProfile, jobs: Mapping[str, LearningJob], costs: Mapping[str, float]
) -> np.ndarray:
    paces = [
        replace(job, latency=machine).predicted_pace / costs[label] for label, job in jobs.items()
    ]
    return np.array(paces) / paces[0]
