"""A study's folder: its mark, its plan, and the run directories that come from elsewhere."""

from __future__ import annotations

import base64
import json
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import SUMMARY, is_draft, json_hash, locked, make_out_dir, try_lock, write_json
from analysis.records.read import read_record
from controller.bundle.meta import git_revision
from studies.progress import say

MARK, PLAN, SETTINGS = "folder.id", "plan.json", "settings.json"
OPENED = "opened.json"
"""when the test seeds were opened, under which plan and by which code"""
DRIVER = "driver.lock"


@dataclass(frozen=True)
class StudyFolder:
    """A folder, and the mark by which other machines know that they see the same one."""

    path: Path
    mark: str


def make_folder(path: Path) -> StudyFolder:
    """Return a study's folder, made and marked if it is not."""
    make_out_dir(path)
    draft = path / f".{MARK}.{os.getpid()}.tmp"
    try:
        draft.write_text(uuid.uuid4().hex)
        os.link(draft, path / MARK)  # whole, and only if there is none
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return StudyFolder(path, (path / MARK).read_text(errors="replace"))


@contextmanager
def driven(folder: StudyFolder) -> Iterator[None]:
    """Keep a study's folder to one process that makes runs; it is free again when that is dead.

    Raises:
        UserError: another one makes runs in it.
    """
    taken = f"a study is under way in {folder.path}; wait until it ends, or give another --out"
    with locked(folder.path / DRIVER, taken):
        yield


def is_driven(path: Path) -> bool:
    """Whether a process makes runs in a study's folder."""
    try:
        with (path / DRIVER).open() as file:
            return not try_lock(file, shared=True)
    except FileNotFoundError:
        return False


def check_folder(path: Path) -> None:
    """Refuse a folder with things that are no study's: a study writes its own beside them.

    Raises:
        UserError: it is such a folder.
    """
    is_taken = path.is_dir() and not all(map(is_draft, path.iterdir()))
    if is_taken and not is_study(path):
        raise UserError(f"{path} is not empty and holds no study; give --out a new folder")


def is_study(path: Path) -> bool:
    """Whether a study was begun in a folder, even if it has made nothing yet."""
    return any((path / name).is_file() for name in (MARK, PLAN, SETTINGS))


def find_folder(path: Path) -> StudyFolder | None:
    """Return a study's folder if it is there, marked."""
    if not (path / MARK).is_file():
        return None
    return StudyFolder(path, (path / MARK).read_text(errors="replace"))


def claim(out: Path, settings: dict[str, Any]) -> None:
    """Note what the folder is for.

    Raises:
        UserError: it holds something else.
    """
    marker = out / SETTINGS
    if marker.is_file():
        theirs = read_record(marker)
        if theirs.get("study") != settings["study"]:
            raise _of_another_kind(out)
        if theirs != settings:
            raise UserError(
                f"{out} holds a study with other settings{_difference(theirs, settings)}; "
                "give the same ones to go on with it, or another --out"
            )
        say(f"Going on with the study in {out}")
    elif find_folder(out) is not None:
        raise _of_another_kind(out)
    else:
        check_folder(out)
        write_json(marker, settings)


def write_plan(out: Path, plan: Mapping[str, Any], *, alone: bool = False) -> str:
    """Write the plan, or hold it against the one that is there; return its hash.

    Args:
        out: the study's folder.
        plan: what is fixed before its first run.
        alone: whether the plan says what the folder is for, which then was not claimed.

    Raises:
        UserError: the folder's plan is another, or it holds something else.
    """
    check_folder(out)
    path, digest = out / PLAN, json_hash(plan)
    if path.is_file():
        found = read_record(path)
        if found.get("hash") != digest or json_hash(found.get("plan")) != digest:
            theirs, ours = found.get("plan"), json.loads(json.dumps(plan))
            raise UserError(
                f"{path} is another plan than this command's{_difference(theirs, ours)}; a plan is "
                "not changed once runs are made: give another --out"
            )
        return digest
    if alone and ((out / SETTINGS).is_file() or find_folder(out) is not None):
        raise _of_another_kind(out)
    write_json(path, {"hash": digest, "plan": dict(plan), "git_revision": git_revision()})
    return digest


def _of_another_kind(out: Path) -> UserError:
    return UserError(f"{out} holds another kind of study; give --out a new folder")


def _difference(theirs: Any, ours: Mapping[str, Any]) -> str:
    """Return by what a plan differs from the one that is there, as far as a line can say it."""
    if not isinstance(theirs, Mapping):
        return ""
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    told = [
        f"{name} {theirs.get(name)!r} there, {ours.get(name)!r} here"
        if all(_is_short(each.get(name)) for each in (theirs, ours))
        else name
        for name in names
    ]
    return f" ({'; '.join(told)})" if told else ""


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float | None) and len(str(value)) < 40


def pack_records(run: Path) -> dict[str, str]:
    """Return the records of a run directory as text, compressed; without its checkpoint."""
    files = sorted(path for path in run.iterdir() if path.is_file())
    return {
        path.name: base64.b64encode(zlib.compress(path.read_bytes())).decode() for path in files
    }


def unpack_records(records: dict[str, str], run: Path) -> None:
    """Write what `pack_records` returned; the summary last, as it tells that all is there.

    Raises:
        UserError: the disk is full, or cannot be written.
    """
    make_out_dir(run)
    try:
        for name in sorted(records, key=lambda name: name == SUMMARY):
            (run / Path(name).name).write_bytes(zlib.decompress(base64.b64decode(records[name])))
    except OSError as error:
        raise UserError(
            f"cannot save a run in {run}: {error.strerror or error}; when there is room, start the "
            "same command again to go on"
        ) from error
