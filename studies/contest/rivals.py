"""Entrants that other packages train: PPO of Stable-Baselines3, with as many runs on each tier."""

from __future__ import annotations

from importlib import import_module

from controller.comparators.ppo import check_installed
from controller.env.instances import SPLITS
from controller.training.gradient import GradientConfig
from studies.contest.budget import Budget
from studies.contest.entrants import ALL, BANDITS, Entrant
from studies.contest.study import UNIT_RUNS, Study
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
        import_module("controller.comparators.sb3_training")  # now: not after hours


def simulated_runs(budget: Budget) -> int:
    """Return the runs of tier 0 that PPO is trained on first: as many as the controller plays."""
    each = GradientConfig(instances=budget.pretrain_instances).episodes
    return budget.pretrain_iterations * each


def rival_notes(budget: Budget) -> list[str]:
    """Return what rivals are given, as the report says it."""
    notes = []
    if PPO in budget.rivals:
        notes.append(
            f"PPO of Stable-Baselines3 sees the monitor's features, and no latency profile. It is "
            f"trained on {simulated_runs(budget):,} drawn runs first, as many as the indicator, "
            "and then on real learning; the best of its checks on the validation seeds is entered."
        )
    if any(name in BANDITS for name in budget.entrants):
        notes.append(
            "Bandits know nothing before a run. They learn from J, which is measured in every "
            "interval, and hold a spec until it was."
        )
    return notes


def trained_rivals(study: Study) -> list[Entrant]:
    """Train the rivals that the budget names."""
    return [_ppo(study)] if PPO in study.budget.rivals else []


def _ppo(study: Study) -> Entrant:
    """Train PPO on the seeds, and check it on the runs, that the controller is trained by.

    The runs without compression that its reward is divided by are among its inner runs.
    """
    units = min(study.budget.reference_runs, UNIT_RUNS) * len(study.trained)
    job = PPOJob(
        instances=tuple(study.trained),
        specs=study.budget.actions.all_specs,
        seeds=tuple(SPLITS["train"].seeds),
        validation=tuple((item, seed) for item in study.trained for seed in study.validate_seeds),
        inner_runs=study.budget.inner_runs - units,
        seed=study.seed,
        simulated_runs=simulated_runs(study.budget),
        keeps_pace=study.budget.keeps_pace,
    )
    with study.costs.step(PPO), bar("PPO of Stable-Baselines3", 1) as advance:
        (result,) = study.run([job], advance)
    best = max(result.scores)
    runs = units + result.inner_runs + result.validation_runs
    console.print(f"  PPO: {runs} inner runs; best of {len(result.scores)} checks: {best:.3f}")
    return Entrant(
        name=PPO,
        label="PPO (Stable-Baselines3)",
        kind=RIVAL,
        scope=ALL,
        description=result.strategy.to_json(),
        inner_runs=runs,
        validation_runs=result.validation_runs,
        cpu_seconds=study.costs[PPO],
        params={"checked": list(result.scores)},
        score=best,
    )
