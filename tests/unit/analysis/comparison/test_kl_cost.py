"""KL against cost: what is paired, what is left out, and how ranks go together."""

from __future__ import annotations

import math
from typing import Any

import pytest

from accerl.spec import CompressionSpec
from analysis.comparison.room.kl_cost import DRAWN, MILD, kl_and_cost
from analysis.figures.studies.room import cost_by_kl
from analysis.figures.theme import render_svg

SPECS = [CompressionSpec(bits=8, student=name).label for name in ("net1", "net2", "net3")]


def row(game: str, label: str, kl: float | None, steps: float | None, machine: str = "a") -> Any:
    return {
        "game": game,
        "group": DRAWN[0],
        "machine": machine,
        "label": label,
        "compression_kl_nats": kl,
        "env_steps_to_target": steps,
    }


def games() -> list[dict[str, Any]]:
    """In each game what is farther away costs more; the game with the larger KLs costs less."""
    found = []
    for game, scale, cost in (("near", 0.01, 2.0), ("middle", 0.1, 1.5), ("far", 1.0, 1.0)):
        found.append(row(game, MILD, 1e-5, 100.0))
        for place, label in enumerate(SPECS):
            found.append(row(game, label, scale * (place + 1), 100.0 * (cost + 0.1 * place)))
    return found


def test_ranks_within_games_and_across_them_are_two_questions() -> None:
    found = kl_and_cost(games())
    assert found["within_games"] == pytest.approx(1.0)
    assert found["across_games"] == pytest.approx(-1.0)
    assert len(found["rows"]) == 9
    assert found["noise"] is None
    net2 = next(each for each in found["rows"] if each["label"] == SPECS[1])
    assert net2 == {
        "game": "near",
        "label": SPECS[1],
        "kl_nats": pytest.approx(0.02),
        "steps_ratio": pytest.approx(2.1),
        "sampled_on": 1,
        "machines": 1,
    }


def test_machines_are_paired_and_what_is_not_known_is_left_out() -> None:
    label = SPECS[0]
    rows = [
        row("one", MILD, 0.0, 100.0),
        row("one", label, 0.01, 200.0),
        row("one", MILD, 0.0, 50.0, "b"),
        row("one", label, 0.04, 25.0, "b"),
        row("one", label, None, 400.0, "c"),  # nothing to compare with, and no KL
        row("one", SPECS[1], None, 100.0),
        row("one", SPECS[2], 1e-6, 110.0),  # none to speak of: what it costs is noise
        row("two", label, 0.01, 100.0),
    ]
    found = kl_and_cost(rows)
    only, none = found["rows"]
    assert none["label"] == SPECS[2]
    assert found["noise"] == pytest.approx(math.log(1.1))
    assert only["kl_nats"] == pytest.approx(0.02)
    assert only["steps_ratio"] == pytest.approx(1.0)  # twice on one machine, half on another
    assert found["within_games"] is None
    easy = [{**each, "group": "easy games"} for each in games()]
    assert kl_and_cost(easy)["rows"] == []
    # Records of before have none.
    assert kl_and_cost([row("one", MILD, 0.0, 1.0) | {"label": label}])["rows"] == []


def test_the_figure_has_a_mark_for_each() -> None:
    assert cost_by_kl(kl_and_cost([])) is None
    figure = cost_by_kl(kl_and_cost([*games(), row("far", "original rank 25% INT8", 2e-4, 104.0)]))
    assert figure is not None
    assert len(figure.table) == 10
    assert "<svg" in render_svg(figure)
