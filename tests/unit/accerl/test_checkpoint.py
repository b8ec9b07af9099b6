"""Checkpoints: exact trees, atomic replacement, nothing unpickled, damage named in one line."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accerl import checkpoint
from accerl.checkpoint import (
    FORMAT,
    has_checkpoint,
    load_checkpoint,
    remove_checkpoint,
    save_checkpoint,
)
from accerl.errors import UserError
from tests.fixtures.runs.inner_runs import files_hash


def tree() -> dict[str, Any]:
    shared = torch.arange(4.0)
    return {
        "tensors": {"a": shared, "view": shared[1:3], "strided": torch.arange(6).view(2, 3).T},
        "bfloat": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(7, dtype=torch.int64),
        "array": np.array([[True, False]]),
        "single": np.array(3.0),
        "double": np.array([1e-300, np.inf, -0.0]),
        "numbers": [1, 2.5, None, True, "text", -(2**200), 1e-17],
        "numpy": np.float64(0.1),
        "rng": np.random.default_rng(3).bit_generator.state,
        "nested": [{"deep": [torch.ones(1)]}, []],
        "nothing": {},
    }


def assert_equal(mine: Any, other: Any) -> None:
    if isinstance(mine, torch.Tensor):
        assert isinstance(other, torch.Tensor)
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert torch.equal(mine, other)
    elif isinstance(mine, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert mine.tobytes() == other.tobytes()
    elif isinstance(mine, dict):
        assert mine.keys() == other.keys()
        for key, value in mine.items():
            assert_equal(value, other[key])
    elif isinstance(mine, list | tuple):
        assert len(mine) == len(other)
        for one, two in zip(mine, other, strict=True):
            assert_equal(one, two)
    else:
        assert mine == other
        assert type(mine) is type(other) or isinstance(mine, np.generic)


def test_a_tree_comes_back_exactly_as_it_was(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint", tree())
    assert_equal(tree(), load_checkpoint(tmp_path / "checkpoint"))
    assert has_checkpoint(tmp_path / "checkpoint")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_folder_that_has_gone_does_not_come_back_half_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run was moved or deleted meanwhile"):
        save_checkpoint(tmp_path / "run" / "checkpoint", tree())
    assert [*tmp_path.iterdir()] == []


def test_a_generator_continues_from_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rng.random(5)
    save_checkpoint(tmp_path / "c", {"rng": rng.bit_generator.state})
    other = np.random.default_rng(0)
    other.bit_generator.state = load_checkpoint(tmp_path / "c")["rng"]
    assert other.random(9).tolist() == rng.random(9).tolist()


def test_what_was_loaded_can_be_changed_and_saved_again(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", tree())
    loaded = load_checkpoint(tmp_path / "c")
    loaded["tensors"]["a"].add_(1.0)
    loaded["double"][0] = 2.0
    save_checkpoint(tmp_path / "c", loaded)
    again = load_checkpoint(tmp_path / "c")
    assert again["tensors"]["a"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert again["double"][0] == 2.0


def test_nothing_but_data_is_written_or_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("something was unpickled",))

    save_checkpoint(tmp_path / "c", {"a": 1})
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / "c", {"trap": Trap()})
    assert load_checkpoint(tmp_path / "c") == {"a": 1}
    (tmp_path / "c" / "tensors.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="cut off or altered"):
        load_checkpoint(tmp_path / "c")


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", range(1, 8))
def test_a_crash_at_any_moment_leaves_a_whole_checkpoint(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old or new, never a mixture; and the next save tidies up what the crash has left."""
    path = tmp_path / "checkpoint"
    save_checkpoint(path, {"value": "old", "x": torch.zeros(3)})
    calls = 0

    def crashing(function: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                raise Crash
            return function(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patched:
        for name in ("rename", "mkdir", "replace"):
            patched.setattr(Path, name, crashing(getattr(Path, name)))
        patched.setattr("accerl.checkpoint.os.fsync", crashing(lambda descriptor: None))
        patched.setattr("accerl.checkpoint.shutil.rmtree", lambda *_, **__: None)
        try:
            save_checkpoint(path, {"value": "new", "x": torch.ones(3)})
        except Crash:
            crashed = True
        else:
            crashed = False
    assert crashed == (step <= 6)  # mkdir, two fsyncs, one replace, two renames
    assert has_checkpoint(path)
    loaded = load_checkpoint(path)
    assert (loaded["value"], loaded["x"].sum().item()) in [("old", 0.0), ("new", 3.0)]
    save_checkpoint(path, {"value": "newest"})
    assert load_checkpoint(path) == {"value": "newest"}
    assert not path.with_name("checkpoint.old").exists()


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from accerl.checkpoint import load_checkpoint, save_checkpoint

path, kills = Path(sys.argv[1]), int(sys.argv[2])
generator = random.Random(7)
last, saved = 0, []
began = time.perf_counter()
save_checkpoint(path, {"number": 0, "weights": torch.zeros(20_000)})
# A disk may be slow, and a busy machine may have been slow just then.
took = min(time.perf_counter() - began, 0.5)
for _ in range(kills):
    if time.perf_counter() - began > 60.0:
        break
    child = os.fork()
    if child == 0:
        number = last
        while True:
            number += 1
            weights = torch.full((20_000,), float(number))
            save_checkpoint(path, {"number": number, "weights": weights})
    time.sleep(0.001 + generator.uniform(0.0, 4.0) * took)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    tree = load_checkpoint(path)
    assert tree["number"] >= last, (tree["number"], last)
    assert (tree["weights"] == tree["number"]).all()
    saved.append(tree["number"] - last)
    if not saved[-1]:  # the machine may be slower now
        took = min(1.2 * took, 0.5)
    last = tree["number"]
save_checkpoint(path, {"number": last})
print(len(saved), sum(count > 0 for count in saved), *sorted(os.listdir(path.parent)))
"""


@pytest.mark.slow
def test_many_kills_in_mid_save_leave_a_whole_checkpoint_each_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLER, str(tmp_path / "checkpoint"), "100"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kills, progress, *left = done.stdout.split()
    assert int(kills) >= 10  # a hundred, unless the machine is slow
    assert int(progress) > int(kills) / 10  # the children did save, so kills did hit saves
    assert left == ["checkpoint"]  # the next save tidies up what the killed ones left


def test_a_disk_that_refuses_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    save_checkpoint(path, tree())
    before = files_hash(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("accerl.checkpoint.os.fsync", full)
    with pytest.raises(UserError, match=r"No space left on device; free some space") as refused:
        save_checkpoint(path, {"value": 1})
    assert "\n" not in str(refused.value)
    assert files_hash(path) == before
    assert [item.name for item in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    assert not has_checkpoint(tmp_path / "c")
    with pytest.raises(UserError, match="no checkpoint at"):
        load_checkpoint(tmp_path / "c")


def test_a_removed_checkpoint_leaves_no_older_one(tmp_path: Path) -> None:
    remove_checkpoint(tmp_path / "c")  # of which there is none
    for name in ("c", "c.old"):
        save_checkpoint(tmp_path / name, tree())
    remove_checkpoint(tmp_path / "c")
    assert not has_checkpoint(tmp_path / "c")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda state: state.pop("sha256"), "c was cut off or altered"),
        (lambda state: state.pop("tree"), "c was cut off or altered"),
        (lambda state: state["tree"].update(more=1), "c was cut off or altered"),
        (lambda state: state.update(format=FORMAT + 1), "not a checkpoint of format"),
        (lambda state: state.update(sha256="0" * 64), "c was cut off or altered"),
    ],
)
def test_an_altered_state_is_refused(tmp_path: Path, damage: Any, reason: str) -> None:
    save_checkpoint(tmp_path / "c", tree())
    path = tmp_path / "c" / "state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state))
    assert_equal(tree(), load_checkpoint(tmp_path / "c"))  # written anew, and not altered
    damage(state)
    path.write_text(json.dumps(state))
    with pytest.raises(UserError, match=reason) as refused:
        load_checkpoint(tmp_path / "c")
    assert "\n" not in str(refused.value)


def test_one_that_its_run_replaces_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path / "c", {"number": 1, "values": torch.zeros(3)})
    read, replaced = checkpoint.read_json, []

    def read_and_replace(path: Path) -> Any:
        found = read(path)
        if not replaced:
            replaced.append(path)
            save_checkpoint(tmp_path / "c", {"number": 2, "values": torch.ones(3)})
        return found

    monkeypatch.setattr(checkpoint, "read_json", read_and_replace)
    assert load_checkpoint(tmp_path / "c")["number"] == 2
    assert replaced
