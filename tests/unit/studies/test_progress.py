"""What a study's steps took adds up over its interruptions; a phase costs two lines at most."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from accerl.records import read_json
from studies import progress
from studies.progress import Steps, bar, duration, numbers_table, paragraph, share_bar


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


def test_without_a_terminal_a_phase_prints_a_line_at_each_end(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "perf_counter", lambda: 0.0)
    with bar("training", 4) as advance:
        for _ in range(4):
            advance(1, "[100] steps/s")
    with share_bar("latency profile") as on_progress:
        on_progress("copying", 1, 3)
        on_progress("learning", 3, 3)
    assert screen.getvalue().splitlines() == [
        "  training ...",
        "  training: took 0.0 s; last [100] steps/s",
        "  latency profile ...",
        "  latency profile: took 0.0 s; last learning",
    ]


def test_without_a_terminal_a_long_phase_prints_a_line_now_and_then(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 20.0, 30.0, 120.0, 130.0, 201.0, 211.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    with bar("runs", 100) as advance:
        advance(80.0, replayed=True)  # an earlier call had made them
        advance(1.0)
        advance(9.0, "10 running")  # ten in a hundred seconds
        advance(1.0)
        advance(9.0)
    lines = screen.getvalue().splitlines()
    assert lines == [
        "  runs ...",
        "  runs: 90/100 10 running, 1 min 40 s left",
        "  runs: took 3 min 31 s",
    ]


def test_without_a_terminal_a_phase_of_hours_says_that_it_goes_on(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 61.0, 7_200.0, 7_300.0, 7_600.0, 9_000.0, 9_001.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    with bar("runs", 2) as advance:
        for note in ("1 running", "still running", "too soon", "running again"):
            advance(0.0, note)
        advance(2.0)
    assert screen.getvalue().splitlines() == [
        "  runs ...",
        "  runs: 0/2 1 running",
        "  runs: 0/2 still running",
        "  runs: 0/2 running again",
        "  runs: took 2 h 30 min",
    ]


def test_nobody_guesses_how_long_unequal_pieces_take_from_the_first(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 61.0, 130.0, 200.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    with share_bar("latency profile") as on_progress:
        on_progress("learner update", 1, 100)
        on_progress("publish", 50, 100)
    assert screen.getvalue().splitlines() == [
        "  latency profile ...",
        "  latency profile: 1% learner update",
        "  latency profile: 50% publish, 2 min 10 s left",
        "  latency profile: took 3 min 20 s; last publish",
    ]


def test_a_phase_that_fails_has_no_last_line(screen: StringIO) -> None:
    with pytest.raises(KeyboardInterrupt), bar("training", 4):
        raise KeyboardInterrupt
    assert screen.getvalue() == "  training ...\n"


@pytest.mark.parametrize("screen", [True], indirect=True)
def test_a_terminal_shows_a_bar_with_the_time_left_and_then_one_line(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "perf_counter", lambda: 0.0)
    with bar("training", 4) as advance:
        advance(2, "half")
    assert "50%" in screen.getvalue()
    assert "2/4" in screen.getvalue()
    assert "left" in screen.getvalue()
    assert "training: took 0.0 s; last half" in screen.getvalue().splitlines()[-1]
    assert "training ..." not in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (245.2, "4 min 05 s"), (7799.0, "2 h 09 min")],
)
def test_durations_are_written_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("width", [60, 80, 150])
def test_tables_and_paragraphs_fit_and_lose_nothing(width: int) -> None:
    table = numbers_table("Machines", "name", *("env steps / s", "learner us", "limit", "fastest"))
    table.add_row("laptop-0017", "12,300", "1,234", "the emulator", "net3 pruned 75% INT8")
    text = StringIO()
    console = Console(file=text, width=width)
    console.print(table)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for word in [
        "laptop-0017",
        "12,300",
        "1,234",
        "emulator",
        "pruned",
        "INT8",
        "steps",
        "learner",
    ]:
        assert word in text.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in text.getvalue()


def test_a_paragraph_is_indented_and_its_words_stay_whole(screen: StringIO) -> None:
    paragraph("word " * 40, indent=2)
    lines = screen.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("  word") and len(line) <= 100 for line in lines)


@pytest.mark.parametrize("columns", ["80", None])
def test_the_width_of_a_file_is_what_columns_says(columns: str | None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    if columns is not None:
        environment["COLUMNS"] = columns
    code = "from studies.progress import console; print(console.width)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (columns or str(progress.FILE_COLUMNS))


def test_a_narrow_terminal_cuts_the_note_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = StringIO()
    narrow = Console(file=text, width=80, highlight=False, force_terminal=True)
    monkeypatch.setattr(progress, "console", narrow)
    with bar("training", 60) as advance:
        advance(5, "return -152, 9,630 steps/s, original pruned 50% INT8 (MB: learner 391)")
    shown = next(line for line in text.getvalue().split("\r") if "9,630" in line)
    for part in ("training", "8%", "5/60", "left", "return -152"):
        assert part in shown
