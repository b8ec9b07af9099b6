"""Tables in a terminal that is too narrow for them."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

WIDEST = 1_000
"""columns in which every cell has room"""


class FittingTable(Table):
    """A table that loses nothing on a narrow terminal: lines go, then cells wrap at blanks."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fit the columns into what room there is, and yield the table."""
        wide = options.update(width=WIDEST)
        ranges = [
            [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
            for column in self.columns
        ]
        least = [max(cell.minimum for cell in cells) for cells in ranges]
        widths = [max(cell.maximum for cell in cells) for cells in ranges]
        gaps = len(widths) - 1
        if sum(widths) + 3 * gaps + 4 > options.max_width:
            self.box, self.padding, self.show_edge = SIMPLE_HEAD, (0, 0, 0, 0), False
            excess = sum(widths) + gaps - options.max_width
            while excess > 0 and widths != least:
                wraps = [
                    width if width > low else 0 for width, low in zip(widths, least, strict=True)
                ]
                widths[wraps.index(max(wraps))] -= 1
                excess -= 1
            for column, width in zip(self.columns, widths, strict=True):
                column.overflow = "fold"
                if excess <= 0:
                    column.width = width
        yield from super().__rich_console__(console, options)
