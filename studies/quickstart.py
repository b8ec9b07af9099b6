"""The quickstart study: train a compression controller, compare it, export it, replay it.

1 measure this machine -> 2 reference runs -> 3 tune the hand-set strategies -> 4 meta-train the
controller with as many inner runs as each of them got -> 5 test all on held-out seeds, paired ->
6 export the schedule and replay it on ALE Pong in real time -> 7 report.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accerl.errors import UserError, did_you_mean
from accerl.records import fingerprint, make_out_dir, read_json, versions, write_json
from accerl.spec import IDENTITY
from controller.analytic import Machine, machine_of
from controller.meta_train import MetaTrainConfig, meta_train
from controller.policy import ControllerPolicy
from controller.pretrain import pretrain_tier0
from controller.rollouts import Trajectory
from studies.budget import (
    ACTIONS,
    BUDGETS,
    FP32,
    TARGET_SHARE,
    VALIDATE_SEEDS,
)
from studies.deliver import export, replay, report
from studies.games import Study, add_references, choose_horizons, find_profiles, score
from studies.inner import InnerRuns, check_workers, rollout_job
from studies.profile_tables import print_profile
from studies.progress import Steps, bar, console
from studies.strategies import SEARCH_SPACES, Tuned, tune


def run_quickstart(
    out: Path,
    *,
    budget: str = "default",
    seed: int = 0,
    workers: int = 2,
    profile: str = "",
    storage: str = "",
) -> Path:
    """Run the study, or go on with one that was interrupted; return the report's path.

    Args:
        out: the study's folder.
        budget: tiny or default.
        seed: of samplers, controller initialisation and action noise.
        workers: processes for inner runs, which do not disturb each other on the virtual clock; 0
            leaves all to workers that are started elsewhere.
        profile: a latency profile to use alone; by default this machine is measured, and games
            are played both on its times and on the paper's.
        storage: where jobs are kept, see `studies.storage`; by default a journal in `out`.

    Raises:
        UserError: the budget does not exist, or `out` holds a study with other settings.
    """
    if budget not in BUDGETS:
        raise UserError(f"--budget {budget!r} does not exist; {did_you_mean(budget, [*BUDGETS])}")
    check_workers(workers, storage)
    spent = BUDGETS[budget]
    settings = {"study": "quickstart", "budget": budget, "seed": seed, "profile": profile}
    make_out_dir(out)
    _claim(out, settings)
    steps = Steps(7)
    with steps.step("profile", "Measuring this machine"):
        profiles = find_profiles(out, spent, profile)
        for latency in profiles.values():
            print_profile(latency, console)
    setups = [setup for latency in profiles.values() for setup in choose_horizons(spent, latency)]
    with InnerRuns(out, workers, study="quickstart", storage=storage) as runs:
        study = Study(out, spent, seed, profiles, setups, runs)
        with steps.step("reference", "Reference runs without compression"):
            study.games = add_references(study)
        with steps.step("tuning", "Tuning the hand-set strategies (Optuna)"):
            tuned = [_tune(study, number) for number in range(len(SEARCH_SPACES))]
        with steps.step("meta_training", "Meta-training the controller (policy gradient)"):
            policy, history = _meta_train(study)
        entrants = _entrants(study, tuned, policy)
        with steps.step("test", "Testing all strategies on held-out seeds, paired by seed"):
            results = _test(study, entrants)
    with steps.step("replay", "Exporting the schedule; replaying it on ALE Pong in real time"):
        export(
            study.out,
            policy,
            ACTIONS,
            study.games,
            profiles,
            results,
            inner_runs=study.inner_runs,
            seeds=study.tune_seeds,
        )
        replay(study.out, spent.replay_seconds, seed)
    info = _study_json(study, settings, entrants, history, steps)
    write_json(out / "study.json", info)
    with steps.step("report", "Writing the report"):
        html = report(out, console)
    write_json(out / "study.json", {**info, "wall_seconds": steps.seconds})
    return html


def _claim(out: Path, settings: dict[str, Any]) -> None:
    """Note what the folder is for; refuse one that holds something else."""
    marker = out / "settings.json"
    if marker.is_file():
        if read_json(marker) != settings:
            raise UserError(
                f"{out} holds a study with other settings ({read_json(marker)}); "
                "give the same ones to go on with it, or another --out"
            )
        console.print(f"Going on with the study in {out}")
    elif any(out.iterdir()):
        raise UserError(f"{out} is not empty and holds no study; give --out a new folder")
    else:
        write_json(marker, settings)


def _tune(study: Study, number: int) -> Tuned:
    space = SEARCH_SPACES[number]
    pairs = [(setup, seed) for setup in reversed(study.games) for seed in study.tune_seeds]
    with bar(space.label, study.inner_runs) as advance:

        def evaluate(strategy: dict[str, Any], numbers: Sequence[int]) -> list[float]:
            chosen = [pairs[number] for number in numbers]
            jobs = [study.job(setup, seed, strategy) for setup, seed in chosen]
            results = study.runs.map(jobs, lambda: advance(1, ""))
            return [
                score(setup, result) for (setup, _), result in zip(chosen, results, strict=True)
            ]

        tuned = tune(
            space,
            ACTIONS,
            evaluate,
            instances=len(pairs),
            runs=study.inner_runs,
            out=study.out,
            seed=study.seed,
        )
    console.print(f"  {space.label}: {_describe(tuned.params)} (score {tuned.score:.3f})")
    return tuned


def _describe(params: dict[str, Any]) -> str:
    """Return parameters in one line, specs by their differences from the identity."""
    identity = IDENTITY.to_json()
    parts = []
    for name, value in params.items():
        if isinstance(value, dict):
            value = {k: v for k, v in value.items() if v != identity[k]} or "fp32"
        parts.append(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}")
    return ", ".join(parts)


def _meta_train(study: Study) -> tuple[ControllerPolicy, list[dict[str, Any]]]:
    """Train the controller with exactly the inner runs that every tuned strategy got."""
    # One game an iteration, on every machine: what differs between groups is then the machine.
    turns = len(study.budget.env_steps)
    config = MetaTrainConfig(groups=len(study.games) // turns, rollouts=4)
    per_iteration = config.groups * config.rollouts
    iterations = study.inner_runs // per_iteration
    generator = np.random.default_rng([study.seed, 7])
    policy = ControllerPolicy(ACTIONS.sizes, generator=torch.Generator().manual_seed(study.seed))
    # A strong entropy bonus: the prior may lean, but must leave the real runs something to try.
    pretrain = MetaTrainConfig(groups=8, rollouts=4, entropy_weight=0.1)
    pretrain_tier0(
        policy, ACTIONS, pretrain, generator, study.budget.pretrain_iterations, _machines(study)
    )
    with bar("meta-training", iterations * per_iteration) as advance:

        def collect(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
            seed = study.tune_seeds[iteration // turns % len(study.tune_seeds)]
            first = 2 * (1000 * study.seed + 100 * iteration)  # even: pairs start at even seeds
            jobs = [
                rollout_job(setup, seed, first + k, state, ACTIONS, study.profile(setup))
                for setup in study.games[iteration % turns :: turns]
                for k in range(config.rollouts)
            ]
            results = study.runs.map(jobs, lambda: advance(1, ""))
            flat = [Trajectory.from_json(result) for result in results]
            size = config.rollouts
            return [flat[start : start + size] for start in range(0, len(flat), size)]

        history = meta_train(policy, collect, iterations, config)
    rows = [
        {**row, "mean_gain": row["gain"], "inner_runs": (number + 1) * per_iteration}
        for number, row in enumerate(history)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (study.out / "meta_training.jsonl").write_text(text)
    return policy, rows


def _machines(study: Study) -> list[Machine]:
    """Return this study's games' machines as the analytic tier sees them."""
    machines = []
    for setup in study.games:
        config = setup.config(0)
        distilled = config.compression.distill_updates * config.compression.distill_batch
        ratio = distilled / (config.learner.unroll * config.runtime.num_envs)
        machines.append(machine_of(study.profile(setup), config.runtime.num_envs, ratio))
    return machines


def _entrants(study: Study, tuned: list[Tuned], policy: ControllerPolicy) -> list[dict[str, Any]]:
    """Return the contestants: description of the strategy, label, and what it cost to find."""
    learned = {
        "name": "learned",
        "policy": policy.to_json(),
        "actions": ACTIONS.to_json(),
        "label": "learned",
    }
    entrants = [{"strategy": FP32, "label": "fp32 only", "params": {}, "inner_runs": 0}]
    entrants += [
        {
            "strategy": item.strategy,
            "label": item.space.label,
            "params": item.params,
            "inner_runs": item.inner_runs,
        }
        for item in tuned
    ]
    entrants.append(
        {
            "strategy": learned,
            "label": "learned controller",
            "params": {"parameters": policy.num_parameters()},
            "inner_runs": study.inner_runs,
        }
    )
    return entrants


def _test(study: Study, entrants: list[dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Run every strategy on every (game, test seed); return results by strategy and game."""
    keys, jobs = [], []
    for setup in reversed(study.games):
        for seed in study.test_seeds:
            for entrant in entrants:
                label = entrant["strategy"]["label"]
                folder = study.out / "runs" / label / setup.name / f"seed-{seed}"
                keys.append((label, setup.name))
                jobs.append(study.job(setup, seed, entrant["strategy"], folder))
    results: dict[str, dict[str, list[Any]]] = {}
    with bar("test runs", len(jobs)) as advance:
        for (label, game), result in zip(
            keys, study.runs.map(jobs, lambda: advance(1, "")), strict=True
        ):
            results.setdefault(label, {}).setdefault(game, []).append(result)
    return results


def _study_json(
    study: Study,
    settings: dict[str, Any],
    entrants: list[dict[str, Any]],
    history: list[dict[str, Any]],
    steps: Steps,
) -> dict[str, Any]:
    return {
        **settings,
        "name": "quickstart",
        "subject": "learned",
        "fingerprint": fingerprint(),
        "versions": versions(),
        "profile": " and ".join(study.profiles),
        "profile_hashes": {name: latency.hash for name, latency in study.profiles.items()},
        "tier": "virtual",
        "games": {setup.name: setup.to_json() for setup in study.games},
        "strategies": [
            {
                "name": entrant["strategy"]["label"],
                "label": entrant["label"],
                "tuned_params": entrant["params"],
                "inner_runs": entrant["inner_runs"],
            }
            for entrant in entrants
        ],
        "tune_seeds": study.tune_seeds,
        "validate_seeds": list(VALIDATE_SEEDS)[: study.budget.reference_runs],
        "test_seeds": study.test_seeds,
        "meta_iterations": len(history),
        "pretrain_iterations_tier0": study.budget.pretrain_iterations,
        "wall_seconds": dict(steps.seconds),
        "commands": [
            f"accerl study run quickstart --budget {settings['budget']} --seed {study.seed} "
            "--out DIR"
        ],
        "notes": [
            "Catch and CartPole are learned for real; every operation is charged the seconds "
            "that the paper's 84x84 networks take: 'measured' on this machine, 'paper' as "
            "published (ten agents, batch 1; what the paper leaves open is derived).",
            f"The target is {TARGET_SHARE:.0%} of the way from random play to the median final "
            "return of the fp32 reference runs.",
            "The controller starts from pre-training on random analytic games on the same "
            "machines, which costs no inner run.",
        ],
    }
