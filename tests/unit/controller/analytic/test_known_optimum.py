"""The analytic run keeps the InnerRun contract; its optimum agrees with brute force."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import CompressionSpec, Decision
from controller.actions import ActionSpace
from controller.env.machines import severity
from controller.objective import default_beta
from tests.fixtures.known_optimum.model import (
    AnalyticConfig,
    infer_ms,
    learn,
    mismatch,
    sample_config,
    speed,
)
from tests.fixtures.known_optimum.run import AnalyticRun, optimum, schedule_value

QUIET = AnalyticConfig(return_noise=0.0)
HARD = Decision.of(CompressionSpec(student="net3", sparsity=0.5, bits=8))
MILD = Decision.of(CompressionSpec())


def test_reports_are_complete_and_round_trip_through_json() -> None:
    run = AnalyticRun(AnalyticConfig(), 0)
    run.apply(HARD)
    reports = [run.advance(3.0) for _ in range(4)]
    assert [report.index for report in reports] == [0, 1, 2, 3]
    assert reports[-1].total_seconds == pytest.approx(12.0)
    assert sum(r.env_steps for r in reports) == reports[-1].total_env_steps
    assert sum(r.learner_updates for r in reports) == reports[-1].total_learner_updates > 0
    assert set(reports[0].phase_seconds) == set(PHASES)
    for report in reports:
        assert IntervalReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_compression_is_faster_and_hurts_only_late() -> None:
    early = [learn(QUIET, decision, 0.05, 3.0) for decision in (HARD, MILD)]
    late = [learn(QUIET, decision, 0.9, 3.0) for decision in (HARD, MILD)]
    assert early[0] > early[1]
    assert late[0] < late[1]
    assert speed(QUIET, HARD)[0] > 2.0 * speed(QUIET, MILD)[0]


def test_mismatch_grows_with_compression_and_skill() -> None:
    specs = [CompressionSpec(student=name) for name in ("original", "net1", "net2", "net3")]
    levels = [severity(spec) for spec in specs]
    assert levels[0] == 0.0
    assert levels == sorted(set(levels))
    assert mismatch(QUIET, HARD, 0.2) < mismatch(QUIET, HARD, 0.8)
    assert infer_ms(QUIET, CompressionSpec()) == pytest.approx(6.0)
    assert infer_ms(QUIET, CompressionSpec(bits=8)) < infer_ms(QUIET, CompressionSpec(bits=16))


def test_the_learner_caps_the_speed_and_shows_it() -> None:
    config = replace(QUIET, learner_steps_per_second=500.0)
    run = AnalyticRun(config, 0)
    run.apply(HARD)
    report = run.advance(2.0)
    assert report.env_steps == 1000
    assert report.phase_seconds["wait"] == pytest.approx(0.0)
    assert report.queue_fill == 1.0


def test_only_a_change_of_decision_costs_seconds() -> None:
    run = AnalyticRun(QUIET, 0)
    costs = []
    beside_mild = Decision(MILD.mix, HARD.main)  # measures more, and acts alike
    for decision in (MILD, MILD, HARD, HARD, MILD, beside_mild):
        run.apply(decision)
        costs.append(run.advance(1.0).switch_seconds)
    assert costs == [0.0, 0.0, 0.25, 0.0, 0.25, 0.0]


def test_a_switch_longer_than_the_interval_is_paid_over_several() -> None:
    run = AnalyticRun(replace(QUIET, switch_seconds=1.5), 0)
    run.apply(MILD)
    run.advance(1.0)
    run.apply(HARD)
    reports = [run.advance(1.0) for _ in range(3)]
    assert [report.switch_seconds for report in reports] == [1.0, 0.5, 0.0]
    assert reports[0].env_steps == 0


def test_a_snapshot_continues_bit_exactly() -> None:
    run, copy = AnalyticRun(AnalyticConfig(), 1), AnalyticRun(AnalyticConfig(), 99)
    run.apply(HARD)
    run.advance(3.0)
    run.apply(MILD)
    copy.restore(json.loads(json.dumps(run.snapshot())))
    assert [copy.advance(3.0) for _ in range(3)] == [run.advance(3.0) for _ in range(3)]


def test_noise_is_common_to_all_decisions_of_a_seed() -> None:
    def error(decision: Decision) -> float:
        noisy, exact = AnalyticRun(AnalyticConfig(), 5), AnalyticRun(QUIET, 5)
        for run in (noisy, exact):
            run.apply(decision)
        measured, true = noisy.advance(3.0).learner_return, exact.advance(3.0).learner_return
        assert measured is not None
        assert true is not None
        return measured - true

    assert error(HARD) == pytest.approx(error(MILD))
    assert error(HARD) != 0.0


@pytest.mark.parametrize("switch_seconds", [0.0, 0.3, 1.9])
def test_optimum_equals_brute_force(switch_seconds: float) -> None:
    config = replace(AnalyticConfig(gain_per_step=4e-4), switch_seconds=switch_seconds)
    actions = ActionSpace(bits=(32, 8), sparsities=(0.0,), students=("original", "net3"))
    horizon, interval, beta = 12.0, 2.0, default_beta(12.0)
    value, schedule = optimum(config, actions, horizon, interval, beta)
    brute = max(
        schedule_value(config, actions, candidate, interval, beta)
        for candidate in itertools.product(actions.all_indices(), repeat=6)
    )
    assert value == pytest.approx(brute, rel=1e-4)
    assert value <= brute + 1e-12
    assert schedule_value(config, actions, schedule, interval, beta) == value


def test_the_optimum_has_stages_and_beats_every_static() -> None:
    config, actions, beta = AnalyticConfig(), ActionSpace(), default_beta(60.0)
    value, schedule = optimum(config, actions, 60.0, 3.0, beta)
    static_values = [
        schedule_value(config, actions, [indices] * 20, 3.0, beta)
        for indices in actions.all_indices()
    ]
    assert max(static_values) < 0.92 * value
    assert schedule[0] == (1, 2, 3)
    assert schedule[-1] == (0, 0, 0)
    hardness = [severity(actions.spec(indices)) for indices in schedule]
    assert hardness == sorted(hardness, reverse=True)


def test_the_value_of_a_schedule_is_what_a_noiseless_run_earns() -> None:
    actions, beta = ActionSpace(), default_beta(30.0)
    schedule = [tuple(i) for i in np.random.default_rng(0).integers(actions.sizes, size=(10, 3))]
    run = AnalyticRun(QUIET, 0)
    previous, total = QUIET.reference.normalise(run.initial_return), 0.0
    for step, indices in enumerate(schedule, start=1):
        run.apply(actions.decision(indices))
        measured = run.advance(3.0).learner_return
        assert measured is not None
        level = QUIET.reference.normalise(measured)
        total += np.exp(-beta * 3.0 * step) * (level - previous)
        previous = level
    assert schedule_value(QUIET, actions, schedule, 3.0, beta) == pytest.approx(total)


def test_optimum_refuses_a_switch_longer_than_an_interval() -> None:
    with pytest.raises(UserError, match="shorter than an interval"):
        optimum(replace(QUIET, switch_seconds=3.0), ActionSpace(), 6.0, 3.0, 0.1)


def test_sampled_games_differ_and_repeat_by_seed() -> None:
    configs = [sample_config(np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert configs[0] == configs[1]
    assert configs[0] != configs[2]


@pytest.mark.parametrize(
    "change", [{"gain_per_step": 0.0}, {"initial_skill": 1.0}, {"infer_ms": (1.0,)}, {"rise": -1.0}]
)
def test_impossible_games_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(UserError, match="analytic run"):
        replace(AnalyticConfig(), **change)


def test_advance_needs_time() -> None:
    with pytest.raises(UserError, match="positive seconds"):
        AnalyticRun(QUIET, 0).advance(0.0)
