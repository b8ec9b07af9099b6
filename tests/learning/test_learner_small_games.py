"""The learner on Acrobot and MinAtar Breakout, uncompressed and with INT8 actors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accerl.presets import load_preset
from accerl.spec import IDENTITY, CompressionSpec
from tests.fixtures.runs.learning import measured_returns

SPECS = [IDENTITY, CompressionSpec(bits=8), CompressionSpec(student="net3")]


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_acrobot_is_swung_up(spec: CompressionSpec) -> None:
    curve = measured_returns(load_preset("acrobot"), spec, env_steps=120_000, every=10_000)
    assert curve[0] < -400.0  # random play is cut off after 500 steps
    assert max(curve[-3:]) > -120.0, curve


@pytest.mark.slow
def test_acrobot_is_not_swung_up_by_a_learner_that_hardly_learns() -> None:
    config = load_preset("acrobot").with_learner(learning_rate=1e-7)
    assert max(measured_returns(config, IDENTITY, env_steps=40_000, every=10_000)) < -400.0


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_minatar_breakout_is_learned(spec: CompressionSpec) -> None:
    """Six times what random play breaks; with a smaller learner than the preset's, to be quick."""
    config = replace(load_preset("minatar-breakout"), network="net1")
    curve = measured_returns(config, spec, env_steps=175_000, every=25_000)
    assert curve[0] < 2.0  # random play scores 0.4
    assert max(curve[-3:]) > 2.4, curve


@pytest.mark.slow
def test_minatar_breakout_is_not_learned_by_a_learner_that_hardly_learns() -> None:
    config = replace(load_preset("minatar-breakout"), network="net2")
    config = config.with_learner(learning_rate=1e-7)
    assert max(measured_returns(config, IDENTITY, env_steps=75_000, every=25_000)) < 1.0
