"""Evolution strategies: the controller's weights improved without any gradient, as a cross-check.

Candidates come in mirrored pairs around the weights theta, and all of them play the same instances
from the same seeds (common random numbers):

    theta_p = theta + sigma eps_p  and  theta - sigma eps_p,      eps_p standard normal
    g = sum_p (u_p+ - u_p-) eps_p / (2 pairs sigma)

(Salimans et al. 2017, "Evolution strategies as a scalable alternative"). u is the centred rank in
[-1/2, 1/2] among all candidates *on the same instance*, averaged over instances, so no instance
counts for more than another. theta moves by learning_rate 2 sigma^2 g: ranks differ by half of what
standardised values do, so that its steps are as long as those of `gradient`. A candidate acts by
its argmax: nothing is drawn at random.
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
class EvolutionConfig:
    """How to evolve.

    Raises:
        UserError: a number is out of range.
    """

    pairs: int = 8
    """mirrored pairs per generation: half the population"""
    sigma: float = 0.3
    """standard deviation of what is added to every weight"""
    learning_rate: float = 0.5
    """step along 2 sigma^2 g"""
    seed: int = 0
    """of the perturbations"""

    def __post_init__(self) -> None:
        if self.pairs < 1:
            raise UserError("evolution: pairs must be 1 or more")
        for name in ("sigma", "learning_rate"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"evolution: {name} must be positive")

    @property
    def population(self) -> int:
        """Candidates per generation."""
        return 2 * self.pairs


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """Return the centred ranks [P] of values [P, I]: within columns, then their mean.

    The least of a column is -1/2, the greatest 1/2; equals share the mean of their ranks.
    """
    from scipy.stats import rankdata  # takes a second to import, in every process of a study

    below = rankdata(values, axis=0) - 1.0
    return (below / max(len(values) - 1, 1) - 0.5).mean(axis=1)


class Evolution(Trainer[P]):
    """Evolution strategies.

    `train` takes (policy states, generation) -> values [population], or [population, instances], of
    candidates that were played anywhere, all on the same instances and seeds; more is better.

    Args:
        policy: its weights are the centre of the population, moved in place.
        config: how.
    """

    def __init__(self, policy: P, config: EvolutionConfig) -> None:
        super().__init__(policy, config.learning_rate, asdict(config))
        self.config = config

    def _noise(self) -> np.ndarray:
        """Return this generation's perturbations [pairs, weights]; they depend on it alone."""
        rng = generator(self.config.seed, Role.PERTURBATION, self.iteration)
        return rng.standard_normal((self.config.pairs, self.policy.num_parameters()))

    def proposal(self) -> list[dict[str, Any]]:
        """Return the states of this generation's policies: pair by pair, plus before minus."""
        centre = parameters_to_vector(self.policy.parameters()).detach()
        candidate = type(self.policy).from_json(self.policy.to_json())
        states = []
        for noise in self._noise():
            for sign in (1.0, -1.0):
                step = torch.from_numpy(sign * self.config.sigma * noise).float()
                vector_to_parameters(centre + step, candidate.parameters())
                states.append(candidate.to_json())
        return states

    def improve(self, played: np.ndarray) -> dict[str, float]:
        """Take a step by what the candidates reached; return the generation's statistics.

        ``gain`` is the mean value of the population and ``best_gain`` that of its best candidate.

        Raises:
            UserError: there is not one finite value per candidate (and instance).
        """
        config = self.config
        values = np.asarray(played, dtype=np.float64)
        table = values.reshape(len(values), -1) if values.ndim in (1, 2) else np.empty((0, 0))
        if len(table) != config.population or table.size == 0:
            raise UserError(
                f"evolution: expected the values of {config.population} candidates, "
                f"got shape {list(values.shape)}"
            )
        if not np.isfinite(table).all():
            broken = int(np.argmin(np.isfinite(table).all(axis=1)))
            raise UserError(
                f"evolution: candidate {broken} of generation {self.iteration} has a value that "
                f"is not finite: {table[broken].tolist()}"
            )
        ranks = centred_ranks(table).reshape(config.pairs, 2)
        gradient = (ranks[:, 0] - ranks[:, 1]) @ self._noise() / (config.population * config.sigma)
        self._step(2.0 * config.sigma**2 * gradient)
        row = {
            "iteration": self.iteration,
            "gain": float(table.mean()),
            "best_gain": float(table.mean(axis=1).max()),
            "gradient_norm": float(np.linalg.norm(gradient)),
        }
        self.history.append(row)
        return row
