"""The report of a real study holds the numbers of its records; CI runs this on its tiny study.

    ACCERL_STUDY=DIR python -m pytest tests/e2e/tiny_study.py

Everything is computed here once more, from metrics.jsonl and study.json alone.
"""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

STUDY = Path(os.environ["ACCERL_STUDY"])
INFO = json.loads((STUDY / "study.json").read_text())
CONTEST = json.loads((STUDY / "contest.json").read_text())
REPORT = (STUDY / "report.html").read_text()


class Cells(HTMLParser):
    """The rows of all tables as lists of texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def seconds_to_target(folder: Path, game: dict[str, Any]) -> tuple[float, bool]:
    """Return when the mean of two evaluations crosses the target, and whether it ever does."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    measured = [line for line in lines if line["learner_return"] is not None]
    times = np.array([0.0, *(line["total_seconds"] for line in measured)])
    returns = np.array([game["random_return"], *(line["learner_return"] for line in measured)])
    smooth = np.array([returns[0], *(0.5 * (returns[1:] + returns[:-1]))])
    above = np.flatnonzero(smooth >= game["target_return"])
    if len(above) == 0:
        return game["horizon_seconds"], False
    place = slice(above[0] - 1, above[0] + 1)
    crossing = float(np.interp(game["target_return"], smooth[place], times[place]))
    late = crossing > game["horizon_seconds"]
    return (game["horizon_seconds"], False) if late else (crossing, True)


@pytest.fixture(scope="module")
def times() -> dict[tuple[str, str, int], tuple[float, bool]]:
    return {
        (strategy["name"], name, seed): seconds_to_target(
            STUDY / "runs" / strategy["name"] / name / f"seed-{seed}", game
        )
        for strategy in INFO["strategies"]
        for name, game in INFO["games"].items()
        for seed in strategy["test_seeds"]
    }


def test_every_row_of_the_contest_follows_from_its_run(times: dict[Any, Any]) -> None:
    assert len(CONTEST["rows"]) == len(times)
    for row in CONTEST["rows"]:
        seconds, reached = times[row["strategy"], row["env"], row["seed"]]
        assert row["seconds_to_target"] == pytest.approx(seconds)
        assert row["censored"] == (not reached)


def test_the_report_holds_ratios_and_counts_of_the_records(times: dict[Any, Any]) -> None:
    labels = {item["name"]: item["label"] for item in INFO["strategies"]}
    contrasts = REPORT[REPORT.index('id="contrasts"') : REPORT.index('id="limits-of')]
    rows = {row[0]: row for row in Cells(contrasts).rows[::-1] if row}  # the first table wins
    for other in INFO["primary_against"]:
        logs = [
            np.mean(
                [
                    np.log(times[INFO["subject"], game, seed][0] / times[other, game, seed][0])
                    for seed in INFO["test_seeds"]
                    if (other, game, seed) in times
                ]
            )
            for game in INFO["games"]
        ]
        found = [found for (name, *_), found in times.items() if name == other]
        _, _, ratio, _, reached = rows[labels[other]]
        assert ratio == f"{np.exp(np.mean(logs)):.2f}"
        assert reached == f"{sum(ended for _, ended in found)} of {len(found)}"


def test_the_report_opens_with_the_verdict_and_the_curves() -> None:
    first = REPORT[REPORT.index('id="answer"') : REPORT.index('id="contrasts"')]
    assert CONTEST["verdict"][0] in first
    assert re.search(r'<figure class="learning-curves">', first)


def test_a_run_for_wandb_of_every_strategy_and_one_of_the_figures_are_there() -> None:
    strategies = {row["strategy"] for row in CONTEST["rows"]}
    runs = list(STUDY.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(runs) == len(strategies) + 1
    assert all(run.stat().st_size for run in runs)
    assert json.loads((STUDY / "wandb" / "report.json").read_text())
