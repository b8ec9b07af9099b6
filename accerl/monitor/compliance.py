"""What every Strategy must hold: subclass `StrategyCompliance` in a pytest file of your own."""

from __future__ import annotations

import math

import numpy as np

from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategy import Strategy
from accerl.spec import Decision


def made_up_features(**raw: float) -> Features:
    """Return the features of a run's start, with some raw indicators set."""
    start = Monitor(num_actions=4, horizon_seconds=60.0).start()
    return Features(raw={**start.raw, **raw}, vector=start.vector)


class StrategyCompliance:
    """Tests of the Strategy contract.

    ``class TestMine(StrategyCompliance): def make(self): return MyStrategy()``
    """

    def make(self) -> Strategy:
        """Return the strategy under test, seeded if it draws random numbers."""
        raise NotImplementedError

    def _run(self) -> list[Features]:
        """Return the features of a run that starts, drifts apart, diverges and recovers."""
        generator = np.random.default_rng(5)
        run = [made_up_features()]
        for step, kl_nats in enumerate((0.01, 0.3, 2.0, 30.0, math.nan, 0.02)):
            item = made_up_features(
                kl_mean_nats=kl_nats / 4.0,
                kl_max_nats=kl_nats,
                actor_return=-20.0 + step,
                learner_return=math.nan if step < 2 else -10.0 + 4.0 * step,
                seconds=10.0 * (step + 1),
            )
            noise = generator.uniform(-1.0, 1.0, len(FEATURE_NAMES)).astype(np.float32)
            run.append(Features(raw=item.raw, vector=noise))
        return run

    def test_decides_from_the_first_moment_on(self) -> None:
        """Unmeasured (NaN) and extreme indicators are decided on like any other."""
        strategy = self.make()
        strategy.reset()
        for features in self._run():
            assert isinstance(strategy.decide(features), Decision)

    def test_reset_forgets_the_last_run(self) -> None:
        """The same run is decided alike by a new strategy and, after a reset, by a used one."""
        strategy = self.make()
        strategy.reset()
        first = [strategy.decide(features) for features in self._run()]
        strategy.reset()
        assert [strategy.decide(features) for features in self._run()] == first

    def test_features_are_left_as_they_are(self) -> None:
        """A strategy may not write into what others read too."""
        strategy = self.make()
        strategy.reset()
        for features in self._run():
            raw, vector = dict(features.raw), features.vector.copy()
            strategy.decide(features)
            assert str(dict(features.raw)) == str(raw)
            assert np.array_equal(features.vector, vector)
