"""Schedule bundles: what a controller learned, as a folder that another run can load and check.

    bundle.json              what it is, where it was trained, what it reached; hash of every file
    controller.safetensors   weights and normaliser
    controller.onnx          features -> logits per head, for any ONNX runtime
    schedule.json            what it usually did, per game, by fraction of the horizon
    README.md                the model card

Nothing in it is ever unpickled, and nothing is read before its hash has been checked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

import accerl
from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION
from accerl.monitor.strategy import Strategy
from accerl.records import json_hash, make_out_dir, read_json, versions, write_json
from controller.actions import HEADS, ActionSpace
from controller.bundle_card import card, describe
from controller.bundle_files import (
    CARD,
    FILES,
    GRAPH,
    KIND,
    MANIFEST,
    SCHEDULE,
    SCHEMA_VERSION,
    WEIGHTS,
    BundleMeta,
    file_entry,
    is_bundle,
    read_manifest,
)
from controller.policy import ControllerPolicy, LearnedStrategy
from controller.policy_onnx import build_onnx, onnx_logits
from controller.schedule import POOLED, ReplayedSchedule, Schedule

__all__ = [
    "BundleMeta",
    "export_bundle",
    "is_bundle",
    "load_bundle",
    "load_policy",
    "load_schedules",
    "read_manifest",
    "show_bundle",
    "verify_bundle",
]

LOGIT_TOLERANCE = 1e-5


def export_bundle(
    path: Path,
    policy: ControllerPolicy,
    actions: ActionSpace,
    meta: BundleMeta,
    schedules: Mapping[str, Schedule],
) -> Path:
    """Write a bundle, verify it, and only then put it in place; an old bundle is replaced.

    Args:
        path: the folder to make; it may hold an older bundle, nothing else.
        policy: the trained controller.
        actions: what its heads stand for.
        meta: where it comes from.
        schedules: open-loop schedule per game (`schedule.summarise_games`).

    Raises:
        UserError: `path` holds something else, cannot be written, or the parts do not fit.
    """
    path = Path(path)
    LearnedStrategy(policy, actions)  # raises where heads and action space do not fit
    if policy.body.in_features != len(FEATURE_NAMES):
        raise UserError(f"bundle: the policy must read the {len(FEATURE_NAMES)} features")
    if path.exists() and not is_bundle(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path} exists and is not a bundle; give --out another folder")
    make_out_dir(path.parent)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        staging.chmod(0o755)  # mkdtemp makes it private; a bundle is made to be shared
        _write(staging, policy, actions, meta, schedules)
        verify_bundle(staging)
        _move_into_place(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return path


def _write(
    folder: Path,
    policy: ControllerPolicy,
    actions: ActionSpace,
    meta: BundleMeta,
    schedules: Mapping[str, Schedule],
) -> None:
    weights = {name: value.contiguous() for name, value in policy.state_dict().items()}
    (folder / WEIGHTS).write_bytes(save_safetensors(weights))
    (folder / GRAPH).write_bytes(build_onnx(policy))
    games = {game: schedule.to_json() for game, schedule in sorted(schedules.items())}
    write_json(folder / SCHEDULE, {"games": games})
    vectors = np.random.default_rng(0).uniform(-3.0, 3.0, (16, len(FEATURE_NAMES)))
    vectors = vectors.astype(np.float32)
    manifest: dict[str, Any] = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "features_version": FEATURES_VERSION,
        "feature_names": list(FEATURE_NAMES),
        "actions": actions.to_json(),
        "meta": meta.to_json(),
        "probes": {"vectors": vectors.tolist(), "logits": _torch_logits(policy, vectors).tolist()},
        "versions": {"accerl": accerl.__version__, **versions()},
    }
    (folder / CARD).write_text(card(manifest, games))
    manifest["files"] = {name: file_entry(folder / name) for name in FILES}
    write_json(folder / MANIFEST, {**manifest, "digest": json_hash(manifest)})


def _move_into_place(staging: Path, path: Path) -> None:
    """Rename `staging` to `path`; an older bundle steps aside and comes back on failure."""
    if not path.exists():
        staging.rename(path)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(aside)
    try:
        staging.rename(path)
    except OSError:
        aside.rename(path)
        raise
    shutil.rmtree(aside)


def _torch_logits(policy: ControllerPolicy, vectors: np.ndarray) -> np.ndarray:
    """Return the logits of all heads side by side, [N, sum of sizes]."""
    with torch.no_grad():
        return torch.cat(policy(torch.from_numpy(vectors)), dim=-1).numpy()


def load_policy(path: Path) -> tuple[ControllerPolicy, ActionSpace]:
    """Return controller and action space of an intact bundle.

    Raises:
        UserError: the bundle is damaged, or the weights do not fit the action space.
    """
    actions = ActionSpace.from_json(read_manifest(path)["actions"])
    file = Path(path) / WEIGHTS
    try:
        policy = ControllerPolicy.from_weights(actions.sizes, load_safetensors(file.read_bytes()))
    except (SafetensorError, UserError) as error:
        raise UserError(f"{file} does not hold this controller: {error}") from error
    return policy, actions


def load_schedules(path: Path) -> dict[str, Schedule]:
    """Return the open-loop schedules of an intact bundle by game."""
    read_manifest(path)
    file = Path(path) / SCHEDULE
    try:
        games = read_json(file)["games"]
        return {game: Schedule.from_json(points) for game, points in games.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} does not hold schedules: {error!r}") from error


def load_bundle(
    path: str | Path,
    *,
    mode: Literal["policy", "schedule"] = "policy",
    game: str | None = None,
) -> Strategy:
    """Return a bundle as a strategy for a new run.

    Args:
        path: the bundle's folder.
        mode: "policy" reacts to features; "schedule" replays the open-loop schedule by the clock.
        game: whose schedule; None is the only one there is, or else the pooled one.

    Raises:
        UserError: the bundle is damaged, or has no such mode or game.
    """
    if mode == "policy":
        return LearnedStrategy(*load_policy(Path(path)))
    if mode != "schedule":
        raise UserError(f"bundle: mode {mode!r} does not exist; allowed: policy, schedule")
    schedules = load_schedules(Path(path))
    if game is None:
        game = POOLED if POOLED in schedules else next(iter(schedules), POOLED)
    if game not in schedules:
        raise UserError(
            f"{Path(path) / SCHEDULE} has no schedule for {game!r}; "
            f"it has: {', '.join(schedules) or 'none'}"
        )
    return ReplayedSchedule(schedules[game])


def verify_bundle(path: str | Path) -> dict[str, Any]:
    """Check everything a bundle promises and return the findings.

    Versions, schema, sizes and hashes; then torch, ONNX Runtime and the logits recorded at export
    must agree on the stored probe vectors to 1e-5, and schedules must stay in the action space.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    path = Path(path)
    manifest = read_manifest(path)
    policy, actions = load_policy(path)
    meta = BundleMeta.from_json(manifest["meta"])
    difference = _check_logits(path, policy, manifest["probes"])
    schedules = load_schedules(path)
    for schedule in schedules.values():
        for point in schedule.points:
            actions.indices(point.decision.main)
    return {
        "ok": True,
        "path": str(path),
        "schema_version": manifest["schema_version"],
        "features_version": manifest["features_version"],
        "files": {name: entry["bytes"] for name, entry in manifest["files"].items()},
        "heads": dict(zip(HEADS, actions.sizes, strict=True)),
        "parameters": policy.num_parameters(),
        "max_logit_difference": difference,
        "schedules": sorted(schedules),
        "tier": meta.tier,
    }


def _check_logits(path: Path, policy: ControllerPolicy, probes: Mapping[str, Any]) -> float:
    """Return the largest difference between torch, ONNX Runtime and the logits of the export."""
    try:
        vectors = np.array(probes["vectors"], dtype=np.float32)
        here = _torch_logits(policy, vectors)
        recorded = np.array(probes["logits"], dtype=np.float32).reshape(here.shape)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path / MANIFEST} holds no usable probe vectors: {error!r}") from error
    try:
        there = np.concatenate(onnx_logits((path / GRAPH).read_bytes(), vectors), axis=-1)
    except UserError as error:
        raise UserError(f"{path / GRAPH}: {error}") from error
    if there.shape != here.shape:
        raise UserError(f"{path / GRAPH} has heads of other sizes than {WEIGHTS}")
    difference = float(max(np.abs(here - there).max(), np.abs(here - recorded).max()))
    if not difference <= LOGIT_TOLERANCE:
        raise UserError(
            f"{path / GRAPH} and {WEIGHTS} disagree: logits differ by {difference:.2g}, "
            f"more than {LOGIT_TOLERANCE:g}"
        )
    return difference


def show_bundle(path: str | Path) -> dict[str, Any]:
    """Return what a person wants to know about an intact bundle, with schedules in words."""
    manifest = read_manifest(Path(path))
    schedules = load_schedules(Path(path))
    return {
        "path": str(path),
        **{key: manifest[key] for key in ("schema_version", "features_version", "actions")},
        **manifest["meta"],
        "schedules": {game: describe(schedule.to_json()) for game, schedule in schedules.items()},
        "files": {name: entry["bytes"] for name, entry in manifest["files"].items()},
        "versions": manifest["versions"],
    }
