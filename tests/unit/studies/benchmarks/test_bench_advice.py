"""The advice and what this machine does: the real processes, for seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.machine.cores import usable_cores
from accerl.spec import CompressionSpec
from studies.benchmarks.clocks.advice import bench_advice
from studies.jobs.cache import ResultCache

INT8 = CompressionSpec(bits=8)


@pytest.mark.slow
def test_specs_act_beside_what_is_predicted_of_them(tmp_path: Path) -> None:
    def bench() -> dict[str, Any]:
        kept = ResultCache(tmp_path)
        short = {"seconds": 4.0, "rounds": 1, "repeats": 2, "kept": kept}
        return bench_advice(game="catch", network="net1", specs=[INT8], actors=1, **short)

    result = bench()
    fp32, int8 = result["rows"]
    assert (fp32["spec"], int8["spec"]) == ("original fp32", "original INT8")
    assert (result["actors"], result["cores"]) == (1, usable_cores())
    for row in (fp32, int8):
        assert row["acted"] > 0.9
        assert len(row["real_all"]) == 2
        # Loose: other tests may run on the same cores.
        assert 0.1 < row["real"] / row["predicted"] < 10.0
        assert row["error"] == pytest.approx(row["predicted"] / row["real"] - 1.0)
        assert 0.0 < row["cores"]["learner"] <= 1.1
    assert fp32["real_speedup"] == 1.0
    best = max(fp32["real"], int8["real"])
    advised = next(row for row in result["rows"] if row["spec"] == result["advised"])
    assert result["advised_over_fastest"] == advised["real"] / best
    files = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert bench() == result
    assert {path: path.stat().st_mtime_ns for path in files} == files


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seconds": 1.0}, "--seconds"),
        ({"repeats": 0}, "--repeats"),
        ({"game": "brakeout"}, "breakout"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        bench_advice(specs=[INT8], **changes)
