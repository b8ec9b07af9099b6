"""Entrants that other packages train: PPO of Stable-Baselines3, with as many inner runs."""

from __future__ import annotations

from controller.comparators.ppo import check_installed
from controller.env.instances import SPLITS
from studies.contest.budget import Budget
from studies.contest.entrants import ALL, Entrant
from studies.contest.study import Study
from studies.jobs.rivals import PPOJob
from studies.progress import bar, console

PPO = "ppo"
RIVAL = "rival"
"""kind of what is trained by others' means"""


def check_rivals(budget: Budget) -> None:
    """Refuse a budget whose rivals cannot be trained here, before anything is run.

    Raises:
        UserError: with what to install.
    """
    if PPO in budget.rivals:
        check_installed()


def trained_rivals(study: Study) -> list[Entrant]:
    """Train the rivals that the budget names."""
    return [_ppo(study)] if PPO in study.budget.rivals else []


def _ppo(study: Study) -> Entrant:
    """Train PPO on the seeds, and check it on the runs, that the controller is trained by."""
    job = PPOJob(
        instances=tuple(study.trained),
        specs=study.budget.actions.all_specs,
        seeds=tuple(SPLITS["train"].seeds),
        validation=tuple((item, seed) for item in study.trained for seed in study.validate_seeds),
        inner_runs=study.budget.inner_runs,
        seed=study.seed,
    )
    with study.costs.step(PPO), bar("PPO of Stable-Baselines3", 1) as advance:
        (result,) = study.run([job], advance)
    best = max(result.gains)
    runs = result.inner_runs + result.validation_runs
    console.print(f"  PPO: {runs} inner runs; best of {len(result.gains)} checks: {best:.3f}")
    return Entrant(
        name=PPO,
        label="PPO (Stable-Baselines3)",
        kind=RIVAL,
        scope=ALL,
        description=result.strategy.to_json(),
        inner_runs=runs,
        validation_runs=result.validation_runs,
        cpu_seconds=study.costs[PPO],
        params={"checked": list(result.gains)},
        score=best,
    )
