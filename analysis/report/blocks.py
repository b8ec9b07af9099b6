"""What a report is made of, before it becomes HTML or a W&B report: sections of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.figures.theme import Figure
from analysis.formats import counted
from analysis.report.table import Table


@dataclass(frozen=True)
class Text:
    """A paragraph; `style` is plain, headline or small."""

    text: str
    style: str = "plain"


@dataclass(frozen=True)
class Listing:
    """Sentences below each other; a warning stands out."""

    items: tuple[str, ...]
    warning: bool = False
    style: str = "plain"


@dataclass(frozen=True)
class Definitions:
    """Terms and what they mean; `marked` terms carry the mark."""

    terms: Mapping[str, str]
    marked: tuple[str, ...] = ()
    mark: str = ""


@dataclass(frozen=True)
class Code:
    """Commands, one a line."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Folded:
    """Blocks that are closed at first, below a title."""

    title: str
    blocks: tuple[Block, ...]


Block = Text | Listing | Definitions | Code | Heading | Table | Folded | Figure


@dataclass(frozen=True)
class Section:
    """One section; its id is its title in small letters: every view has the same anchors."""

    title: str
    lead: str
    """what it answers, in one sentence"""
    blocks: tuple[Block, ...]
    files: tuple[str, ...]
    """the records that it is made from, relative to the study"""

    @property
    def id(self) -> str:
        """Anchor of the section, such as ``oracle-gap``."""
        return self.title.lower().replace(" ", "-")

    @property
    def figures(self) -> list[Figure]:
        """The figures of the section in order, also those that are closed at first."""
        return _figures(self.blocks)


def section(
    title: str,
    lead: str,
    blocks: Sequence[Block | None],
    files: Sequence[str],
    *,
    empty: str = "",
) -> Section:
    """Return a section; without any block, the sentence `empty` says what would fill it."""
    kept = tuple(block for block in blocks if block is not None)
    return Section(title, lead, kept or (Text(empty),), tuple(files))


def listing(items: Sequence[Any] | None, *, warning: bool = False) -> Listing | None:
    """Return a list of sentences, or nothing where there are none."""
    return Listing(tuple(map(str, items)), warning) if items else None


def fold(*blocks: Block | None, title: str = "") -> Folded | None:
    """Return blocks that are closed at first; a lone table or figure needs no title."""
    kept = tuple(block for block in blocks if block is not None)
    if not kept:
        return None
    first = kept[0]
    if not title and isinstance(first, Table):
        title = f"{first.title} ({counted(len(first.rows), 'row')})"
    elif not title and isinstance(first, Figure):
        title = f"{first.title} (figure)"
    return Folded(title, kept)


def _figures(blocks: Sequence[Block]) -> list[Figure]:
    found = []
    for block in blocks:
        if isinstance(block, Figure):
            found.append(block)
        elif isinstance(block, Folded):
            found += _figures(block.blocks)
    return found
