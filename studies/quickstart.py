"""The quickstart study: train a compression controller, compare it, export it, replay it.

1 measure this machine -> 2 reference runs -> 3 tune the hand-set strategies -> 4 meta-train the
controller with as many inner runs as each of them got -> 5 test all on held-out seeds, paired ->
6 export the schedule and replay it on ALE Pong in real time -> 7 report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from accerl.envs import make_envs
from accerl.errors import UserError, did_you_mean
from accerl.evaluate import EVALUATION_SEED, play_episodes
from accerl.presets import load_preset
from accerl.records import fingerprint, make_out_dir, read_json, versions, write_json
from accerl.runtime.latency import LatencyProfile, load_profile, save_profile
from accerl.runtime.measure import measure_profile
from accerl.spec import IDENTITY
from controller.analytic import Machine, machine_of
from controller.meta_train import MetaTrainConfig, meta_train, pretrain_tier0
from controller.objective import default_beta, discounted_gain
from controller.policy import ControllerPolicy
from controller.rollouts import Trajectory
from studies.budget import (
    ACTIONS,
    BUDGETS,
    FP32,
    INTERVALS,
    TARGET_SHARE,
    TEST_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
    Budget,
)
from studies.deliver import export, replay, report
from studies.inner import GameSetup, InnerRuns, rollout_job, strategy_job
from studies.progress import Steps, bar, console, share_bar
from studies.strategies import SEARCH_SPACES, Tuned, tune
from studies.tables import print_profile


@dataclass
class Study:
    """What the steps hand to each other."""

    out: Path
    budget: Budget
    seed: int
    profile: LatencyProfile
    games: list[GameSetup]
    runs: InnerRuns


def run_quickstart(
    out: Path, *, budget: str = "default", seed: int = 0, workers: int = 2, profile: str = ""
) -> Path:
    """Run the study, or go on with one that was interrupted; return the report's path.

    Args:
        out: the study's folder.
        budget: tiny or default.
        seed: of samplers, controller initialisation and action noise.
        workers: processes for inner runs; on the virtual clock they do not disturb each other.
        profile: a latency profile to use in place of measuring this machine.

    Raises:
        UserError: the budget does not exist, or `out` holds a study with other settings.
    """
    if budget not in BUDGETS:
        raise UserError(f"--budget {budget!r} does not exist; {did_you_mean(budget, [*BUDGETS])}")
    if workers < 1:
        raise UserError(f"--workers must be at least 1, got {workers}")
    spent = BUDGETS[budget]
    settings = {"study": "quickstart", "budget": budget, "seed": seed, "profile": profile}
    make_out_dir(out)
    _claim(out, settings)
    steps = Steps(7)
    with steps.step("profile", "Measuring this machine"):
        latency = _profile(out, spent, profile)
        print_profile(latency, console)
    with InnerRuns(out / "inner_runs.jsonl", workers) as runs:
        study = Study(out, spent, seed, latency, _setups(spent, latency), runs)
        with steps.step("reference", "Reference runs without compression"):
            study.games = _with_references(study)
        with steps.step("tuning", "Tuning the hand-set strategies (Optuna)"):
            tuned = [_tune(study, number) for number in range(len(SEARCH_SPACES))]
        with steps.step("meta_training", "Meta-training the controller (policy gradient)"):
            policy, history = _meta_train(study)
        entrants = _entrants(study, tuned, policy)
        with steps.step("test", "Testing all strategies on held-out seeds, paired by seed"):
            results = _test(study, entrants)
    with steps.step("replay", "Exporting the schedule; replaying it on ALE Pong in real time"):
        export(study.out, policy, ACTIONS, study.games, latency, results, spent)
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


def _profile(out: Path, budget: Budget, name: str) -> LatencyProfile:
    """Load the study's profile, or measure it."""
    path = out / "profile.json"
    if path.is_file():
        return load_profile(str(path))
    if name:
        profile = load_profile(name)
    else:
        with share_bar("latency profile") as on_progress:
            profile = measure_profile(repeats=budget.profile_repeats, on_progress=on_progress)
    save_profile(profile, path)
    return profile


def _setups(budget: Budget, profile: LatencyProfile) -> list[GameSetup]:
    """Choose horizons: what the budget's steps take in fp32, publications left out of account."""
    setups = []
    for game, env_steps in budget.env_steps.items():
        config = load_preset(game)
        batch = config.runtime.num_envs
        act = profile.env_seconds(batch) + profile.infer_seconds(IDENTITY, batch)
        per_step = max(
            act / batch / profile.num_actors, profile.learn_seconds(1) * config.learner.reuse
        )
        interval = float(f"{env_steps * per_step / INTERVALS:.2g}")
        setups.append(
            GameSetup(game=game, horizon_seconds=interval * INTERVALS, interval_seconds=interval)
        )
    return setups


def _with_references(study: Study) -> list[GameSetup]:
    """Measure what random play and uncompressed training reach."""
    jobs = [
        strategy_job(setup, seed, FP32, study.profile)
        for setup in study.games
        for seed in list(VALIDATE_SEEDS)[: study.budget.reference_runs]
    ]
    with bar("fp32 reference", len(jobs)) as advance:
        results = study.runs.map(jobs, lambda: advance(1, ""))
    games = []
    for index, setup in enumerate(study.games):
        count = study.budget.reference_runs
        runs = results[index * count : (index + 1) * count]
        reached = median(float(np.mean(run["returns"][-2:])) for run in runs)
        random_return = _random_return(setup.game)
        if not reached > random_return:
            raise UserError(
                f"{setup.game}: fp32 training reached {reached:.3g}, no better than random play "
                f"({random_return:.3g}); use a larger --budget"
            )
        target = random_return + TARGET_SHARE * (reached - random_return)
        console.print(
            f"  {setup.game}: random {random_return:.2f}, fp32 reaches {reached:.2f} in "
            f"{setup.horizon_seconds:.3g} virtual seconds; target {target:.2f}"
        )
        games.append(
            replace(
                setup,
                random_return=random_return,
                reference_return=reached,
                target_return=target,
            )
        )
    return games


def _random_return(game: str, episodes: int = 512) -> float:
    """Return the mean score of uniformly random play."""
    envs = make_envs(game, episodes)
    logits = np.zeros((episodes, envs.num_actions), dtype=np.float32)
    scores = play_episodes(envs, lambda _: logits, EVALUATION_SEED)
    envs.close()
    return float(scores.mean())


def score(setup: GameSetup, result: dict[str, Any]) -> float:
    """Return the discounted normalised gain of one run: the controller's own objective."""
    returns = [setup.reference.normalise(value) for value in result["returns"]]
    return discounted_gain(result["times"], returns, default_beta(setup.horizon_seconds))


def _tune(study: Study, number: int) -> Tuned:
    space, budget = SEARCH_SPACES[number], study.budget
    seeds = list(TUNE_SEEDS)[: budget.tune_seeds]
    with bar(space.label, budget.inner_runs) as advance:

        def evaluate(strategy: dict[str, Any]) -> tuple[float, int]:
            pairs = [(setup, seed) for setup in reversed(study.games) for seed in seeds]
            jobs = [strategy_job(setup, seed, strategy, study.profile) for setup, seed in pairs]
            results = study.runs.map(jobs, lambda: advance(1, ""))
            scores = [
                score(setup, result) for (setup, _), result in zip(pairs, results, strict=True)
            ]
            return float(np.mean(scores)), len(jobs)

        tuned = tune(space, ACTIONS, evaluate, trials=budget.trials, out=study.out, seed=study.seed)
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
    config = MetaTrainConfig(groups=len(study.games), rollouts=4)
    per_iteration = config.groups * config.rollouts
    iterations = study.budget.inner_runs // per_iteration
    generator = np.random.default_rng([study.seed, 7])
    seeds = list(TUNE_SEEDS)[: study.budget.tune_seeds]  # the ones the other strategies got
    policy = ControllerPolicy(ACTIONS.sizes, generator=torch.Generator().manual_seed(study.seed))
    # A strong entropy bonus: the prior may lean, but must leave the real runs something to try.
    pretrain = MetaTrainConfig(groups=8, rollouts=4, entropy_weight=0.1)
    pretrain_tier0(
        policy, ACTIONS, pretrain, generator, study.budget.pretrain_iterations, _machine(study)
    )
    with bar("meta-training", iterations * per_iteration) as advance:

        def collect(state: dict[str, Any], iteration: int) -> list[list[Trajectory]]:
            seed = seeds[iteration % len(seeds)]
            first = 2 * (1000 * study.seed + 100 * iteration)  # even: pairs start at even seeds
            jobs = [
                rollout_job(setup, seed, first + k, state, ACTIONS, study.profile)
                for setup in reversed(study.games)
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


def _machine(study: Study) -> Machine:
    """Return this study's machine as the analytic tier sees it."""
    configs = [setup.config(0) for setup in study.games]
    distilled = [
        config.compression.distill_updates
        * config.compression.distill_batch
        / (config.learner.unroll * config.runtime.num_envs)
        for config in configs
    ]
    return machine_of(study.profile, configs[0].runtime.num_envs, float(np.mean(distilled)))


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
            "inner_runs": study.budget.inner_runs,
        }
    )
    return entrants


def _test(study: Study, entrants: list[dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Run every strategy on every (game, test seed); return results by strategy and game."""
    seeds = list(TEST_SEEDS)[: study.budget.test_seeds]
    keys, jobs = [], []
    for setup in reversed(study.games):
        for seed in seeds:
            for entrant in entrants:
                label = entrant["strategy"]["label"]
                folder = study.out / "runs" / label / setup.game / f"seed-{seed}"
                keys.append((label, setup.game))
                jobs.append(strategy_job(setup, seed, entrant["strategy"], study.profile, folder))
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
    seeds = list(TEST_SEEDS)[: study.budget.test_seeds]
    return {
        **settings,
        "name": "quickstart",
        "subject": "learned",
        "fingerprint": fingerprint(),
        "versions": versions(),
        "profile": study.profile.name,
        "profile_hash": study.profile.hash,
        "tier": "virtual",
        "games": {
            setup.game: {k: v for k, v in setup.to_json().items() if k != "game"}
            for setup in study.games
        },
        "strategies": [
            {
                "name": entrant["strategy"]["label"],
                "label": entrant["label"],
                "tuned_params": entrant["params"],
                "inner_runs": entrant["inner_runs"],
            }
            for entrant in entrants
        ],
        "tune_seeds": list(TUNE_SEEDS)[: study.budget.tune_seeds],
        "validate_seeds": list(VALIDATE_SEEDS)[: study.budget.reference_runs],
        "test_seeds": seeds,
        "meta_iterations": len(history),
        "pretrain_iterations_tier0": study.budget.pretrain_iterations,
        "wall_seconds": dict(steps.seconds),
        "commands": [
            f"accerl study run quickstart --budget {settings['budget']} --seed {study.seed} "
            "--out DIR"
        ],
        "notes": [
            "Catch and CartPole are learned for real; every operation is charged the seconds "
            "that the paper's 84x84 networks take in the latency profile.",
            f"The target is {TARGET_SHARE:.0%} of the way from random play to the median final "
            "return of the fp32 reference runs.",
            "The controller starts from pre-training on random analytic games charged from the "
            "same latency profile, which costs no inner run.",
        ],
    }
