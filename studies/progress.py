"""Progress for people: rich bars on a terminal, plain lines elsewhere. Always on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from accerl.records import read_json, write_json

# In a file or a pipe there is no window to fit into: keep every table row on one line.
console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 150)


class Steps:
    """The numbered steps of a study, and how long each took, over all its interruptions.

    Args:
        total: how many there are.
        kept: file that their seconds are kept in.
    """

    def __init__(self, total: int, kept: Path) -> None:
        self.total = total
        self.number = 0
        self.seconds: dict[str, float] = read_json(kept) if kept.is_file() else {}
        self._kept = kept

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[None]:
        """Announce a step; note its wall seconds under `name`."""
        self.number += 1
        console.print(f"[bold]\\[{self.number}/{self.total}] {title}[/bold]")
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - started
            write_json(self._kept, self.seconds)


@contextmanager
def share_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show progress of unequal pieces; yields ``on_progress(what, done, total)``."""
    with bar(title, 1.0, unit="share") as advance:
        last = 0

        def on_progress(what: str, done: int, total: int) -> None:
            nonlocal last
            advance((done - last) / total, what)
            last = done

        yield on_progress


@contextmanager
def bar(title: str, total: float, *, unit: str = "runs") -> Iterator[Callable[[float, str], None]]:
    """Show progress towards `total`; yields ``advance(amount, note)``."""
    if console.is_terminal:
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn() if unit == "runs" else TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=console, transient=False) as progress:
            task = progress.add_task(title, total=total, note="")
            yield lambda amount, note: progress.update(task, advance=amount, note=note)
        return
    done, quarters = 0.0, 0

    def advance(amount: float, note: str) -> None:
        nonlocal done, quarters
        done += amount
        reached = min(int(4.0 * done / total + 1e-9), 4) if total > 0.0 else 4
        if reached > quarters:  # one line also where a single step passes several
            quarters = reached
            console.print(f"  {title}: {25 * quarters}% {note}".rstrip())

    yield advance
