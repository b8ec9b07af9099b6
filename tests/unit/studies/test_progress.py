"""What a study's steps took is kept over its interruptions; progress is told by quarters."""

from __future__ import annotations

from pathlib import Path

import pytest

from accerl.records import read_json
from studies.progress import Steps, bar, console


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


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ([1, 1, 1, 1], [25, 50, 75, 100]),
        ([4], [100]),
        ([0.5, 2.5, 1], [75, 100]),
        ([2, 1], [50, 75]),
    ],
)
def test_no_step_is_told_twice(
    amounts: list[float], told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(console, "print", lines.append)
    with bar("training", 4) as advance:
        for amount in amounts:
            advance(amount, "at ease")
    assert lines == [f"  training: {percent}% at ease" for percent in told]
