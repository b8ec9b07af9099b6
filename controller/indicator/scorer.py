"""SpecScorer: one small network that scores every candidate by its own features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from controller.indicator.candidates import IN_TENTHS, SCORED
from controller.training.module import PolicyModule

RULE = {"speed": 1.0, "worth": 0.3, "above_cap": -3.0, "acts": 0.3, "uncompressed": -0.5}
"""weights of the rule that it starts from: the fastest whose KL is at most the cap stays while
nothing else is 3% faster; of equals, that whose steps are worth more, which are less stale. No
compression must be 5% faster: predictions leave out that processes get in each other's way by
chance, and the busier the cores the more"""
HIDDEN = 6
SCALES = tuple(0.2 if name in IN_TENTHS else 1.0 for name in SCORED)
"""of features before the hidden layer, in which a tanh of tenths would saturate at once, [F]. What
is the same for all candidates, such as the time that is left, cancels in the linear part: it counts
here alone, by what it does to other features"""
_SCALES = torch.tensor(SCALES)


class SpecScorer(PolicyModule):
    """Features of candidates [..., N, F] -> scores [..., N]; more is better.

        score = a . x + c . tanh(B (s x) + b),    s: `SCALES`

    The weights are shared by all candidates, so that it scores any list of specs, also ones that it
    was not trained on. At first c = 0 and a is `RULE`. `log_dwell` is trained too: a decision is
    held for at least round(exp(log_dwell)) intervals, unless conditions change.

    Args:
        hidden: width of the hidden layer.
        generator: of its initial weights.
    """

    owner = "indicator"

    def __init__(self, hidden: int = HIDDEN, *, generator: torch.Generator | None = None) -> None:
        super().__init__(hidden)
        size = len(SCORED)
        self.linear = nn.Parameter(torch.tensor([RULE.get(name, 0.0) for name in SCORED]))
        # So wide that units bend: where they are straight, nothing changes what another is worth.
        self.inner = nn.Parameter(torch.randn(hidden, size, generator=generator))
        self.bias = nn.Parameter(0.5 * torch.randn(hidden, generator=generator))
        self.outer = nn.Parameter(torch.zeros(hidden))
        self.log_dwell = nn.Parameter(torch.zeros(1))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the scores [..., N] of candidates with features [..., N, F]."""
        scaled = vectors * _SCALES
        hidden = torch.tanh(scaled @ self.inner.T + self.bias)
        return vectors @ self.linear + hidden @ self.outer

    @property
    def dwell_intervals(self) -> int:
        """Intervals for which a decision is held at least."""
        return max(round(float(torch.exp(self.log_dwell.detach()))), 1)
