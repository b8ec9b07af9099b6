"""Bundles of earlier versions, brought to this one in memory; their files are never touched.

Two things may be older, each with steps of its own: the schema of the files (1 -> 2 -> 3), and the
features that the policy reads. What an old bundle does not say stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from accerl.monitor.features import FEATURES_VERSION
from controller.actions import HEADS, ActionSpace
from controller.bundle.files import NUM_FEATURES, SCHEMA_VERSION, Contents, feature_table
from controller.bundle.schedule import MODE, QUANTILES

_WIDENED = {"body.weight": 0.0, "normaliser.mean": 0.0, "normaliser.std": 1.0}
"""tensors whose last axis is the features, and what a feature is given that they never knew"""


def migrate(contents: Contents) -> Contents:
    """Return `contents` in the form of this version; what is of this version is returned as it is.

    Raises:
        KeyError, TypeError, ValueError, RuntimeError: its parts are not what its schema promises.
        UserError: an action does not exist.
    """
    if contents.manifest["schema_version"] == 1:
        contents = _from_1_to_2(contents)
    if contents.manifest["schema_version"] == 2:
        contents = _from_2_to_3(contents)
    if contents.manifest["features_version"] < FEATURES_VERSION:
        contents = _with_all_features(contents)
    return contents


def action_table(actions: ActionSpace) -> list[dict[str, Any]]:
    """Return every combination as bundle.json lists it: indices per head, name, spec."""
    return [
        {"indices": list(indices), "label": spec.label, "spec": spec.to_json()}
        for indices, spec in zip(actions.all_indices(), actions.all_specs, strict=True)
    ]


def _from_1_to_2(old: Contents) -> Contents:
    """Return a bundle of schema 1 as schema 2 would have it."""
    manifest = dict(old.manifest)
    del manifest["feature_names"]
    actions = ActionSpace.from_json(manifest["actions"])
    manifest |= {
        "schema_version": 2,
        "features": feature_table()[: NUM_FEATURES[manifest["features_version"]]],
        "action_table": action_table(actions),
        "policy": {"sizes": list(actions.sizes), "hidden": len(old.weights["body.weight"])},
        "meta": _meta_from_1(manifest["meta"]),
        "git_revision": None,
    }
    games = {
        game: [{**point, "levels": None} for point in points]
        for game, points in old.schedule["games"].items()
    }
    schedule = {
        "heads": list(HEADS),
        "quantiles": list(QUANTILES),
        "combination": MODE,
        "games": games,
    }
    return Contents(manifest, old.weights, schedule)


def _meta_from_1(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta of schema 1 with the fields of schema 2.

    Schema 1 kept results in a form of the exporter's own, without intervals: they are left out
    here, and the bundle's model card still tells them.
    """
    hashes = meta["profile_hash"].split("+") if meta["profile_hash"] else []
    unknown = {"profile": None, "horizon_seconds": None, "interval_seconds": None}
    return {
        **{key: meta[key] for key in ("interval_seconds", "horizon_seconds", "tier", "inner_runs")},
        "profiles": [{"name": None, "hash": found} for found in hashes],
        "instances": [{"game": game, "seeds": meta["seeds"], **unknown} for game in meta["games"]],
        "min_dwell_intervals": 1,
        "results": [],
        "contest": None,
    }


def _from_2_to_3(old: Contents) -> Contents:
    """Return a bundle of schema 2 as schema 3 would have it: no shield belonged to it."""
    meta = {**old.manifest["meta"], "shield_nats": None}
    manifest = {**old.manifest, "schema_version": SCHEMA_VERSION, "meta": meta}
    return Contents(manifest, old.weights, old.schedule)


def _with_all_features(old: Contents) -> Contents:
    """Return a policy of earlier features that reads today's and gives the same logits.

    The first layer gets zero columns for the features that it never knew, and the stored probe
    vectors get ones there: whatever those features are, the logits of the export must come out.
    """
    extra = NUM_FEATURES[FEATURES_VERSION] - NUM_FEATURES[old.manifest["features_version"]]
    weights = dict(old.weights)
    for name, value in _WIDENED.items():
        weights[name] = torch.nn.functional.pad(weights[name], (0, extra), value=value)
    probes = old.manifest["probes"]
    vectors = [[*vector, *[1.0] * extra] for vector in probes["vectors"]]
    manifest = {
        **old.manifest,
        "features_version": FEATURES_VERSION,
        "features": feature_table(),
        "probes": {**probes, "vectors": vectors},
    }
    return Contents(manifest, weights, old.schedule)
