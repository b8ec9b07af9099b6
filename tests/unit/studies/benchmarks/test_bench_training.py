"""Learning on the real clock, compared: the real processes, for seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.errors import UserError
from accerl.spec import IDENTITY, CompressionSpec
from studies.benchmarks.training import bench_training
from studies.jobs.cache import ResultCache

NET3 = CompressionSpec(bits=8, student="net3")


@pytest.mark.slow
def test_specs_are_trained_and_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    def bench() -> dict[str, object]:
        kept = ResultCache(tmp_path / "runs")
        return bench_training(
            game="catch", network="original", specs=[IDENTITY, NET3], seconds=4, seeds=1, kept=kept
        )

    result = bench()
    fp32, net3 = result["cases"][0]["variants"]  # pyright: ignore[reportIndexIssue]
    assert fp32["distill_cores"] == 0.0 < net3["distill_cores"]
    assert fp32["env_steps_per_second"] > 0.0
    assert net3["compression_kl_nats"] > 0.0
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    assert len(files) == 2
    assert bench() == result
    assert {path: path.stat().st_mtime_ns for path in files} == files


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seconds": 0.0}, "--seconds"),
        ({"seeds": 0}, "--seeds"),
        ({"game": "brakeout"}, "breakout"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(UserError, match=text):
        bench_training(specs=[IDENTITY], **changes)  # pyright: ignore[reportArgumentType]
