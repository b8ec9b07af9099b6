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


def trained(lengths: dict[str, float]) -> Seen:
    config = tiny_catch(3, seconds=lengths["horizon_seconds"])
    intervals = {name: value for name, value in lengths.items() if name != "horizon_seconds"}
    config = config.with_runtime(**intervals)
    strategy = Scripted()
    reports = run_training(config, strategy, profile=fast_profile()).reports
    return strategy.seen, reports


def controlled(lengths: dict[str, float], cut: int) -> Seen:
    """Steer the same run; after `cut` steps go on in another environment."""
    instance = replace(tiny_instance(), **lengths, seed=3)
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
    ("horizon", "interval", "first", "ends"),
    [
        (0.03, 0.01, 0.0, (0.01, 0.02, 0.03)),
        (0.03, 0.007, 0.0, (0.007, 0.014, 0.021, 0.028, 0.03)),
        (0.008, 0.0075, 0.0, (0.0075, 0.008)),
        (0.025, 0.01, 0.001, (0.001, 0.011, 0.021, 0.025)),
    ],
)
def test_one_script_gives_equal_reports_and_features(
    horizon: float, interval: float, first: float, ends: tuple[float, ...]
) -> None:
    lengths = {
        "horizon_seconds": horizon,
        "interval_seconds": interval,
        "first_interval_seconds": first,
    }
    features, reports = trained(lengths)
    assert controlled(lengths, cut=2) == (features, reports)
    assert [report.total_seconds for report in reports] == pytest.approx(ends)
    assert all(report.learner_return is not None for report in reports)
    fractions = [seen.raw["time_fraction"] for seen in features]
    assert fractions == pytest.approx([0.0, *(end / horizon for end in ends[:-1])])
    assert all(report.indicators for report in reports)
