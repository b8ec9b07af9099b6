"""Nothing damaged is ever used: one clear line says what is wrong with which file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from accerl.errors import UserError
from accerl.records import json_hash, read_json, write_json
from controller.bundle.bundle import load_bundle, show_bundle, verify_bundle
from controller.bundle.files import FILES, GRAPH, MANIFEST, SCHEDULE, WEIGHTS
from controller.indicator.onnx_graph import build_onnx
from tests.fixtures.controllers.made_bundles import make_bundle, make_wide, resign


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made") / "learned")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "learned")
    return tmp_path / "learned"


READERS = [verify_bundle, show_bundle, load_bundle, lambda path: load_bundle(path, mode="schedule")]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("reader", READERS)
def test_one_altered_byte_is_found(
    folder: Path, name: str, reader: Callable[[Path], object]
) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 0x01
    (folder / name).write_bytes(data)
    with pytest.raises(UserError, match=rf"{name} was altered") as caught:
        reader(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_a_truncated_file_is_found(folder: Path, name: str, kept: float) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(kept * len(data))])
    with pytest.raises(UserError, match=rf"{name} has \d+ bytes instead of {len(data)}"):
        load_bundle(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(UserError, match=rf"{name} is missing"):
        verify_bundle(folder)


@pytest.mark.parametrize("kept", [0, 0.3, 0.999])
def test_a_truncated_manifest_is_found(folder: Path, kept: float) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text[: int(kept * (len(text) - 2))])
    with pytest.raises(UserError, match=r"bundle\.json is not valid JSON"):
        load_bundle(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema_version", 99, r"schema_version is 99, this AcceRL .* reads 6; update"),
        ("schema_version", 5, "schema_version is 5, .* reads 6; train or run the study again"),
        ("schema_version", None, "schema_version is None"),
        ("schema_version", True, "schema_version is True"),
        ("schema_version", "2", "schema_version is '2'"),
        ("schema_version", [2], r"schema_version is \[2\]"),
        ("kind", "something else", "does not describe a bundle"),
        ("meta", {"tier": "real"}, "its digest does not match"),
        ("git_revision", "0" * 40, "its digest does not match"),
        ("meta", [], r"damaged.*\['meta'\]"),
        ("action_table", {}, r"damaged.*\['action_table'\]"),
        ("policy", None, r"damaged.*\['policy'\]"),
        ("git_revision", 7, r"damaged.*\['git_revision'\]"),
        ("surprise", 1, r"damaged.*\['surprise'\]"),
    ],
)
def test_an_edited_manifest_is_found(folder: Path, key: str, value: Any, message: str) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    write_json(folder / MANIFEST, {**manifest, key: value})
    for reader in READERS:
        with pytest.raises(UserError, match=rf"bundle\.json.*{message}") as caught:
            reader(folder)
        assert "\n" not in str(caught.value)


def test_a_forged_graph_is_found_by_its_logits(folder: Path) -> None:
    (folder / GRAPH).write_bytes(build_onnx(make_wide(seed=1).scorer))
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.onnx .* disagree"):
        verify_bundle(folder)


def test_a_graph_that_is_none_is_found(folder: Path) -> None:
    (folder / GRAPH).write_bytes(b"not a graph")
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.onnx: .*ONNX Runtime"):
        verify_bundle(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["policy"].update(hidden=7),
        lambda manifest: manifest["policy"].update(hidden="many"),
        lambda manifest: manifest["policy"].update(hidden=float("inf")),
        lambda manifest: manifest["policy"].pop("hidden"),
    ],
)
def test_weights_of_another_form_are_found(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    resign(folder, change)
    with pytest.raises(UserError, match=r"controller\.safetensors does not hold this") as caught:
        load_bundle(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("log_dwell", [100.0, float("inf"), float("nan")])
def test_a_decision_that_would_be_held_for_ever_is_found(folder: Path, log_dwell: float) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file({**weights, "log_dwell": torch.tensor([log_dwell])}, folder / WEIGHTS)
    resign(folder, lambda manifest: None)
    for reader in READERS:
        with pytest.raises(UserError, match=r"controller\.safetensors does not hold this"):
            reader(folder)


@pytest.mark.parametrize("entry", [{"sha256": "0", "bytes": "123"}, {"sha256": 5, "bytes": 1}, []])
def test_a_file_that_is_listed_in_another_form_is_found(folder: Path, entry: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["digest"]
    manifest["files"][WEIGHTS] = entry
    write_json(folder / MANIFEST, {**manifest, "digest": json_hash(manifest)})
    for reader in READERS:
        with pytest.raises(UserError, match=r"does not list controller\.safetensors with"):
            reader(folder)


@pytest.mark.parametrize("agreement", ["all", 0.0, 2.0, None])
def test_an_agreement_that_is_no_share_is_found(folder: Path, agreement: object) -> None:
    data = read_json(folder / SCHEDULE)
    data["games"]["catch"][0]["agreement"] = agreement
    write_json(folder / SCHEDULE, data)
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"schedule\.json, catch: "):
        verify_bundle(folder)


def test_pickled_weights_are_never_unpickled(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\x80\x04N.")  # a pickle of None
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.safetensors holds no tensors"):
        load_bundle(folder)


@pytest.mark.parametrize(
    "games",
    [
        [],
        {"catch": [{"fraction": 0.0}]},
        {"catch": []},
        {"catch": 3},
        {"catch": [{"fraction": 0.0, "decision": 1}]},
    ],
)
def test_schedules_of_another_form_are_found(folder: Path, games: object) -> None:
    data = read_json(folder / SCHEDULE)
    write_json(folder / SCHEDULE, {**data, "games": games})
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"schedule\.json does not hold schedules"):
        load_bundle(folder, mode="schedule")


@pytest.mark.parametrize(
    "change", [{"quantiles": [0.5]}, {"heads": ["bits"]}, {"combination": "best"}]
)
def test_schedules_by_other_rules_are_found(folder: Path, change: dict[str, Any]) -> None:
    write_json(folder / SCHEDULE, {**read_json(folder / SCHEDULE), **change})
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"schedule\.json has other heads, quantiles or"):
        load_bundle(folder, mode="schedule")


@pytest.mark.parametrize("levels", [{"bits": [32]}, {}, 5, {"bits": 1, "sparsity": 1}])
def test_levels_of_another_form_are_found(folder: Path, levels: object) -> None:
    data = read_json(folder / SCHEDULE)
    data["games"]["catch"][0]["levels"] = levels
    write_json(folder / SCHEDULE, data)
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"schedule\.json, catch: ") as caught:
        verify_bundle(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["meta"].pop("tier"),
        lambda manifest: manifest["meta"].pop("results"),
        lambda manifest: manifest["meta"].update(instances=3),
        lambda manifest: manifest["meta"]["instances"][0].pop("seeds"),
        lambda manifest: manifest["meta"]["results"][0].update(ratio="good"),
        lambda manifest: manifest["meta"]["results"][0].update(low=None),
        lambda manifest: manifest["meta"].update(horizon_seconds=None),
        lambda manifest: manifest["meta"]["instances"][0].update(horizon_seconds="x"),
        lambda manifest: manifest["meta"]["instances"][0].update(game=["catch"]),
        lambda manifest: manifest["meta"]["results"][0].update(metric=5),
        lambda manifest: manifest["meta"].update(min_dwell_intervals=1),
        lambda manifest: manifest["probes"].pop("logits"),
        lambda manifest: manifest["probes"].update(vectors=[["x"]]),
        lambda manifest: manifest["probes"].update(vectors=[]),
        lambda manifest: manifest["probes"].update(logits=[[0.0]]),
        lambda manifest: manifest["files"].pop(GRAPH),
        lambda manifest: manifest["features"].reverse(),
        lambda manifest: manifest["features"].pop(),
        lambda manifest: manifest["features"].append("one more"),
        lambda manifest: manifest["action_table"].pop(),
        lambda manifest: manifest["action_table"][0].update(indices=[1, 0, 0]),
        lambda manifest: manifest["policy"].pop("kind"),
        lambda manifest: manifest["policy"].update(kind=[]),
        lambda manifest: manifest["policy"].update(kind="oracle"),
        lambda manifest: manifest["policy"].update(kind="controller"),
    ],
)
def test_a_signed_but_incomplete_manifest_is_found(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    resign(folder, change)
    with pytest.raises(UserError, match="bundle") as caught:
        verify_bundle(folder)
    assert "\n" not in str(caught.value)
