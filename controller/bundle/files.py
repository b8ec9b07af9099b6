"""What lies in a bundle folder, and whether it still is what was exported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import SafetensorError

import accerl
from accerl.errors import UserError
from accerl.records import json_hash, read_json

KIND = "accerl-compression-schedule"
SCHEMA_VERSION = 6
MANIFEST = "bundle.json"
WEIGHTS = "controller.safetensors"
GRAPH = "controller.onnx"
SCHEDULE = "schedule.json"
CARD = "README.md"
BELIEFS = "indicator.json"
FILES = (WEIGHTS, GRAPH, BELIEFS, SCHEDULE, CARD)
"""what lies beside the manifest"""
INDICATOR = "indicator"
"""the kind of policy"""
_MALFORMED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RuntimeError,
    SafetensorError,
)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What bundle.json holds; its keys are these fields and ``digest``."""

    kind: str = KIND
    schema_version: int = SCHEMA_VERSION
    policy: dict
    """``kind``, and what else its weights need, see `Content.form`"""
    features: list
    """what the policy reads, see `Content.features`"""
    action_table: list
    """what it chooses from, see `Actions.table`"""
    meta: dict
    """`BundleMeta.to_json`"""
    probes: dict
    """feature vectors, and the logits that the exported policy gave them"""
    git_revision: str | None
    """of the code that exported it"""
    versions: dict
    """of the packages that exported it"""
    files: dict
    """`file_entry` of every other file, by name"""

    @property
    def digest(self) -> str:
        """SHA-256 of all fields: the identity of the bundle."""
        return json_hash(asdict(self))

    @property
    def file_bytes(self) -> dict[str, int]:
        """Size of every other file, by name."""
        return {name: entry["bytes"] for name, entry in self.files.items()}

    def to_json(self) -> dict[str, Any]:
        """Return all fields and the digest."""
        return {**asdict(self), "digest": self.digest}

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Read what `to_json` wrote.

        Raises:
            UserError: it is of another kind or version, a key is missing, unknown or mistyped, or
                the digest does not match.
        """
        if not isinstance(data, dict) or data.get("kind") != KIND:
            raise UserError(f"it does not describe a bundle of kind {KIND!r}")
        check_version(data, "schema_version", SCHEMA_VERSION)
        types = {**get_type_hints(cls), "digest": str}
        wrong = [key for key, kind in types.items() if not isinstance(data.get(key, ...), kind)]
        wrong += sorted(set(data) - set(types))
        if wrong:
            raise UserError(f"it is damaged: missing, unknown or mistyped keys {wrong}")
        manifest = cls(**{field.name: data[field.name] for field in fields(cls)})
        if manifest.digest != data["digest"]:
            raise UserError("it was altered after export: its digest does not match")
        if manifest.policy.get("kind") != INDICATOR:
            raise UserError(
                f"its policy is of kind {manifest.policy.get('kind')!r}, this AcceRL reads "
                f"{INDICATOR!r}"
            )
        return manifest


def is_bundle(path: str | Path) -> bool:
    """Return whether `path` is a folder that claims to be a bundle; nothing is verified."""
    return (Path(path) / MANIFEST).is_file()


def file_entry(file: Path) -> dict[str, Any]:
    """Return what bundle.json says about a file: SHA-256 and size."""
    data = file.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@contextmanager
def refuse_malformed(what: str) -> Iterator[None]:
    """Refuse JSON or tensors of another form than expected, in one line that begins with `what`.

    Raises:
        UserError: whatever reading them raises.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from error
    except _MALFORMED as error:
        raise UserError(f"{what}: {' '.join(repr(error).split())}") from error


def read_manifest(path: Path) -> Manifest:
    """Return bundle.json of an intact bundle; the hash of every file beside it is checked.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    file = path / MANIFEST
    if not file.is_file():
        raise UserError(
            f"{path} is not a bundle: it has no {MANIFEST}; give the folder that a study's report "
            "or `accerl schedule export` names"
            if path.is_dir()
            else f"{path} {'is a file' if path.exists() else 'does not exist'}; give the folder of "
            "a bundle"
        )
    data = read_json(file)
    with refuse_malformed(str(file)):
        manifest = Manifest.from_json(data)
    for name in FILES:
        _check_file(path / name, manifest.files.get(name))
    return manifest


def check_version(data: Mapping[str, Any], key: str, expected: int) -> None:
    """Refuse another version than this AcceRL's.

    Raises:
        UserError: with what to do about it.
    """
    found = data.get(key)
    if found == expected and not isinstance(found, bool):
        return
    newer = isinstance(found, int) and found > expected
    advice = "update AcceRL" if newer else "train or run the study again to make it anew"
    raise UserError(
        f"{key} is {found!r}, this AcceRL {accerl.__version__} reads {expected}; {advice}"
    )


def _check_file(file: Path, expected: Mapping[str, Any] | None) -> None:
    kinds = {"sha256": str, "bytes": int}
    expected = expected if isinstance(expected, Mapping) else {}
    given = {key: type(value) for key, value in expected.items()}
    if given != kinds:
        raise UserError(f"{file.parent / MANIFEST} does not list {file.name} with sha256 and bytes")
    if not file.is_file():
        raise UserError(f"{file} is missing from the bundle; copy the whole folder again")
    found = file_entry(file)
    if found["bytes"] != expected["bytes"]:
        what = "cut off" if found["bytes"] < expected["bytes"] else "altered"
        raise UserError(
            f"{file} has {found['bytes']} bytes instead of {expected['bytes']}; was it {what}? "
            "copy the bundle again"
        )
    if found["sha256"] != expected["sha256"]:
        raise UserError(f"{file} was altered after export (its SHA-256 does not match)")
