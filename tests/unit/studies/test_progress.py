"""What a study's steps took adds up over its interruptions; a phase costs two lines at most."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from accerl.records import read_json
from studies import progress
from studies.progress import Steps, bar, duration, share_bar


def test_seconds_add_up_over_interruptions(tmp_path: Path) -> None:
    path = tmp_path / "wall.json"
    first = Steps(2, path)
    with pytest.raises(KeyboardInterrupt), first.step("tuning", "Tuning"):
        raise KeyboardInterrupt
    spent = read_json(path)["tuning"]
    assert spent > 0.0
    again = Steps(2, path)
    with again.step("tuning", "Tuning"):
        pass
    with again.step("test", "Testing"):
        pass
    found = read_json(path)
    assert found["tuning"] > spent
    assert set(found) == {"tuning", "test"}
    assert again.seconds == found


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> StringIO:
    """What is printed: to a terminal if the test asks for one, else to a file."""
    text = StringIO()
    console = Console(
        file=text, width=100, highlight=False, force_terminal=getattr(request, "param", False)
    )
    monkeypatch.setattr(progress, "console", console)
    return text


def test_without_a_terminal_a_phase_prints_a_line_at_each_end(screen: StringIO) -> None:
    with bar("training", 4) as advance:
        for _ in range(4):
            advance(1, "[100] steps/s")
    with share_bar("latency profile") as on_progress:
        on_progress("copying", 1, 3)
        on_progress("learning", 3, 3)
    assert screen.getvalue().splitlines() == [
        "  training ...",
        "  training: 0.0 s [100] steps/s",
        "  latency profile ...",
        "  latency profile: 0.0 s learning",
    ]


def test_without_a_terminal_a_long_phase_prints_a_line_now_and_then(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with bar("runs", 2) as advance:
        advance(0.0, "2 running")
        advance(1.0, "1 running")
        advance(1.0)
    lines = screen.getvalue().splitlines()
    assert lines == ["  runs ...", "  runs: 1/2 1 running, 0.0 s left", "  runs: 0.0 s"]


def test_a_phase_that_fails_has_no_last_line(screen: StringIO) -> None:
    with pytest.raises(KeyboardInterrupt), bar("training", 4):
        raise KeyboardInterrupt
    assert screen.getvalue() == "  training ...\n"


@pytest.mark.parametrize("screen", [True], indirect=True)
def test_a_terminal_shows_a_bar_with_the_time_left_and_then_one_line(screen: StringIO) -> None:
    with bar("training", 4) as advance:
        advance(2, "half")
    assert "50%" in screen.getvalue()
    assert "2/4" in screen.getvalue()
    assert "left" in screen.getvalue()
    assert "training: 0.0 s half" in screen.getvalue().splitlines()[-1]
    assert "training ..." not in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (245.2, "4 min 05 s"), (7799.0, "2 h 09 min")],
)
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
