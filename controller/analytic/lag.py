"""LagErrors: how far off the policy lags are that a latency profile predicts.

On 45 runs with real learning the lag was off by more than a quarter in four intervals of ten: a
steady state knows neither how slots are held back in time nor what the start of a run leaves.
"""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np

from accerl.seeds import Role, generator
from accerl.spec import CompressionSpec
from controller.analytic.fidelity import GameFidelity
from controller.analytic.pace import Mix


class LagErrors:
    """What lags really are over what is predicted, in one run.

    Args:
        game: has the spreads.
        seed: equal ones have equal errors, whatever acts.
    """

    def __init__(self, game: GameFidelity, seed: int) -> None:
        self._game, self._seed = game, seed
        self._shared = game.lag_shared * float(self._generator(0).standard_normal())
        self._own: dict[CompressionSpec, float] = {}

    def _generator(self, number: int) -> np.random.Generator:
        return generator(self._seed, Role.ANALYTIC_RUN, 1, number)

    def real(self, predicted: float, mix: Mix) -> float:
        """Return the policy lag while a mix acts."""
        for spec, _ in mix:
            if spec not in self._own:
                dice = self._generator(crc32(spec.label.encode()))
                self._own[spec] = self._game.lag_own * float(dice.standard_normal())
        off = self._shared + sum(share * self._own[spec] for spec, share in mix)
        return max((1.0 + predicted) * math.exp(off) - 1.0, 0.0)
