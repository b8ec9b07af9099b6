"""Finished jobs that go from one study's folder to another: to a second machine, or into a file."""

from __future__ import annotations

import json
import lzma
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from accerl.errors import UserError
from accerl.records import SUMMARY, make_out_dir, read_json, write_bytes, write_json
from studies.jobs.cached import RESULTS
from studies.jobs.decided import PRECISION
from studies.jobs.work import is_run_of
from studies.study_folder import PLAN, SETTINGS, find_folder, make_folder

FORMAT = "accerl study pack"
"""first field of a pack, by which it is known"""
NOTES = (PLAN, SETTINGS, PRECISION)
"""files of a study's folder that say what it is for"""


WITH_CHECKPOINT = "learning"
"""kind of the jobs that leave a policy behind for others, if they have a run directory"""
Records = Mapping[str, str]
"""what the files of a run directory hold, by name"""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What came of `merge_results`."""

    added: int
    known: int
    """that the folder had already"""
    left: int
    """whose run directories are not carried, so that they would be made again anyway"""


@dataclass(frozen=True, kw_only=True)
class _Finished:
    """What a study has finished."""

    notes: dict[str, Any]
    """what says what it is for, by the names of its files"""
    jobs: dict[str, Any]
    """with their results, by name"""
    records: dict[str, Records]
    """of those that write a run directory, by name of the job"""

    @property
    def whole(self) -> set[str]:
        """Names of jobs that lack nothing."""
        return {
            name for name, job in self.jobs.items() if _out(job) is None or name in self.records
        }


def pack_results(study: Path, file: Path) -> int:
    """Write a study's plan and finished jobs into one compressed file; return how many jobs.

    Equal results make equal files. Run directories go with their jobs, without checkpoints. Left
    out is a job whose directory is lost, or whose checkpoint others need.

    Raises:
        UserError: the folder holds no study or nothing finished, or the file is somebody else's or
            cannot be written.
    """
    if not study.is_dir():
        raise UserError(f"{study} does not exist; give the --out of `accerl study run`")
    found = _read_folder(study)
    jobs = {name: found.jobs[name] for name in sorted(found.whole)}
    if not jobs:
        raise UserError(f"{study} has no finished job that a file could hold; run its study first")
    if file.exists():
        _read_pack(file)  # anything else would be lost
    pack = {"format": FORMAT, "notes": found.notes, "jobs": jobs, "records": found.records}
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
    there, found = _read_folder(out), [(source, _read_source(source)) for source in sources]
    notes = there.notes
    for source, theirs in found:
        for name in notes.keys() & theirs.notes.keys():
            if _compared(notes[name]) != _compared(theirs.notes[name]):
                raise UserError(
                    f"{source} was made under another {name} than the rest; merge what has the "
                    "same study, budget, seed, profile and precision"
                )
        notes = {**theirs.notes, **notes}
    make_folder(out)
    make_out_dir(out / RESULTS)
    for name, note in notes.items():
        if not (out / name).is_file():
            write_json(out / name, note)
    names = {name for _, theirs in found for name in theirs.jobs}
    new = {name: theirs for _, theirs in found for name in theirs.whole - there.whole}
    for name, theirs in new.items():
        job = theirs.jobs[name]
        if (place := _out(job)) is not None:
            shutil.rmtree(out / place, ignore_errors=True)
            write_records(theirs.records[name], out / place)
        write_json(out / RESULTS / f"{name}.json", job, indent=None)
    known = len(names & there.whole)
    return Carried(added=len(new), known=known, left=len(names) - known - len(new))


def write_records(records: Records, run: Path) -> None:
    """Write the files of a run directory; the summary last, as it tells that all is there."""
    make_out_dir(run)
    for name in sorted(records, key=lambda name: name == SUMMARY):
        (run / name).write_text(records[name])


def _read_source(source: Path) -> _Finished:
    """Return what a pack or a study's folder holds."""
    if source.is_dir():
        return _read_folder(source)
    pack = _read_pack(source)
    return _Finished(notes=pack["notes"], jobs=pack["jobs"], records=pack.get("records", {}))


def _read_folder(study: Path) -> _Finished:
    jobs = _jobs_of(study)
    runs = {name: study / place for name, job in jobs.items() if (place := _out(job)) is not None}
    records: dict[str, Records] = {
        name: {path.name: path.read_text() for path in sorted(run.iterdir()) if path.is_file()}
        for name, run in runs.items()
        if is_run_of(run, name) and jobs[name]["key"].get("kind") != WITH_CHECKPOINT
    }
    return _Finished(notes=_notes_of(study), jobs=jobs, records=records)


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


def _out(job: Mapping[str, Any]) -> str | None:
    """Return where in the study's folder a job's run directory is; None: it writes none."""
    return job["key"].get("out")


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
    if not is_pack or not _is_safe(pack):
        raise UserError(f"{file} was not written by `accerl study pack`; give another")
    return pack


def _is_safe(pack: Mapping[str, Any]) -> bool:
    """Whether all that a pack holds has its place within a study's folder."""
    if not all(re.fullmatch("[0-9a-f]{64}", name) for name in pack["jobs"]):
        return False
    records: Mapping[str, Any] = pack.get("records", {})
    places = [PurePosixPath(place) for job in pack["jobs"].values() if (place := _out(job))]
    return (
        pack["notes"].keys() <= set(NOTES)
        and not any(place.is_absolute() or ".." in place.parts for place in places)
        and all(re.fullmatch(r"\w[\w.-]*", name) for files in records.values() for name in files)
    )
