"""A study's games: on which machines they are played, for how long, and what is a good score."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.runtime.latency import LatencyProfile
from accerl.runtime.measure import measure_profile
from accerl.runtime.profiles import PAPER, load_profile, paper_profile, save_profile
from accerl.spec import STUDENTS, CompressionSpec
from controller.instances import choose_horizon
from controller.objective import default_beta, discounted_gain
from controller.references import random_return as measure_random_return
from studies.budget import (
    ACTIONS,
    FP32,
    TARGET_SHARE,
    TEST_SEEDS,
    TUNE_SEEDS,
    VALIDATE_SEEDS,
    Budget,
)
from studies.inner import GameSetup, InnerRuns, strategy_job
from studies.progress import bar, console, share_bar


@dataclass
class Study:
    """What the steps hand to each other."""

    out: Path
    budget: Budget
    seed: int
    profiles: dict[str, LatencyProfile]
    games: list[GameSetup]
    runs: InnerRuns

    @property
    def inner_runs(self) -> int:
        """Inner runs that every tuned strategy gets, and the controller too."""
        return self.budget.trials * self.budget.tune_seeds * len(self.games)

    @property
    def tune_seeds(self) -> list[int]:
        """Seeds of tuning and meta-training, the same for all."""
        return list(TUNE_SEEDS)[: self.budget.tune_seeds]

    @property
    def test_seeds(self) -> list[int]:
        """Seeds that nothing was chosen on."""
        return list(TEST_SEEDS)[: self.budget.test_seeds]

    def profile(self, setup: GameSetup) -> LatencyProfile:
        """The latencies that a game's seconds are charged from."""
        return self.profiles[setup.profile]

    def job(
        self, setup: GameSetup, seed: int, strategy: dict[str, Any], out: Path | None = None
    ) -> dict[str, Any]:
        """Return the inner run of a strategy on one game and seed."""
        return strategy_job(setup, seed, strategy, self.profile(setup), out)


def find_profiles(out: Path, budget: Budget, name: str) -> dict[str, LatencyProfile]:
    """Return the machines to play on: the named profile, or this machine and the paper's.

    Here the learner shares the cores with the actors and is often the bottleneck; on the paper's
    server actors are. What compression is worth differs, so a controller must tell them apart.
    """
    if name:
        alone = load_profile(name)
        save_profile(alone, out / "profile.json")
        return {alone.name: alone}
    path = out / "profile.json"
    if not path.is_file():
        with share_bar("latency profile") as on_progress:
            measured = measure_profile(
                specs=_needed_specs(),
                batches=sorted({load_preset(game).runtime.num_envs for game in budget.env_steps}),
                networks=STUDENTS[:1],
                repeats=budget.profile_repeats,
                on_progress=on_progress,
            )
        save_profile(measured, path)
    return {"measured": load_profile(str(path)), PAPER: paper_profile()}


def _needed_specs() -> list[CompressionSpec]:
    """Return what is chosen among, and the students whose times describe a machine on tier 0."""
    students = [CompressionSpec(student=student) for student in STUDENTS]
    return list(dict.fromkeys([*ACTIONS.all_specs, *students]))


def choose_horizons(budget: Budget, profile: LatencyProfile) -> list[GameSetup]:
    """Choose horizons: what the budget's steps take without compression."""
    setups = []
    for game, env_steps in budget.env_steps.items():
        horizon, interval = choose_horizon(load_preset(game), profile, env_steps)
        setups.append(
            GameSetup(
                game=game,
                profile=profile.name,
                horizon_seconds=horizon,
                interval_seconds=interval,
            )
        )
    return setups


def add_references(study: Study) -> list[GameSetup]:
    """Measure what random play and uncompressed training reach."""
    jobs = [
        study.job(setup, seed, FP32)
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
        random_return = measure_random_return(setup.game)
        if not reached > random_return:
            raise UserError(
                f"{setup.name}: fp32 training reached {reached:.3g}, no better than random play "
                f"({random_return:.3g}); use a larger --budget"
            )
        target = random_return + TARGET_SHARE * (reached - random_return)
        console.print(
            f"  {setup.name}: random {random_return:.2f}, fp32 reaches {reached:.2f} in "
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


def score(setup: GameSetup, result: dict[str, Any]) -> float:
    """Return the discounted normalised gain of one run: the controller's own objective."""
    returns = [setup.reference.normalise(value) for value in result["returns"]]
    return discounted_gain(result["times"], returns, default_beta(setup.horizon_seconds))
