"""Bundles: what is written can be read back, and nothing damaged is ever used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance
from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.monitor import Monitor
from accerl.monitor.strategy import Strategy
from accerl.records import json_hash, write_json
from accerl.spec import CompressionSpec, Decision
from controller import bundle
from controller.actions import HEADS, ActionSpace
from controller.bundle import (
    BundleMeta,
    export_bundle,
    is_bundle,
    load_bundle,
    load_policy,
    show_bundle,
    verify_bundle,
)
from controller.bundle_files import FILES, GRAPH, MANIFEST, SCHEDULE, WEIGHTS, file_entry
from controller.policy import ControllerPolicy, LearnedStrategy
from controller.policy_onnx import build_onnx, onnx_logits
from controller.schedule import ReplayedSchedule, Schedule, SchedulePoint, summarise_games

ACTIONS = ActionSpace()
META = BundleMeta(
    interval_seconds=15.0,
    horizon_seconds=60.0,
    tier="virtual",
    profile_hash="abc123",
    games=("catch", "breakout"),
    seeds=(0, 1),
    inner_runs=64,
    results={"auc": {"mean": 0.9}},
)
HARD, MILD = (1, 2, 3), (0, 0, 0)
EPISODES = {
    "catch": [[HARD, HARD, MILD, MILD], [HARD, HARD, HARD, MILD], [HARD, HARD, HARD, MILD]],
    "breakout": [[HARD, MILD, MILD, MILD]] * 4,
}


def make_policy(seed: int = 0, actions: ActionSpace = ACTIONS) -> ControllerPolicy:
    generator = torch.Generator().manual_seed(seed)
    policy = ControllerPolicy(actions.sizes, generator=generator)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    samples = np.random.default_rng(seed).normal(0.3, 0.7, (100, len(FEATURE_NAMES)))
    policy.normaliser.fit(samples)
    return policy


def make_schedules() -> dict[str, Schedule]:
    return summarise_games(
        ACTIONS,
        EPISODES,
        dict.fromkeys(EPISODES, (META.horizon_seconds, META.interval_seconds)),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return export_bundle(tmp_path / "learned", make_policy(), ACTIONS, META, make_schedules())


def features_at(seconds: float, horizon_seconds: float, seed: int = 0) -> Features:
    raw = {**Monitor(6, horizon_seconds).start().raw, "seconds": seconds}
    vector = np.random.default_rng(seed).uniform(-2, 2, len(FEATURE_NAMES)).astype(np.float32)
    return Features(raw=raw, vector=vector)


def resign(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit bundle.json as a careful forger would: hashes, sizes and digest follow."""
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["digest"]
    change(manifest)
    manifest["files"] = {name: file_entry(folder / name) for name in manifest["files"]}
    write_json(folder / MANIFEST, {**manifest, "digest": json_hash(manifest)})


def test_a_loaded_policy_decides_as_the_exported_one(folder: Path) -> None:
    loaded, original = load_bundle(folder), LearnedStrategy(make_policy(), ACTIONS)
    assert isinstance(loaded, LearnedStrategy)
    choices = set()
    for seed in range(30):
        features = features_at(0.0, 60.0, seed)
        assert loaded.decide(features) == original.decide(features)
        choices.add(loaded.decide(features).label)
    assert len(choices) > 1
    policy, actions = load_policy(folder)
    assert actions == ACTIONS
    assert policy.to_json() == make_policy().to_json()


def test_torch_and_onnx_runtime_agree(tmp_path: Path) -> None:
    actions = ActionSpace(bits=(32,), sparsities=(0.0, 0.1, 0.2, 0.3, 0.6))
    policy = make_policy(3, actions)
    vectors = np.random.default_rng(1).uniform(-9, 9, (64, len(FEATURE_NAMES))).astype(np.float32)
    there = onnx_logits(build_onnx(policy), vectors)
    assert [logits.shape for logits in there] == [(64, 1), (64, 5), (64, 4)]
    with torch.no_grad():
        for mine, theirs in zip(policy(torch.from_numpy(vectors)), there, strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, atol=1e-5)
            assert mine.argmax(-1).tolist() == theirs.argmax(-1).tolist()
    report = verify_bundle(export_bundle(tmp_path / "b", policy, actions, META, {}))
    assert report["max_logit_difference"] <= 1e-5
    assert report["heads"] == dict(zip(HEADS, (1, 5, 4), strict=True))


def test_verify_reports_what_it_checked(folder: Path) -> None:
    report = verify_bundle(str(folder))
    assert report["ok"] is True
    assert report["files"] == {name: (folder / name).stat().st_size for name in FILES}
    assert report["schedules"] == ["all", "breakout", "catch"]
    assert json.loads(json.dumps(report)) == report


def test_show_speaks_to_people(folder: Path) -> None:
    shown = show_bundle(folder)
    assert shown["schedules"]["catch"] == [
        "0% to 75%: net3 pruned 50% INT8",
        "75% to 100%: original fp32",
    ]
    assert shown["games"] == ["catch", "breakout"]
    assert shown["inner_runs"] == 64
    assert json.loads(json.dumps(shown)) == shown


def test_the_model_card_states_the_facts(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    for fact in ("catch, breakout", "tier: virtual", "64", "abc123", "75% to 100%: original fp32"):
        assert fact in text
    assert "{" not in text.replace('{\n  "auc": {\n    "mean": 0.9\n  }\n}', "")


def test_schedule_mode_follows_the_clock_by_fraction(folder: Path) -> None:
    strategy = load_bundle(folder, mode="schedule", game="catch")
    assert isinstance(strategy, ReplayedSchedule)
    strategy.reset()
    hard, mild = ACTIONS.decision(HARD), ACTIONS.decision(MILD)
    for horizon in (60.0, 600.0):  # a longer run stretches the schedule
        fractions = (0.0, 0.3, 0.7499, 0.75 - 1e-12, 0.99, 1.2)
        decided = [strategy.decide(features_at(f * horizon, horizon)) for f in fractions]
        assert decided == [hard, hard, hard, mild, mild, mild]


class TestReplayCompliance(StrategyCompliance):
    def make(self) -> Strategy:
        return ReplayedSchedule(make_schedules()["catch"])


def test_without_a_game_the_pooled_schedule_is_replayed(folder: Path) -> None:
    pooled = load_bundle(folder, mode="schedule")
    assert pooled.decide(features_at(0.0, 60.0)) == ACTIONS.decision(HARD)
    assert pooled.decide(features_at(15.0, 60.0)) == ACTIONS.decision(MILD)  # 4 of 7 runs
    with pytest.raises(UserError, match=r"no schedule for 'pong'.*all, breakout, catch"):
        load_bundle(folder, mode="schedule", game="pong")


def test_unknown_modes_and_missing_schedules_are_refused(tmp_path: Path) -> None:
    folder = export_bundle(tmp_path / "b", make_policy(), ACTIONS, META, {})
    with pytest.raises(UserError, match="no schedule for 'all'; it has: none"):
        load_bundle(folder, mode="schedule")
    with pytest.raises(UserError, match="allowed: policy, schedule"):
        load_bundle(folder, mode="replay")  # pyright: ignore[reportArgumentType]


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
        ("schema_version", 99, r"schema_version is 99, this AcceRL .* reads 1"),
        ("schema_version", None, "schema_version is None"),
        ("features_version", 0, "features_version is 0"),
        ("kind", "something else", "does not describe a bundle"),
        ("meta", {"tier": "real"}, "its digest does not match"),
        ("meta", [], r"damaged.*\['meta'\]"),
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
    (folder / GRAPH).write_bytes(build_onnx(make_policy(seed=1)))
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.onnx .* disagree"):
        verify_bundle(folder)


def test_a_graph_that_is_none_is_found(folder: Path) -> None:
    (folder / GRAPH).write_bytes(b"not a graph")
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.onnx: .*ONNX Runtime"):
        verify_bundle(folder)


def test_weights_of_another_shape_are_found(folder: Path) -> None:
    smaller = {"bits": [32]}
    resign(folder, lambda manifest: manifest["actions"].update(smaller))
    with pytest.raises(UserError, match=r"controller\.safetensors does not hold this controller"):
        load_bundle(folder)
    (folder / WEIGHTS).write_bytes(b"\x80\x04N.")  # a pickle of None
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.safetensors does not hold this controller"):
        load_bundle(folder)


@pytest.mark.parametrize("games", [[], {"catch": [{"fraction": 0.0}]}, {"catch": []}, {"catch": 3}])
def test_schedules_of_another_form_are_found(folder: Path, games: object) -> None:
    write_json(folder / SCHEDULE, {"games": games})
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match="schedule"):
        load_bundle(folder, mode="schedule")


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["meta"].pop("tier"),
        lambda manifest: manifest["probes"].pop("logits"),
        lambda manifest: manifest["probes"].update(vectors=[["x"]]),
        lambda manifest: manifest["files"].pop(GRAPH),
        lambda manifest: manifest["feature_names"].reverse(),
    ],
)
def test_a_signed_but_incomplete_manifest_is_found(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    resign(folder, change)
    with pytest.raises(UserError, match="bundle"):
        verify_bundle(folder)


def test_export_replaces_an_older_bundle(folder: Path) -> None:
    export_bundle(folder, make_policy(seed=1), ACTIONS, META, {})
    assert load_policy(folder)[0].to_json() == make_policy(seed=1).to_json()
    assert sorted(p.name for p in folder.parent.iterdir()) == ["learned"]
    assert sorted(p.name for p in folder.iterdir()) == sorted([MANIFEST, *FILES])


def test_export_leaves_other_folders_and_files_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("also precious")
    for name in ("thesis", "file"):
        with pytest.raises(UserError, match="is not a bundle"):
            export_bundle(tmp_path / name, make_policy(), ACTIONS, META, {})
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "also precious"
    (tmp_path / "empty").mkdir()
    assert is_bundle(export_bundle(tmp_path / "empty", make_policy(), ACTIONS, META, {}))


def test_a_failed_export_leaves_nothing_and_keeps_the_old(folder: Path) -> None:
    stray = ACTIONS.decision(MILD).main, 1.0
    point = SchedulePoint(fraction=0.0, seconds=0.0, decision=Decision((stray,)), agreement=1.0)
    outside = SchedulePoint(
        fraction=0.5,
        seconds=30.0,
        decision=Decision.of(CompressionSpec(bits=16)),
        agreement=1.0,
    )
    bad = {"catch": Schedule((point, outside))}
    for target in (folder, folder.parent / "new"):
        with pytest.raises(UserError, match="bf16 is not in it"):
            export_bundle(target, make_policy(seed=1), ACTIONS, META, bad)
    assert sorted(p.name for p in folder.parent.iterdir()) == ["learned"]
    assert load_policy(folder)[0].to_json() == make_policy().to_json()


def test_a_failed_rename_puts_the_old_bundle_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def full_disk(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(bundle.Path, "rename", full_disk)
    with pytest.raises(OSError, match="disk full"):
        export_bundle(folder, make_policy(seed=1), ACTIONS, META, {})
    monkeypatch.undo()
    assert sorted(p.name for p in folder.parent.iterdir()) == ["learned"]
    assert load_policy(folder)[0].to_json() == make_policy().to_json()


def test_a_bundle_can_be_moved(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "other-name"
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    assert verify_bundle(moved)["ok"] is True


def test_is_bundle_tells_names_from_folders(folder: Path, tmp_path: Path) -> None:
    assert is_bundle(folder)
    assert is_bundle(str(folder))
    assert not is_bundle(tmp_path)
    assert not is_bundle("kl_threshold")
    with pytest.raises(UserError, match="is not a bundle"):
        load_bundle("kl_threshold")


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="heads"):
        export_bundle(tmp_path / "b", make_policy(), ActionSpace(bits=(32,)), META, {})
    with pytest.raises(UserError, match="tier 'cloud'"):
        BundleMeta(interval_seconds=1.0, horizon_seconds=2.0, tier="cloud")
    with pytest.raises(UserError, match="interval"):
        BundleMeta(interval_seconds=3.0, horizon_seconds=2.0, tier="real")
    assert list(tmp_path.iterdir()) == []


def test_summaries_count_votes_and_break_ties_mildly() -> None:
    schedules = summarise_games(
        ACTIONS, {"a": [[HARD], [MILD]], "b": [[HARD]]}, {"a": (5.0, 5.0), "b": (5.0, 5.0)}
    )
    assert schedules["a"].points[0].decision == ACTIONS.decision(MILD)
    assert schedules["a"].points[0].agreement == 0.5
    assert schedules["all"].points[0].decision == ACTIONS.decision(HARD)
    assert schedules["all"].points[0].agreement == pytest.approx(2 / 3)
    with pytest.raises(UserError, match="runs of 2 intervals"):
        summarise_games(ACTIONS, {"a": [[HARD]]}, {"a": (10.0, 5.0)})
    with pytest.raises(UserError, match="runs of 1 intervals"):
        summarise_games(ACTIONS, {"a": []}, {"a": (5.0, 5.0)})


@pytest.mark.parametrize("fractions", [(), (0.1,), (0.0, 0.0), (0.0, 1.0)])
def test_schedules_out_of_order_are_refused(fractions: tuple[float, ...]) -> None:
    decision = ACTIONS.decision(MILD)
    points = tuple(
        SchedulePoint(fraction=f, seconds=f, decision=decision, agreement=1.0) for f in fractions
    )
    with pytest.raises(UserError, match="schedule"):
        Schedule(points)
