"""A study's folder: its mark, its plan, and the run directories that come from elsewhere."""

from __future__ import annotations

import base64
import os
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import SUMMARY, json_hash, make_out_dir, read_json, write_json
from controller.bundle.meta import git_revision

MARK, PLAN, SETTINGS = "folder.id", "plan.json", "settings.json"


@dataclass(frozen=True)
class StudyFolder:
    """A folder, and the mark by which other machines know that they see the same one."""

    path: Path
    mark: str


def make_folder(path: Path) -> StudyFolder:
    """Return a study's folder, made and marked if it is not."""
    make_out_dir(path)
    draft = path / f".{MARK}.{os.getpid()}.tmp"
    draft.write_text(uuid.uuid4().hex)
    try:
        os.link(draft, path / MARK)  # whole, and only if there is none
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return StudyFolder(path, (path / MARK).read_text())


def find_folder(path: Path) -> StudyFolder | None:
    """Return a study's folder if it is there, marked."""
    if not (path / MARK).is_file():
        return None
    return StudyFolder(path, (path / MARK).read_text())


def write_plan(out: Path, plan: Mapping[str, Any]) -> str:
    """Write the plan, or hold it against the one that is there; return its hash.

    Raises:
        UserError: the folder's plan is another.
    """
    path, digest = out / PLAN, json_hash(plan)
    if path.is_file():
        found = read_json(path)
        if found.get("hash") != digest or json_hash(found.get("plan")) != digest:
            raise UserError(
                f"{path} is another plan than this command's ({found.get('hash')} against "
                f"{digest}); a plan is not changed once runs are made: give another --out"
            )
        return digest
    write_json(path, {"hash": digest, "plan": dict(plan), "git_revision": git_revision()})
    return digest


def pack_records(run: Path) -> dict[str, str]:
    """Return the records of a run directory as text, compressed; without its checkpoint."""
    files = sorted(path for path in run.iterdir() if path.is_file())
    return {
        path.name: base64.b64encode(zlib.compress(path.read_bytes())).decode() for path in files
    }


def unpack_records(records: dict[str, str], run: Path) -> None:
    """Write what `pack_records` returned; the summary last, as it tells that all is there."""
    make_out_dir(run)
    for name in sorted(records, key=lambda name: name == SUMMARY):
        (run / Path(name).name).write_bytes(zlib.decompress(base64.b64decode(records[name])))
