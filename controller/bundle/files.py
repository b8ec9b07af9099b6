"""What lies in a bundle folder, and whether it still is what was exported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

import accerl
from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES, LIMIT
from accerl.records import json_hash, read_json

KIND = "accerl-compression-schedule"
SCHEMA_VERSION = 3
MANIFEST = "bundle.json"
WEIGHTS = "controller.safetensors"
GRAPH = "controller.onnx"
SCHEDULE = "schedule.json"
CARD = "README.md"
FILES = (WEIGHTS, GRAPH, SCHEDULE, CARD)

_COMMON: dict[str, Any] = {
    "kind": str,
    "schema_version": int,
    "features_version": int,
    "actions": dict,
    "meta": dict,
    "probes": dict,
    "files": dict,
    "versions": dict,
    "digest": str,
}
_SINCE_2: dict[str, Any] = {
    "features": list,
    "action_table": list,
    "policy": dict,
    "git_revision": str | None,
}
SCHEMAS: dict[int, dict[str, Any]] = {
    1: {**_COMMON, "feature_names": list},
    2: {**_COMMON, **_SINCE_2},
    3: {**_COMMON, **_SINCE_2},  # meta tells the shield
}
"""By schema version, every key of bundle.json and its type."""
NUM_FEATURES = {1: 15, 2: 26}
"""By features version, how many there are; each version keeps those before it and adds its own."""


@dataclass(frozen=True)
class Contents:
    """What the files of an intact bundle hold, as its schema version wrote them or migrated."""

    manifest: dict[str, Any]
    weights: dict[str, Tensor]
    schedule: Any


def feature_table() -> list[dict[str, Any]]:
    """Return the features that a controller reads, as bundle.json lists them.

    Each is an indicator (`source`, in `unit`), put through `transform` and clipped to
    [-`clip`, `clip`]; it has no unit any more, and is `unknown` while nothing was measured.
    """
    return [
        {
            "name": feature.name,
            "source": feature.source,
            "unit": _unit(feature.source),
            "transform": feature.text or "x",
            "unknown": feature.unknown,
            "clip": LIMIT,
        }
        for feature in FEATURES
    ]


def _unit(indicator: str) -> str:
    """Return the unit of a raw indicator; 1 stands for none."""
    if indicator.endswith("_nats"):
        return "nats"
    units = {
        "kl_var": "nats^2",
        "policy_lag": "learner updates",
        "intervals_since_switch": "intervals",
    }
    return units.get(indicator, "1")


def is_bundle(path: str | Path) -> bool:
    """Return whether `path` is a folder that claims to be a bundle; nothing is verified."""
    return (Path(path) / MANIFEST).is_file()


def file_entry(file: Path) -> dict[str, Any]:
    """Return what bundle.json says about a file: SHA-256 and size."""
    data = file.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def read_contents(path: Path) -> Contents:
    """Return what an intact bundle holds, as it was written.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    manifest = read_manifest(path)
    file = Path(path) / WEIGHTS
    try:
        weights = load_safetensors(file.read_bytes())
    except SafetensorError as error:
        raise UserError(f"{file} does not hold this controller: {error}") from error
    return Contents(manifest, weights, read_json(Path(path) / SCHEDULE))


def read_manifest(path: Path) -> dict[str, Any]:
    """Return bundle.json of an intact bundle, as its schema version wrote it.

    Checked are versions, schema and digest, and the hash of every file beside it.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    file = Path(path) / MANIFEST
    if not file.is_file():
        raise UserError(f"{path} is not a bundle: it has no {MANIFEST}")
    manifest = read_json(file)
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise UserError(f"{file} does not describe a bundle of kind {KIND!r}")
    schema = SCHEMAS[_known_version(file, manifest, "schema_version", SCHEMAS)]
    num_features = NUM_FEATURES[_known_version(file, manifest, "features_version", NUM_FEATURES)]
    wrong = [key for key, kind in schema.items() if not isinstance(manifest.get(key, ...), kind)]
    wrong += sorted(set(manifest) - set(schema))
    if wrong:
        raise UserError(f"{file} is damaged: missing, unknown or mistyped keys {wrong}")
    content = {key: value for key, value in manifest.items() if key != "digest"}
    if json_hash(content) != manifest["digest"]:
        raise UserError(f"{file} was altered after export: its digest does not match")
    if feature_names(manifest) != FEATURE_NAMES[:num_features]:
        raise UserError(f"{file}: the controller reads other features than this AcceRL makes")
    for name in FILES:
        _check_file(Path(path) / name, manifest["files"].get(name))
    return manifest


def feature_names(manifest: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the names of the features that bundle.json of any schema version lists."""
    if "feature_names" in manifest:
        return tuple(manifest["feature_names"])
    rows = manifest["features"]
    return tuple(row.get("name") if isinstance(row, Mapping) else row for row in rows)


def _known_version(
    file: Path, manifest: Mapping[str, Any], key: str, known: Mapping[int, Any]
) -> int:
    """Return a version number that this AcceRL can read."""
    found = manifest.get(key)
    if isinstance(found, int) and not isinstance(found, bool) and found in known:
        return found
    newer = isinstance(found, int) and found > max(known)
    advice = "update AcceRL" if newer else "export the bundle again"
    raise UserError(
        f"{file}: {key} is {found!r}, this AcceRL {accerl.__version__} reads "
        f"{', '.join(map(str, sorted(known)))}; {advice}"
    )


def _check_file(file: Path, expected: Mapping[str, Any] | None) -> None:
    if not isinstance(expected, Mapping) or set(expected) != {"sha256", "bytes"}:
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
