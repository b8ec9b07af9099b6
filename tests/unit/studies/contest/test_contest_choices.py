"""What a contest chooses by: which machine is meant, what a candidate must show, and its units."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.runtime.latency.profiles import load_profile, save_profile
from accerl.spec import CompressionSpec
from controller.env.instances import Instance
from controller.indicator.strategy import IndicatorSettings
from controller.indicator.trainable import Trainable
from controller.objective import default_beta, gain_ratio, reward
from studies.contest import entrants
from studies.contest import run as contest
from studies.contest import training as meta
from studies.contest.budget import CONTEST, FP32, TEST_SEEDS
from studies.contest.run import run_contest
from studies.contest.tuning.guesses import guesses
from studies.contest.tuning.search import Tuned
from studies.contest.tuning.spaces import SearchSpace
from studies.contest.variants import CONTROLLER
from studies.jobs.inner import StrategyResult, score
from studies.jobs.meta_training import TrainedPolicy, first_indicator
from studies.options import StudyOptions

INSTANCES = [
    Instance(
        game="catch",
        profile=profile,
        horizon_seconds=12.0,
        interval_seconds=1.0,
        random_return=0.0,
        reference_return=1.0,
    )
    for profile in ("edge", "two-core")
]


def played(gain: float) -> StrategyResult:
    """Return a run of 12 seconds that gains so much in its first second, and nothing after."""
    level = gain * math.exp(default_beta(12.0))
    return StrategyResult(
        times=(0.0, 1.0, 12.0), returns=(0.0, level, level), decisions=(), env_steps=(0,)
    )


def test_real_learning_is_rewarded_as_tier_0_is() -> None:
    """Against the run without compression that has the same dice, not against their mean."""
    alone = {"edge": 0.3, "two-core": 0.02}
    gains = [0.45, 0.27, 0.05, 0.01]

    class Runs:
        def run(self, jobs: Sequence[Any], on_done: Any) -> list[StrategyResult]:
            assert [job.strategy == FP32 for job in jobs] == [True] * 2 + [False] * 4
            return [played(gain) for gain in (*alone.values(), *gains)]

    study: Any = Runs()
    indicator = first_indicator(IndicatorSettings(specs=(CompressionSpec(bits=8),)), 0)
    instances = [item for item in INSTANCES for _ in range(2)]
    states = [indicator.policy.to_json()] * 4
    found = meta._rewards(study, indicator, instances, states, 3, lambda: None)
    least = [alone[item.profile] for item in instances]
    expected = [reward(gain_ratio(*pair)) for pair in zip(gains, least, strict=True)]
    assert found == pytest.approx(expected)
    assert found[1] < 3.0 * math.log(0.37 / 0.4)  # losing against no compression is punished


@pytest.mark.parametrize(("gain", "goes_on_from"), [(0.1, "tier 0"), (-0.1, "the rule")])
def test_real_learning_goes_on_from_what_validation_held_to_be_better(
    gain: float, goes_on_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, Any]] = []

    def go_on(_study: Any, _variant: Any, indicator: Trainable, runs: int) -> list[dict[str, Any]]:
        begun.append(indicator.policy.to_json())
        assert runs == 100 - 3 * 4  # the start's and tier 0's checks, and the one at the end
        return []

    def run(self: Any, _candidate: Trainable) -> tuple[np.ndarray, dict[str, Any]]:
        self.runs += len(self.places)
        return next(values), {}

    values = iter([np.zeros(4), np.full(4, gain)])
    monkeypatch.setattr(meta._Checker, "_run", run)
    monkeypatch.setattr(meta, "_policy_gradient", go_on)

    class Stub:
        seed = 0
        trained = INSTANCES
        validate_seeds = (50, 51)
        budget = replace(CONTEST["tiny"], inner_runs=100)

    study: Any = Stub()
    rule = meta.first(study, CONTROLLER).policy.to_json()
    other = first_indicator(IndicatorSettings(specs=(CompressionSpec(bits=8),)), 1)
    trained = other.policy.to_json()
    assert trained != rule
    found = meta._train(study, CONTROLLER, TrainedPolicy(policy=trained, history=()))
    assert begun == [trained if goes_on_from == "tier 0" else rule]
    assert found.indicator.policy.to_json() == begun[0]


class PlanWrittenError(Exception):
    """Ends a contest before its first run."""


def planned(out: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """Begin a contest; return its plan."""

    def stop(*_: Any, **__: Any) -> None:
        raise PlanWrittenError

    monkeypatch.setattr(contest, "add_references", stop)
    with pytest.raises(PlanWrittenError):
        run_contest(out, StudyOptions(**options))
    return read_json(out / "plan.json")["plan"]


def test_without_a_rival_s_package_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.comparators.ppo.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install stable-baselines3"):
        run_contest(tmp_path / "out", StudyOptions(budget="default"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_a_game_s_package_nothing_is_begun(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['Box2D'] = None\n"
        "from studies.cli.main import main\n"
        "main(['study', 'run', 'contest', '--budget', 'short', '--out', sys.argv[1]])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100.0)
    assert done.returncode == 2
    assert done.stderr.endswith("run `pip install 'gymnasium[box2d]'`\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["a file", "an old name"])
def test_a_machine_goes_by_the_name_of_its_profile(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, name = "paper", "paper-1080ti"
    if how == "a file":
        given, name = str(tmp_path / "other.json"), "mine"
        save_profile(replace(load_profile("edge"), name=name), Path(given))
    plan = planned(tmp_path / "out", monkeypatch, budget="tiny", profile=given)
    assert {item["profile"] for item in plan["instances"]} == {name}
    assert {item["game"] for item in plan["instances"]} == {"catch"}


def test_a_plan_that_is_refused_leaves_the_machines_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, given = load_profile("edge"), str(tmp_path / "mine.json")
    save_profile(replace(edge, name="mine"), Path(given))
    planned(tmp_path / "out", monkeypatch, budget="tiny", profile=given)
    saved = tmp_path / "out" / "profiles" / "mine.json"
    before = saved.read_text()
    save_profile(replace(edge, name="mine", env_step_us=2.0 * edge.env_step_us), Path(given))
    with pytest.raises(UserError, match="another plan"):
        run_contest(tmp_path / "out", StudyOptions(budget="tiny", profile=given))
    assert saved.read_text() == before


def test_a_contest_on_one_machine_is_no_contest_proper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path / "out", monkeypatch, budget="default", profile="edge")
    assert (
        plan["rule"] == "Every pair of a trained game and a trained machine; nothing is held out."
    )
    assert "never saw" not in plan["question"]
    assert len(plan["seeds"]["test"]) == 28
    assert not set(plan["seeds"]["test"]) & set(TEST_SEEDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "paper-1080"}, "did you mean 'paper-1080ti'"),
        ({"seed": -1}, "--seed must lie between 0 and 4294967295, got -1"),
        ({"seed": 2**32}, "--seed must lie between"),
    ],
)
def test_a_mistake_claims_no_folder(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        run_contest(tmp_path / "out", StudyOptions(budget="tiny", **options))
    assert not (tmp_path / "out").exists()


def test_searches_go_by_what_is_judged() -> None:
    def run(*returns: float) -> StrategyResult:
        times = tuple(12.0 * place / (len(returns) - 1) for place in range(len(returns)))
        return StrategyResult(times=times, returns=returns, decisions=(), env_steps=(0,))

    soon, late = run(0.0, 1.0, 1.0, 1.0, 1.0), run(0.0, 0.0, 0.0, 1.0, 1.0)
    game = INSTANCES[0]
    for result in (soon, late):
        seconds = result.seconds_to_target(game).seconds
        assert score(game, result) == pytest.approx(math.log(12.0 / seconds))
    # Where none arrives the horizon is what is judged; who is nearer to the target is better.
    near, far, away = run(0.0, 0.75, 0.75), run(0.0, 0.5, 0.5), run(0.0, -3.0, -3.0)
    assert score(game, near) == pytest.approx(-math.log(1.25))
    assert score(game, far) == pytest.approx(-math.log(1.5))
    assert score(game, away) == pytest.approx(-math.log(2.0))
    assert score(replace(game, fp32_gain=0.25), soon) == score(game, soon)


@pytest.mark.parametrize(
    ("gains", "accepted"),
    [
        ([0.1, 0.2, 0.1, 0.2, 0.1, 0.2], True),
        ([0.9, 0.9, -0.3, -0.3, -0.1, 0.1], True),  # by one seed: the row says how unsure that is
        ([-0.1, -0.2, -0.1, -0.2, -0.1, -0.2], False),
    ],
)
def test_the_candidate_that_is_best_on_the_validation_seeds_is_entered(
    gains: Sequence[float], accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gains are those of seed 50 on edge and on two-core, then of seeds 51 and 52."""
    values = iter([np.zeros(6), np.array([gains[i] for i in (0, 2, 4, 1, 3, 5)])])
    monkeypatch.setattr(meta._Checker, "_run", lambda *_: (next(values), {}))

    class Stub:
        seed = 0
        trained = INSTANCES
        validate_seeds = (50, 51, 52)

    study: Any = Stub()
    settings = IndicatorSettings(specs=(CompressionSpec(bits=8),))
    begun, other = (first_indicator(settings, seed) for seed in (0, 1))
    checker = meta._Checker(study, CONTROLLER, begun)
    checker.check(other, "another")
    (row,) = checker.rows
    assert row["accepted"] == accepted
    assert row["gain"] == pytest.approx(np.mean(gains))
    assert (row["low"] < 0.0) == (gains[2] < 0.0)
    assert (checker.best is begun) != accepted
    started = "the rule that training starts from"
    assert checker.accepted == ("another" if accepted else started)


def test_rules_of_an_instance_begin_with_its_own_best_static_spec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    firsts: dict[str, Any] = {}

    def tune(space: SearchSpace, *_: Any, first: Any, **__: Any) -> Tuned:
        firsts[space.key] = first
        return Tuned(space, ((0.0, {}),), trials=1, inner_runs=1)

    monkeypatch.setattr(entrants, "tune", tune)
    monkeypatch.setattr(entrants, "choose_on_validation", lambda tuned, *_, **__: tuned)
    study: Any = MagicMock(instances=INSTANCES, tune_seeds=(), validate_seeds=(), plan="plan")
    study.budget.instance_runs = 1
    own, net3 = INSTANCES[0].name, CompressionSpec(student="net3")
    entrants.tuned_per_instance(study, ["three-stage"], {own: net3})
    assert [key.partition("@")[2] for key in firsts] == [each.name for each in INSTANCES]
    assert [*firsts.values()] == [guesses("three-stage", net3), []]
