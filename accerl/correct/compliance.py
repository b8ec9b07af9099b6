"""What every Corrector must hold: subclass `CorrectorCompliance` in a pytest file of your own."""

from __future__ import annotations

from dataclasses import asdict, replace

import torch
from torch import Tensor

from accerl.correct.chain import Corrector, CorrectorChain, Experience

DISTURBED = (
    "value_t",
    "value_tp1",
    "reward_t",
    "target_logp_t",
    "policy_logp_t",
    "behaviour_logp_t",
)
"""what of the next episode no target before it may depend on"""


def random_experience(
    generator: torch.Generator, *, steps: int = 7, batch: int = 5, gamma: float = 0.9
) -> Experience:
    """Return made-up float64 experience [steps, batch] of episodes that go on throughout."""

    def normal(scale: float = 1.0) -> Tensor:
        return torch.randn(steps, batch, generator=generator, dtype=torch.float64) * scale

    return Experience(
        value_t=normal(),
        value_tp1=normal(),
        reward_t=normal(),
        discount_t=torch.full((steps, batch), gamma, dtype=torch.float64),
        target_logp_t=normal(0.5) - 1.0,
        behaviour_logp_t=normal(0.5) - 1.0,
        lam=torch.full((steps, batch), 0.95, dtype=torch.float64),
        policy_logp_t=normal(0.5) - 1.0,
    )


class CorrectorCompliance:
    """Tests of the Corrector contract, run in a chain of one.

    ``class TestMine(CorrectorCompliance): def make(self): return MyCorrector()``
    """

    TRUNCATED_AT = 3

    def make(self) -> Corrector:
        """Return the corrector under test."""
        raise NotImplementedError

    def _correct(self, experience: Experience) -> tuple[Tensor, ...]:
        return tuple(CorrectorChain([self.make()]).correct(experience))

    def _experience(self) -> Experience:
        return random_experience(torch.Generator().manual_seed(7))

    def test_targets_are_finite_and_shaped_like_the_experience(self) -> None:
        """Every target is [T, B] and finite."""
        experience = self._experience()
        for target in self._correct(experience):
            assert target.shape == experience.reward_t.shape
            assert torch.isfinite(target).all()

    def test_experience_is_left_as_it_is(self) -> None:
        """No input is written to."""
        experience = self._experience()
        before = {name: value.clone() for name, value in vars(experience).items()}
        self._correct(experience)
        for name, value in vars(experience).items():
            assert torch.equal(value, before[name]), name

    def test_no_gradient_reaches_the_targets(self) -> None:
        """Targets are constants to the learner."""
        leaves = {
            name: value.requires_grad_() for name, value in asdict(self._experience()).items()
        }
        assert not any(target.requires_grad for target in self._correct(Experience(**leaves)))

    def test_environments_are_independent(self) -> None:
        """Permuting the batch permutes the targets and changes nothing else."""
        experience = self._experience()
        order = torch.tensor([3, 0, 4, 2, 1])
        permuted = Experience(**{name: value[:, order] for name, value in vars(experience).items()})
        for plain, moved in zip(self._correct(experience), self._correct(permuted), strict=True):
            assert torch.equal(plain[:, order], moved)

    def test_the_next_episode_does_not_leak_back(self) -> None:
        """What follows a termination or a truncation changes no target before it."""
        at = self.TRUNCATED_AT
        for field in ("discount_t", "lam"):
            experience = self._experience()
            cut = getattr(experience, field).clone()
            cut[at] = 0.0
            experience = replace(experience, **{field: cut})
            other = {name: value.clone() for name, value in vars(experience).items()}
            # By unequal amounts: equal ones would leave the ratios of policies as they are.
            for place, name in enumerate(DISTURBED, start=1):
                other[name][at + 1 :] += 0.5 * place
            for first, second in zip(
                self._correct(experience), self._correct(Experience(**other)), strict=True
            ):
                assert first[: at + 1].numel() > 0
                assert torch.equal(first[: at + 1], second[: at + 1])
