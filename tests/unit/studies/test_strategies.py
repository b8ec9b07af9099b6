"""What choosing a strategy by name says beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategy import bind, specs_of
from accerl.records import fingerprint, read_json
from accerl.runtime.latency.profiles import (
    MEASURED,
    load_profile,
    profile_folder,
    save_profile,
)
from accerl.settings import configure
from accerl.training.run import known_times, run_training
from controller.bundle.bundle import export_bundle, load_bundle
from controller.bundle.serving import ServedSchedule
from studies.strategies import choose_strategy
from tests.fixtures.controllers.made_bundles import (
    META,
    make_indicator_bundle,
    make_schedules,
    make_wide,
)

OWN = "tests.fixtures.own_networks:residual"


def said(capsys: pytest.CaptureFixture[str], strategy: str, **config: Any) -> str:
    runtime = {"runtime.runtime": "process", "runtime.clock": "real"}
    run = configure("cartpole", runtime, **config)
    choose_strategy(strategy, run, spec="{}", params="{}", bundle_mode="policy", strict=False)
    return capsys.readouterr().err


def test_specs_without_times_are_named_and_recorded_on_the_real_clock_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is named is what does not act when the strategy is bound to the run."""
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path / "home"))
    bundle = str(make_indicator_bundle(tmp_path / "learned"))
    run = configure("cartpole", {"runtime.runtime": "process", "runtime.clock": "real"})
    given = {"spec": "{}", "params": "{}", "bundle_mode": "policy"}
    for name, low_rank in ((bundle, "rank 50% INT8"), ("indicator", "rank 25% INT8")):
        chosen = choose_strategy(name, run, strict=False, **given)
        told = " ".join(capsys.readouterr().err.split())
        assert "warning: this run cannot act with 1 of the specs of" in told
        assert f"original {low_rank} (no times in latency profile two-core)" in told
        before = specs_of(chosen)
        bind(chosen, run, known_times(run, None))
        left = [spec.label for spec in before if spec not in specs_of(chosen)]
        assert left == [f"original {low_rank}"]
        if name == bundle:
            replaced = chosen.to_json()["params"]["replaced"]  # pyright: ignore
            assert replaced == dict.fromkeys(left)
    with pytest.raises(UserError, match="cannot act with 1 of its specs"):
        choose_strategy(bundle, run, strict=True, **given)
    choose_strategy(bundle, run, strict=True, **{**given, "bundle_mode": "schedule"})


def test_a_strategy_of_one_s_own_is_made_with_its_parameters() -> None:
    path = "tests.fixtures.own_strategies:Careful"
    given = {"spec": "{}", "bundle_mode": "policy", "strict": False}
    made = choose_strategy(path, configure("catch", {}), params='{"bits": 32}', **given)
    assert made.spec.bits == 32  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UserError, match=r"cannot be made with \{'bit': 8\}"):
        choose_strategy(path, configure("catch", {}), params='{"bit": 8}', **given)


def test_an_indicator_that_knows_no_speeds_says_how_to_measure_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path / "home"))
    for strategy in ("indicator", str(make_indicator_bundle(tmp_path / "learned"))):
        told = " ".join(said(capsys, strategy, network=OWN).split())
        assert f"nobody measured how fast {OWN} learns" in told
        only = " --specs indicator" if strategy == "indicator" else ""
        assert f"`accerl profile measure --game cartpole --network {OWN}{only}`" in told
        told = " ".join(said(capsys, strategy).split())
        assert "nobody measured this machine" in told
        assert "takes it for two-core;" in told
    assert said(capsys, "reward-gap", network=OWN) == ""
    here = replace(load_profile("two-core"), fingerprint=fingerprint())
    save_profile(here, profile_folder() / f"{MEASURED}.json")
    told = " ".join(said(capsys, "indicator").split())
    assert "nobody measured" not in told
    assert "measured with pong, whose times the indicator takes for those of cartpole" in told


def test_a_rule_that_lacks_times_says_in_one_line_how_to_measure_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError) as refused:
        said(capsys, "advise-kl-cap", network=OWN)
    assert str(refused.value).endswith(
        f"measure it with `accerl profile measure --game cartpole --network {OWN}`"
    )
    assert "--profile" not in str(refused.value)
    assert capsys.readouterr().err == ""
    assert "nobody measured this machine" in said(capsys, "advise-kl-cap")


def replayed_on_catch(folder: Path, seconds: float) -> tuple[RunConfig, Path]:
    """Return a run of the smallest learner, and a bundle whose schedules need a larger one."""
    made = make_schedules()
    schedules = {"catch-paper-1080ti": made["catch"], "all": made["breakout"]}
    runtime = {"interval_seconds": 0.25, "num_envs": 8, "eval_episodes": 4}
    settings = {f"runtime.{name}": value for name, value in runtime.items()}
    run = configure("catch", {**settings, "learner.unroll": 9}, network="net3", seconds=seconds)
    return run, export_bundle(folder, make_wide(), META, schedules)


def by_command_line(run: RunConfig, bundle: Path) -> ServedSchedule:
    given = {"spec": "{}", "params": "{}", "bundle_mode": "schedule"}
    chosen = choose_strategy(str(bundle), run, strict=False, **given)
    assert isinstance(chosen, ServedSchedule)
    return chosen


def test_python_replays_the_schedule_that_the_command_line_replays(tmp_path: Path) -> None:
    """That of the game on the machine, and alike in place of what the learner has no room for."""
    run, bundle = replayed_on_catch(tmp_path / "learned", 2.0)
    by_command, by_python = by_command_line(run, bundle), load_bundle(bundle, mode="schedule")
    assert isinstance(by_python, ServedSchedule)
    decided = []
    for name, strategy in (("command", by_command), ("python", by_python)):
        reports = run_training(run, strategy, out=tmp_path / name).reports
        decided.append([report.decision.label for report in reports])
    assert decided[0] == decided[1]
    assert list(dict.fromkeys(decided[0])) == ["original pruned 50% INT8", "original fp32"]
    told = by_python.to_json()["params"]
    assert told == by_command.to_json()["params"]
    assert told["schedule"] == "catch-paper-1080ti"
    assert told["replaced"] == {"net3 pruned 50% INT8": "original pruned 50% INT8"}
    other = load_bundle(bundle, mode="schedule", game="all")
    with pytest.raises(UserError, match=r"other settings \(strategy_params"):
        run_training(run, other, out=tmp_path / "python", resume=True)


def test_python_records_the_schedule_that_the_command_line_records(tmp_path: Path) -> None:
    run, bundle = replayed_on_catch(tmp_path / "learned", 0.25)
    run_training(run, load_bundle(bundle, mode="schedule"), out=tmp_path / "run")
    recorded = read_json(tmp_path / "run" / "config.json")["strategy_params"]
    assert recorded == by_command_line(run, bundle).to_json()["params"]
