"""The contest's runs on the real clock: real processes, a measured profile, and its prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.strategies import make_strategy
from accerl.monitor.strategy import check_needs
from accerl.records import read_json
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY
from studies.contest.real_clock import REAL, real_config, real_contest, told
from studies.jobs.executor import open_executor
from tests.fixtures.studies.jobs import INSTANCE

GAME = "minatar-breakout"


@pytest.mark.slow
def test_speeds_are_measured_predicted_and_kept(tmp_path: Path) -> None:
    def contest(strategies: tuple[str, ...]) -> list[dict[str, object]]:
        with open_executor(tmp_path, 1) as executor:
            result = real_contest(
                tmp_path,
                executor,
                dict.fromkeys(strategies, lambda game: ({"name": "fixed", "params": {}}, INSTANCE)),
                [IDENTITY],
                games=(GAME,),
                seeds=1,
                seconds=3.0,
                changing=True,
                repeats=1,
            )
        assert read_json(tmp_path / REAL)["rows"] == result["rows"]
        return result["rows"]

    (first,) = contest(("fp32",))
    assert (first["game"], first["strategy"], first["seed"]) == (GAME, "fp32", 320)
    summary = read_json(tmp_path / "real" / GAME / "fp32" / "seed-320" / "summary.json")
    assert summary["tier"] == "real"
    assert summary["runtime"] == "process"
    config = read_json(tmp_path / "real" / GAME / "fp32" / "seed-320" / "config.json")
    assert [event["kind"] for event in config["conditions"]["events"]] == ["co-tenant"] * 2
    speeds = [first["env_steps_per_second"], first["predicted_env_steps_per_second"]]
    assert all(isinstance(speed, float) and speed > 0.0 for speed in speeds)
    assert contest(("fp32",)) == [first]  # what is done is not done again


def test_with_profiles_of_another_machine_no_run_is_made(tmp_path: Path) -> None:
    other = replace(load_profile("two-core"), fingerprint={"id": "another"})
    asked: list[str] = []

    def made(jobs: list[Any], on_done: Any) -> list[Any]:
        asked.extend(job.kind for job in jobs)
        return [SimpleNamespace(result=other) for _ in jobs]

    executor: Any = SimpleNamespace(is_local=True, map=made, is_saved=lambda job: False)
    with pytest.raises(UserError, match="is of several machines"):
        real_contest(
            tmp_path,
            executor,
            {"fp32": lambda game: ({"name": "fixed", "params": {}}, INSTANCE)},
            [IDENTITY],
            games=(GAME,),
            seeds=1,
            seconds=3.0,
            changing=False,
            repeats=1,
        )
    assert asked == ["profile"]


@pytest.mark.parametrize("game", ["pong", "breakout", "minatar-breakout"])
def test_every_rule_can_act_on_every_game(game: str) -> None:
    config = real_config(game, 600.0, changing=True)
    for name in ("reward-gap", "kl-threshold", "three-stage"):
        check_needs(make_strategy(name), config.runtime.eval_episodes)


def test_what_is_told_compares_means() -> None:
    rows = [
        {
            "game": GAME,
            "strategy": "fp32",
            "env_steps_per_second": real,
            "predicted_env_steps_per_second": predicted,
        }
        for real, predicted in ((900.0, 1100.0), (1100.0, 1100.0))
    ]
    stopped = {**rows[0], "strategy": "INT8", "env_steps_per_second": 0.0}
    assert told([*rows, stopped]) == [
        f"{GAME}, fp32: 1,000 env steps/s; the virtual clock says 1,100 (+10%)",
        f"{GAME}, INT8: 0 env steps/s; the virtual clock says 1,100",
    ]
