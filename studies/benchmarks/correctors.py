"""What `accerl bench correctors` measures: every estimator and every chain that has a name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from accerl.correct import (
    COMBINATIONS,
    Experience,
    importance_sampling,
    leaky_vtrace,
    make_corrector,
    per_decision_importance_sampling,
    q_lambda,
    retrace,
    tree_backup,
    truncated_importance_sampling,
    vtrace,
)
from accerl.correct.compliance import random_experience
from studies.benchmarks.bench import interleaved, per_item, result_of, torch_threads

STEPS, BATCH = 20, 32
Calls = dict[tuple[str, str], Callable[[], object]]


def bench_correctors(
    repeats: int = 9, *, seconds_per_call: float = 0.01, seed: int = 0
) -> dict[str, Any]:
    """Measure correctors in float32 on one thread: microseconds for one batch of rollouts.

    Args:
        repeats: interleaved rounds.
        seconds_per_call: how long one corrector is timed in one round.
        seed: of the made-up experience, whose episodes go on throughout.

    Returns:
        `rows`, one for each public function (form "function") and each named combination in the
        learner's chain (form "chain").
    """
    drawn = random_experience(torch.Generator().manual_seed(seed), steps=STEPS, batch=BATCH)
    experience = Experience(**{name: value.float() for name, value in vars(drawn).items()})
    with torch_threads(1):
        calls = _functions(experience) | _chains(experience)
        seconds = interleaved(calls, repeats, seconds_per_call)
    rows = [
        {
            "corrector": name,
            "form": form,
            "steps": STEPS,
            "batch": BATCH,
            **per_item(measured, "us_per_call"),
        }
        for (name, form), measured in seconds.items()
    ]
    return result_of("correctors", rows) | {"threads": 1, "dtype": "float32", "seed": seed}


def _functions(experience: Experience) -> Calls:
    """Return a call of every public function; V stands in for Q, as time depends on neither."""
    ratio = {
        "behaviour_logp_t": experience.behaviour_logp_t,
        "target_logp_t": experience.target_logp_t,
    }
    rewards = {"reward_t": experience.reward_t, "discount_t": experience.discount_t}
    states = {"value_t": experience.value_t, "bootstrap_value": experience.value_tp1[-1]}
    actions = {"q_t": experience.value_t, "expected_q_tp1": experience.value_tp1}
    policy = {"target_prob_t": experience.target_logp_t.exp()}
    takes: dict[Callable[..., object], dict[str, Any]] = {
        importance_sampling: ratio,
        truncated_importance_sampling: ratio,
        vtrace: ratio | rewards | states,
        leaky_vtrace: ratio | rewards | states,
        retrace: ratio | rewards | actions,
        per_decision_importance_sampling: ratio | rewards | actions,
        tree_backup: policy | rewards | actions,
        q_lambda: rewards | actions,
    }
    return {
        (function.__name__, "function"): functools.partial(function, **arguments)
        for function, arguments in takes.items()
    }


def _chains(experience: Experience) -> Calls:
    """Return a call of every named combination, as the learner makes it."""
    return {
        (name, "chain"): functools.partial(make_corrector(name, rho=1.0, c=1.0).correct, experience)
        for name in COMBINATIONS
    }
