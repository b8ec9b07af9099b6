"""Bundles: what is written can be read back, tells where it comes from, and replaces safely."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import accerl
from accerl.errors import UserError
from accerl.monitor.strategy import bind
from accerl.presets import load_preset
from accerl.records import read_json
from accerl.spec import CompressionSpec, Decision
from controller.actions import PresetActions
from controller.bundle import bundle
from controller.bundle import meta as bundle_meta
from controller.bundle.bundle import (
    BundleMeta,
    export_bundle,
    is_bundle,
    load_bundle,
    read_bundle,
    show_bundle,
    verify_bundle,
)
from controller.bundle.files import FILES, MANIFEST, SCHEDULE
from controller.bundle.meta import Result, code_revision, git_revision
from controller.bundle.schedule import QUANTILES, Schedule, SchedulePoint
from controller.bundle.serving import ServedSchedule
from controller.indicator.candidates import SCORED
from tests.fixtures.controllers.made_bundles import (
    ACTIONS,
    HARD,
    META,
    MILD,
    features_at,
    make_bundle,
    make_schedules,
    make_wide,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made") / "learned")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "learned")
    return tmp_path / "learned"


def test_a_loaded_bundle_is_what_was_exported(folder: Path) -> None:
    read = read_bundle(folder)
    assert read.content.actions == PresetActions(ACTIONS.all_specs)
    assert read.meta == META
    assert read.schedules == make_schedules()
    assert read.content.scorer.to_json() == make_wide().scorer.to_json()


def test_verify_reports_what_it_checked(folder: Path) -> None:
    report = verify_bundle(str(folder))
    assert report["ok"] is True
    assert (report["schema_version"], report["candidate_features"]) == (6, len(SCORED))
    assert report["actions"] == len(ACTIONS.all_specs)
    assert report["files"] == {name: (folder / name).stat().st_size for name in FILES}
    assert report["schedules"] == ["all", "breakout", "catch"]
    assert json.loads(json.dumps(report)) == report


def test_the_files_say_what_every_action_and_every_level_is(folder: Path) -> None:
    table = read_json(folder / MANIFEST)["action_table"]
    assert [row["indices"] for row in table] == [[place] for place in range(24)]
    assert [CompressionSpec.from_json(row["spec"]) for row in table] == list(ACTIONS.all_specs)
    assert table[-1]["label"] == "net3 pruned 50% INT8"
    schedule = read_json(folder / SCHEDULE)
    assert schedule["quantiles"] == list(QUANTILES)
    assert schedule["games"]["catch"][2]["levels"]["student"] == ["original"] * 2 + ["net3"] * 3


def test_the_manifest_says_which_code_wrote_it(folder: Path) -> None:
    """The commit of the checkout that the package lies in, or nothing."""
    told = read_json(folder / MANIFEST)["git_revision"]
    assert told == git_revision()
    asked = subprocess.run(
        ["git", "-C", str(Path(accerl.__file__).parent), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode == 0:
        assert told is not None
        assert re.fullmatch(rf"{asked.stdout.strip()}(-dirty)?", told)
    else:
        assert told is None


def test_without_git_or_a_checkout_the_revision_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        assert git_revision() is None
        assert is_bundle(make_bundle(tmp_path / "b"))
    # Installed inside the checkout of somebody else's project: its commit is not ours.
    package = tmp_path / "project" / "accerl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "project" / "theirs.txt").write_text("not ours")
    monkeypatch.setattr(bundle_meta.accerl, "__file__", str(package / "__init__.py"))
    assert git_revision() is None
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    who += ("-c", "core.hooksPath=/dev/null")
    for command in (("init", "-q"), ("add", "theirs.txt"), (*who, "commit", "-qm", "theirs")):
        subprocess.run(["git", *command], cwd=tmp_path / "project", check=True)
    assert git_revision() is None
    subprocess.run(["git", "add", "."], cwd=tmp_path / "project", check=True)
    subprocess.run(["git", *who, "commit", "-qm", "ours"], cwd=tmp_path / "project", check=True)
    assert re.fullmatch("[0-9a-f]{40}", git_revision() or "")
    assert code_revision() == git_revision()
    seen = set()
    for text in ("changed", "changed again"):
        (package / "__init__.py").write_text(text)
        assert re.fullmatch("[0-9a-f]{40}-dirty", git_revision() or "")
        seen.add(code_revision())
    monkeypatch.setenv("PATH", str(tmp_path))
    seen.add(code_revision())
    commit, _, kind = sorted(seen)[0].partition("-")
    assert len(seen) == 3
    assert (len(commit), kind[:6]) == (40, "dirty-")
    assert re.fullmatch("source-[0-9a-f]{12}", sorted(seen)[-1])


def test_show_speaks_to_people(folder: Path) -> None:
    shown = show_bundle(folder)
    assert shown["schedules"]["catch"] == [
        "0% to 75%: net3 pruned 50% INT8, chosen by 67%",
        "75% to 100%: original fp32, chosen by 100%",
    ]
    assert shown["games"] == ["catch", "breakout"]
    assert shown["inner_runs"] == 64
    assert shown["profiles"] == [{"name": "edge", "hash": "abc123"}]
    assert shown["results"][0]["low"] == 0.55
    assert shown["results_in_words"] == [
        "catch-edge: seconds to target 0.71 times that of fp32 "
        "(95% interval 0.55 to 0.9, 6 pairs of runs)",
        "breakout-edge: seconds to target 1.02 times that of fp32 "
        "(1 pair of runs, too few for an interval)",
    ]
    assert json.loads(json.dumps(shown)) == shown


def test_the_model_card_states_the_facts(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    facts = ("catch-edge (seeds 0, 1)", "tier: virtual", "64", "edge (abc123)", "9f8e7d")
    results = ("95% interval 0.55 to 0.9", "intervals count their pairs as one")
    for fact in (*facts, "75% to 100%: original fp32", *results):
        assert fact in text
    assert "{" not in text


def test_the_model_card_has_the_metadata_that_hubs_read(tmp_path: Path) -> None:
    odd = replace(META.results[0], instance='a "b": c')
    meta = replace(META, results=(odd, *META.results[1:]))
    folder = export_bundle(tmp_path / "b", make_wide(), meta, {})
    _, front, _ = (folder / "README.md").read_text().split("---\n", 2)
    told = yaml.safe_load(front)
    assert told["library_name"] == "accerl"
    (model,) = told["model-index"]
    assert model["name"] == "compression schedule for catch, breakout"
    first, second = model["results"]
    assert first["task"]["type"] == "reinforcement-learning"
    assert first["dataset"] == {"type": 'a "b": c', "name": 'a "b": c'}
    (metric,) = first["metrics"]
    assert (metric["type"], metric["value"]) == ("seconds_to_target", 0.71)
    assert metric["confidence_interval"] == [0.55, 0.9]
    assert "confidence_interval" not in second["metrics"][0]
    bare = export_bundle(tmp_path / "bare", make_wide(), replace(meta, results=()), {})
    _, front, _ = (bare / "README.md").read_text().split("---\n", 2)
    assert "model-index" not in yaml.safe_load(front)
    over_all = replace(META.results[1], instance="held out")
    many = replace(meta, results=(*meta.results, over_all))
    text = (export_bundle(tmp_path / "many", make_wide(), many, {}) / "README.md").read_text()
    (model,) = yaml.safe_load(text.split("---\n", 2)[1])["model-index"]
    assert [each["dataset"]["name"] for each in model["results"]] == ["held out"]
    assert text.index("- held out: ") < text.index('- a "b": c: ')
    assert text.index("- held out: ") < text.index("- a ")


def test_schedule_mode_follows_the_clock_by_fraction(folder: Path) -> None:
    strategy = load_bundle(folder, mode="schedule", game="catch")
    assert isinstance(strategy, ServedSchedule)
    strategy.reset()
    hard, mild = ACTIONS.decision(HARD), ACTIONS.decision(MILD)
    for horizon in (60.0, 600.0):  # a longer run stretches the schedule
        fractions = (0.0, 0.3, 0.7499, 0.75 - 1e-12, 0.99, 1.2)
        decided = [strategy.decide(features_at(f * horizon, horizon)) for f in fractions]
        assert decided == [hard, hard, hard, mild, mild, mild]


def test_without_a_game_the_run_chooses_the_schedule(folder: Path) -> None:
    strategy = load_bundle(folder, mode="schedule")
    with pytest.raises(UserError, match=r"bind it to one.*or give load_bundle a game"):
        strategy.reset()
    for preset, after in (("catch", HARD), ("cartpole", MILD)):  # of all games: 4 of 7 runs
        bind(strategy, load_preset(preset), None)
        strategy.reset()
        assert strategy.decide(features_at(0.0, 60.0)) == ACTIONS.decision(HARD)
        assert strategy.decide(features_at(15.0, 60.0)) == ACTIONS.decision(after)


def test_a_game_without_a_schedule_is_refused_and_so_is_one_for_the_policy(folder: Path) -> None:
    with pytest.raises(UserError, match=r"no schedule for 'pong'.*all, breakout, catch"):
        load_bundle(folder, mode="schedule", game="pong")
    with pytest.raises(UserError, match=r"game 'catch' names a schedule.*give mode='schedule'"):
        load_bundle(folder, game="catch")


def test_of_several_schedules_none_is_replayed_by_chance(tmp_path: Path) -> None:
    several = {name: schedule for name, schedule in make_schedules().items() if name != "all"}
    bundle = read_bundle(export_bundle(tmp_path / "two", make_wide(), META, several))
    assert bundle.schedule_for("pong", "catch") == "catch"
    with pytest.raises(UserError, match="no schedule for 'pong'; it has: breakout, catch; "):
        bundle.schedule_for("pong")
    only = read_bundle(
        export_bundle(tmp_path / "one", make_wide(), META, {"catch": several["catch"]})
    )
    assert only.schedule_for("pong") == only.schedule_for() == "catch"


def test_unknown_modes_and_missing_schedules_are_refused(tmp_path: Path) -> None:
    folder = export_bundle(tmp_path / "b", make_wide(), META, {})
    with pytest.raises(UserError, match="no schedule for 'all'; it has: none"):
        load_bundle(folder, mode="schedule")
    with pytest.raises(UserError, match="allowed: policy, schedule"):
        load_bundle(folder, mode="replay")  # pyright: ignore[reportArgumentType]


def test_export_replaces_an_older_bundle(folder: Path) -> None:
    export_bundle(folder, make_wide(seed=1), META, {})
    assert read_bundle(folder).content.scorer.to_json() == make_wide(seed=1).scorer.to_json()
    assert sorted(p.name for p in folder.parent.iterdir()) == ["learned"]
    assert sorted(p.name for p in folder.iterdir()) == sorted([MANIFEST, *FILES])


def test_export_leaves_other_folders_and_files_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("also precious")
    (folder / "notes.txt").write_text("on this bundle")
    for name, why in (("thesis", "other things"), ("file", "is a file"), ("learned", "notes.txt")):
        with pytest.raises(UserError, match=why):
            export_bundle(tmp_path / name, make_wide(seed=1), META, {})
    assert (folder / "notes.txt").read_text() == "on this bundle"
    assert read_bundle(folder).content.scorer.to_json() == make_wide().scorer.to_json()
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "also precious"
    (tmp_path / "empty").mkdir()
    assert is_bundle(export_bundle(tmp_path / "empty", make_wide(), META, {}))


def test_the_folder_that_one_stands_in_can_become_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    export_bundle(Path("."), make_wide(), META, {})
    assert verify_bundle(".")["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_failed_export_leaves_nothing_and_keeps_the_old(folder: Path) -> None:
    stray = ACTIONS.decision(MILD).main, 1.0
    point = SchedulePoint(
        fraction=0.0, seconds=0.0, decision=Decision((stray,)), agreement=1.0, levels={}
    )
    outside = replace(
        point, fraction=0.5, seconds=30.0, decision=Decision.of(CompressionSpec(bits=16))
    )
    bad = {"catch": Schedule((point, outside))}
    for target in (folder, folder.parent / "new"):
        with pytest.raises(UserError, match="bf16 is not in it"):
            export_bundle(target, make_wide(seed=1), META, bad)
    assert sorted(p.name for p in folder.parent.iterdir()) == ["learned"]
    assert read_bundle(folder).content.scorer.to_json() == make_wide().scorer.to_json()


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
        export_bundle(folder, make_wide(seed=1), META, {})
    monkeypatch.undo()
    assert sorted(p.name for p in folder.parent.iterdir()) == ["learned"]
    assert read_bundle(folder).content.scorer.to_json() == make_wide().scorer.to_json()


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
    with pytest.raises(UserError, match="kl_threshold does not exist; give the folder of a bundle"):
        load_bundle("kl_threshold")
    with pytest.raises(UserError, match=r"bundle\.json is a file; give the folder of a bundle"):
        load_bundle(folder / "bundle.json")


def test_origins_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="tier 'cloud'"):
        BundleMeta(interval_seconds=1.0, horizon_seconds=2.0, tier="cloud")
    with pytest.raises(UserError, match="interval"):
        BundleMeta(interval_seconds=3.0, horizon_seconds=2.0, tier="real")
    lengths: Any = {"interval_seconds": 2.0, "horizon_seconds": 6.0, "tier": "real"}
    assert BundleMeta(**lengths, first_interval_seconds=0.2).decisions == 4
    with pytest.raises(UserError, match="the first interval must not exceed"):
        BundleMeta(**lengths, first_interval_seconds=2.1)
    for wrong in ({"ratio": float("nan")}, {"low": None}, {"low": 2.0}, {"n": 0}):
        with pytest.raises(UserError, match="a result needs"):
            Result(**{**vars(META.results[0]), **wrong})
