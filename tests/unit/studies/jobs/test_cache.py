"""Saved results: what is done is not done again, also after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.jobs.cache import ResultCache


def test_what_is_saved_is_not_made_again_by_whoever_sees_the_folder(tmp_path: Path) -> None:
    first, second = ResultCache(tmp_path / "saved"), ResultCache(tmp_path / "saved")
    assert first.get(["a", {"x": 1}], lambda: {"value": (7,)}) == {"value": [7]}  # as it is read
    assert ["a", {"x": 1}] in second
    assert second.get(["a", {"x": 1}], lambda: {"value": 8}) == {"value": [7]}
    assert second.get(["a", {"x": 2}], lambda: {"value": 8}) == {"value": 8}
    assert len(list((tmp_path / "saved").iterdir())) == 2


@pytest.mark.parametrize("damaged", ["", "null", "{}", '{"key": 1, "resu', "\x00\x00"])
def test_a_damaged_file_is_made_again_and_spoils_nothing(damaged: str, tmp_path: Path) -> None:
    ResultCache(tmp_path).save("key", 1)
    (file,) = tmp_path.iterdir()
    file.write_text(damaged)
    again = ResultCache(tmp_path)
    assert "key" not in again
    with pytest.raises(KeyError):
        again["key"]
    again.save("key", 2)
    assert ResultCache(tmp_path)["key"] == 2


def test_long_values_of_a_key_are_written_as_their_hash(tmp_path: Path) -> None:
    ResultCache(tmp_path).save({"seed": 3, "profile": list(range(1000))}, 1)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 500
    assert json.loads(file.read_text())["key"]["seed"] == 3


def test_without_a_folder_results_stay_in_memory(tmp_path: Path) -> None:
    saved = ResultCache(None)
    assert saved.get("key", lambda: 1) == 1
    assert saved.get("key", lambda: 2) == 1
    assert not list(tmp_path.iterdir())
