"""What a study exports: every ratio of its contest, and schedules of all its games."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accerl.records import read_json
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import Decision
from controller.bundle.bundle import read_bundle, verify_bundle
from controller.bundle.meta import ProfileId
from controller.env.instances import Instance
from controller.shield import Shielded
from studies.contest.budget import ACTIONS
from studies.contest.deliver import export, ratio_rows, variant_rows
from studies.contest.entrants import Entrant
from studies.contest.training import Trained
from studies.jobs.inner import StrategyResult
from tests.fixtures.controllers.made_bundles import make_indicator

GAMES = [
    Instance(
        game=game,
        profile=profile,
        horizon_seconds=horizon,
        interval_seconds=horizon / 4,
        target_return=1.0,
    )
    for game, profile, horizon in (("catch", "edge", 40.0), ("catch", "two-core", 20.0))
]
HARD, MILD = ACTIONS.decision((1, 1, 1)), ACTIONS.decision((0, 0, 0))


def run(reached_after: float, decisions: list[Decision]) -> StrategyResult:
    """A run whose smoothed return rises in a straight line to twice the target."""
    times = np.linspace(0.0, 2.0 * reached_after, 5)
    return StrategyResult(
        times=tuple(times.tolist()),
        returns=(0.0, 1.0, 1.0, 2.0, 2.0),
        decisions=tuple(decisions),
        env_steps=(0,),
    )


def results(pairs: int) -> dict[str, dict[str, list[StrategyResult]]]:
    schedule = [HARD, HARD, MILD, MILD]
    ours = {"catch-edge": 8.0, "catch-two-core": 4.0}
    return {
        "learned": {name: [run(after, schedule)] * pairs for name, after in ours.items()},
        "fp32": {
            "catch-edge": [run(16.0, [MILD] * 4)] * pairs,
            "catch-two-core": [run(4.0, [MILD] * 4)] * pairs,
        },
        "static": {name: [run(1000.0, [HARD] * 4)] * pairs for name in ours},
    }


def test_ratios_are_those_of_seconds_to_target() -> None:
    rows = {(row.against, row.instance): row for row in ratio_rows(GAMES, results(3), "learned")}
    assert set(rows) == {
        (other, name)
        for other in ("fp32", "static")
        for name in ("catch-edge", "catch-two-core", "all")
    }
    assert {(row.metric, row.n) for row in rows.values()} == {
        ("seconds_to_target", 3),
        ("seconds_to_target", 6),
    }
    assert rows["fp32", "catch-edge"].ratio == pytest.approx(0.5)
    assert rows["fp32", "catch-two-core"].ratio == pytest.approx(1.0)
    together = rows["fp32", "all"]
    assert (together.ratio, together.n) == (pytest.approx(0.5**0.5), 6)
    assert together.low == pytest.approx(together.ratio)  # every pair of a game is the same
    # Never reached: censored at the horizon. Ours took 8 and 4 seconds of 40 and 20.
    assert rows["static", "catch-edge"].ratio == pytest.approx(8.0 / 40.0)
    assert rows["static", "all"].ratio == pytest.approx(0.2)


def test_where_neither_side_arrived_there_is_no_ratio() -> None:
    late = results(3)
    for name in ("learned", "fp32"):
        late[name]["catch-edge"] = [run(1000.0, [MILD] * 4)] * 3
    rows = {(row.against, row.instance): row for row in ratio_rows(GAMES, late, "learned")}
    assert ("fp32", "catch-edge") not in rows
    assert rows["fp32", "all"].n == 6
    assert {other for other, name in rows if name == "catch-two-core"} == {"fp32", "static"}


def test_equal_policies_are_equal_whatever_seeds_they_were_tested_on() -> None:
    many = {"rule": [run(after, [HARD] * 4) for after in (10.0, 20.0, 30.0)]}
    many |= {name: [run(after, [HARD] * 4) for after in (5.0, 20.0, 30.0)] for name in ("a", "b")}
    tested = {
        name: {item.name: runs[: 1 if name == "b" else 3] for item in GAMES}
        for name, runs in many.items()
    }
    ways = [
        Trained(
            indicator=make_indicator(specs=ACTIONS.all_specs),
            entrant=Entrant(name=name, label=name, kind="learned", params={"accepted": "it"}),
            what="",
            history=[],
            checks=[],
            seeds={},
            decisions={},
        )
        for name in ("a", "b")
    ]
    first, second = variant_rows(GAMES, tested, ways, "rule")
    assert first["ratio"] == second["ratio"] < 1.0


def test_a_single_pair_has_no_interval() -> None:
    # Two machines share the dice of their one seed: that is one pair, too.
    both = ratio_rows(GAMES, {k: v for k, v in results(1).items() if k != "static"}, "learned")
    assert [(row.instance, row.low) for row in both][-1] == ("all", None)
    alone = ratio_rows(GAMES[:1], {k: v for k, v in results(1).items() if k != "static"}, "learned")
    assert [(row.low, row.high, row.n) for row in alone] == [(None, None, 1)] * 2


def test_a_study_exports_all_that_it_found(tmp_path: Path) -> None:
    profiles = {name: load_profile(name) for name in ("edge", "two-core")}
    export(
        tmp_path,
        make_indicator(specs=ACTIONS.all_specs),
        ACTIONS,
        GAMES,
        GAMES,
        profiles,
        results(2),
        subject="learned",
        decisions={
            item.name: [run.decisions for run in results(2)["learned"][item.name]] for item in GAMES
        },
        shield_nats=14.0,
        inner_runs=16,
        ended_with="the rule that training starts from",
        seeds={"catch": [0, 1]},
        validated=[50, 51],
        contest="abc",
    )
    found = read_bundle(tmp_path / "bundle")
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "training ended with: the rule that training starts from" in card
    assert verify_bundle(tmp_path / "bundle")["results"] == 6
    assert found.meta.profiles == tuple(
        ProfileId(name=name, hash=profile.hash) for name, profile in profiles.items()
    )
    edge, _ = found.meta.instances
    assert (edge.name, edge.seeds, edge.horizon_seconds) == ("catch-edge", (0, 1), 40.0)
    assert edge.validated == (50, 51)
    assert (found.meta.horizon_seconds, found.meta.contest) == (40.0, "abc")
    assert set(found.schedules) == {"catch-edge", "catch-two-core", "catch", "all"}
    assert found.schedule_for("catch-gpu", "catch") == "catch"
    assert [point.seconds for point in found.schedules["all"].points] == [0.0, 10.0, 20.0, 30.0]
    assert found.meta.shield_nats == 14.0
    assert isinstance(found.strategy("policy"), Shielded)
    manifest = read_json(tmp_path / "bundle" / "bundle.json")
    assert manifest["meta"]["results"][0]["against"] == "fp32"


def test_only_seeds_that_both_were_tested_on_are_compared() -> None:
    many, few = results(3), results(3)
    few["fp32"] = {name: runs[:2] for name, runs in many["fp32"].items()}
    rows = {(row.against, row.instance): row for row in ratio_rows(GAMES, few, "learned")}
    assert {row.n for (other, _), row in rows.items() if other == "fp32"} == {2, 4}
    assert {row.n for (other, _), row in rows.items() if other != "fp32"} == {3, 6}
