"""What choosing a strategy by name says beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.strategy import bind, specs_of
from accerl.runtime.latency.profiles import (
    MEASURED,
    load_profile,
    profile_folder,
    save_profile,
)
from accerl.settings import configure
from accerl.training.run import known_times
from studies.strategies import choose_strategy
from tests.fixtures.controllers.made_bundles import make_indicator_bundle

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
        assert f"`accerl profile measure --game cartpole --network {OWN}`" in told
        told = " ".join(said(capsys, strategy).split())
        assert "nobody measured this machine" in told
        assert "takes it for two-core;" in told
    assert said(capsys, "reward-gap", network=OWN) == ""
    save_profile(load_profile("two-core"), profile_folder() / f"{MEASURED}.json")
    told = " ".join(said(capsys, "indicator").split())
    assert "nobody measured" not in told
    assert "measured with pong, whose times the indicator takes for those of cartpole" in told
