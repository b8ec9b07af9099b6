"""What people see: lines, tables and progress, on standard output unless that is for --json.

Progress is a bar on a terminal; elsewhere it is a line at each end of a phase and now and then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Protocol

from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from accerl.records import read_json, write_json
from analysis.render.fitting import FittingTable

# In a file or a pipe there is no window to fit into, unless COLUMNS says how wide it is: keep every
# table row on one line.
FILE_COLUMNS = 150


class _Console(Console):
    """Leaves it to the command line what happens where nobody reads any more."""

    def __init__(self) -> None:
        self.use(stderr=True)

    def use(self, *, stderr: bool) -> None:
        """Print to standard error, or to standard output, from now on."""
        stream = sys.stderr if stderr else sys.stdout
        fits = stream.isatty() or "COLUMNS" in os.environ
        super().__init__(stderr=stderr, highlight=False, width=None if fits else FILE_COLUMNS)

    def on_broken_pipe(self) -> None:
        """Called where a BrokenPipeError was caught."""
        raise BrokenPipeError


console = _Console()
"""prints to standard error where no command of the command line has said otherwise"""


def say(text: str) -> None:
    """Print one line as it is: folder names are not markup."""
    console.print(text, markup=False, soft_wrap=True)


def paragraph(text: str, indent: int = 0) -> None:
    """Print a sentence or more as wide as the window is, words whole."""
    console.print(Padding(Text(text), (0, 0, 0, indent)))


def numbers_table(title: str, *columns: str) -> FittingTable:
    """Return an empty table: labels in its first column, numbers to the right in the others."""
    table = FittingTable(title=title or None, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


WIDE = 120
"""columns from which on a bar is long"""
LINE_SECONDS, LINE_SHARE = 60.0, 0.05
"""between two lines of a phase, where there is no terminal: at least; of its time until then"""
SHARE_KNOWN = 0.1
"""of unequal pieces, before which a line guesses no time left"""


class Advance(Protocol):
    """What `bar` yields."""

    def __call__(
        self, amount: float = 1.0, note: str = "", *, replayed: bool = False
    ) -> tuple[float, float] | None:
        """Move the bar on by `amount` and show `note` beside it.

        Args:
            amount: jobs, seconds or a share.
            note: what is going on.
            replayed: an earlier call made it: that says nothing of how long the rest takes.

        Returns:
            How much is done, and of how much; None where nobody counts.
        """


def silent(amount: float = 1.0, note: str = "", *, replayed: bool = False) -> None:
    """Show nothing."""


class Steps:
    """The numbered steps of a study, and how long each took, over all its interruptions.

    Args:
        total: how many there are.
        path: file that stores their seconds.
    """

    def __init__(self, total: int, path: Path) -> None:
        self.total = total
        self.number = 0
        self.seconds: dict[str, float] = read_json(path) if path.is_file() else {}
        self._path = path

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[None]:
        """Announce a step; add its wall seconds to those under `name`."""
        self.number += 1
        console.print(f"[bold]\\[{self.number}/{self.total}] {title}[/bold]")
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - started
            with suppress(OSError):  # a full disk ends what needs it, which says so
                write_json(self._path, self.seconds)


@contextmanager
def bar(title: str, total: float) -> Iterator[Advance]:
    """Show progress towards `total` with the time left; when done, print how long it took."""
    started, last_note = perf_counter(), ""
    done, last_line = 0.0, started
    timed_from, known = started, 0.0
    # On a narrow terminal the note is cut, and nothing else.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(bar_width=40 if console.width > WIDE else 10),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[note]}", markup=False, table_column=rest),
    )
    is_file = not console.is_terminal
    if is_file:
        say(f"  {title} ...")
    shown = Progress(*columns, console=console, transient=True, disable=is_file, expand=True)
    with shown as progress:
        task = progress.add_task(title, total=total, note="", count=_count(0.0, total))

        def advance(
            amount: float = 1.0, note: str = "", *, replayed: bool = False
        ) -> tuple[float, float]:
            nonlocal last_note, done, last_line, timed_from, known
            last_note, done = note, done + amount
            now = perf_counter()
            if replayed:
                timed_from, known = now, done
                progress.reset(task, total=total)
            progress.update(task, completed=done, note=note, count=_count(done, total))
            pause = max(LINE_SECONDS, LINE_SHARE * (now - started))
            if is_file and now - last_line > pause and done < total:
                last_line = now
                said = f"  {title}: {_count(done, total)} {note}".rstrip()
                if done > known and (total != 1.0 or done - known >= SHARE_KNOWN):
                    left = duration((now - timed_from) * (total - done) / (done - known))
                    said = f"{said}, {left} left"
                say(said)
            return done, total

        yield advance
    took = duration(perf_counter() - started)
    say(f"  {title}: took {took}{f'; last {last_note}' if last_note else ''}")


def _count(done: float, total: float) -> str:
    """Return jobs or seconds that are done of all, or a share."""
    return f"{done:.0%}" if total == 1.0 else f"{done:.0f}/{total:.0f}"


@contextmanager
def share_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show progress of unequal pieces; yields ``on_progress(what, done, total)``."""
    with bar(title, 1.0) as advance:
        last = 0

        def on_progress(what: str, done: int, total: int) -> None:
            nonlocal last
            advance((done - last) / total, what)
            last = done

        yield on_progress


def duration(seconds: float) -> str:
    """Return seconds as people say them: ``12.3 s``, ``4 min 05 s`` or ``2 h 10 min``."""
    if seconds < 60.0:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
