"""Meta-training on tier 0: it is refused before it works, or its bundle is there in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import locked
from controller.bundle.bundle import show_bundle, verify_bundle
from controller.env.machine_instances import DrawnInstances
from controller.indicator import training
from studies import controller_training

pytestmark = pytest.mark.usefixtures("_few_schedules")
SMALL: dict[str, Any] = {"iterations": 2, "instances": 1, "draws": 1, "seed": 0}


@pytest.fixture
def _few_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_training, "SCHEDULED", 1)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = controller_training.train_tier0(tmp_path / "straight", **SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(controller_training, "compare", interrupt)
        with pytest.raises(KeyboardInterrupt):
            controller_training.train_tier0(tmp_path / "bundle", **{**SMALL, "iterations": 1})
    with pytest.raises(UserError, match=r"\.bundle\.training: .*other settings \(instances\)"):
        controller_training.train_tier0(tmp_path / "bundle", **{**SMALL, "instances": 2})
    with pytest.raises(UserError, match="is 1 iterations long, more than 0; ask for"):
        controller_training.train_tier0(tmp_path / "bundle", **{**SMALL, "iterations": 0})
    with monkeypatch.context() as patched:
        played, play_all = [], training.ratios_on
        patched.setattr(training, "ratios_on", lambda *a: [played.append(1), play_all(*a)][1])
        resumed = controller_training.train_tier0(tmp_path / "bundle", **SMALL)
    assert len(played) == SMALL["iterations"] - 1
    assert resumed["history"] == straight["history"]
    assert resumed["rows"] == straight["rows"]
    for name in ("controller.safetensors", "schedule.json"):
        one, other = (tmp_path / folder / name for folder in ("straight", "bundle"))
        assert one.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "straight"]


@pytest.mark.slow
def test_a_bundle_says_how_long_its_longest_run_was_and_that_draws_have_no_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_training, "SCHEDULED", 3)  # of which the third is the longest
    controller_training.train_tier0(tmp_path / "bundle", **SMALL)
    draws = [DrawnInstances("train")[number] for number in range(3)]
    longest = max(draws, key=lambda item: item.horizon_seconds)
    assert longest.name != draws[0].name
    shown = show_bundle(tmp_path / "bundle")
    (trained_on,) = shown["instances"]
    names = ("horizon_seconds", "interval_seconds", "first_interval_seconds")
    for found in (shown, trained_on):
        assert tuple(found[name] for name in names) == longest.lengths
    assert 0.0 < shown["first_interval_seconds"] < shown["interval_seconds"]
    assert list(trained_on["seeds"]) == []


def test_a_place_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        controller_training, "train_on_tier0", lambda *_, **__: pytest.fail("it trained")
    )
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        controller_training.train_tier0(tmp_path / "file" / "bundle", **SMALL)


def test_what_cannot_be_gone_on_from_or_is_under_way_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        controller_training, "train_on_tier0", lambda *_, **__: pytest.fail("it trained")
    )
    begun = tmp_path / ".bundle.training"
    begun.mkdir()
    (begun / "state.json").write_text("{}")
    with pytest.raises(
        UserError, match=r"not a checkpoint .*: delete .*/\.bundle\.training to do so"
    ):
        controller_training.train_tier0(tmp_path / "bundle", **SMALL)
    with (
        locked(tmp_path / ".bundle.training.lock", ""),
        pytest.raises(UserError, match="bundle is being trained; wait until that ends"),
    ):
        controller_training.train_tier0(tmp_path / "bundle", **SMALL)


@pytest.mark.slow
def test_the_bundle_may_be_the_folder_that_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    controller_training.train_tier0(Path("."), **SMALL)
    assert verify_bundle(".")["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
