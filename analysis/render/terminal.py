"""The end of a study in a terminal: the contest, the verdict, and where the files are."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from analysis.comparison.contest import CONTEST, PRIMARY
from analysis.render.fitting import FittingTable
from analysis.report.contrasts import contrast_table, level_table
from analysis.report.study import StudyReport
from analysis.report.table import Table

FILES = {
    CONTEST: "all numbers, unrounded",
    "report.html": "the report, opens without a network",
    "wandb": "offline W&B runs and the W&B report, upload with: wandb sync",
    "bundle": "the learned schedule, to load into other runs",
}


def print_summary(report: StudyReport, console: Console) -> None:
    """Print the contest table, the verdict and the files of a study."""
    study, contest = report.study, report.contest
    for table in (level_table(study, contest), contrast_table(study, contest, PRIMARY)):
        if table.rows:
            console.print(rich_table(table))
            console.print()
    headline, *rest = contest["verdict"]
    console.print(f"[bold]{escape(headline)}[/bold]", highlight=False)
    for sentence in rest:
        console.print(f"  {escape(sentence)}", highlight=False)
    for warning in contest["warnings"]:
        console.print(f"[yellow]  {escape(warning)}[/yellow]", highlight=False)
    console.print()
    for name, what in FILES.items():
        if (study.path / name).exists():
            line = f"{escape(str(study.path / name))}  [dim]{what}[/dim]"
            console.print(line, highlight=False, soft_wrap=True)


def rich_table(table: Table) -> FittingTable:
    """Return a table for a rich console, numbers to the right."""
    result = FittingTable(
        title=escape(table.title), title_justify="left", title_style="bold", box=None
    )
    for name, numeric in table.headings:
        result.add_column(escape(name), justify="right" if numeric else "left")
    for row in table.rows:
        # Colour only marks who is who; the label stays in the terminal's own ink.
        marks = [f"[{cell.colour}]\N{BLACK SQUARE}[/] " if cell.colour else "" for cell in row]
        texts = [escape(cell.text) for cell in row]
        result.add_row(*(mark + text for mark, text in zip(marks, texts, strict=True)))
    return result
