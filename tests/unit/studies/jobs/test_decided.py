"""What a study's folder has decided: runs that one machine made count on another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from accerl.errors import UserError
from accerl.precision import AUTO, choose_precision
from accerl.records import read_json, write_json
from studies.jobs.carry import merge_results, pack_results
from studies.jobs.decided import PRECISION
from studies.jobs.executor import Job, config_key, open_executor
from tests.fixtures.studies.jobs import INSTANCE, catch_job

OTHER = {"bf16": "fp32", "fp32": "bf16"}[choose_precision(AUTO)]
"""than what this machine learns in by itself"""


@dataclass(frozen=True)
class Chosen:
    precision: str

    def to_json(self) -> dict[str, Any]:
        return {"precision": self.precision}


@dataclass(frozen=True, kw_only=True)
class Choose(Job[Chosen]):
    """Says what auto means to who does it."""

    kind: ClassVar[str] = "choose"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "precision": [choose_precision(AUTO)]}

    def run(self) -> Chosen:
        return Chosen(choose_precision(AUTO))

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> Chosen:
        return Chosen(**data)


class ChooseTimed(Choose):
    """The same of what measures a machine's own seconds."""

    kind: ClassVar[str] = "choose timed"
    is_timed: ClassVar[bool] = True

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind}


def begun_elsewhere(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a study as a machine that learns in the other precision does."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("accerl.precision.gains_by_bfloat16", lambda: OTHER == "bf16")
        with open_executor(out, 1):
            assert choose_precision(AUTO) == OTHER


@pytest.mark.slow
def test_jobs_are_done_as_where_the_folder_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun_elsewhere(tmp_path / "out", monkeypatch)
    assert read_json(tmp_path / "out" / PRECISION) == {"auto": OTHER}
    with open_executor(tmp_path / "out", 1) as executor:
        assert executor.map([Choose()])[0].result.precision == OTHER
        assert executor.map([ChooseTimed()])[0].result.precision != OTHER
    assert choose_precision(AUTO) != OTHER
    said = {
        "bf16": "bfloat16, which this machine takes longer for",
        "fp32": "float32, which this machine",
    }
    assert said[OTHER] in capsys.readouterr().err


def test_keys_of_the_real_clock_are_this_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_elsewhere(tmp_path / "out", monkeypatch)
    config = INSTANCE.config(0).with_precision(AUTO)
    real = config.with_runtime(runtime="process", clock="real")
    with open_executor(tmp_path / "out", 1):
        assert config_key(config)["precision"] == [OTHER, OTHER]
        assert OTHER not in config_key(real)["precision"]


def test_what_was_packed_elsewhere_counts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = INSTANCE.config(0).with_precision(AUTO)
    job = replace(catch_job(3), instance=replace(INSTANCE, base=base))
    there, here, file = tmp_path / "there", tmp_path / "here", tmp_path / "pack.json.xz"
    begun_elsewhere(there, monkeypatch)
    with open_executor(there, 1) as executor:
        executor.map([job])
    pack_results(there, file)
    merge_results([file], here)
    with open_executor(here, 1) as executor:
        assert executor.is_saved(job)
    begun = tmp_path / "begun"
    with open_executor(begun, 1):
        pass
    with pytest.raises(UserError, match=r"another precision\.json than the rest; .* and precision"):
        merge_results([begun, file], tmp_path / "both")


@pytest.mark.parametrize("learned", [["bf16", "bf16"], ["fp32", "fp32"], None])
def test_a_folder_that_does_not_say_is_as_its_runs_are(
    tmp_path: Path, learned: list[str] | None
) -> None:
    (tmp_path / "jobs").mkdir()
    key = {"kind": "strategy"} if learned is None else {"precision": learned}
    write_json(tmp_path / "jobs" / "0.json", {"key": key, "result": {}})
    (tmp_path / "jobs" / "1.json").write_text('{"key": {"prec')  # cut off
    expected = learned[0] if learned else choose_precision(AUTO)
    with open_executor(tmp_path, 1):
        assert choose_precision(AUTO) == expected
    assert read_json(tmp_path / PRECISION) == {"auto": expected}


def test_a_damaged_note_says_what_to_do(tmp_path: Path) -> None:
    write_json(tmp_path / PRECISION, {"auto": "fp8"})
    with pytest.raises(UserError, match="auto means bf16 or fp32; delete it"):
        open_executor(tmp_path, 1)
