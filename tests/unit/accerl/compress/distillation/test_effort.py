"""Effort: how much a student is distilled, by how far off it is."""

from __future__ import annotations

import math

import pytest

from accerl.compress.distillation.effort import LEAST_UPDATES, updates_due, usual_kl_nats
from accerl.spec import CompressionSpec


@pytest.mark.parametrize(
    ("kl", "due"),
    [
        (None, 12),
        (math.nan, 12),
        (math.inf, 12),
        (7.0, 12),
        (0.5, 12),
        (0.25, 6),
        (0.1, 2.4),
        (0.0, LEAST_UPDATES),
    ],
)
def test_what_is_due_falls_with_the_kl_and_never_ends(kl: float | None, due: float) -> None:
    assert updates_due(12, kl, 0.5) == pytest.approx(due)


@pytest.mark.parametrize("kl", [None, 0.0, 0.1, 3.0])
def test_without_a_bound_or_a_limit_all_is_due(kl: float | None) -> None:
    assert updates_due(12, kl, 0.0) == 12
    assert updates_due(0, kl, 0.5) == 0
    assert updates_due(math.inf, kl, 0.5) == math.inf


def test_what_is_smaller_is_usually_further_off() -> None:
    net2, net3 = CompressionSpec(student="net2"), CompressionSpec(student="net3")
    pruned = CompressionSpec(student="net3", sparsity=0.5)
    kls = [usual_kl_nats(spec) for spec in (CompressionSpec(bits=8), net2, net3, pruned)]
    assert kls[0] == 0.0
    assert kls == sorted(set(kls))
