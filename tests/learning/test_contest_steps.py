"""The steps of a contest on tiny inner runs: budgets are kept to, and nothing is chosen by luck."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.env.instances import Instance
from studies.contest.budget import CONTEST, SMALL_ACTIONS, TUNE_SEEDS, VALIDATE_SEEDS
from studies.contest.costs import StepCosts
from studies.contest.entrants import EACH, Entrant, fp32, primary_names, tuned_entrants
from studies.contest.plan import NEW_GAME, TRAINED
from studies.contest.rivals import trained_rivals
from studies.contest.study import Study, strategy_job
from studies.contest.training import first, replay_entrant, train_all
from studies.contest.variants import CONTROLLER, VARIANTS
from studies.jobs.executor import Job, Outcome, R
from studies.jobs.inner import InstanceJob
from studies.jobs.local import LocalExecutor
from studies.progress import Advance, silent
from tests.fixtures.runs.inner_runs import fast_profile

pytestmark = pytest.mark.slow  # the tiny study of CI takes the same steps

BUDGET = replace(
    CONTEST["tiny"],
    trained=(("catch", "fast"), ("cartpole", "fast")),
    held_out=(("acrobot", "fast"),),
    actions=SMALL_ACTIONS,
    entrants=("static", "kl-threshold", "sw-ucb"),
    inner_runs=24,
    instance_runs=2,
    tune_seeds=1,
    validate_seeds=2,
    finalists=2,
    pretrain_iterations=1,
)


def instance(game: str, group: str) -> Instance:
    random, reference = {
        "catch": (-0.6, 0.9),
        "cartpole": (20.0, 30.0),
        "acrobot": (-500.0, -100.0),
    }[game]
    return Instance(
        game=game,
        profile="fast",
        horizon_seconds=0.06,
        interval_seconds=0.02,
        random_return=random,
        reference_return=reference,
        target_return=reference,
        limit="actors",
        group=group,
        latency=fast_profile(num_actors=1),
    )


class Recorded(LocalExecutor):
    """Keeps the seeds of the runs that it was asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[int] = []

    def map(self, jobs: Sequence[Job[R]], on_done: Advance = silent) -> list[Outcome[R]]:
        self.asked += [job.seed for job in jobs if isinstance(job, InstanceJob)]
        return super().map(jobs, on_done)


def asked(study: Study) -> list[int]:
    assert isinstance(study.executor, Recorded)
    return study.executor.asked


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    out = tmp_path_factory.mktemp("contest")
    instances = [
        instance("catch", TRAINED),
        instance("cartpole", TRAINED),
        instance("acrobot", NEW_GAME),
    ]
    profiles = {"fast": fast_profile(num_actors=1)}
    with Recorded(out, 1) as executor:
        yield Study(out, BUDGET, 0, profiles, instances, executor, StepCosts(out))


@pytest.fixture(scope="module")
def tuned(study: Study) -> list[Entrant]:
    return tuned_entrants(study)


def test_every_search_for_all_instances_spends_the_same(tuned: list[Entrant]) -> None:
    for item in tuned:
        finalists = BUDGET.finalists * 2 if item.scope != EACH else 3
        assert item.validation_runs in {
            finalists * BUDGET.validate_seeds,
            2 * BUDGET.validate_seeds,
        }
    spent = {item.name: item.inner_runs for item in tuned if item.scope != EACH}
    assert set(spent) == {"static", "kl_threshold", "sw_ucb"}
    assert spent["kl_threshold"] == spent["sw_ucb"] == BUDGET.inner_runs
    finalists = 2 * BUDGET.finalists * BUDGET.validate_seeds
    assert spent["static"] == 2 * len(SMALL_ACTIONS.all_specs) + finalists  # the whole grid


def test_a_set_of_its_own_is_tuned_for_every_instance(tuned: list[Entrant]) -> None:
    each = {item.name: item for item in tuned if item.scope == EACH}
    assert set(each) == {"static_each", "rule_each"}
    for item in each.values():
        assert set(item.by_instance) == {"catch-fast", "cartpole-fast", "acrobot-fast"}
        assert item.strategy("acrobot-fast")["label"] == item.name
    assert all(item.primary for item in tuned)
    assert len([fp32(), *tuned]) == len(primary_names(replace(BUDGET, variants=())))


def test_indicators_get_no_more_runs_than_what_is_tuned(study: Study, tuned: list[Entrant]) -> None:
    assert set(asked(study)) <= {*TUNE_SEEDS, *VALIDATE_SEEDS}  # all searches are over
    assert tuned
    before = len(asked(study))
    variants = [CONTROLLER, *(VARIANTS[n] for n in ("evolution", "recurrent", "untrained"))]
    trained = train_all(study, variants)
    seeds = asked(study)[before:]
    assert {item.entrant.name for item in trained} == {variant.name for variant in variants}
    for item in trained:
        assert item.entrant.cpu_seconds > 0.0
        assert item.entrant.inner_runs <= BUDGET.inner_runs
        json.dumps(item.checks, allow_nan=False)  # of too few seeds there is no interval
        names = {row["candidate"] for row in item.checks}
        assert item.entrant.params["accepted"] in {"the rule that training starts from", *names}
    assert len(seeds) == sum(item.entrant.inner_runs for item in trained)
    controller, evolved, recurrent, untrained = trained
    for item in (controller, evolved, recurrent):
        assert len(item.checks) == 2
        assert item.entrant.inner_runs > BUDGET.inner_runs - 8
        assert item.history[0]["tier"] == "analytic"
        assert item.history[-1]["tier"] == "virtual"
        assert np.isfinite(item.history[-1]["gain"])
    assert recurrent.entrant.description["name"] == "recurrent"
    assert untrained.entrant.inner_runs == 2 * BUDGET.validate_seeds
    cut = first(study, VARIANTS["no_kl"]).to_json()
    assert not cut["params"]["settings"]["uses_kl"]
    again = train_all(study, variants[:1])[0]  # from kept runs
    assert again.indicator.to_json() == controller.indicator.to_json()
    assert again.checks == controller.checks
    replayed = replay_entrant(study, controller)
    assert len(replayed.description["points"]) == 3


def test_a_rival_gets_no_more_runs_and_enters(study: Study) -> None:
    budget = replace(BUDGET, inner_runs=36, rivals=("ppo",))
    before = len(asked(study))
    (rival,) = trained_rivals(replace(study, budget=budget))
    assert len(asked(study)) == before  # its runs follow each other in one job
    assert (rival.name, rival.kind, rival.primary) == ("ppo", "rival", False)
    assert 30 <= rival.inner_runs <= budget.inner_runs
    assert np.isfinite(rival.score)
    acrobot = study.instances[-1]
    job = strategy_job(acrobot, 0, rival.strategy(acrobot.name))
    assert len(job.run().decisions) == acrobot.num_intervals


def test_what_was_tuned_is_kept(study: Study, tuned: list[Entrant]) -> None:
    assert [item.to_json() for item in tuned_entrants(study)] == [item.to_json() for item in tuned]
