"""Schedule bundles: what a controller learned, as a folder that another run can load and check.

    bundle.json              what it is, where it was trained, what it reached; hash of every file
    controller.safetensors   weights
    controller.onnx          features -> scores, for any ONNX runtime
    indicator.json           its prior and settings
    schedule.json            what it usually did, per game or machine, by fraction of the horizon
    README.md                the model card

Nothing in it is ever unpickled, and nothing is read before its hash has been checked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.torch import save as save_safetensors

from accerl.errors import UserError
from accerl.monitor.strategy import Strategy
from accerl.records import make_out_dir, versions, write_json
from controller.bundle.card import card, describe_result, describe_schedule, schedule_rows
from controller.bundle.content import Content, probe
from controller.bundle.files import (
    BELIEFS,
    CARD,
    FILES,
    GRAPH,
    MANIFEST,
    SCHEDULE,
    WEIGHTS,
    Manifest,
    file_entry,
    is_bundle,
    refuse_malformed,
)
from controller.bundle.meta import BundleMeta, git_revision
from controller.bundle.read import Bundle, read_bundle
from controller.bundle.schedule import RULES, Schedule
from controller.bundle.serving import ServedSchedule
from controller.indicator.onnx_graph import build_onnx, onnx_scores
from controller.indicator.strategy import AdvancedIndicator

__all__ = [
    "Bundle",
    "BundleMeta",
    "check_place",
    "export_bundle",
    "is_bundle",
    "load_bundle",
    "read_bundle",
    "show_bundle",
    "verify_bundle",
]

LOGIT_TOLERANCE = 1e-5
"""largest difference between two forms of a policy, relative to values above 1"""


def export_bundle(
    path: Path,
    indicator: AdvancedIndicator,
    meta: BundleMeta,
    schedules: Mapping[str, Schedule],
) -> Path:
    """Write a bundle, verify it, and only then put it in place; an old bundle is replaced.

    Args:
        path: the folder to make; it may hold an older bundle, nothing else.
        indicator: what was trained.
        meta: where it comes from.
        schedules: open-loop, per game or machine (`schedule.median_schedules`).

    Raises:
        UserError: `path` holds something else, cannot be written, or the parts do not fit.
    """
    path = Path(path).resolve()  # "." has no name to write a folder beside
    content = Content(indicator)
    check_place(path)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        staging.chmod(0o755)  # mkdtemp makes it private; a bundle is made to be shared
        _write(staging, content, meta, schedules)
        verify_bundle(staging)
        _move_into_place(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return path


def check_place(path: Path) -> None:
    """Refuse a place that no bundle can be put in: all that it holds would be replaced.

    Raises:
        UserError: it holds something else than a bundle's files, or cannot be written.
    """
    path = path.resolve()
    if path.is_file():
        raise UserError(f"{path} is a file; choose another place for the bundle")
    held = {item.name for item in path.iterdir()} if path.is_dir() else set()
    if others := sorted(held.difference({MANIFEST, *FILES}) if MANIFEST in held else held):
        raise UserError(
            f"{path} holds other things than a bundle ({others[0]}); remove them, or choose "
            "another place for it"
        )
    make_out_dir(path.parent)


def _write(
    folder: Path, content: Content, meta: BundleMeta, schedules: Mapping[str, Schedule]
) -> None:
    weights = {name: value.contiguous() for name, value in content.scorer.state_dict().items()}
    (folder / WEIGHTS).write_bytes(save_safetensors(weights))
    (folder / GRAPH).write_bytes(build_onnx(content.scorer))
    write_json(folder / BELIEFS, content.beliefs())
    games = {game: schedule.to_json() for game, schedule in schedules.items()}
    write_json(folder / SCHEDULE, {**RULES, "games": games})
    vectors = probe()
    manifest = Manifest(
        policy=content.form(),
        features=content.features,
        action_table=content.actions.table(),
        meta=meta.to_json(),
        probes={"vectors": vectors.tolist(), "logits": content.logits(vectors).tolist()},
        git_revision=git_revision(),
        versions=versions(),
        files={},
    )
    (folder / CARD).write_text(card(manifest, content, meta, schedules))
    manifest = replace(manifest, files={name: file_entry(folder / name) for name in FILES})
    write_json(folder / MANIFEST, manifest.to_json())


def _move_into_place(staging: Path, path: Path) -> None:
    """Rename `staging` to `path`; an older bundle steps aside and comes back on failure."""
    if not path.exists():
        staging.rename(path)
        return
    if not any(path.iterdir()):  # it stays the same folder: a shell may stand in it
        for name in (*FILES, MANIFEST):  # the manifest, which makes it a bundle, comes last
            (staging / name).rename(path / name)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(aside)
    try:
        staging.rename(path)
    except OSError:
        aside.rename(path)
        raise
    shutil.rmtree(aside)


def load_bundle(
    path: str | Path,
    *,
    mode: Literal["policy", "schedule"] = "policy",
    game: str | None = None,
) -> Strategy:
    """Return a bundle as a strategy for a new run.

    The indicator chooses from what the run can act with. A schedule is chosen by the run, as on the
    command line (`controller.bundle.serving.ServedSchedule`), and the nearest milder specs act in
    place of those that the run cannot act with.

    Args:
        path: the bundle's folder.
        mode: "policy" reacts to features; "schedule" replays an open-loop schedule by the clock.
        game: whose schedule, or of which family of machines, whatever the run; None: the run
            chooses. It goes with mode "schedule".

    Raises:
        UserError: the bundle is damaged, or has no such mode or schedule.
    """
    bundle = read_bundle(path)
    if mode == "schedule":
        return ServedSchedule(bundle, game)
    return bundle.strategy(mode, game)


def verify_bundle(path: str | Path) -> dict[str, Any]:
    """Check everything a bundle promises and return the findings.

    Versions, schema, sizes and hashes; then torch, ONNX Runtime and the logits recorded at export
    must agree on the stored probe vectors to 1e-5 (relative to values above 1), and schedules must
    keep to the specs that are chosen from.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    bundle = read_bundle(path)
    difference = _check_logits(bundle)
    return {
        "ok": True,
        "path": str(path),
        "schema_version": bundle.manifest.schema_version,
        "files": bundle.manifest.file_bytes,
        "candidate_features": len(bundle.content.features),
        "actions": len(bundle.content.actions.all_specs),
        "parameters": bundle.content.scorer.num_parameters(),
        "max_logit_difference": difference,
        "schedules": sorted(bundle.schedules),
        "results": len(bundle.meta.results),
        "tier": bundle.meta.tier,
    }


def _check_logits(bundle: Bundle) -> float:
    """Return the largest difference between torch, ONNX Runtime and the logits of the export."""
    path, probes, content = bundle.path, bundle.manifest.probes, bundle.content
    with refuse_malformed(f"{path / MANIFEST} holds no usable probe vectors"):
        vectors = np.array(probes["vectors"], dtype=np.float32)
        here = content.logits(vectors)
        recorded = np.array(probes["logits"], dtype=np.float32).reshape(here.shape)
    with refuse_malformed(str(path / GRAPH)):
        there = onnx_scores((path / GRAPH).read_bytes(), vectors)
    if there.shape != here.shape:
        raise UserError(f"{path / GRAPH} has outputs of another size than {WEIGHTS}")
    scale = np.maximum(np.abs(here), 1.0)
    difference = float((np.maximum(np.abs(here - there), np.abs(here - recorded)) / scale).max())
    if not difference <= LOGIT_TOLERANCE:
        raise UserError(
            f"{path / GRAPH} and {WEIGHTS} disagree: logits differ by {difference:.2g}, "
            f"more than {LOGIT_TOLERANCE:g}"
        )
    return difference


_SHOWN = ("schema_version", "policy", "features", "action_table", "git_revision")


def show_bundle(path: str | Path) -> dict[str, Any]:
    """Return what a person wants to know about an intact bundle, with schedules in words."""
    bundle = read_bundle(path)
    manifest, meta = bundle.manifest, bundle.meta
    return {
        "path": str(path),
        **{name: getattr(manifest, name) for name in _SHOWN},
        "introduction": bundle.content.introduction(),
        "in_words": bundle.content.in_words(),
        "tables": bundle.content.tables(),
        **meta.to_json(),
        "games": list(meta.games),
        "shield": meta.shield_in_words,
        "results_in_words": [describe_result(result) for result in meta.results],
        "combination": RULES["combination"],
        "schedules": {game: describe_schedule(found) for game, found in bundle.schedules.items()},
        "schedule_rows": {game: schedule_rows(found) for game, found in bundle.schedules.items()},
        "files": manifest.file_bytes,
        "versions": manifest.versions,
    }
