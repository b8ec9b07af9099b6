"""Components of a user's own, written and tested as a user would: nothing here is private."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from accerl.compress import CompressionConfig, CompressionState, Compressor, make_engine
from accerl.compress.compliance import VECTOR, decided_policy, random_states
from accerl.compress.links import Stage
from accerl.correct import (
    COMBINATIONS,
    OWN,
    CorrectorChain,
    Experience,
    Targets,
    VTraceCorrector,
    make_corrector,
    name_of,
)
from accerl.errors import UserError
from accerl.learner.config import LearnerConfig
from accerl.monitor.features import Features
from accerl.monitor.indicators import Indicator
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategies import FirstThatFires, KLThresholdStrategy
from accerl.monitor.strategy import check_needs
from accerl.presets import load_preset
from accerl.runtime.parts import Parts
from accerl.runtime.run import IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.testing import (
    CompressorCompliance,
    CorrectorCompliance,
    IndicatorCompliance,
    StrategyCompliance,
)
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import fast_profile

INT8 = CompressionSpec(bits=8)


@dataclass(frozen=True)
class WeightClipping:
    """A compressor: weights beyond a few standard deviations make every integer coarser."""

    deviations: float = 3.0
    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        net = copy.deepcopy(state.net)  # the learner's own weights must not move
        with torch.no_grad():
            for weights in net.parameters():
                if weights.ndim > 1:
                    limit = self.deviations * weights.std()
                    weights.clamp_(weights.mean() - limit, weights.mean() + limit)
        return replace(state, net=net)


@dataclass(frozen=True)
class AdvantageClipping:
    """A corrector: no single sample may pull harder than this."""

    limit: float = 1.0

    def correct(self, experience: Experience, targets: Targets) -> Targets:
        return targets._replace(advantages=targets.advantages.clamp(-self.limit, self.limit))


class BestReturn:
    """An indicator: the best mean return so far."""

    names = ("best_return",)

    def __init__(self) -> None:
        self._best = float("nan")

    def update(self, report: IntervalReport, raw: Mapping[str, float]) -> Mapping[str, float]:
        self._best = float(np.fmax(self._best, raw["actor_return"]))
        return {"best_return": self._best}


class CarefulNearTheBest:
    """A strategy that acts on an indicator of its own: no compression near the best return."""

    def reset(self) -> None:
        pass

    def decide(self, features: Features) -> Decision:
        raw = features.raw
        near = raw["actor_return"] >= raw.get("best_return", float("inf")) - 0.1
        return Decision.of(IDENTITY if near else INT8)


class TestWeightClipping(CompressorCompliance):
    def make(self) -> WeightClipping:
        return WeightClipping(3.0)

    def make_identity(self) -> WeightClipping:
        return WeightClipping(1e6)


class TestAdvantageClipping(CorrectorCompliance):
    def make(self) -> AdvantageClipping:
        return AdvantageClipping()


class TestBestReturn(IndicatorCompliance):
    def make(self) -> BestReturn:
        return BestReturn()


class TestCareful(StrategyCompliance):
    def make(self) -> CarefulNearTheBest:
        return CarefulNearTheBest()


class TestCarefulInAComposition(StrategyCompliance):
    def make(self) -> FirstThatFires:
        return FirstThatFires((KLThresholdStrategy(), CarefulNearTheBest()))


SHIPPED = len(Monitor(4, 60.0).indicators)


@pytest.mark.parametrize("index", range(SHIPPED))
def test_shipped_indicators_comply(index: int) -> None:
    class Shipped(IndicatorCompliance):
        def make(self) -> Indicator:
            return Monitor(4, 60.0).indicators[index]

    checks = [name for name in dir(Shipped) if name.startswith("test_")]
    assert len(checks) == 4
    for name in checks:
        getattr(Shipped(), name)()


class Stateful(BestReturn):
    """What the suite is there to catch: memory that two of them share."""

    names = ("best_return",)
    seen: ClassVar[list[float]] = []

    def update(self, report: IntervalReport, raw: Mapping[str, float]) -> Mapping[str, float]:
        self.seen.append(report.total_seconds)
        return {"best_return": float(len(self.seen))}


def test_the_suite_catches_indicators_that_share_memory() -> None:
    class Shared(IndicatorCompliance):
        def make(self) -> Stateful:
            return Stateful()

    with pytest.raises(AssertionError):
        Shared().test_a_new_one_says_the_same_of_the_same_run()


def test_a_run_takes_them_all() -> None:
    config = replace(load_preset("catch"), seconds=3.0).with_runtime(interval_seconds=0.5)
    correctors = (
        CorrectorChain().add_corrector(VTraceCorrector()).add_corrector(AdvantageClipping())
    )
    result = run_training(
        config,
        CarefulNearTheBest(),
        profile=fast_profile(num_actors=1),
        parts=Parts(corrector=correctors, links=(WeightClipping(1.0),)),
        indicators=[BestReturn()],
    )
    acted = {spec for report in result.reports for spec in report.decision.specs}
    assert acted == {IDENTITY, INT8}
    assert len(result.reports) == 6
    # Weights clipped at one deviation act unlike the learner's, whatever the bits.
    assert min(report.kl_mean_nats for report in result.reports[2:]) > 1e-3


@pytest.mark.slow
def test_a_process_run_takes_them_too() -> None:
    config = replace(load_preset("catch"), seconds=3.0).with_runtime(
        runtime="process", clock="real", num_learners=2, eval_episodes=0, interval_seconds=1.0
    )
    correctors = CorrectorChain([VTraceCorrector(), AdvantageClipping()])
    parts = Parts(corrector=correctors, links=(WeightClipping(0.5),))
    config = config.with_learner(corrector=OWN)
    reports = run_training(
        config, CarefulNearTheBest(), parts=parts, indicators=[BestReturn()]
    ).reports
    assert reports[-1].total_learner_updates > 0
    assert reports[-1].events == ()
    # Weights clipped at half a deviation act unlike the learner's.
    assert max(report.kl_mean_nats for report in reports) > 0.01
    assert math.isfinite(reports[-1].indicators["best_return"])


class Overwriting:
    """A compressor that writes to what it is given."""

    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        with torch.no_grad():
            next(iter(state.net.parameters())).zero_()
        return state


class Exporting(Overwriting):
    """A link where a run has its own."""

    stage = Stage.EXPORT


def test_links_cannot_change_what_learns() -> None:
    policy = decided_policy(VECTOR)
    before = next(iter(policy.parameters())).clone()
    compressor = Compressor(
        VECTOR, policy.num_actions, CompressionConfig(), torch.Generator(), [Overwriting()]
    )
    compressor.observe(random_states(VECTOR))
    engine = make_engine(compressor.build(INT8, policy, version=1))
    assert torch.equal(next(iter(policy.parameters())), before)
    logits, _ = engine.infer(random_states(VECTOR))
    assert np.ptp(logits, axis=0).max() == 0.0  # what acts sees nothing any more


def test_a_run_exports_by_itself() -> None:
    with pytest.raises(UserError, match="Exporting: a run chooses students, prunes and exports"):
        Parts(links=(Exporting(),))


def test_classes_of_the_script_itself_are_refused() -> None:
    script = type("Mine", (AdvantageClipping,), {"__module__": "__main__"})
    with pytest.raises(UserError, match="move class Mine to a module"):
        Parts(corrector=CorrectorChain([script()]))


class Needy(CarefulNearTheBest):
    """A strategy that is told what it needs only by an indicator of the user's own."""

    needs = frozenset({"best_return"})


def test_a_strategy_is_refused_without_the_indicator_that_it_needs() -> None:
    check_needs(Needy(), 0, [BestReturn()])
    with pytest.raises(UserError, match="needs the indicator 'best_return', which does not exist"):
        run_training(load_preset("catch"), Needy())


@pytest.mark.parametrize("name", list(COMBINATIONS))
def test_a_chain_is_known_by_its_name(name: str) -> None:
    assert name_of(make_corrector(name, rho=1.5, c=1.0), rho=1.5, c=1.0) == name


def test_a_chain_that_no_name_makes_is_the_users_own() -> None:
    own = CorrectorChain([VTraceCorrector(), AdvantageClipping()])
    assert name_of(own, rho=1.0, c=1.0) == OWN
    assert LearnerConfig(corrector=OWN).corrector == OWN
    with pytest.raises(UserError, match="Python code can give; choose one of none"):
        make_corrector(OWN, rho=1.0, c=1.0)
