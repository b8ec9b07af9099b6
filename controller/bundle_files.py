"""What lies in a bundle folder, and whether it still is what was exported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import accerl
from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION
from accerl.records import json_hash, read_json

KIND = "accerl-compression-schedule"
SCHEMA_VERSION = 1
MANIFEST = "bundle.json"
WEIGHTS = "controller.safetensors"
GRAPH = "controller.onnx"
SCHEDULE = "schedule.json"
CARD = "README.md"
FILES = (WEIGHTS, GRAPH, SCHEDULE, CARD)

SCHEMA: dict[str, type] = {
    "kind": str,
    "schema_version": int,
    "features_version": int,
    "feature_names": list,
    "actions": dict,
    "meta": dict,
    "probes": dict,
    "files": dict,
    "versions": dict,
    "digest": str,
}
"""Every key of bundle.json and its type."""


@dataclass(frozen=True, kw_only=True)
class BundleMeta:
    """Where a controller comes from and what it reached; what a reader needs to trust it.

    Raises:
        UserError: a length is not positive, or the tier does not exist.
    """

    interval_seconds: float
    horizon_seconds: float
    tier: str
    """analytic, virtual or real: whose seconds these are"""
    profile_hash: str | None = None
    """of the latency profile that charged the virtual clock"""
    games: tuple[str, ...] = ()
    """trained on"""
    seeds: tuple[int, ...] = ()
    """inner seeds trained on"""
    inner_runs: int = 0
    """how many runs training cost"""
    results: Mapping[str, Any] = field(default_factory=dict)
    """evaluation, as JSON"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "games", tuple(self.games))
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if self.tier not in ("analytic", "virtual", "real"):
            raise UserError(f"bundle: tier {self.tier!r}; allowed: analytic, virtual, real")
        if not 0.0 < self.interval_seconds <= self.horizon_seconds:
            raise UserError("bundle: the interval must be positive and at most the horizon")

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {**asdict(self), "games": list(self.games), "seeds": list(self.seeds)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BundleMeta:
        """Read what `to_json` wrote.

        Raises:
            UserError: a key is missing or unknown.
        """
        names = {item.name for item in fields(cls)}
        if set(data) != names:
            raise UserError(f"bundle: meta has wrong or missing keys {sorted(names ^ set(data))}")
        return cls(**data)


def is_bundle(path: str | Path) -> bool:
    """Return whether `path` is a folder that claims to be a bundle; nothing is verified."""
    return (Path(path) / MANIFEST).is_file()


def file_entry(file: Path) -> dict[str, Any]:
    """Return what bundle.json says about a file: SHA-256 and size."""
    data = file.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def read_manifest(path: Path) -> dict[str, Any]:
    """Return bundle.json of an intact bundle: versions, schema, digest and file hashes checked.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    file = Path(path) / MANIFEST
    if not file.is_file():
        raise UserError(f"{path} is not a bundle: it has no {MANIFEST}")
    manifest = read_json(file)
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise UserError(f"{file} does not describe a bundle of kind {KIND!r}")
    for key, known in (("schema_version", SCHEMA_VERSION), ("features_version", FEATURES_VERSION)):
        if manifest.get(key) != known:
            raise UserError(
                f"{file}: {key} is {manifest.get(key)!r}, this AcceRL {accerl.__version__} reads "
                f"{known}; export the bundle again with this version"
            )
    wrong = [key for key, kind in SCHEMA.items() if not isinstance(manifest.get(key), kind)]
    wrong += sorted(set(manifest) - set(SCHEMA))
    if wrong:
        raise UserError(f"{file} is damaged: missing, unknown or mistyped keys {wrong}")
    content = {key: value for key, value in manifest.items() if key != "digest"}
    if json_hash(content) != manifest["digest"]:
        raise UserError(f"{file} was altered after export: its digest does not match")
    if manifest["feature_names"] != list(FEATURE_NAMES):
        raise UserError(f"{file}: the controller reads other features than this AcceRL makes")
    for name in FILES:
        _check_file(Path(path) / name, manifest["files"].get(name))
    return manifest


def _check_file(file: Path, expected: Mapping[str, Any] | None) -> None:
    if not isinstance(expected, Mapping) or set(expected) != {"sha256", "bytes"}:
        raise UserError(f"{file.parent / MANIFEST} does not list {file.name} with sha256 and bytes")
    if not file.is_file():
        raise UserError(f"{file} is missing from the bundle; copy the whole folder again")
    found = file_entry(file)
    if found["bytes"] != expected["bytes"]:
        raise UserError(
            f"{file} has {found['bytes']} bytes instead of {expected['bytes']}; was it cut off? "
            "copy the bundle again"
        )
    if found["sha256"] != expected["sha256"]:
        raise UserError(f"{file} was altered after export (its SHA-256 does not match)")
