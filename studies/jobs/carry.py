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
from accerl.records import SUMMARY, is_draft, make_out_dir, write_bytes, write_json
from analysis.formats import counted
from analysis.records.read import read_list, read_record
from studies.jobs.decided import PRECISION
from studies.jobs.round import RESULTS
from studies.jobs.timed import OF_GAME
from studies.jobs.work import is_run_of
from studies.study_folder import OPENED, PLAN, SETTINGS, driven, is_study, make_folder

FORMAT = "accerl study pack"
"""first field of a pack, by which it is known"""
NOTES = (PLAN, SETTINGS, PRECISION)
"""files of a study's folder that say what it is for"""
RECORDED = "strategy"
"""kind of the jobs whose run directories are carried: on the virtual clock. Policies that others
play need their checkpoint; what was timed is of its machine"""
INFERENCE, PROFILE = "infer", "profile"
"""kinds of what is timed and writes no run directory"""
_FILE = re.compile(r"\w[\w-]*(\.(?!png$)\w+)?")
"""what records are called; other files, such as unfinished ones and pictures, are left"""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """What came of `merge_results`."""

    added: int
    known: int
    """that the folder had already"""
    left: int
    """that are not carried, so that they are made again where they are needed"""


@dataclass(frozen=True, kw_only=True)
class _Source:
    """What a study's folder or a pack holds."""

    notes: dict[str, Any]
    """what says what it is for, by the names of its files"""
    opened: Sequence[Mapping[str, Any]]
    """when its test seeds were opened"""
    jobs: dict[str, Any]
    """with their results, by name"""
    records: Mapping[str, Mapping[str, str]] | None = None
    """of a pack: files of run directories by name of the job"""
    folder: Path | None = None

    def can_carry(self, name: str) -> bool:
        """Whether a job holds on other machines, and goes with all that belongs to it."""
        if _is_timed(self.jobs[name]["key"]):
            return False
        place = _place(self.jobs[name])
        if place is None:
            return True
        if self.folder is None:
            return name in (self.records or {})
        is_recorded = self.jobs[name]["key"].get("kind") == RECORDED
        return is_recorded and is_run_of(self.folder / place, name)

    def records_of(self, name: str) -> Mapping[str, str]:
        """Return the files of a job's run directory by their names; none if it writes none."""
        place = _place(self.jobs[name])
        if place is None:
            return {}
        if self.folder is None:
            return (self.records or {})[name]
        files = sorted((self.folder / place).iterdir())
        return {
            path.name: path.read_text()
            for path in files
            if path.is_file() and _FILE.fullmatch(path.name)
        }


def pack_results(study: Path, file: Path) -> int:
    """Write a study's plan and finished jobs into one compressed file; return how many jobs.

    Equal results make equal files. When test seeds were opened goes with them, and run directories
    of jobs on the virtual clock, without checkpoints. Left out is a job whose directory is lost,
    and one that was timed or whose checkpoint others need.

    Raises:
        UserError: the folder holds no study or nothing finished, or the file is somebody else's or
            cannot be written.
    """
    if not study.is_dir():
        is_none = "is no folder" if study.exists() else "does not exist"
        raise UserError(f"{study} {is_none}; give the --out of `accerl study run`")
    source = _read_folder(study)
    names = [name for name in source.jobs if source.can_carry(name)]
    if not names and source.jobs:
        raise UserError(
            f"{study}: no file can hold its {counted(len(source.jobs), 'finished job')}: what was "
            "timed or has checkpoints stays where it is; copy the folder instead"
        )
    if not names:
        raise UserError(f"{study} has no finished job; run its study first")
    if file.exists():
        _read_pack(file)  # anything else would be lost
    pack = {
        "format": FORMAT,
        "notes": source.notes,
        "opened": list(source.opened),
        "jobs": {name: source.jobs[name] for name in names},
        "records": {name: found for name in names if (found := source.records_of(name))},
    }
    text = json.dumps(pack, sort_keys=True, separators=(",", ":"))
    make_out_dir(file.parent)
    write_bytes(file, lzma.compress(text.encode(), preset=lzma.PRESET_EXTREME))
    return len(names)


def merge_results(sources: Sequence[Path], out: Path) -> Carried:
    """Add the finished jobs of packs and of other folders to a study's folder.

    What the folder has stays, and so does the run directory of another job that has the same place.
    Jobs are known by all that their results depend on, so it does not matter which of several
    machines made one.

    Args:
        sources: files of `pack_results`, and folders of studies.
        out: a study's folder, made if it is not there.

    Raises:
        UserError: a source is neither, it was made under another plan, or the folder cannot be
            written.
    """
    there, found = _read_folder(out), [(source, _read_source(source)) for source in sources]
    notes = there.notes
    # Jobs in a folder that says nothing of its study may be of any.
    unnamed = bool(there.jobs) and not _naming(notes)
    for path, source in found:
        own, others = _naming(notes), _naming(source.notes)
        if others and not own & others and (own or unnamed):
            raise UserError(f"{path} holds another kind of study than the rest; merge one kind")
        for name in notes.keys() & source.notes.keys():
            if _compared(notes[name]) != _compared(source.notes[name]):
                raise UserError(
                    f"{path} was made under another {name} than the rest; merge what has the "
                    "same study, budget, seed, profile and precision"
                )
        notes = {**source.notes, **notes}
    with driven(make_folder(out)):
        return _merged(there, found, notes, out)


def _merged(
    there: _Source, found: Sequence[tuple[Path, _Source]], notes: Mapping[str, Any], out: Path
) -> Carried:
    """Add what sources have to a folder, which nobody else makes runs in meanwhile."""
    make_out_dir(out / RESULTS)
    for name, note in notes.items():
        if not (out / name).is_file():
            write_json(out / name, note)
    if opened := _earliest([there, *(source for _, source in found)]):
        write_json(out / OPENED, opened)
    known = {name for name, job in there.jobs.items() if _is_whole(job, name, out)}
    taken = {_place(there.jobs[name]) for name in known} - {None}
    asked = {name for _, source in found for name in source.jobs}
    added = set()
    for _, source in found:
        for name, job in source.jobs.items():
            place = _place(job)
            if name in known | added or place in taken or not source.can_carry(name):
                continue
            if place is not None:
                taken.add(place)
                shutil.rmtree(out / place, ignore_errors=True)
                _write_records(source.records_of(name), out / place)
            write_json(out / RESULTS / f"{name}.json", job, indent=None)
            added.add(name)
    return Carried(added=len(added), known=len(asked & known), left=len(asked - known - added))


def _naming(notes: Mapping[str, Any]) -> set[str]:
    """Return which of the files are there that say of what kind a study is."""
    return {PLAN, SETTINGS} & notes.keys()


def _is_timed(key: Mapping[str, Any]) -> bool:
    """Whether a job says what a machine takes; a profile that a plan is made with stays in it."""
    is_of_game = str(key.get("profile", "")).startswith(OF_GAME)
    return key.get("kind") == INFERENCE or (key.get("kind") == PROFILE and is_of_game)


def _is_whole(job: Mapping[str, Any], name: str, study: Path) -> bool:
    """Whether a folder has all that a job left there."""
    place = _place(job)
    return place is None or is_run_of(study / place, name)


def _write_records(records: Mapping[str, str], run: Path) -> None:
    """Write the files of a run directory; the summary last, as it tells that all is there."""
    make_out_dir(run)
    for name in sorted(records, key=lambda name: name == SUMMARY):
        (run / name).write_text(records[name])


def _read_source(source: Path) -> _Source:
    """Return what a pack or a study's folder holds."""
    if source.is_dir():
        return _read_folder(source, asked=True)
    pack = _read_pack(source)
    return _Source(
        notes=pack["notes"],
        opened=pack.get("opened", []),
        jobs=pack["jobs"],
        records=pack.get("records", {}),
    )


def _read_folder(study: Path, *, asked: bool = False) -> _Source:
    return _Source(
        notes=_notes_of(study),
        opened=read_list(study / OPENED),
        jobs=_jobs_of(study, asked=asked),
        folder=study,
    )


def _notes_of(study: Path) -> dict[str, Any]:
    """Return what says what a study's folder is for, by the names of its files."""
    return {name: read_record(study / name) for name in NOTES if (study / name).is_file()}


def _earliest(sources: Sequence[_Source]) -> list[Mapping[str, Any]]:
    """Return when each plan's test seeds were first opened by each revision of the code."""
    notes = sorted(
        (note for source in sources for note in source.opened), key=lambda note: str(note.get("at"))
    )
    first: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for note in notes:
        first.setdefault((note.get("plan_hash"), note.get("git_revision")), note)
    return [*first.values()]


def _compared(note: Mapping[str, Any]) -> Any:
    """Return what must not differ: of a plan, that is not the revision that wrote it."""
    return note.get("hash", note)


def _jobs_of(study: Path, *, asked: bool) -> dict[str, Any]:
    """Return the finished jobs of a study's folder, by name; damaged ones are none.

    One that is `asked` for them must be a study's; an empty one may become a study's folder.
    """
    if (
        study.is_dir()
        and not is_study(study)
        and (asked or not all(map(is_draft, study.iterdir())))
    ):
        raise UserError(f"{study} holds no study; give the --out of `accerl study run`")
    jobs = {}
    for path in sorted((study / RESULTS).glob("*.json")):
        try:
            job = json.loads(path.read_text())
        except ValueError:
            continue
        if _is_job(job) and _is_within(_place(job)):
            jobs[path.stem] = job
    return jobs


def _place(job: Mapping[str, Any]) -> str | None:
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
    """Whether all that a pack holds has its place within a study's folder, and its form."""
    jobs, records = pack["jobs"], pack.get("records", {})
    return (
        pack["notes"].keys() <= set(NOTES)
        and all(isinstance(note, dict) for note in pack["notes"].values())
        and isinstance(pack.get("opened", []), list)
        and all(isinstance(note, dict) for note in pack.get("opened", []))
        and all(re.fullmatch("[0-9a-f]{64}", name) for name in jobs)
        and all(_is_job(job) and _is_within(_place(job)) for job in jobs.values())
        and isinstance(records, dict)
        and all(_are_records(files) for files in records.values())
    )


def _is_job(job: Any) -> bool:
    return (
        isinstance(job, dict) and {"key", "result"} <= job.keys() and isinstance(job["key"], dict)
    )


def _is_within(place: Any) -> bool:
    """Whether a run directory lies below one that is the study's own for runs."""
    if place is None:
        return True
    parts = PurePosixPath(place).parts if isinstance(place, str) else ()
    return len(parts) > 1 and parts[0] not in ("/", RESULTS) and ".." not in parts


def _are_records(files: Any) -> bool:
    return isinstance(files, dict) and all(
        _FILE.fullmatch(name) and isinstance(text, str) for name, text in files.items()
    )
