"""What choosing a strategy by name says beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.profiles import (
    MEASURED,
    load_profile,
    profile_folder,
    save_profile,
)
from accerl.settings import configure
from studies.strategies import choose_strategy
from tests.fixtures.controllers.made_bundles import make_indicator_bundle

OWN = "tests.fixtures.own_networks:residual"


def said(capsys: pytest.CaptureFixture[str], strategy: str, **config: Any) -> str:
    runtime = {"runtime.runtime": "process", "runtime.clock": "real"}
    run = configure("cartpole", runtime, **config)
    choose_strategy(strategy, run, spec="{}", params="{}", bundle_mode="policy", strict=False)
    return capsys.readouterr().err


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
        assert "takes it for two-core until" in told
    assert said(capsys, "reward-gap", network=OWN) == ""
    save_profile(load_profile("two-core"), profile_folder() / f"{MEASURED}.json")
    assert "nobody measured" not in said(capsys, "indicator")
