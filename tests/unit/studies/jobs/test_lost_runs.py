"""Run directories that were lost, wholly or in part, are made again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from accerl.records import METRICS, SUMMARY
from accerl.training.run_folder import CHECKPOINT
from studies.jobs.local import LocalExecutor
from tests.unit.studies.jobs.test_carry import ROW, Doubled, Value


@dataclass(frozen=True, kw_only=True)
class GoneOnFrom(Doubled):
    """Whose checkpoint others need."""

    kind: ClassVar[str] = "gone-on-from"
    is_gone_on_from: ClassVar[bool] = True

    def run(self) -> Value:
        """Write a run directory too."""
        assert self.out is not None
        (self.out / CHECKPOINT).mkdir(parents=True)
        (self.out / METRICS).write_text(ROW)
        (self.out / SUMMARY).write_text('{"seconds": 1.0}')
        return super().run()


def test_a_run_that_others_go_on_from_is_made_again_without_its_checkpoint(tmp_path: Path) -> None:
    job = GoneOnFrom(number=1, out=tmp_path / "runs" / "1")
    with LocalExecutor(tmp_path, 1) as executor:
        (first,) = executor.map([job])
        assert first.result == Value(2.0)
        assert executor.is_saved(job)
        shutil.rmtree(tmp_path / "runs" / "1" / CHECKPOINT)
        assert not executor.is_saved(job)
        (again,) = executor.map([job])
        assert again.result == Value(2.0)
        assert executor.is_saved(job)
        assert (tmp_path / "runs" / "1" / CHECKPOINT).is_dir()
