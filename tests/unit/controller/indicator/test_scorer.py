"""SpecScorer: what the features of a candidate do to its score."""

from __future__ import annotations

import pytest
import torch

from controller.indicator.candidates import SCORED
from controller.indicator.scorer import RULE, SpecScorer

NAMES = list(SCORED)


def margin(scorer: SpecScorer, **shared: float) -> float:
    """Return how much a candidate leads that is 35% faster than another, given what both share."""
    vectors = torch.zeros(2, len(NAMES))
    for name, value in shared.items():
        vectors[:, NAMES.index(name)] = value
    vectors[1, NAMES.index("speed")] = -3.0
    with torch.no_grad():
        ahead, behind = scorer(vectors).tolist()
    return ahead - behind


def test_it_begins_as_its_rule() -> None:
    assert margin(SpecScorer()) == pytest.approx(3.0 * RULE["speed"])


@pytest.mark.parametrize("name", ["time", "rising", "changed", "kl", "takeover"])
def test_the_situation_can_change_what_speed_is_worth(name: str) -> None:
    """What is the same for all candidates does so through the hidden layer alone."""
    scorer = SpecScorer(generator=torch.Generator().manual_seed(0))
    assert margin(scorer, **{name: 1.0}) == pytest.approx(margin(scorer))
    changes = []
    for seed in range(8):
        bent = SpecScorer(generator=torch.Generator().manual_seed(seed))
        torch.nn.init.constant_(bent.outer, 0.3)
        changes.append(abs(margin(bent, **{name: 1.0}) - margin(bent)))
    assert sum(changes) / len(changes) > 0.05  # worth some 0.5% of speed
