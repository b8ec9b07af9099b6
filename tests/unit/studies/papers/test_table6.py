"""Table 6: what is measured beside what the paper printed, and what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accerl.spec import CompressionSpec
from studies.papers.figures.table6 import (
    PUBLISHED_MS,
    InferRows,
    inference_table,
    inference_verdicts,
)
from studies.papers.verdict import FAILS, HOLDS, OPEN

INT8 = CompressionSpec(bits=8)


def test_a_table_of_inference_stands_beside_the_papers() -> None:
    rows = [
        {
            "spec": spec.to_json(),
            "us_per_state": 800.0 / ratio,
            "spread": 8.0,
            "ratio_ort_fp32": ratio,
            "repeats_us": [792.0 / ratio, 808.0 / ratio],
        }
        for spec, ratio in (
            (CompressionSpec(), 1.0),
            (INT8, 8.0),
            (CompressionSpec(bits=16), 2.0),
        )
    ]
    table = inference_table(InferRows(rows=rows, fingerprint={}))
    assert [row["here_speedup"] for row in table] == pytest.approx([1.0, 8.0, 2.0])
    assert [row["published_speedup"] for row in table] == [1.0, 2.0, None]
    assert table[1]["here_ms"] == pytest.approx(0.1)
    assert table[1]["here_spread_ms"] == pytest.approx(0.008)
    assert table[1]["here_repeats_ms"] == pytest.approx([0.099, 0.101])


def measured(*ms: float, repeats: int = 15) -> list[dict[str, Any]]:
    """Return rows of Original in float32 and INT8, and of Net1 to Net3.

    All times of a repeat are up to twice as long as of others; alone they are off by a percent.
    """
    generator = np.random.default_rng(0)
    slow = generator.uniform(1.0, 2.0, repeats)
    return [
        {
            "label": spec.label,
            "here_repeats_ms": (each * slow * generator.normal(1.0, 0.01, repeats)).tolist(),
            "published_speedup": PUBLISHED_MS[CompressionSpec()] / published,
        }
        for each, (spec, published) in zip(ms, PUBLISHED_MS.items(), strict=True)
    ]


@pytest.mark.parametrize(
    ("rows", "outcomes"),
    [
        (measured(6.0, 2.0, 2.0, 1.5, 1.0), (HOLDS, HOLDS, HOLDS, HOLDS)),
        (measured(6.0, 4.0, 2.0, 1.0, 1.1), (FAILS, FAILS, HOLDS, HOLDS)),  # Net3 behind Net2
        (measured(6.0, 3.0, 2.5, 1.001, 1.0), (OPEN, OPEN, HOLDS, OPEN)),  # within the spread
        (measured(6.0, 2.0, 5.0, 4.0, 3.0), (HOLDS, HOLDS, FAILS, FAILS)),
    ],
)
def test_claims_hold_where_ratios_within_repeats_say_so(
    rows: list[dict[str, Any]], outcomes: tuple[str, ...]
) -> None:
    found = inference_verdicts(rows)
    assert tuple(each.outcome for each in found) == outcomes
    for each in found:
        assert None not in (each.low, each.high)
        assert np.all(np.diff(np.array([each.low, each.estimate, each.high], dtype=float)) > 0.0)
        assert each.high is not None
        assert each.low is not None
        assert each.high / each.low < 1.1  # slow moments slow both sides


def test_a_few_repeats_leave_everything_open() -> None:
    found = inference_verdicts(measured(6.0, 2.0, 2.0, 1.5, 1.0, repeats=3))
    assert {each.outcome for each in found} == {OPEN}
    assert {each.low for each in found} == {None}
