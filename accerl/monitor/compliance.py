"""What every Strategy and every Indicator must hold: subclass these in pytest files of your own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np

from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.indicators import Indicator, Raw
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategy import (
    Strategy,
    events_of,
    explanation_of,
    fires,
    needs_of,
    specs_of,
)
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision


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
                mix_kl_nats=kl_nats / 4.0,
                actor_return=-20.0 + step,
                learner_return=-20.0 + step + gap,
                episodes=10.0 * (step + 1),
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
            undeclared = set(strategy.decide(features).named) - declared
            assert not (hasattr(strategy, "specs") and undeclared)

    def test_needs_are_names_in_a_collection(self) -> None:
        """A lone name would be read as its letters, and no run be refused for the lack of it."""
        strategy = self.make()
        assert not isinstance(getattr(strategy, "needs", ()), str)
        assert all(isinstance(name, str) for name in needs_of(strategy))

    def test_what_it_says_of_itself_can_be_recorded(self) -> None:
        """`events` are dicts in plain JSON, `explanation` numbers by name for each label."""
        strategy = self.make()
        strategy.reset()
        for features in self._run():
            strategy.decide(features)
            assert len(events_of(strategy)) == len(getattr(strategy, "events", ()))
            assert explanation_of(strategy).keys() == getattr(strategy, "explanation", {}).keys()

    def test_asking_whether_it_fires_changes_nothing(self) -> None:
        """`fires` describes the last decision; a composition may ask it any number of times."""
        strategy = self.make()
        strategy.reset()
        unasked = [strategy.decide(features) for features in self._run()]
        strategy.reset()
        for features, decision in zip(self._run(), unasked, strict=True):
            assert strategy.decide(features) == decision
            assert fires(strategy) is fires(strategy)
            assert isinstance(getattr(strategy, "fires", True), bool)


def made_up_reports(intervals: int = 12, seed: int = 5) -> Iterator[IntervalReport]:
    """Yield the reports of a run that learns; its first and its fifth interval see no rollout."""
    generator = np.random.default_rng(seed)
    for index in range(intervals):
        silent = index in (0, 4)
        steps = 0 if silent else 2048
        total_steps = 2048 * (index - (index > 3))
        decision = Decision.of(CompressionSpec(bits=8) if index > 6 else IDENTITY)
        kl_nats = float(generator.exponential(0.05))
        losses = {"argmax_agreement": 0.9, "ess_fraction": 0.8, "clipped_share": 0.3, "value": 0.5}
        yield IntervalReport(
            index=index,
            seconds=5.0,
            total_seconds=5.0 * (index + 1),
            env_steps=steps,
            total_env_steps=total_steps,
            learner_updates=steps // 1024,
            total_learner_updates=total_steps // 1024,
            phase_seconds={name: float(generator.uniform(0.0, 2.0)) for name in PHASES},
            queue_fill=0.5,
            policy_lag=2.0,
            kl_mean_nats=kl_nats,
            kl_var=kl_nats**2,
            kl_max_nats=10.0 * kl_nats,
            entropy_nats=1.0 - 0.05 * index,
            episode_returns=() if silent else tuple(generator.normal(index, 1.0, 6).tolist()),
            learner_return=float(index) if index % 3 == 2 else None,
            decision=decision,
            spec_seconds={spec: 5.0 * share for spec, share in decision.mix},
            switch_seconds=0.1 if index == 7 else 0.0,
            losses={} if silent else losses,
            publication_bytes=10_000,
        )


class IndicatorCompliance:
    """Tests of the Indicator contract.

    ``class TestMine(IndicatorCompliance): def make(self): return MyIndicator()``
    """

    def make(self) -> Indicator:
        """Return the indicator under test, as new."""
        raise NotImplementedError

    def _values(self, indicator: Indicator) -> list[Raw]:
        """Return what it says after every report, with what the others said before it."""
        others = Monitor(num_actions=4, horizon_seconds=60.0)
        # Nobody may write to what an indicator is shown, so it is shown something read-only.
        return [
            dict(indicator.update(report, MappingProxyType(dict(others.update(report).raw))))
            for report in made_up_reports()
        ]

    def test_its_names_are_words(self) -> None:
        """One name at least, none twice; a lone string would be read as its letters."""
        names = self.make().names
        assert not isinstance(names, str)
        assert len(names) == len(set(names)) > 0
        assert all(isinstance(name, str) and name.isidentifier() for name in names)

    def test_it_says_a_number_for_each_of_its_names(self) -> None:
        """Also after intervals that no rollout reached; what cannot be known is NaN."""
        indicator = self.make()
        for values in self._values(indicator):
            assert set(values) == set(indicator.names)
            assert all(isinstance(value, int | float) for value in values.values())

    def test_a_new_one_says_the_same_of_the_same_run(self) -> None:
        """A resumed run replays its reports to a new indicator; no other may disturb it."""
        first, second = self.make(), self.make()
        expected = self._values(first)
        # As text: NaN is not equal to itself.
        assert str(self._values(second)) == str(expected)

    def test_a_monitor_takes_it(self) -> None:
        """Its names are not taken, unless it is one that every monitor has."""
        indicator = self.make()
        shipped = {type(item) for item in Monitor(4, 60.0).indicators}
        if type(indicator) not in shipped:
            monitor = Monitor(4, 60.0, [indicator])
            start = monitor.start().raw
            assert all(math.isnan(start[name]) for name in indicator.names)
        after = Monitor(4, 60.0, () if type(indicator) in shipped else [self.make()])
        for report in made_up_reports():
            assert set(indicator.names) <= set(after.update(report).raw)
