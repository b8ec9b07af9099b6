"""Policy gradient with exploration in parameter space (Sehnke et al. 2010, PGPE).

An inner run is minutes, so what explores must hold for a whole run: an episode draws the policy's
weights, theta = mu + sigma eps, and acts by its argmax. Episodes come in mirrored pairs, theta+ and
theta-, which play the same instance from the same seed (common random numbers), and with R+ and R-
what they reach, per unit of sigma,

    d mu    = mean over pairs of (R+ - R-) / 2 eps
    d sigma = mean over pairs of ((R+ + R-) / 2 - b) (eps^2 - 1) / 2,

where the baseline b is the mean of the *other* pairs on the same instance (leave-one-out). Of the
gradient of E[R] under the Gaussian, d mu is sigma times that of mu, and d sigma half of that of
log sigma. mu moves by a plain step along sigma d mu, and log sigma by one within limits. R is
standardised over the iteration: what an instance is worth, its baseline takes out. So weights that
change nothing wander by learning_rate sigma / sqrt(pairs) an iteration, about 1 / 40 with the
settings below, and what pays in most pairs moves by a tenth of its sigma and more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from accerl.errors import UserError
from accerl.seeds import Role, generator
from controller.training.trainer import P, Trainer


@dataclass(frozen=True, kw_only=True)
class GradientConfig:
    """How to train.

    Raises:
        UserError: a number is out of range.
    """

    instances: int = 8
    """drawn anew for every iteration, a seed each"""
    pairs: int = 4
    """mirrored pairs on each of them"""
    sigma: float = 0.3
    """standard deviation of every weight, at first"""
    learning_rate: float = 0.5
    """step of mu along sigma d mu"""
    sigma_rate: float = 0.1
    """step of log sigma along its gradient"""
    sigma_limits: tuple[float, float] = (0.1, 3.0)
    """least and most, as multiples of the first"""
    seed: int = 0
    """of what is drawn"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma_limits", tuple(self.sigma_limits))
        if self.instances < 1 or self.pairs < 2:
            raise UserError(
                "indicator training: it takes 1 instance and 2 pairs or more: the baseline of a "
                "pair is the mean of the others"
            )
        for name in ("sigma", "learning_rate"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"indicator training: {name} must be positive")
        if not self.sigma_rate >= 0.0:
            raise UserError("indicator training: sigma_rate must not be negative")

    @property
    def episodes(self) -> int:
        """Inner runs of an iteration."""
        return 2 * self.pairs * self.instances


class ParameterGradient(Trainer[P]):
    """The policy gradient; `train` takes (policy states, iteration) -> what they reached.

    `proposal` returns 2 x pairs states for each instance, in this order, plus before minus; what
    is played must be R [instances, 2 x pairs], more is better.

    Args:
        policy: its weights are mu, moved in place.
        config: how.
    """

    def __init__(self, policy: P, config: GradientConfig) -> None:
        super().__init__(policy, config.learning_rate, _plain(config))
        self.config = config
        self.log_sigma = np.full(policy.num_parameters(), np.log(config.sigma))
        """of every weight, [weights]"""

    def _noise(self) -> np.ndarray:
        """Return this iteration's eps [instances, pairs, weights]; they depend on it alone."""
        rng = generator(self.config.seed, Role.PERTURBATION, self.iteration)
        shape = (self.config.instances, self.config.pairs, self.policy.num_parameters())
        return rng.standard_normal(shape)

    def proposal(self) -> list[dict[str, Any]]:
        """Return the states of this iteration's episodes, instance by instance."""
        centre = parameters_to_vector(self.policy.parameters()).detach()
        drawn = type(self.policy).from_json(self.policy.to_json())
        sigma = np.exp(self.log_sigma)
        states = []
        for eps in self._noise().reshape(-1, len(sigma)):
            for sign in (1.0, -1.0):
                step = torch.from_numpy(sign * sigma * eps).float()
                vector_to_parameters(centre + step, drawn.parameters())
                states.append(drawn.to_json())
        return states

    def improve(self, played: np.ndarray) -> dict[str, float]:
        """Take a step; return the iteration's statistics.

        ``gain`` is the mean of R, ``spread`` its standard deviation within instances,
        ``gradient_norm`` that of mu's, ``sigma`` the geometric mean of sigma.

        Raises:
            UserError: there is not one finite value per episode.
        """
        config = self.config
        values = np.asarray(played, dtype=np.float64)
        if values.shape != (config.instances, 2 * config.pairs) or not np.isfinite(values).all():
            raise UserError(
                f"indicator training: expected a finite value for each of {config.instances} x "
                f"{2 * config.pairs} episodes, got shape {list(values.shape)}"
            )
        spread = float(np.sqrt(values.var(axis=1).mean()))
        both = values.reshape(config.instances, config.pairs, 2) / (spread + 1e-12)
        halves = (both[..., 0] - both[..., 1]) / 2.0
        middle = both.mean(axis=2)
        others = (middle.sum(axis=1, keepdims=True) - middle) / (config.pairs - 1)
        eps = self._noise()
        count = config.instances * config.pairs
        up = np.einsum("ip,ipw->w", halves, eps) / count
        wider = np.einsum("ip,ipw->w", middle - others, (eps**2 - 1.0) / 2.0) / count
        self._step(up * np.exp(self.log_sigma))
        least, most = (np.log(config.sigma * limit) for limit in config.sigma_limits)
        self.log_sigma = np.clip(self.log_sigma + config.sigma_rate * wider, least, most)
        self.history.append(
            {
                "iteration": self.iteration,
                "gain": float(values.mean()),
                "spread": spread,
                "gradient_norm": float(np.linalg.norm(up)),
                "sigma": float(np.exp(self.log_sigma.mean())),
            }
        )
        return self.history[-1]

    def snapshot(self) -> dict[str, Any]:
        """See `Trainer.snapshot`."""
        return {**super().snapshot(), "log_sigma": self.log_sigma.tolist()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Trainer.restore`."""
        super().restore(snapshot)
        self.log_sigma = np.array(snapshot["log_sigma"])


def _plain(config: GradientConfig) -> dict[str, Any]:
    return {**asdict(config), "sigma_limits": list(config.sigma_limits)}
