"""What every Strategy must hold: subclass `StrategyCompliance` in a pytest file of your own."""

from __future__ import annotations

import math

import numpy as np

from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategy import Strategy, fires, needs_of, specs_of
from accerl.spec import CompressionSpec, Decision


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
        """Return the features of a run that starts, drifts apart, diverges and recovers, twice."""
        generator = np.random.default_rng(5)
        timeline: tuple[tuple[float, float, dict[str, float]], ...] = (
            # largest KL, what actors score below the learner, training stage where it is known
            (0.01, math.nan, {}),
            (0.3, math.nan, {}),
            (2.0, 5.0, {"stage": 0.0}),
            (30.0, 30.0, {"stage": 1.0}),
            (math.nan, 30.0, {"stage": math.nan}),
            (0.02, 0.0, {"stage": 2.0}),
            (40.0, 30.0, {"stage": 1.0}),
            (0.01, 0.0, {"stage": 2.0}),
        )
        run = [made_up_features()]
        for step, (kl_nats, gap, stage) in enumerate(timeline):
            item = made_up_features(
                kl_mean_nats=kl_nats / 4.0,
                kl_max_nats=kl_nats,
                actor_return=-20.0 + step,
                learner_return=-20.0 + step + gap,
                seconds=7.5 * (step + 1),
                **stage,
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

    def test_two_strategies_share_no_memory(self) -> None:
        """Another strategy of the same kind, which sees another run, changes no decision."""
        strategy, other = self.make(), self.make()
        strategy.reset()
        alone = [strategy.decide(features) for features in self._run()]
        strategy.reset()
        other.reset()
        beside = []
        for features, elsewhere in zip(self._run(), reversed(self._run()), strict=True):
            other.decide(elsewhere)
            beside.append(strategy.decide(features))
        assert beside == alone

    def test_decisions_hold_only_declared_specs(self) -> None:
        """What `specs` leaves out could not be checked before a run; without it, anything goes."""
        strategy = self.make()
        strategy.reset()
        declared = set(specs_of(strategy))
        assert all(isinstance(spec, CompressionSpec) for spec in declared)
        for features in self._run():
            undeclared = set(strategy.decide(features).specs) - declared
            assert not (hasattr(strategy, "specs") and undeclared)

    def test_needs_are_names_in_a_collection(self) -> None:
        """A lone name would be read as its letters, and no run be refused for the lack of it."""
        strategy = self.make()
        assert not isinstance(getattr(strategy, "needs", ()), str)
        assert all(isinstance(name, str) for name in needs_of(strategy))

    def test_asking_whether_it_fires_changes_nothing(self) -> None:
        """`fires` tells about the last decision; a composition may ask it any number of times."""
        strategy = self.make()
        strategy.reset()
        unasked = [strategy.decide(features) for features in self._run()]
        strategy.reset()
        for features, decision in zip(self._run(), unasked, strict=True):
            assert strategy.decide(features) == decision
            assert fires(strategy) is fires(strategy)
            assert isinstance(getattr(strategy, "fires", True), bool)
