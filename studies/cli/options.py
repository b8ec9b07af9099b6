"""How options are read and shown: the words of the field, not those of Python's types."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import fields, make_dataclass
from difflib import get_close_matches
from inspect import cleandoc
from io import StringIO
from itertools import dropwhile, takewhile
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from accerl.errors import UserError

C = TypeVar("C")
KINDS: dict[Any, tuple[str, str, Callable[[str], Any]]] = {
    str: ("TEXT", "text", str),
    int: ("N", "a whole number", int),
    float: ("NUMBER", "a number", float),
    Path: ("PATH", "a path", Path),
}
"""of a value: its word in the help, what a mistake is told, and what reads it"""
LIKE = 0.75
"""of its letters that an option has in common with what may have been meant"""
UNSAID = ("", "False", "None")
"""defaults that say nothing: what an option does without them stands in its own text"""
INDENT = "    "
"""before the name of an option in tyro's list of those that are missing"""
GameOption = Annotated[str, tyro.conf.arg(aliases=("--game",))]
"""a game, by either of the names that commands have for it"""
SettingsOption = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(name="set", metavar="SECTION.NAME=VALUE"),
]
"""settings of a run, one by one"""
CONFIG = (tyro.conf.PositionalMetavarFromFieldName,)


def read_options(command: type[C], name: str, arguments: list[str]) -> C:
    """Return a command made of its options.

    Raises:
        UserError: they are not allowed; tyro's box around a mistake becomes one line.
        SystemExit: --help was printed.
    """
    registry, box = ConstructorRegistry(), StringIO()
    registry.primitive_rule(_plain_value)
    try:
        with redirect_stderr(box):
            return tyro.cli(
                _with_hints(command),
                prog=f"accerl {name}",
                description=cleandoc(command.__doc__ or ""),
                args=arguments,
                config=CONFIG,
                registry=registry,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        mistake = _mistake(box.getvalue(), command, name)
        raise UserError(f"{mistake} (see `accerl {name} --help`)") from stop


def _mistake(box: str, command: type[Any], name: str) -> str:
    """Return what tyro's box says between its rules; of what is missing, only the names."""
    _, *lines = [line[2:].rstrip("│ ") for line in box.splitlines()]  # a frame, or two blanks
    said = [*takewhile(_is_text, dropwhile(lambda line: not _is_text(line), lines))]
    if said[0].startswith("Missing from"):
        names = (line.removeprefix(INDENT) for line in said if line.startswith(INDENT))
        return f"{name} needs {', '.join(found for found in names if found[0] != ' ')}"
    text = " ".join(line.strip() for line in said)
    unknown = [word.partition("=")[0].rstrip(",") for word in text.split() if word[:2] == "--"]
    if text.startswith("Unrecognized options") and unknown:
        kinds = get_type_hints(command, include_extras=True)
        placed = [each.name for each in fields(command) if "Positional" in str(kinds[each.name])]
        names = (each.name.replace("settings", "set") for each in fields(command))
        known = [f"--{each.replace('_', '-')}" for each in names if each not in placed]
        close = [each for word in unknown for each in get_close_matches(word, known, 1, LIKE)]
        hint = f"; did you mean {' and '.join(close)}?" if close else ""
        return f"there is no option {' and no '.join(unknown)}{hint}"
    if text.startswith("Missing value for argument"):
        missing = text.split("'")[1]
        return f"{missing} is missing: it stands by itself, without an option in front"
    # What is said of a list of values; `KINDS` has the words for a single one.
    return text.replace("Could not find valid parse for arguments:", "not allowed are the values")


def _is_text(line: str) -> bool:
    """Whether a line of a box is none of its rules, which are plain where stdout is not UTF-8."""
    return not set(line) <= set("─-╰╯ ")


def _plain_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read a plain value, or one that may be left out."""
    kinds = [kind for kind in get_args(info.type) or (info.type,) if kind is not NoneType]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        return None
    word, told, read = KINDS[kinds[0]]

    def parse(texts: list[str]) -> Any:
        try:
            return read(texts[0])
        except ValueError as error:
            raise ValueError(f"{texts[0]!r} is not {told}") from error

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=word,
        instance_from_str=parse,
        is_instance=lambda value: value is None or isinstance(value, kinds[0]),
        str_from_instance=lambda value: [str(value)],
    )


def _with_hints(command: type[Any]) -> type[Any]:
    """Return a command whose help names only those defaults that say something."""
    kinds = get_type_hints(command, include_extras=True)
    hint = tyro.conf.arg(help_behavior_hint=_hint)
    shown = [(each.name, Annotated[kinds[each.name], hint], each) for each in fields(command)]
    return make_dataclass(command.__name__, shown, bases=(command,), frozen=True, kw_only=True)


def _hint(default: str) -> str:
    return "" if default in UNSAID else f"(default: {default})"
