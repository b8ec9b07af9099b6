"""Bars and pictures where pairs are few, or no run reached its target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.comparison.bars import _is_met
from analysis.comparison.contest import build_contest
from analysis.records.load import load_study
from analysis.report.contrasts import _by_instance
from tests.fixtures.studies.synthetic_contest import write_contest_study


@pytest.mark.parametrize(
    ("found", "met"),
    [
        ({"found": 0.87, "high": 0.93}, True),
        ({"found": 0.87, "high": None}, None),
        ({"found": 0.97, "high": None}, False),
    ],
)
def test_a_bar_without_an_interval_is_not_met(found: dict[str, Any], met: bool | None) -> None:
    bar = {"where": "changing conditions", "at_most": 0.95, "below_one": False}
    assert _is_met(bar, {"low": None, "p": None, "missed": 0, **found}) is met


def test_instances_on_which_no_run_arrived_have_a_table_and_no_picture(tmp_path: Path) -> None:
    against = ["fp32", "static", "kl_max", "bandit"]
    folder = write_contest_study(
        tmp_path / "contest", seeds=(100, 101, 102), primary_against=against
    )
    study = load_study(folder)
    contest = build_contest(study)
    for rows in contest["by_instance"].values():
        for row in rows:
            row["tells"] = False
    blocks = _by_instance(study, contest)
    assert len(blocks) == len(contest["by_instance"]) > 0
    assert all(block is not None for block in blocks)
    assert "vega" not in json.dumps([repr(block) for block in blocks])
