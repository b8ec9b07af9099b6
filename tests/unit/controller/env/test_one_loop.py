"""Training and the control environment drive one loop: equal decisions, reports and features."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accerl.monitor.features import Features
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import run_training
from controller.env.control_env import CompressionControlEnv
from tests.fixtures.controllers.outer_envs import tiny_instance
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

INT8, NET3 = CompressionSpec(bits=8), CompressionSpec(student="net3", bits=8)
SCRIPT = (Decision.of(INT8), Decision(((NET3, 0.5), (IDENTITY, 0.5))), Decision.of(NET3))
Seen = tuple[list[Features], list[IntervalReport]]


class Scripted:
    """Decides what SCRIPT says, and remembers what it saw."""

    def reset(self) -> None:
        self.seen: list[Features] = []

    def decide(self, features: Features) -> Decision:
        self.seen.append(features)
        return SCRIPT[(len(self.seen) - 1) % len(SCRIPT)]


def trained(horizon_seconds: float, interval_seconds: float) -> Seen:
    config = tiny_catch(3, seconds=horizon_seconds, interval_seconds=interval_seconds)
    strategy = Scripted()
    reports = run_training(config, strategy, profile=fast_profile()).reports
    return strategy.seen, reports


def controlled(horizon_seconds: float, interval_seconds: float, cut: int) -> Seen:
    """Steer the same run; after `cut` steps go on in another environment."""
    instance = replace(
        tiny_instance(),
        horizon_seconds=horizon_seconds,
        interval_seconds=interval_seconds,
        seed=3,
    )
    env, strategy, reports, truncated = CompressionControlEnv([instance]), Scripted(), [], False
    env.reset()
    strategy.reset()
    while not truncated:
        if len(reports) == cut:
            state = env.snapshot()
            env.close()
            env = CompressionControlEnv([instance])
            env.restore(state)
        _, _, _, truncated, info = env.step_decision(strategy.decide(env.features))
        reports.append(info["report"])
    env.close()
    return strategy.seen, reports


@pytest.mark.parametrize(
    ("horizon", "interval", "count"), [(0.03, 0.01, 3), (0.03, 0.007, 5), (0.008, 0.0075, 2)]
)
def test_one_script_gives_equal_reports_and_features(
    horizon: float, interval: float, count: int
) -> None:
    features, reports = trained(horizon, interval)
    assert controlled(horizon, interval, cut=2) == (features, reports)
    assert len(reports) == count
    assert reports[-1].total_seconds == pytest.approx(horizon)
    fractions = [seen.raw["time_fraction"] for seen in features]
    assert fractions == pytest.approx([step * interval / horizon for step in range(count)])
    assert all(report.indicators for report in reports)
