"""What cannot be resumed is refused in one line, and stays as it is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accerl.compress.pruning.sparse import TopologyConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from accerl.training.run_folder import CHECKPOINT
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures.runs.inner_runs import fast_profile, files_hash
from tests.fixtures.runs.short_catch import config, interrupting, run

INT8 = CompressionSpec(bits=8)

OTHER = [
    {"config": config(seed=1)},
    {"config": config().with_learner(learning_rate=1e-5)},
    {"config": config(num_envs=4)},
    {"config": config(publish_every=7)},
    {"strategy_name": "another"},
    {"profile": fast_profile(num_actors=2)},
    {"profile": fast_profile(infer_factor=2.0)},
    {"strategy": FixedStrategy(INT8)},
]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        run(FixedStrategy(), out, on_interval=interrupting(1))
    return out


@pytest.mark.parametrize("other", OTHER, ids=lambda other: next(iter(other)))
def test_resuming_with_other_settings_is_refused(
    other: dict[str, Any], interrupted: Path, tmp_path: Path
) -> None:
    """Also those that would fit: seconds of two profiles in one run mean nothing."""
    copied = tmp_path / "run"
    shutil.copytree(interrupted, copied)
    options = {"config": config(), "profile": fast_profile(), "strategy": FixedStrategy(), **other}
    before = files_hash(copied)
    with pytest.raises(UserError, match="was started with") as refused:
        run_training(
            options.pop("config"), options.pop("strategy"), out=copied, resume=True, **options
        )
    assert "\n" not in str(refused.value)
    assert files_hash(copied) == before


def test_settings_that_are_others_are_named_with_both_values(interrupted: Path) -> None:
    there = config()
    here = there.with_learner(unroll=there.learner.unroll + 1, entropy_cost=0.5)
    named = f"learner.unroll {there.learner.unroll} there, {here.learner.unroll} here; learner.entr"
    with pytest.raises(UserError, match=f"with other settings .{named}"):
        run_training(here, FixedStrategy(), out=interrupted, resume=True, profile=fast_profile())


def test_a_part_that_is_there_and_not_here_is_named(tmp_path: Path) -> None:
    sparse = config().with_learner(sparse=TopologyConfig())
    with pytest.raises(KeyboardInterrupt):
        run(FixedStrategy(), tmp_path / "run", config=sparse, on_interval=interrupting(1))
    with pytest.raises(UserError, match=r"with other settings \(learner.sparse"):
        run_training(
            config(), FixedStrategy(), out=tmp_path / "run", resume=True, profile=fast_profile()
        )


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give that as out"):
        run(FixedStrategy(), None, resume=True)
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match="holds no run with a checkpoint"):
            run(FixedStrategy(), folder, resume=True)
    assert list(tmp_path.iterdir()) == []


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tensors.safetensors", truncate),
        ("tensors.safetensors", alter),
        ("tensors.safetensors", Path.unlink),
        ("state.json", truncate),
        ("state.json", lambda path: path.write_text(path.read_text().replace(": 2", ": 3"))),
        ("state.json", Path.unlink),
        ("state.json", lambda path: path.write_text('{"format": 99}')),
        ("state.json", lambda path: path.write_text('{"format": 2}')),
        ("state.json", lambda path: path.write_text("[]")),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line(
    name: str, damage: Callable[[Path], Any], interrupted: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(interrupted, copied)
    assert evaluate_checkpoint(copied, 1)["episodes"] == 1
    damage(copied / CHECKPOINT / name)
    where = re.escape(str(copied / CHECKPOINT))
    with pytest.raises(UserError, match=where) as refused:
        run(FixedStrategy(), copied, resume=True)
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=where):
        evaluate_checkpoint(copied, 1)


def test_a_summary_without_its_length_is_refused_in_one_line(
    interrupted: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(interrupted, copied)
    (copied / "summary.json").write_text('{"seconds": "x"}')
    with pytest.raises(UserError, match="holds no summary; delete it"):
        run(FixedStrategy(), copied, resume=True)


def test_lost_metrics_are_noticed(interrupted: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(interrupted, copied)
    lines = (copied / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copied / "metrics.jsonl").write_text(lines[0])
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        run(FixedStrategy(), copied, resume=True)
