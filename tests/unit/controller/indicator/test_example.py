"""The example run says why it decided so."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.records import read_metrics
from controller.indicator.example import SPECS, run_example


@pytest.mark.slow
def test_the_example_explains_every_decision(tmp_path: Path) -> None:
    run_example(tmp_path / "run", seconds=0.25)
    reports = list(read_metrics(tmp_path / "run"))
    assert len(reports) == 1
    assert all(set(r.explanation) == {spec.label for spec in SPECS} for r in reports)
