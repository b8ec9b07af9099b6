"""What a study's steps took is kept over its interruptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.records import read_json
from studies.progress import Steps


def test_seconds_add_up_over_interruptions(tmp_path: Path) -> None:
    kept = tmp_path / "wall.json"
    first = Steps(2, kept)
    with pytest.raises(KeyboardInterrupt), first.step("tuning", "Tuning"):
        raise KeyboardInterrupt
    spent = read_json(kept)["tuning"]
    assert spent > 0.0
    again = Steps(2, kept)
    with again.step("tuning", "Tuning"):
        pass
    with again.step("test", "Testing"):
        pass
    found = read_json(kept)
    assert found["tuning"] > spent
    assert set(found) == {"tuning", "test"}
    assert again.seconds == found
