"""Finished jobs that go from one study's folder to another: to a second machine, or into a file."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import make_out_dir, read_json, write_bytes, write_json
from studies.jobs.cached import RESULTS
from studies.jobs.decided import PRECISION
from studies.study_folder import PLAN, SETTINGS, find_folder, make_folder

FORMAT = "accerl study pack"
"""first field of a pack, by which it is known"""
NOTES = (PLAN, SETTINGS, PRECISION)
"""files of a study's folder that say what it is for"""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What came of `merge_results`."""

    added: int
    known: int
    """that the folder had already"""
    left: int
    """whose run directories are not carried, so that they would be made again anyway"""


def pack_results(study: Path, file: Path) -> int:
    """Write a study's plan and finished jobs into one compressed file; return how many jobs.

    Equal results make equal files. A job that writes a run directory is left out: its result is of
    no use without the directory.

    Raises:
        UserError: the folder holds no study or nothing finished, or the file is somebody else's or
            cannot be written.
    """
    if not study.is_dir():
        raise UserError(f"{study} does not exist; give the --out of `accerl study run`")
    jobs = {name: job for name, job in _jobs_of(study).items() if not _has_records(job)}
    if not jobs:
        raise UserError(f"{study} has no finished job that a file could hold; run its study first")
    if file.exists():
        _read_pack(file)  # anything else would be lost
    pack = {"format": FORMAT, "notes": _notes_of(study), "jobs": jobs}
    text = json.dumps(pack, sort_keys=True, separators=(",", ":"))
    make_out_dir(file.parent)
    write_bytes(file, lzma.compress(text.encode(), preset=lzma.PRESET_EXTREME))
    return len(jobs)


def merge_results(sources: Sequence[Path], out: Path) -> Carried:
    """Add the finished jobs of packs and of other folders to a study's folder.

    What the folder has stays. Jobs are known by all that their results depend on, so it does not
    matter which of several machines made one.

    Args:
        sources: files of `pack_results`, and folders of studies.
        out: a study's folder, made if it is not there.

    Raises:
        UserError: a source is neither, it was made under another plan, or the folder cannot be
            written.
    """
    found = [(source, *_read_source(source)) for source in sources]
    there, notes = _jobs_of(out), _notes_of(out)
    for source, theirs, _ in found:
        for name in notes.keys() & theirs.keys():
            if _compared(notes[name]) != _compared(theirs[name]):
                raise UserError(
                    f"{source} was made under another {name} than the rest; merge what has the "
                    "same study, budget, seed, profile and precision"
                )
        notes = {**theirs, **notes}
    make_folder(out)
    make_out_dir(out / RESULTS)
    for name, note in notes.items():
        if not (out / name).is_file():
            write_json(out / name, note)
    carried = {name: job for *_, jobs in found for name, job in jobs.items()}
    new = {name: job for name, job in carried.items() if name not in there}
    useful = {name: job for name, job in new.items() if not _has_records(job)}
    for name, job in useful.items():
        write_json(out / RESULTS / f"{name}.json", job, indent=None)
    return Carried(added=len(useful), known=len(carried) - len(new), left=len(new) - len(useful))


def _read_source(source: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a pack or a study's folder is for, and its jobs by name."""
    if source.is_dir():
        return _notes_of(source), _jobs_of(source)
    pack = _read_pack(source)
    return pack["notes"], pack["jobs"]


def _notes_of(study: Path) -> dict[str, Any]:
    """Return what says what a study's folder is for, by the names of its files."""
    return {name: read_json(study / name) for name in NOTES if (study / name).is_file()}


def _compared(note: Mapping[str, Any]) -> Any:
    """Return what must not differ: of a plan, that is not the revision that wrote it."""
    return note.get("hash", note)


def _jobs_of(study: Path) -> dict[str, Any]:
    """Return the finished jobs of a study's folder, by name; damaged ones are none."""
    if study.is_dir() and find_folder(study) is None and any(study.iterdir()):
        raise UserError(f"{study} holds no study; give the --out of `accerl study run`")
    jobs = {}
    for path in sorted((study / RESULTS).glob("*.json")):
        try:
            job = json.loads(path.read_text())
        except ValueError:
            continue
        if isinstance(job, dict) and {"key", "result"} <= job.keys():
            jobs[path.stem] = job
    return jobs


def _has_records(job: Mapping[str, Any]) -> bool:
    return job["key"].get("out") is not None


def _read_pack(file: Path) -> dict[str, Any]:
    try:
        pack = json.loads(lzma.decompress(file.read_bytes()))
    except FileNotFoundError as error:
        raise UserError(f"{file} does not exist; is its name spelled right?") from error
    except (EOFError, lzma.LZMAError, ValueError) as error:
        raise UserError(
            f"{file} is no file of `accerl study pack`, or was cut off; give another"
        ) from error
    is_pack = isinstance(pack, dict) and pack.get("format") == FORMAT
    is_pack = is_pack and all(isinstance(pack.get(part), dict) for part in ("notes", "jobs"))
    is_safe = is_pack and pack["notes"].keys() <= set(NOTES)
    if not is_safe or not all(re.fullmatch("[0-9a-f]{64}", name) for name in pack["jobs"]):
        raise UserError(f"{file} was not written by `accerl study pack`; give another")
    return pack
