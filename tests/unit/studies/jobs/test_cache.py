"""Saved results: what is done is not done again, also after a kill."""

from __future__ import annotations

from pathlib import Path

from studies.jobs.cache import ResultCache


def test_what_is_kept_is_not_made_again_by_whoever_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    first = ResultCache(path)
    assert first.get(["a", {"x": 1}], lambda: {"value": 7}) == {"value": 7}
    again = ResultCache(path)
    assert ["a", {"x": 1}] in again
    assert again.get(["a", {"x": 1}], lambda: {"value": 8}) == {"value": 7}
    assert again.get(["a", {"x": 2}], lambda: {"value": 8}) == {"value": 8}


def test_a_line_that_was_cut_off_is_done_again_and_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    whole = ResultCache(path)
    whole.keep("first", 1)
    whole.keep("second", 2)
    path.write_text(path.read_text()[:-5])
    cut = ResultCache(path)
    assert cut["first"] == 1
    assert "second" not in cut
    cut.keep("second", 3)
    assert ResultCache(path)["second"] == 3


def test_without_a_file_results_are_kept_in_memory(tmp_path: Path) -> None:
    kept = ResultCache(None)
    assert kept.get("key", lambda: 1) == 1
    assert kept.get("key", lambda: 2) == 1
    assert not list(tmp_path.iterdir())
