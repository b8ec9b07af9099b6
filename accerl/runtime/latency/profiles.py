"""Latency profiles by name: those that come with the package, and those measured here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accerl.errors import UserError, did_you_mean
from accerl.records import fingerprint, read_json, write_json
from accerl.runtime.latency import shipped
from accerl.runtime.latency.families import FAMILIES, machine_of, sample_machine
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.shipped.paper import PAPER, paper_profile
from accerl.runtime.machine.cores import usable_cores
from accerl.spec import STUDENTS, CompressionSpec

SHIPPED = (PAPER, *shipped.MAKERS)
"""names of the profiles that come with the package"""
TAKEN = ("paper", *SHIPPED)
"""names that a measured profile cannot be loaded by"""
MEASURED = "measured"
"""name under which this machine's profile is kept, unless another is given"""


def load_profile(name_or_path: str, folder: Path | None = None) -> LatencyProfile:
    """Return a profile by name (shipped, drawn, or kept in `folder`) or by path of its JSON file.

    A machine of a family, such as laptop-0017, is drawn anew, always the same.

    Raises:
        UserError: there is none of that name.
    """
    if name_or_path in (PAPER, "paper"):
        return paper_profile()
    if name_or_path in shipped.MAKERS:
        return shipped.MAKERS[name_or_path]()
    if (machine := machine_of(name_or_path)) is not None:
        return sample_machine(*machine)
    path = Path(name_or_path)
    if path.suffix == ".json":
        return _read(path)
    folder = folder or profile_folder()
    stored = folder / f"{name_or_path}.json"
    if stored.is_file():
        try:
            return _read(stored)
        except UserError as error:
            raise UserError(f"{error}; or delete it") from error
    if (family := name_or_path.rpartition("-")[0]) in FAMILIES:
        raise UserError(
            f"latency profile {name_or_path!r} does not exist; machines of a family are "
            f"{family}-0000 to {family}-9999"
        )
    if path.exists():
        raise UserError(f"{path} is no latency profile; give a name, or a file that ends in .json")
    hint = did_you_mean(name_or_path, ["paper", *profile_names(folder)])
    raise UserError(
        f"latency profile {name_or_path!r} does not exist; {hint}; "
        "`accerl profile measure` makes one for this machine, `accerl profile sample` draws others"
    )


def _read(path: Path) -> LatencyProfile:
    data = read_json(path)
    try:
        return LatencyProfile.from_json(data)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def profile_folder() -> Path:
    """Return where measured profiles are kept: $ACCERL_HOME or ~/.cache/accerl.

    Raises:
        UserError: neither is known.
    """
    import os

    if home := os.environ.get("ACCERL_HOME"):
        return Path(home) / "profiles"
    try:
        return Path.home() / ".cache" / "accerl" / "profiles"
    except RuntimeError as error:
        raise UserError(
            "nobody knows your home folder; set ACCERL_HOME to a folder that measured profiles "
            "are kept in"
        ) from error


def profile_names(folder: Path | None = None) -> list[str]:
    """Return the names that `load_profile` knows."""
    folder = folder or profile_folder()
    try:
        stored = sorted(path.stem for path in folder.glob("*.json")) if folder.is_dir() else []
    except PermissionError:  # somebody else's: none of them can be loaded
        stored = []
    return [*SHIPPED, *(name for name in stored if name not in TAKEN)]


def this_machine(folder: Path | None = None) -> str:
    """Return the name of what comes nearest to this machine: its measured profile, if there is.

    A folder may be shared with other machines, so the profile that lies there may be of another.
    """
    kept = MEASURED in profile_names(folder)
    is_ours = kept and load_profile(MEASURED, folder).fingerprint.get("id") == fingerprint()["id"]
    return MEASURED if is_ours else "two-core"


def note_on_cores(profile: LatencyProfile) -> str | None:
    """Say of a profile of this machine that it had another number of cores then; None: it had not.

    A container may have fewer of a machine's than were there when it was measured.
    """
    if profile.fingerprint.get("id") != fingerprint()["id"] or profile.cores == usable_cores():
        return None
    return (
        f"latency profile {profile.name!r} is of this machine with {profile.cores} cores, and "
        f"{usable_cores()} can be used now: what follows is of {profile.cores}; measure it again "
        "(`accerl profile measure`) for these"
    )


def save_profile(profile: LatencyProfile, path: Path) -> None:
    """Write a profile as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, profile.to_json())


def standard_specs(students: Sequence[str] = STUDENTS) -> list[CompressionSpec]:
    """Return the specs that a measured profile covers, of these students."""
    levels = (0.0, 0.25, 0.5, 0.75)
    specs = [
        CompressionSpec(student=student, bits=bits, sparsity=sparsity)
        for student in students
        for bits in (32, 16, 8)
        for sparsity in levels
    ]
    for student in students:
        specs += [
            CompressionSpec(student=student, graph=graph) for graph in ("eager", "torchscript")
        ]
    specs += [CompressionSpec(bits=bits, rank=0.25) for bits in (32, 8)]
    return specs
