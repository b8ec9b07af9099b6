"""Energy: codecarbon's estimate is passed on as one, and what it needs is said in a line."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from time import perf_counter

import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.runtime.machine.energy import EnergyMeter
from tests.fixtures.command_line import accerl
from tests.fixtures.runs.processes import wait_for


def keep_busy(seconds: float) -> None:
    until = perf_counter() + seconds
    while perf_counter() < until:
        pass


def test_the_estimate_is_named_as_one_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with EnergyMeter("DEU") as meter:
        keep_busy(1.0)
    found = meter.estimate()
    assert "codecarbon 3." in found["by"]
    assert "estimate" in found["by"]
    assert 1.0 <= found["seconds"] < 30.0
    parts = found["cpu_kwh"] + found["gpu_kwh"] + found["ram_kwh"]
    assert 0.0 < found["kwh"] == pytest.approx(parts)
    assert 0.1 < found["kg_co2e"] / found["kwh"] < 1.0  # of Germany's power
    assert found["country"] == "DEU"
    assert not [*tmp_path.iterdir()]


def test_it_stops_when_the_run_fails() -> None:
    before = set(threading.enumerate())
    at_work: list[set[threading.Thread]] = []

    def fail() -> None:
        at_work.append(set(threading.enumerate()) - before)
        raise RuntimeError

    with pytest.raises(RuntimeError), EnergyMeter("USA"):
        fail()
    assert at_work[0]  # it reads the machine's load meanwhile
    # Not by their number: threads of other tests may have ended since.
    wait_for(lambda: not set(threading.enumerate()) - before, "codecarbon to stop")


@pytest.mark.parametrize(("country", "words"), [("deu", "did you mean 'DEU'"), ("x", "no such")])
def test_a_country_that_does_not_exist_is_refused(country: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        EnergyMeter(country)
    assert "\n" not in str(caught.value)


def test_a_run_on_the_real_clock_has_the_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ["train", "catch", "--seconds", 0.5, "--energy", "DEU", "--out", tmp_path / "run"]
    assert "real clock" in accerl(capsys, *train).complaint
    done = accerl(capsys, *train, "--clock", "real", "--json")
    found = done.json["energy_estimate"]
    assert found["kwh"] > 0.0
    assert read_json(tmp_path / "run" / "summary.json")["energy_estimate"] == found
    shown = f"{1e3 * found['kwh']:.3g} Wh, {1e3 * found['kg_co2e']:.3g} g CO2e (DEU)"
    assert f"for the whole machine, others' work included: {shown}" in done.err
    done = accerl(capsys, *train, "--clock", "real", "--json", "--resume")
    assert "is finished after" in done.err
    assert done.json["energy_estimate"] == found  # nothing was run that could be measured


def test_without_codecarbon_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with pytest.raises(UserError, match=r"--energy needs codecarbon: pip install codecarbon"):
        EnergyMeter("DEU")
