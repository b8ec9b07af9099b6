"""LagErrors: runs whose policy lag is not what their machine's steady state says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accerl.spec import IDENTITY, CompressionSpec
from controller.analytic.fidelity import GameFidelity
from controller.analytic.lag import LagErrors

INT8 = CompressionSpec(bits=8)
FP32, ALONE = ((IDENTITY, 1.0),), ((INT8, 1.0),)


def errors(shared: float, own: float) -> np.ndarray:
    """Return log((1 + lag) / (1 + predicted)) of two specs over seeds, [seeds, 2]."""
    game = GameFidelity(gain_per_step=1e-5, lag_shared=shared, lag_own=own)
    lags = [[LagErrors(game, seed).real(9.0, mix) for mix in (FP32, ALONE)] for seed in range(400)]
    return np.log((1.0 + np.array(lags)) / 10.0)


def test_errors_have_the_spread_that_they_are_said_to_have() -> None:
    found = errors(0.3, 0.1)
    assert found.std(axis=0) == pytest.approx(math.hypot(0.3, 0.1), rel=0.12)
    assert (found[:, 0] - found[:, 1]).std() == pytest.approx(math.sqrt(2.0) * 0.1, rel=0.12)
    assert np.abs(errors(0.0, 0.0)).max() < 1e-12


def test_equal_seeds_have_equal_errors_whatever_acted_before() -> None:
    game = GameFidelity(gain_per_step=1e-5, lag_shared=0.3, lag_own=0.1)
    first, second = LagErrors(game, 5), LagErrors(game, 5)
    first.real(4.0, FP32)
    assert first.real(4.0, ALONE) == second.real(4.0, ALONE)
    mixed = ((IDENTITY, 0.5), (INT8, 0.5))
    between = sorted(first.real(4.0, mix) for mix in (FP32, ALONE))
    assert between[0] < first.real(4.0, mixed) < between[1]
