"""The page of settings and records is that of the code, and leaves nothing out."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.reference import PAGE, meanings, page


def test_the_page_in_the_repository_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "python -m accerl.reference writes it anew"


def test_everything_is_explained() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []
    assert any(
        row.startswith("| `runtime.num_envs` | `32` | environments per actor") for row in rows
    )
    assert any(row.startswith('| `learner.sparse.method` | `"rigl"` | static') for row in rows)


@dataclass
class Example:
    """Fields, of which one says nothing."""

    a: int = 1
    """one \
    thing | or another"""
    b: int = 2
    c: str = ""
    """a third"""


def test_a_meaning_is_what_stands_below_its_field() -> None:
    assert meanings(Example) == {"a": "one thing \\| or another", "b": "", "c": "a third"}
