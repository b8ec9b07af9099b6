"""Table 6: what inference takes per network, the paper's machine beside this one.

Here processor time is counted, not time that passes: engines compute in one thread, so both are
the same on an idle machine, and on a loaded one only the spread grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import thread_time
from typing import Any, ClassVar

import numpy as np

from accerl.spec import CompressionSpec
from analysis.comparison.stats import finite_or_none
from studies.benchmarks.infer import bench_infer
from studies.jobs.executor import Job
from studies.learning.interval import median_interval
from studies.papers.figure import PaperFigure
from studies.papers.verdict import Verdict, outcome_of

FIGURE = PaperFigure(
    name="table6",
    title="Inference by network",
    claim="One state takes Original 6.0 ms, Net1 2.5, Net2 1.9, Net3 1.2, and Original in INT8 "
    "3.0 ms (GTX 1080 Ti, one state at a time, PyTorch; here in ONNX Runtime, and Original in "
    "eager PyTorch as well).",
    rules="medians over repeats",
)
PUBLISHED_MS: Mapping[CompressionSpec, float] = {
    CompressionSpec(): 6.0,
    CompressionSpec(bits=8): 3.0,
    CompressionSpec(student="net1"): 2.5,
    CompressionSpec(student="net2"): 1.9,
    CompressionSpec(student="net3"): 1.2,
}
MOST_PUBLISHED = 4.13
"""times as fast as Original, of the actors' time: the abstract's range ends there"""


@dataclass(frozen=True, kw_only=True)
class InferRows:
    """Rows of `bench_infer`."""

    rows: Sequence[Mapping[str, Any]]
    fingerprint: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class InferJob(Job[InferRows]):
    """Measures inference of one state on the machine that it runs on."""

    kind: ClassVar[str] = "infer"
    is_timed: ClassVar[bool] = True
    repeats: int
    distill_updates: int

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            "kind": self.kind,
            "clock": "processor",
            "repeats": self.repeats,
            "distill_updates": self.distill_updates,
            "rows": "with repeats",  # those of another form are measured again
        }

    def run(self) -> InferRows:
        """Measure."""
        found = bench_infer(
            (1,), self.repeats, distill_updates=self.distill_updates, clock=thread_time
        )
        return InferRows(rows=found["rows"], fingerprint=found["fingerprint"])

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> InferRows:
        """Read rows."""
        return InferRows(rows=data["rows"], fingerprint=data["fingerprint"])


def inference_table(measured: InferRows) -> list[dict[str, Any]]:
    """Return milliseconds per state, published and here, and both over Original in float32.

    The spread is the range of the middle half of all repeats; speed-ups are medians of what is
    found within a repeat, which slows both sides alike. `here_repeats_ms` has each of them.
    """
    rows = []
    for row in measured.rows:
        spec = CompressionSpec(**row["spec"])
        published = PUBLISHED_MS.get(spec)
        rows.append(
            {
                "label": spec.label,
                "published_ms": published,
                "published_speedup": published and PUBLISHED_MS[CompressionSpec()] / published,
                "here_ms": row["us_per_state"] * 1e-3,
                "here_spread_ms": row["spread"] * 1e-3,
                "here_speedup": row["ratio_ort_fp32"],
                "here_repeats_ms": [each * 1e-3 for each in row["repeats_us"]],
            }
        )
    return rows


def inference_verdicts(rows: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Hold what was measured against what the paper's table shows of its machine.

    Args:
        rows: of `inference_table`.
    """
    by_label = {row["label"]: row for row in rows}
    original, int8, *students = (by_label[spec.label] for spec in PUBLISHED_MS)
    sizes = [original, *students]
    steps = [_times_as_fast(slow, fast) for slow, fast in pairwise(sizes)]
    shares = [_times_as_fast(original, row) / row["published_speedup"] for row in students]
    every = [_times_as_fast(original, row) for row in rows if not row["label"].endswith("eager")]
    published = int8["published_speedup"]
    return [
        _verdict(
            "every smaller network takes less time",
            _least(steps),
            1.0,
            "the least that a network's time is of the next smaller one's",
        ),
        _verdict(
            f"Original in INT8 is at least {published:.1f} times as fast",
            median_interval(_times_as_fast(original, int8)),
            published,
            "Original's time in float32 over that in INT8",
        ),
        _verdict(
            f"what is compressed most is at least {MOST_PUBLISHED:g} times as fast, the most that "
            "is claimed",
            median_interval(max(every, key=np.median)),
            MOST_PUBLISHED,
            "Original's time in float32 over the least of all",
        ),
        _verdict(
            "students are at least as many times as fast as the paper's",
            _least(shares),
            1.0,
            "how many times as fast as Original a student is, over how many in the paper; the "
            "least of the three",
        ),
    ]


def _times_as_fast(slow: Mapping[str, Any], fast: Mapping[str, Any]) -> np.ndarray:
    """Return ratios of times [repeats]: within a repeat, a slow moment slows both alike."""
    return np.divide(slow["here_repeats_ms"], fast["here_repeats_ms"])


def _least(ratios: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """Return the least median, and the least of each bound: all must hold."""
    found = [median_interval(each) for each in ratios]
    estimate, low, high = (min(values) for values in zip(*found, strict=True))
    return estimate, low, high


def _verdict(claim: str, found: tuple[float, ...], at_least: float, what: str) -> Verdict:
    estimate, low, high = found
    return Verdict(
        claim=claim,
        outcome=outcome_of(low, high, at_least=at_least),
        what=f"{what}, on the machine that measured it; the median of what is found within repeats",
        estimate=estimate,
        low=finite_or_none(low),
        high=finite_or_none(high),
        runs=0,
        over="repeats",
    )
