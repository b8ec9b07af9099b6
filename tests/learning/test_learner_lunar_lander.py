"""The defaults of the vector family land the lunar lander, with actors in INT8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accerl.presets import load_preset
from accerl.spec import CompressionSpec
from tests.fixtures.runs.learning import measured_returns

SOLVED = 200.0
"""what Gymnasium counts as solved"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_lander_lands_for_two_seeds_of_three() -> None:
    passed = 0
    for seed in (0, 1, 2):
        config = replace(load_preset("LunarLander-v3"), seed=seed)
        config = config.with_runtime(runtime="serial", clock="virtual", num_actors=1)
        spec = CompressionSpec(bits=8)
        returns = measured_returns(config, spec, env_steps=400_000, every=50_000)
        assert returns[0] < SOLVED / 2.0
        passed += max(returns[-4:]) >= SOLVED
        if passed == 2:
            break
    assert passed == 2
