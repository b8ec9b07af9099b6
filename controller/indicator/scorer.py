"""SpecScorer: one small network that scores every candidate by its own features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from accerl.errors import UserError, one_line
from controller.indicator.candidates import SCORED
from controller.training.module import PolicyModule

RULE = {"speed": 1.0, "above_cap": -3.0, "acts": 0.3}
"""weights of the rule that it starts from: the fastest whose KL is at most the cap stays while
nothing else is 3% faster"""
HIDDEN = 6
SCALE = 0.2
"""of features before the hidden layer: a tanh of tenths would saturate at once"""


class SpecScorer(PolicyModule):
    """Features of candidates [..., N, F] -> scores [..., N]; more is better.

        score = a . x + c . tanh(B x / 5 + b)

    The weights are shared by all candidates, so that it scores any list of specs, also ones that it
    was not trained on. At first c = 0 and a is `RULE`. `log_dwell` is trained too: a decision is
    held for at least round(exp(log_dwell)) intervals, unless conditions change.

    Args:
        hidden: width of the hidden layer.
        generator: of its initial weights.
    """

    def __init__(self, hidden: int = HIDDEN, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        size = len(SCORED)
        self.hidden = hidden
        self.linear = nn.Parameter(torch.tensor([RULE.get(name, 0.0) for name in SCORED]))
        self.inner = nn.Parameter(0.3 * torch.randn(hidden, size, generator=generator))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.outer = nn.Parameter(torch.zeros(hidden))
        self.log_dwell = nn.Parameter(torch.zeros(1))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores [..., N] of candidates with features [..., N, F]."""
        hidden = torch.tanh(SCALE * vectors @ self.inner.T + self.bias)
        return vectors @ self.linear + hidden @ self.outer

    @property
    def dwell_intervals(self) -> int:
        """Intervals for which a decision is held at least."""
        return max(round(float(torch.exp(self.log_dwell.detach()))), 1)

    def to_json(self) -> dict[str, Any]:
        """Return its weights as plain numbers."""
        weights = {name: value.tolist() for name, value in self.state_dict().items()}
        return {"hidden": self.hidden, "weights": weights}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a scorer written by `to_json`.

        Raises:
            UserError: a weight is missing, unknown or has the wrong shape.
        """
        try:
            scorer = cls(int(data["hidden"]), generator=torch.Generator().manual_seed(0))
            weights = {name: torch.tensor(value) for name, value in data["weights"].items()}
            scorer.load_state_dict(weights)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"indicator: the weights do not fit: {one_line(error)}") from error
        return scorer
