"""Which strategy a run was started with: what is recorded, resumed, and refused."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from accerl.checkpoint import has_checkpoint
from accerl.compress.links import CompressionState, Stage
from accerl.correct import CorrectorChain, ISCorrector, VTraceCorrector
from accerl.errors import UserError
from accerl.monitor.strategies import (
    FirstThatFires,
    FixedStrategy,
    HandSetStrategy,
    KLThresholdStrategy,
    RandomStrategy,
    RewardGapStrategy,
    make_strategy,
)
from accerl.monitor.strategy import Strategy
from accerl.records import fingerprint, read_json, write_json
from accerl.runtime.parts import Parts
from accerl.spec import CompressionSpec, Decision
from accerl.training.run import RunResult, run_training
from accerl.training.run_folder import CHECKPOINT, as_measured, held, is_free, read_config
from accerl.training.saved_policy import evaluate_checkpoint, load_policy
from analysis.records.load import load_run
from controller.shield import Shielded
from tests.fixtures.runs.inner_runs import fast_profile, files_hash, tiny_catch

INT8 = CompressionSpec(bits=8)
RANDOM = RandomStrategy((CompressionSpec(), INT8), seed=5, hold_intervals=2)
HIGH = KLThresholdStrategy(threshold_nats=1e6)
"""never switches in these runs"""


def run(
    strategy: Strategy, out: Path | None, *, seconds: float = 0.02, **options: Any
) -> RunResult:
    name = strategy.name if isinstance(strategy, HandSetStrategy) else "own"
    config = tiny_catch(seconds=seconds, interval_seconds=0.004)
    return run_training(
        config, strategy, strategy_name=name, out=out, profile=fast_profile(), **options
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "run"
    run(HIGH, out)
    return out


def test_a_run_records_the_parameters_of_its_strategy(recorded: Path) -> None:
    config = read_json(recorded / "config.json")
    assert make_strategy(config["strategy"], **config["strategy_params"]) == HIGH
    assert read_config(recorded).game == "catch"
    assert load_run(recorded).config["strategy_params"]["threshold_nats"] == 1e6


def test_resuming_on_another_machine_is_refused(recorded: Path, tmp_path: Path) -> None:
    """The virtual clock is charged the same everywhere, but bfloat16 does not learn the same."""
    data = read_json(recorded / "config.json")
    assert data["machine"] == {
        "num_actors": 1, "device": "cpu", "precision": "fp32", "distill_precision": "fp32",
        "fingerprint": None,
    }  # fmt: skip
    moved = tmp_path / "moved"
    shutil.copytree(recorded, moved)
    write_json(moved / "config.json", data | {"machine": data["machine"] | {"precision": "bf16"}})
    with pytest.raises(UserError, match=r"precision bf16.*here:.*precision fp32.*learn otherwise"):
        run(HIGH, moved, resume=True)


def test_a_virtual_clock_s_run_is_resumed_with_any_number_of_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its profile says how many actors there are, although a game leaves them to the machine."""
    config = tiny_catch(seconds=0.02, interval_seconds=0.004, num_actors=0)
    for cores, seconds in ((2, 0.02), (16, 0.04)):
        monkeypatch.setattr("accerl.config.usable_cores", lambda cores=cores: cores)
        longer = replace(config, seconds=seconds)
        result = run_training(
            longer, HIGH, out=tmp_path, profile=fast_profile(), resume=seconds > 0.02
        )
    assert len(result.reports) == 10


def test_seconds_that_really_passed_are_those_of_one_machine(tmp_path: Path) -> None:
    config = tiny_catch(seconds=0.1, interval_seconds=0.05, clock="real")
    run_training(config, HIGH, out=tmp_path)
    data = read_json(tmp_path / "config.json")
    assert data["machine"]["fingerprint"] == fingerprint()["id"]
    other = data["machine"] | {"fingerprint": "0" * 12}
    write_json(tmp_path / "config.json", data | {"machine": other})
    with pytest.raises(UserError, match=rf"another machine.*{'0' * 12}.*resume it there"):
        run_training(config, HIGH, out=tmp_path, resume=True)


def test_resuming_with_other_parameters_is_refused(recorded: Path) -> None:
    """Although every decision so far would have been the same."""
    before = files_hash(recorded)
    other = KLThresholdStrategy(threshold_nats=2e6)
    with pytest.raises(UserError, match=r"other settings \(strategy_params: preset 'catch'"):
        run(other, recorded, resume=True)
    assert files_hash(recorded) == before


def test_resuming_without_the_shield_or_with_another_is_refused(tmp_path: Path) -> None:
    run(Shielded(HIGH, 1e9), tmp_path / "run")
    assert read_json(tmp_path / "run" / "config.json")["shield"]["threshold_nats"] == 1e9
    for other in (Shielded(HIGH, 2e9), HIGH):
        with pytest.raises(UserError, match=r"other settings \(.*shield"):
            run(other, tmp_path / "run", resume=True)


def test_a_random_strategy_resumes_in_the_middle_of_its_sequence(tmp_path: Path) -> None:
    run(RANDOM, tmp_path / "run")
    resumed = run(RANDOM, tmp_path / "run", seconds=0.04, resume=True)
    whole = run(RANDOM, tmp_path / "whole", seconds=0.04)
    decided = [report.decision for report in whole.reports]
    assert [report.decision for report in resumed.reports] == decided
    assert len(set(decided)) == 2


class Own:
    """Somebody's own strategy, which has no parameters that could be told."""

    needs = ("learner_return",)

    def reset(self) -> None:
        pass

    def decide(self, features: object) -> Decision:
        return Decision.of(INT8)


def test_a_users_own_strategy_is_known_by_its_name(tmp_path: Path) -> None:
    run(Own(), tmp_path)
    assert read_json(tmp_path / "config.json")["strategy_params"] is None
    assert len(run(Own(), tmp_path, seconds=0.04, resume=True).reports) == 10


def test_without_a_name_records_call_it_what_it_calls_itself(tmp_path: Path) -> None:
    config = tiny_catch(seconds=0.01, interval_seconds=0.004)
    for strategy, name in ((Own(), "Own"), (HIGH, HIGH.label)):
        result = run_training(config, strategy, out=tmp_path / name, profile=fast_profile())
        assert result.summary["strategy"] == name


class Paired(Own):
    """One whose parameters are read otherwise from JSON than they were written."""

    def to_json(self) -> dict[str, Any]:
        return {"name": "paired", "params": {"pair": (1, np.float32(2.0))}}


def test_parameters_are_compared_as_json_holds_them(tmp_path: Path) -> None:
    run(Paired(), tmp_path)
    assert len(run(Paired(), tmp_path, seconds=0.04, resume=True).reports) == 10


def test_a_folder_that_holds_a_run_is_refused_and_stays(recorded: Path) -> None:
    before = files_hash(recorded)
    with pytest.raises(UserError, match="already holds a run; pass resume=True"):
        run(HIGH, recorded)
    assert files_hash(recorded) == before


def test_a_folder_that_a_run_is_written_to_is_nobody_else_s(tmp_path: Path) -> None:
    with held(tmp_path / "run"):
        assert not is_free(tmp_path / "run")
        with pytest.raises(UserError, match="already holds a run"):
            run(HIGH, tmp_path / "run")
        with pytest.raises(UserError, match="a run is being written to"), held(tmp_path / "run"):
            pass
    assert is_free(tmp_path / "run")
    run(HIGH, tmp_path / "run")
    with held(tmp_path / "run"), pytest.raises(UserError, match="a run is being written to"):
        run(HIGH, tmp_path / "run", seconds=0.04, resume=True)


def test_a_file_system_without_locks_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    for _ in range(2):  # the second time the file is there
        with pytest.raises(UserError, match=r"^cannot lock .*run\.lock: No locks .*; choose"):
            run(HIGH, tmp_path / "run")


def test_a_run_in_the_place_of_another_does_not_go_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The other was interrupted before its first interval, this one is killed before that."""
    out, killed = tmp_path / "run", tmp_path / "killed"

    class Interrupted(Own):
        def decide(self, features: object) -> Decision:
            raise KeyboardInterrupt

    class Killed(Own):
        def decide(self, features: object) -> Decision:
            if not killed.exists():
                shutil.copytree(out, killed)
            return super().decide(features)

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(), out)
    assert has_checkpoint(out / CHECKPOINT)
    run(Killed(), out)
    with pytest.raises(UserError, match="holds no run with a checkpoint"):
        run(Own(), killed, resume=True)


def test_a_refused_resume_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    """By its decisions alone this strategy is another, after more intervals than are saved."""
    run(Own(), tmp_path, seconds=0.03)
    before = files_hash(tmp_path)

    class Another(Own):
        def decide(self, features: object) -> Decision:
            return Decision.of(CompressionSpec(bits=16))

    with pytest.raises(UserError, match="started with another strategy"):
        run(Another(), tmp_path, seconds=0.05, resume=True)
    assert files_hash(tmp_path) == before


class Still:
    """A compressor that does nothing."""

    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        return state


def test_links_of_one_s_own_are_recorded_and_have_to_come_along(tmp_path: Path) -> None:
    parts = Parts(links=(Still(),))
    run(HIGH, tmp_path, parts=parts)
    name = f"{__name__}:Still"
    assert read_json(tmp_path / "config.json")["own_parts"] == {"links": [name]}
    with pytest.raises(UserError, match=r"other settings \(own_parts"):
        run(HIGH, tmp_path, seconds=0.04, resume=True)
    with pytest.raises(UserError, match=f"compressed with {name}; give the same"):
        load_policy(tmp_path, INT8)
    with pytest.raises(UserError, match="give the same"):
        evaluate_checkpoint(tmp_path, 1, INT8)
    assert evaluate_checkpoint(tmp_path, 1)["cut_off"] == 0  # the learner's network has none
    assert load_policy(tmp_path, INT8, links=parts.links).spec.bits == 8


def test_a_corrector_is_recorded_and_compared_with_its_levels(tmp_path: Path) -> None:
    def parts(*levels: float) -> Parts:
        return Parts(corrector=CorrectorChain([VTraceCorrector(*levels), ISCorrector()]))

    run(HIGH, tmp_path, parts=parts(5.0, 1.0))
    config = read_json(tmp_path / "config.json")
    assert config["learner"]["corrector"] == "own"
    assert "VTraceCorrector(rho=5.0, c=1.0)" in config["own_parts"]["corrector"][0]
    with pytest.raises(UserError, match=r"other settings \(.*own_parts"):
        run(HIGH, tmp_path, seconds=0.04, resume=True, parts=parts(1.0, 1.0))
    run(HIGH, tmp_path, seconds=0.04, resume=True, parts=parts(5.0, 1.0))


def test_what_was_measured_of_a_game_is_not_measured_again(tmp_path: Path) -> None:
    catch = replace(tiny_catch(), pixel_centre=3).with_learner(reward_scale=0.5)
    write_json(tmp_path / "config.json", catch.to_json())
    again = as_measured(tiny_catch(), tmp_path)
    assert (again.pixel_centre, again.learner.reward_scale) == (3, 0.5)
    given = as_measured(tiny_catch(), tmp_path, ["learner.reward_scale"])
    assert (given.pixel_centre, given.learner.reward_scale) == (3, 1.0)
    other = replace(tiny_catch(), game="cartpole")
    assert as_measured(other, tmp_path) == other
    assert as_measured(other, tmp_path / "none") == other


def test_a_link_says_when_it_has_its_turn() -> None:
    class Late:
        def apply(self, state: CompressionState) -> CompressionState:
            return state

    with pytest.raises(UserError, match=r"Late: a link of your own has a `stage`"):
        Parts(links=cast(Any, (Late(),)))


@pytest.mark.parametrize(
    ("decided", "message"),
    [(INT8, "must return a Decision, such as .* got CompressionSpec"), (None, "got NoneType")],
)
def test_what_is_no_decision_is_refused(decided: Any, message: str) -> None:
    class Wrong(Own):
        def decide(self, features: object) -> Decision:
            return decided

    with pytest.raises(UserError, match=f"strategy Wrong: .*{message}"):
        run(Wrong(), None)


@pytest.mark.parametrize("method", ["reset", "decide"])
def test_what_a_strategy_of_one_s_own_raises_is_one_line(method: str, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise ValueError("my own mistake")

    wrong = type("Wrong", (Own,), {method: fail, "__module__": "mine"})
    said = r"strategy Wrong: ValueError: my own mistake \(test_run_identity.py:\d+\)"
    with pytest.raises(UserError, match=said):
        run(wrong(), tmp_path / "new")
    run(Own(), tmp_path / "begun")
    with pytest.raises(UserError, match=said):
        run(wrong(), tmp_path / "begun", seconds=0.04, resume=True)


def test_a_mistake_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    class Ours(HandSetStrategy):
        name = "ours"

        def decide(self, features: object) -> Decision:
            raise ValueError("a defect")

    Ours.__module__ = "accerl.monitor.strategies.ours"
    with pytest.raises(ValueError, match="a defect"):
        run(Ours(), tmp_path)


def test_a_class_is_no_strategy() -> None:
    strategy: Any = Own
    with pytest.raises(UserError, match=r"Own is a class: pass an object, Own\(\.\.\.\)"):
        run(strategy, None)


def test_a_run_leaves_its_caller_s_threads_as_they_were(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(HIGH, tmp_path)
        load_policy(tmp_path)
        found = torch.get_num_threads()
    finally:
        torch.set_num_threads(threads)
    assert found == 2


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (RewardGapStrategy(), "reward-gap"),
        (FirstThatFires((RewardGapStrategy(), FixedStrategy())), "first-that-fires"),
        (Own(), "Own"),
    ],
    ids=["reward-gap", "first-that-fires", "own"],
)
def test_a_strategy_that_needs_j_is_refused_where_it_is_not_measured(
    strategy: Strategy, name: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"add --set runtime\.eval_episodes=16") as refused:
        run_training(
            tiny_catch(eval_episodes=0), strategy, out=tmp_path / "run", profile=fast_profile()
        )
    assert str(refused.value).startswith(f"strategy {name}: ")
    assert list(tmp_path.iterdir()) == []


def test_a_strategy_that_does_without_j_runs_where_it_is_not_measured() -> None:
    config = tiny_catch(seconds=0.025, eval_episodes=0)
    assert run_training(config, HIGH, profile=fast_profile()).reports[0].learner_return is None
