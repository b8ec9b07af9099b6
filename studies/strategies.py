"""Search spaces of the hand-set strategies, and tuning them with Optuna at an equal budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend

from accerl.monitor.strategies import (
    FirstThatFires,
    FixedStrategy,
    KLThresholdStrategy,
    Levels,
    LinearKLMixStrategy,
    RandomStrategy,
    RewardGapStrategy,
    ThreeStageStrategy,
    all_specs,
)

Params = dict[str, Any]


@dataclass(frozen=True)
class SearchSpace:
    """A hand-set strategy and what may be tuned about it."""

    name: str
    """as in `accerl train --strategy`"""
    key: str
    """folder and row name in the study"""
    label: str
    suggest: Callable[[optuna.Trial, Levels], Params]
    grid: bool = False
    """try every static spec instead of sampling"""


STATIC = SearchSpace("fixed", "static", "best static spec", FixedStrategy.suggest, grid=True)
KL_THRESHOLD = SearchSpace(
    "kl-threshold", "kl_threshold", "KL threshold", KLThresholdStrategy.suggest
)
REWARD_GAP = SearchSpace("reward-gap", "reward_gap", "reward gap", RewardGapStrategy.suggest)
SEARCH_SPACES = (STATIC, KL_THRESHOLD, REWARD_GAP)
"""what the quickstart's contest tunes"""
SPACES_BY_NAME = {
    "fixed": STATIC,
    "kl-threshold": KL_THRESHOLD,
    "kl-threshold-dwell": SearchSpace(
        "kl-threshold",
        "kl_threshold_dwell",
        "KL threshold with dwell",
        KLThresholdStrategy.suggest_with_dwell,
    ),
    "reward-gap": REWARD_GAP,
    "reward-gap-dwell": SearchSpace(
        "reward-gap",
        "reward_gap_dwell",
        "reward gap with dwell",
        RewardGapStrategy.suggest_with_dwell,
    ),
    "linear-kl": SearchSpace(
        "linear-kl", "linear_kl", "linear KL mix", LinearKLMixStrategy.suggest
    ),
    "three-stage": SearchSpace(
        "three-stage", "three_stage", "three stages", ThreeStageStrategy.suggest
    ),
    "random": SearchSpace("random", "random", "random specs", RandomStrategy.suggest),
    "first-that-fires": SearchSpace(
        "first-that-fires", "first_that_fires", "first that fires", FirstThatFires.suggest
    ),
}
"""every space that a study can tune: of each strategy its own, of two also a richer one"""


@dataclass(frozen=True)
class Tuned:
    """The best parameters that a search found."""

    space: SearchSpace
    params: Params
    score: float
    trials: int
    inner_runs: int

    @property
    def strategy(self) -> dict[str, Any]:
        """The description that inner runs are given."""
        return {"name": self.space.name, "params": self.params, "label": self.space.key}


def tune(
    space: SearchSpace,
    actions: Levels,
    evaluate: Callable[[dict[str, Any]], tuple[float, int]],
    *,
    trials: int,
    out: Path,
    seed: int,
) -> Tuned:
    """Search `space` with `trials` trials, or return what an earlier search found.

    Args:
        space: what to tune.
        actions: the specs to choose from.
        evaluate: strategy description -> (score to maximise, inner runs it took).
        trials: how many parameter sets are tried.
        out: folder of the study; the journal and tuning.jsonl are kept there.
        seed: of the sampler.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    specs = len(all_specs(actions))
    sampler: optuna.samplers.BaseSampler
    if space.grid:
        sampler = optuna.samplers.GridSampler({"spec": list(range(specs))}, seed=seed)
        trials = min(trials, specs)
    else:
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(4, trials // 3))
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(out / "optuna.journal")))
    study = _whole_or_new(space.key, storage, sampler, trials)
    if not study.trials:
        (out / "tuning.jsonl").write_text(_rows_of_others(out / "tuning.jsonl", space.key))
    finished = (optuna.trial.TrialState.COMPLETE,)

    def objective(trial: optuna.Trial) -> float:
        params = space.suggest(trial, actions)
        score, inner_runs = evaluate({"name": space.name, "params": params, "label": space.key})
        trial.set_user_attr("params", params)
        trial.set_user_attr("inner_runs", inner_runs)
        row = {
            "strategy": space.key,
            "trial": trial.number,
            "params": params,
            "score": score,
            "inner_runs": inner_runs,
        }
        with (out / "tuning.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        return score

    if not study.trials:
        study.optimize(objective, n_trials=trials)
    best = study.best_trial
    done = study.get_trials(deepcopy=False, states=finished)
    return Tuned(
        space=space,
        params=best.user_attrs["params"],
        score=float(best.values[0]),
        trials=len(done),
        inner_runs=sum(trial.user_attrs["inner_runs"] for trial in done),
    )


def _whole_or_new(
    name: str, storage: optuna.storages.JournalStorage, sampler: Any, trials: int
) -> optuna.Study:
    """Load a search that had finished; one that was cut short starts again.

    A restarted sampler would repeat its first proposals and skip what was running when it died.
    Starting again costs little, because inner runs that were done are kept, and ends the same.
    """
    if name in optuna.study.get_all_study_names(storage):
        study = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
        complete = [t for t in study.trials if t.state is optuna.trial.TrialState.COMPLETE]
        if len(complete) == trials:
            return study
        optuna.delete_study(study_name=name, storage=storage)
    return optuna.create_study(
        study_name=name, storage=storage, sampler=sampler, direction="maximize"
    )


def _rows_of_others(path: Path, key: str) -> str:
    """Return the lines of tuning.jsonl that belong to other searches."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return "".join(f"{line}\n" for line in lines if json.loads(line)["strategy"] != key)
