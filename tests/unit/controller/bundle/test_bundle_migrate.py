"""Bundles of earlier versions: real files are read today, and nothing about them is made up."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, FEATURES_VERSION
from accerl.records import read_json
from controller.bundle.bundle import load_bundle, read_bundle, show_bundle, verify_bundle
from controller.bundle.files import GRAPH, MANIFEST, NUM_FEATURES, SCHEDULE, WEIGHTS, read_contents
from controller.policy.onnx_graph import onnx_logits
from controller.policy.policy import LearnedStrategy
from tests.fixtures.inner_runs import files_hash
from tests.fixtures.made_bundles import META, features_at, make_policy, resign
from tests.fixtures.old_bundles import FEATURES_1, FEATURES_2, SCHEMA_2, cut_to_first_features

OLD = pytest.mark.parametrize(("folder", "count"), [(FEATURES_1, 15), (FEATURES_2, 26)])


@OLD
def test_an_old_bundle_is_verified_and_used_as_it_is(folder: Path, count: int) -> None:
    before = files_hash(folder)
    found = verify_bundle(folder)
    assert (found["ok"], found["schema_version"], found["migrated_from"]) == (True, 3, 1)
    assert (found["features_version"], found["graph_features"]) == (FEATURES_VERSION, count)
    assert found["max_logit_difference"] <= 1e-5
    schedule = load_bundle(folder, mode="schedule", game="catch")
    assert schedule.decide(features_at(0.0, 60.0)).label == "net3 pruned 50% INT8"
    assert schedule.decide(features_at(50.0, 60.0)).label == "original fp32"
    assert files_hash(folder) == before


@OLD
def test_features_that_a_policy_never_knew_do_not_move_it(folder: Path, count: int) -> None:
    """Its own graph, which reads the first features only, says the same of any vectors."""
    policy = read_bundle(folder).policy
    rng = np.random.default_rng(5)
    vectors = rng.uniform(-3, 3, (64, len(FEATURE_NAMES))).astype(np.float32)
    there = onnx_logits((folder / GRAPH).read_bytes(), vectors[:, :count])
    with torch.no_grad():
        for mine, theirs in zip(policy(torch.from_numpy(vectors)), there, strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, atol=1e-5)
    assert isinstance(policy.body, torch.nn.Linear)
    assert torch.equal(policy.body.weight[:, count:], torch.zeros(8, len(FEATURE_NAMES) - count))
    assert len({load_bundle(folder).decide(features_at(0, 60, seed)) for seed in range(30)}) > 1


def test_an_old_bundle_of_todays_features_has_the_weights_that_it_was_made_of() -> None:
    there, here = read_bundle(FEATURES_2).policy.state_dict(), make_policy().state_dict()
    assert there.keys() == here.keys()
    for name, value in here.items():  # the last bit of an orthogonal matrix is the processor's
        torch.testing.assert_close(there[name], value, atol=1e-6, rtol=0.0)


def test_a_bundle_of_version_2_has_no_shield() -> None:
    found = verify_bundle(SCHEMA_2)
    assert (found["ok"], found["schema_version"], found["migrated_from"]) == (True, 3, 2)
    bundle = read_bundle(SCHEMA_2)
    assert bundle.meta == META
    assert isinstance(bundle.strategy("policy"), LearnedStrategy)
    assert show_bundle(SCHEMA_2)["shield"] == "none"


@OLD
def test_what_an_old_bundle_does_not_tell_stays_unknown(folder: Path, count: int) -> None:
    shown = show_bundle(folder)
    assert (shown["migrated_from"], shown["git_revision"], shown["contest"]) == (1, None, None)
    assert shown["profiles"] == [{"name": None, "hash": "abc123"}]
    unknown = {"profile": None, "horizon_seconds": None, "interval_seconds": None}
    assert shown["instances"] == [
        {"game": game, "seeds": [0, 1], **unknown} for game in ("catch", "breakout")
    ]
    assert (shown["tier"], shown["inner_runs"], shown["results"]) == ("virtual", 64, [])
    assert shown["combination"] == "mode"
    assert shown["schedules"]["catch"] == [
        "0% to 75%: net3 pruned 50% INT8, chosen by 67%",
        "75% to 100%: original fp32, chosen by 100%",
    ]
    assert all(row["levels"] is None for row in shown["schedule_rows"]["catch"])
    assert len(shown["action_table"]) == 24
    assert [row["name"] for row in shown["features"]] == list(FEATURE_NAMES)
    assert read_json(folder / MANIFEST)["schema_version"] == 1


def test_the_cut_bundle_is_made_again_by_its_script(tmp_path: Path) -> None:
    cut_to_first_features(FEATURES_2, tmp_path / "again")
    assert verify_bundle(tmp_path / "again")["graph_features"] == NUM_FEATURES[1]
    for name in (WEIGHTS, SCHEDULE):
        assert (tmp_path / "again" / name).read_bytes() == (FEATURES_1 / name).read_bytes()
    kept, again = (read_contents(path).manifest for path in (FEATURES_1, tmp_path / "again"))
    np.testing.assert_allclose(kept["probes"]["logits"], again["probes"]["logits"], atol=1e-5)
    assert kept["feature_names"] == again["feature_names"] == list(FEATURE_NAMES[:15])


@OLD
@pytest.mark.parametrize("name", [WEIGHTS, GRAPH, SCHEDULE, "README.md"])
def test_damage_to_an_old_bundle_is_found_by_its_own_hashes(
    folder: Path, count: int, name: str, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    data = bytearray((copied / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copied / name).write_bytes(data)
    with pytest.raises(UserError, match=f"{name} was altered"):
        load_bundle(copied)


def test_an_old_bundle_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    for number, change in enumerate(
        (
            lambda manifest: manifest.update(features_version=2),
            lambda manifest: manifest.update(action_table=[]),
            lambda manifest: manifest["meta"].pop("games"),
            lambda manifest: manifest["meta"].update(profile_hash=7),
            lambda manifest: manifest["probes"].update(vectors=3),
            lambda manifest: manifest["feature_names"].reverse(),
        )
    ):
        copied = tmp_path / str(number)
        shutil.copytree(FEATURES_1, copied)
        resign(copied, change)
        with pytest.raises(UserError, match=r"bundle\.json") as caught:
            load_bundle(copied)
        assert "\n" not in str(caught.value)
