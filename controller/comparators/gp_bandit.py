"""A time-varying Gaussian-process bandit on the gain per second, after PB2 within one run.

PB2 (Parker-Holder et al., 2020, arXiv 2002.02518) models the change of return per time of a
population; here there is one run, whose specs follow each other. The gain of one spec is evidence
about its neighbours, about other returns, and less and less about later times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from accerl.monitor.features import Features
from accerl.monitor.indicators import decision_levels
from accerl.monitor.strategies import Levels
from accerl.monitor.strategies.checks import require_number, require_whole
from accerl.spec import CompressionSpec, Decision
from controller.comparators.credit import Credit, RunLearner, highest, standardised

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """The time-varying squared-exponential kernel of unit variance (Bogunovic et al., 2016).

    k((t, x), (t', x')) = exp(-|x - x'|^2 / (2 lengthscale^2)) exp(-|t - t'| / memory). The second
    factor is their (1 - epsilon)^(|i - j| / 2), with shares of the horizon for rounds.
    """

    lengthscale: float
    memory: float
    """share of the horizon after which a correlation has fallen to 1/e"""
    noise: float
    """standard deviation of the credit of a whole stretch about the function's value"""

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the covariances [N, M] of contexts [N, 1 + D] and [M, 1 + D], time first."""
        apart = np.abs(first[:, None, 0] - second[None, :, 0])
        squared = np.square(first[:, None, 1:] - second[None, :, 1:]).sum(axis=-1)
        return np.exp(-squared / (2.0 * self.lengthscale**2) - apart / self.memory)


KERNELS = tuple(
    Kernel(lengthscale=lengthscale, memory=memory, noise=noise)
    for lengthscale, memory, noise in product((0.3, 0.7, 1.5), (0.1, 0.3, 1.0), (0.2, 0.5, 1.0))
)
"""among which the likeliest is taken; levels and shares of time lie in [0, 1]"""


class GaussianProcess:
    """The posterior of a function with mean 0 and unit variance, given noisy values of it.

    Args:
        kernel: its covariances and the noise.
        contexts: where values are known, [N, 1 + D], time first.
        values: [N].
        shares: how much of its stretch each value is of, in (0, 1], [N]; the variance of its noise
            is divided by it.
    """

    def __init__(
        self, kernel: Kernel, contexts: np.ndarray, values: np.ndarray, shares: np.ndarray
    ) -> None:
        self._kernel, self._contexts = kernel, contexts
        covariance = kernel(contexts, contexts) + np.diag(kernel.noise**2 / shares)
        self._lower = np.linalg.cholesky(covariance)
        self._whitened = np.linalg.solve(self._lower, values)

    @property
    def log_likelihood(self) -> float:
        """The logarithm of the values' density under the prior, the marginal likelihood."""
        fit = -0.5 * float(self._whitened @ self._whitened)
        volume = -float(np.log(np.diag(self._lower)).sum())
        return fit + volume - 0.5 * len(self._whitened) * math.log(2.0 * math.pi)

    def predict(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of the function, [M] each, at contexts [M, 1 + D]."""
        across = np.linalg.solve(self._lower, self._kernel(self._contexts, contexts))
        variance = 1.0 - np.square(across).sum(axis=0)
        return across.T @ self._whitened, np.sqrt(np.maximum(variance, 0.0))


def likeliest(contexts: np.ndarray, values: np.ndarray, shares: np.ndarray) -> GaussianProcess:
    """Return the posterior under that of `KERNELS` with the largest marginal likelihood."""
    fitted = [GaussianProcess(kernel, contexts, values, shares) for kernel in KERNELS]
    return max(fitted, key=lambda process: process.log_likelihood)


@dataclass(frozen=True)
class GPBandit(RunLearner):
    """Takes the spec with the highest upper bound on the gain per second, here and now.

    A context is (share of the horizon; level of the actors' return, and the spec's levels of bits,
    sparsity and student). With n credits the bound is

        mean + exploration * sqrt(0.2 + max(0, ln(0.4 n))) * standard deviation,

    PB2's schedule at exploration 1.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    name: ClassVar[str] = "gp-bandit"
    exploration: float = 1.0
    """factor on `exploration_weight`"""
    window: int = 100
    """credits that are remembered: the cost grows with the cube of their number"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.name, "exploration", self.exploration, at_least=0.0)
        require_whole(self.name, "window", self.window, at_least=2)

    def choose(
        self, features: Features, credits: Sequence[Credit], rng: np.random.Generator
    ) -> CompressionSpec:
        """See `RunLearner.choose`."""
        recent = credits[-self.window :]
        if not recent:
            return self.specs[int(rng.integers(len(self.specs)))]
        shares = np.array([credit.share for credit in recent])
        gains = np.array([credit.gain_per_second for credit in recent])
        contexts = [_context(e.time_fraction, e.return_level, e.spec) for e in recent]
        process = likeliest(np.array(contexts), standardised(gains, shares), shares)
        raw = features.raw
        here = [_context(raw["time_fraction"], raw["return_level"], spec) for spec in self.specs]
        mean, deviation = process.predict(np.array(here))
        bound = mean + self.exploration * exploration_weight(len(recent)) * deviation
        return self.specs[highest(bound, rng)]

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return arms and how much to explore."""
        return {
            **super().suggest(trial, actions),
            "exploration": trial.suggest_float("exploration", 0.1, 3.0, log=True),
        }


def exploration_weight(credits: int) -> float:
    """Return PB2's weight of the standard deviation after so many credits, at least one."""
    return math.sqrt(0.2 + max(0.0, math.log(0.4 * credits)))


def _context(time_fraction: float, return_level: float, spec: CompressionSpec) -> list[float]:
    return [time_fraction, return_level, *decision_levels(Decision.of(spec)).values()]
