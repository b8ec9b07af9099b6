"""Tuning strategies with Optuna: equal budgets of inner runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from accerl.errors import UserError
from accerl.monitor.strategies import Levels, all_specs
from accerl.precision import AUTO, choose_precision
from accerl.records import json_hash, write_bytes
from accerl.seeds import Role, generator, stream
from analysis.records.load import read_rows
from controller.bundle.meta import code_revision
from studies.contest.costs import StepCosts
from studies.contest.tuning.guesses import Guess
from studies.contest.tuning.spaces import Params, SearchSpace
from studies.progress import Advance, silent
from studies.storage import JOURNAL, open_storage

UNPRUNED = 6
"""instances that every parameter set is tried on before it may be pruned"""
BATCH = 2
"""instances between two tests, after the first"""


@dataclass(frozen=True)
class Tuned:
    """What a search found, and what it spent."""

    space: SearchSpace
    candidates: tuple[tuple[float, Params], ...]
    """mean score and parameters of the sets that were run on every instance, the best first"""
    trials: int
    """parameter sets that were tried, also those that were given up before the last instance"""
    inner_runs: int

    @property
    def params(self) -> Params:
        """The best parameters."""
        return self.candidates[0][1]

    @property
    def score(self) -> float:
        """Their mean score."""
        return self.candidates[0][0]

    @property
    def strategy(self) -> dict[str, Any]:
        """The description that inner runs are given."""
        return self.space.describe(self.params)

    def top(self, count: int) -> list[Params]:
        """Return the best parameters, at most `count` sets of them, the best first."""
        return [params for _, params in self.candidates[:count]]


Evaluate = Callable[[dict[str, Any], Sequence[int]], Sequence[float]]
"""strategy description, numbers of instances -> a score to maximise for each: an inner run each"""


def tune(
    space: SearchSpace,
    actions: Levels,
    evaluate: Evaluate,
    *,
    instances: int,
    runs: int,
    out: Path,
    seed: int,
    plan: str = "",
    storage: BaseStorage | None = None,
    costs: StepCosts | None = None,
    on_replayed: Advance = silent,
    first: Sequence[Guess] = (),
) -> Tuned:
    """Search `space` until `runs` inner runs are spent; trials that had ended are not made again.

    Parameters are tried on `UNPRUNED` instances at once, then on a few at a time, in an order that
    is shuffled once. Wilcoxon's signed-rank test against the best so far, paired by instance, gives
    up those that are worse with p < 0.1, which leaves runs to more trials; a grid is not pruned.
    Only what was run on every instance can win. What was pruned tells the sampler its mean so far.
    Optuna gets differences from the first trial's scores: instances differ more than sets do.

    Args:
        space: what to tune.
        actions: the specs to choose from.
        evaluate: makes inner runs; equal ones must score alike: a trial cut short is made again.
        instances: how many there are, such as pairs of game and seed.
        runs: inner runs to spend; the last trial may be left without some of its instances. A grid
            is always tried as a whole: a best of half of it would be a weak comparator.
        out: folder of the study; gets tuning.jsonl.
        seed: of the sampler and of the order of instances.
        plan: hash of what the scores depend on besides: searches of other plans are others.
        storage: where ended trials are saved; None: `JOURNAL` in `out`.
        costs: gets what trials had cost that are not made again.
        on_replayed: called with their inner runs.
        first: what is tried before the sampler proposes anything.

    Raises:
        UserError: not even one parameter set could be tried.
    """
    runs = _enough(space, actions, instances=instances, runs=runs)
    study = _search(space, actions, seed, trials=runs // instances, first=first)
    settings = {"plan": plan, "instances": instances, "runs": runs, "seed": seed, "batch": BATCH}
    name = _search_name(space, {**settings, "first": [dict(guess) for guess in first]})
    ended = _EndedTrials(name, storage or open_storage(str(out / JOURNAL)))
    order = generator(seed, Role.TUNING, 0).permutation(instances).tolist()
    rows = out / "tuning.jsonl"
    write_bytes(rows, _rows_of_others(rows, space.key).encode())
    spent = 0
    usual: dict[int, float] = {}  # by instance, the first trial's

    def objective(trial: optuna.Trial) -> float:
        nonlocal spent
        params = space.suggest(trial, actions)
        batches = _batches(order[: runs - spent], instances if space.grid else UNPRUNED, BATCH)
        before, found = 0.0 if costs is None else costs.spent, ended.find(trial.number, params)
        make = partial(evaluate, space.describe(params)) if found is None else found.scores
        scores = _try(trial, batches, make, usual)
        if found is not None:
            on_replayed(len(scores), replayed=True)
            if costs is not None:
                costs.note(f"{ended.name} {trial.number}", found.cpu_seconds)
        spent += len(scores)
        if spent == runs:
            study.stop()
        kept = {"params": params, "inner_runs": len(scores), "complete": len(scores) == instances}
        cpu_seconds = 0.0 if costs is None else costs.spent - before
        for name, value in {**kept, "scores": scores, "cpu_seconds": cpu_seconds}.items():
            trial.set_user_attr(name, value)
        mean = float(np.mean(scores))
        trial.set_user_attr("mean", mean)
        _add_row(rows, {"strategy": space.key, "trial": trial.number, **kept, "mean": mean})
        return mean - float(np.mean([usual[number] for number in order[: len(scores)]]))

    study.optimize(
        objective,
        n_trials=len(all_specs(actions)) if space.grid else None,
        callbacks=[lambda _, trial: ended.save(trial)],
    )
    return _tuned(space, study.get_trials(deepcopy=False))


class _Ended:
    """A trial that was made, here or by another driver."""

    def __init__(self, trial: FrozenTrial) -> None:
        self.params: Params = trial.user_attrs["params"]
        self.cpu_seconds: float = trial.user_attrs["cpu_seconds"]
        self._scores = iter(trial.user_attrs["scores"])

    def scores(self, numbers: Sequence[int]) -> list[float]:
        """Return the scores on the next instances."""
        return [next(self._scores) for _ in numbers]


class _EndedTrials:
    """The trials of a search that have ended, in a storage that drivers share.

    A sampler that is given them would not go on as the one that proposed them. So every driver
    samples anew, from the first trial on, and finds here what was made of its proposals: they are
    the same for all drivers, as each depends on the seed and on the scores before it alone.

    Drivers that work side by side may be making one trial at the same moment. Both then save the
    same scores under the same number, of which the last that is read counts: that costs time, and
    changes nothing.
    """

    def __init__(self, name: str, storage: BaseStorage) -> None:
        self.name = name
        self._study = optuna.create_study(
            study_name=name, storage=storage, direction="maximize", load_if_exists=True
        )
        self._known: dict[int, FrozenTrial] = {}

    def find(self, number: int, params: Params) -> _Ended | None:
        """Return a trial, if it has ended, here or elsewhere."""
        if number not in self._known:
            # Two drivers may have made one trial at once; their scores are equal.
            trials = self._study.get_trials(deepcopy=False)
            self._known = {trial.user_attrs["number"]: trial for trial in trials}
        trial = self._known.get(number)
        return None if trial is None or trial.user_attrs["params"] != params else _Ended(trial)

    def save(self, trial: FrozenTrial) -> None:
        """Save a trial that has ended."""
        if self.find(trial.number, trial.user_attrs["params"]) is None:
            trial.set_user_attr("number", trial.number)
            self._study.add_trial(trial)


def _enough(space: SearchSpace, actions: Levels, *, instances: int, runs: int) -> int:
    """Return the inner runs to spend, with which a grid is tried as a whole.

    Raises:
        UserError: they are too few for one parameter set.
    """
    if space.grid:
        runs = max(runs, instances * len(all_specs(actions)))
    if runs < instances:
        raise UserError(
            f"tuning {space.key}: {runs} inner runs are too few for one parameter set on "
            f"{instances} instances; give it at least {instances}"
        )
    return runs


def _try(
    trial: optuna.Trial,
    batches: Iterable[Sequence[int]],
    evaluate: Callable[[Sequence[int]], Sequence[float]],
    usual: dict[int, float],
) -> list[float]:
    """Return a strategy's scores on instances, batch by batch, until the pruner stops it.

    Args:
        trial: is told by how much they are above the usual ones.
        batches: numbers of instances.
        evaluate: makes their inner runs.
        usual: scores by instance; gets those that it has not.
    """
    scores: list[float] = []
    for batch in batches:
        for number, value in zip(batch, evaluate(batch), strict=True):
            trial.report(value - usual.setdefault(number, float(value)), number)
            scores.append(float(value))
        if trial.should_prune():
            break
    return scores


def _batches(numbers: Sequence[int], first: int, size: int) -> Iterator[Sequence[int]]:
    """Yield the first `first` numbers, then `size` at a time."""
    yield numbers[:first]
    for place in range(first, len(numbers), size):
        yield numbers[place : place + size]


def choose_on_validation(
    tuned: Tuned, evaluate: Evaluate, *, instances: int, count: int = 5
) -> Tuned:
    """Return a search's best `count` candidates, scored and ranked anew on other instances.

    The best of many noisy scores is often a lucky one; seeds that it was not chosen on tell.

    Args:
        tuned: the search; `candidates` of the result have their validation scores.
        evaluate: makes the inner runs of validation.
        instances: how many of them each candidate is given.
        count: of candidates.
    """
    numbers = range(instances)
    scored = [
        (float(np.mean(evaluate(tuned.space.describe(params), numbers))), params)
        for params in tuned.top(count)
    ]
    ranked = sorted(scored, key=lambda item: -item[0])  # equals stay as tuning had them
    return replace(tuned, candidates=tuple(ranked))


def _tuned(space: SearchSpace, trials: Sequence[FrozenTrial]) -> Tuned:
    """Return what a search has found."""
    return Tuned(
        space=space,
        candidates=_ranked(trial for trial in trials if trial.user_attrs["complete"]),
        trials=len(trials),
        inner_runs=sum(trial.user_attrs["inner_runs"] for trial in trials),
    )


def _ranked(trials: Iterable[FrozenTrial]) -> tuple[tuple[float, Params], ...]:
    """Return the scores and parameters of trials, the best first, and no parameters twice."""
    best: dict[str, tuple[float, Params]] = {}
    for trial in sorted(trials, key=lambda trial: (-trial.user_attrs["mean"], trial.number)):
        params, mean = trial.user_attrs["params"], trial.user_attrs["mean"]
        best.setdefault(json.dumps(params, sort_keys=True), (mean, params))
    return tuple(best.values())


def _search_name(space: SearchSpace, settings: Mapping[str, Any]) -> str:
    """Return a name that a search shares only with those whose scores are comparable.

    Scores are those of this code, in the precision that `auto` means on this machine; what is
    tried next, and when a trial is given up, is up to Optuna.
    """
    made_by = {
        "revision": code_revision(),
        "precision": choose_precision(AUTO),
        "optuna": optuna.__version__,
    }
    return f"{space.key} {json_hash({**settings, **made_by})[:12]}"


def _search(
    space: SearchSpace, actions: Levels, seed: int, *, trials: int, first: Sequence[Guess]
) -> optuna.Study:
    """Return a new search, in memory, that prints no trials and begins with guesses."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # an interruption is no warning
    seed = int(stream(seed, Role.TUNING, 1).generate_state(1)[0])  # 32 bits
    sampler: optuna.samplers.BaseSampler
    pruner: optuna.pruners.BasePruner
    if space.grid:
        specs = len(all_specs(actions))
        sampler = optuna.samplers.GridSampler({"spec": list(range(specs))}, seed=seed)
        pruner = optuna.pruners.NopPruner()
    else:
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(4, trials // 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            pruner = optuna.pruners.WilcoxonPruner(p_threshold=0.1, n_startup_steps=UNPRUNED)
    study = optuna.create_study(sampler=sampler, pruner=pruner, direction="maximize")
    for guess in first:
        study.enqueue_trial(dict(guess))
    return study


def _add_row(path: Path, row: dict[str, Any]) -> None:
    """Add a trial to tuning.jsonl; only whole ones may be compared by their score."""
    with path.open("a") as file:
        score = row["mean"] if row["complete"] else None
        file.write(json.dumps({**row, "score": score}) + "\n")


def _rows_of_others(path: Path, key: str) -> str:
    """Return the lines of tuning.jsonl that belong to other searches, as far as they are whole."""
    rows = read_rows(path) if path.is_file() else []
    return "".join(json.dumps(row) + "\n" for row in rows if row["strategy"] != key)
