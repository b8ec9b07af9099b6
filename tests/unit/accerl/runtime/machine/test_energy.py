"""Energy: codecarbon's estimate is passed on as one, and what it needs is said in a line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import read_json
from accerl.runtime.machine.energy import EnergyMeter
from tests.fixtures.command_line import accerl


class Tracker:
    """Stands for codecarbon's, which the tests do not install."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.calls: list[str] = []
        self.final_emissions_data = SimpleNamespace(
            duration=7200.0,
            energy_consumed=0.02,
            cpu_energy=0.015,
            gpu_energy=0.0,
            ram_energy=0.005,
            emissions=0.007,
        )

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def trackers(monkeypatch: pytest.MonkeyPatch) -> list[Tracker]:
    made: list[Tracker] = []

    def make(**settings: Any) -> Tracker:
        made.append(Tracker(**settings))
        return made[-1]

    package: Any = ModuleType("codecarbon")
    data: Any = ModuleType("codecarbon.input")
    package.OfflineEmissionsTracker, package.__version__ = make, "3.3.2"
    known = {"DEU": {}, "USA": {}}
    data.DataSource = lambda: SimpleNamespace(get_global_energy_mix_data=lambda: known)
    monkeypatch.setitem(sys.modules, "codecarbon", package)
    monkeypatch.setitem(sys.modules, "codecarbon.input", data)
    return made


def test_the_estimate_is_named_as_one(trackers: list[Tracker]) -> None:
    with EnergyMeter("DEU") as meter:
        assert trackers[0].calls == ["start"]
    found = meter.estimate()
    assert trackers[0].calls == ["start", "stop"]
    assert "estimate" in found["by"]
    assert (found["kwh"], found["kg_co2e"], found["country"]) == (0.02, 0.007, "DEU")
    # Nothing is asked of the network or written beside the run.
    assert trackers[0].settings["country_iso_code"] == "DEU"
    assert trackers[0].settings["save_to_file"] is False


def test_it_stops_when_the_run_fails(trackers: list[Tracker]) -> None:
    with pytest.raises(RuntimeError), EnergyMeter("USA"):
        raise RuntimeError
    assert trackers[0].calls == ["start", "stop"]


@pytest.mark.usefixtures("trackers")
@pytest.mark.parametrize(("country", "words"), [("deu", "did you mean 'DEU'"), ("x", "no such")])
def test_a_country_that_does_not_exist_is_refused(country: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        EnergyMeter(country)
    assert "\n" not in str(caught.value)


def test_a_run_on_the_real_clock_has_the_estimate(
    trackers: list[Tracker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ["train", "catch", "--seconds", 0.5, "--energy", "DEU", "--out", tmp_path / "run"]
    assert "real clock" in accerl(capsys, *train).complaint
    done = accerl(capsys, *train, "--clock", "real", "--json")
    assert done.json["energy_estimate"]["kwh"] == 0.02
    assert read_json(tmp_path / "run" / "summary.json")["energy_estimate"]["country"] == "DEU"
    assert "20 Wh, 7 g CO2e (DEU)" in done.err
    assert [tracker.calls for tracker in trackers] == [["start", "stop"]]


def test_without_codecarbon_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with pytest.raises(UserError, match=r"--energy needs codecarbon: pip install codecarbon"):
        EnergyMeter("DEU")
