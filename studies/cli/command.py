"""What all commands share: `--json`, `--out`, and the one line that refuses a folder."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from accerl.errors import UserError
from accerl.records import fingerprint, make_out_dir, versions, write_json
from studies.progress import say


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """A command: its fields are the options, their docstrings the help."""

    json: bool = False
    """print one JSON object on standard output"""
    writes: ClassVar[bool] = True
    """whether --out is written to, where there is one"""

    @abstractmethod
    def execute(self) -> dict[str, Any]:
        """Do the work, print for people, and return what --json prints."""


def made_here(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result that says which machine and versions it comes from, as far as it did not."""
    return {"fingerprint": fingerprint(), "versions": versions(), **result}


def save_result(result: dict[str, Any], out: Path | None, name: str) -> dict[str, Any]:
    """Return a result as `made_here` says; also write it into --out, if given."""
    result = made_here(result)
    if out is not None:
        write_json(make_out_dir(out) / name, result)
        say(f"wrote {out / name}")
    return result


def check_writable(out: Path, option: str = "--out") -> None:
    """Refuse a folder that cannot be written before a command has worked for minutes.

    Args:
        out: the folder.
        option: that named it.

    Raises:
        UserError: neither the folder nor the first of its parents that exists can be written.
    """
    path = out.absolute()
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise UserError(
            f"cannot write to {out}: {existing} is not a folder that can be written; "
            f"give {option} a writable folder"
        )


def check_positive(**numbers: int) -> None:
    """Refuse options that count something and are below 1.

    Raises:
        UserError: one of them is.
    """
    for name, value in numbers.items():
        if value < 1:
            raise UserError(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def as_file_name(game: str) -> str:
    """Return the name of a game without what folders cannot be named."""
    return game.replace("/", "-").replace(":", "-")
