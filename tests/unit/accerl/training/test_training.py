"""train(): what it records, and that an interrupted run is never worse off than a finished one."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.checkpoint import load_checkpoint
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies import FirstThatFires, FixedStrategy, KLThresholdStrategy
from accerl.monitor.strategy import Strategy
from accerl.records import read_json, read_metrics
from accerl.runtime.run import PHASES, IntervalReport
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import CHECKPOINT_EVERY, RunResult
from accerl.training.run_folder import CHECKPOINT
from accerl.training.saved_policy import evaluate_checkpoint
from accerl.training.summary import SUMMARY_FIELDS, summarise
from analysis.records.load import load_run
from tests.fixtures.runs.inner_runs import fast_profile, files_hash, tiny_catch
from tests.fixtures.runs.short_catch import config, interrupting, run
from tests.fixtures.studies.synthetic_study import make_report

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)


def switching() -> KLThresholdStrategy:
    """A strategy with a memory: net3 until the KL has once been high, then for good INT8."""
    return KLThresholdStrategy(
        aggressive=NET3, conservative=INT8, threshold_nats=0.001, indicator="kl_mean_nats"
    )


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """An uninterrupted run with the settings of this file; nothing may change its folder."""
    out = tmp_path_factory.mktemp("uncut") / "run"
    return out, run(FixedStrategy(), out)


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """The same with a strategy that has a memory."""
    out = tmp_path_factory.mktemp("switched") / "run"
    return out, run(switching(), out)


def final_state(out: Path) -> tuple[bytes, bytes, list[str]]:
    """Every weight and moment, the state of everything else, and all metrics lines."""
    folder = out / CHECKPOINT
    tensors = (folder / "tensors.safetensors").read_bytes()
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return tensors, (folder / "state.json").read_bytes(), lines


@pytest.mark.parametrize(
    ("make", "after", "first_seconds"),
    [(FixedStrategy, 0, 0.001), (switching, 2, 0.0), (switching, 7, 0.0)],
    ids=["fixed-0-short", "kl-threshold-2", "kl-threshold-7"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    make: Callable[[], Strategy],
    after: int,
    first_seconds: float,
    switched: tuple[Path, RunResult],
    tmp_path: Path,
) -> None:
    """Bit by bit: weights, optimiser, environments, metrics, and what the strategy remembers."""
    short = config(first_interval_seconds=first_seconds)
    path, whole = switched
    if first_seconds:
        path = tmp_path / "whole"
        whole = run(make(), path, config=short)
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path / "parts", config=short, on_interval=interrupting(after))
    assert len(list(read_metrics(tmp_path / "parts"))) == after + 1
    assert not (tmp_path / "parts" / "summary.json").exists()
    resumed = run(make(), tmp_path / "parts", config=short, resume=True)
    assert final_state(tmp_path / "parts") == final_state(path)
    assert resumed.summary == whole.summary
    assert resumed.reports == whole.reports
    assert len(whole.reports) == (11 if first_seconds else 10)


class Noting:
    """Says that something has happened in every second interval."""

    specs = (IDENTITY,)

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.reset()

    def reset(self) -> None:
        self.asked = 0
        self.events: list[dict[str, int]] = []

    def decide(self, features: Features) -> Decision:
        if self.asked % 2 == self.offset:
            self.events.append({"of": self.offset})
        self.asked += 1
        return Decision.of(IDENTITY)


def test_a_resumed_composition_has_the_events_of_its_rules_in_their_order(tmp_path: Path) -> None:
    def make() -> Strategy:
        return FirstThatFires((Noting(0), Noting(1)))

    whole = run(make(), None)
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path, on_interval=interrupting(4))
    resumed = run(make(), tmp_path, resume=True)
    assert [event["of"] for event in whole.summary["strategy_events"]] == [0, 1] * 5
    assert resumed.summary["strategy_events"] == whole.summary["strategy_events"]


def test_the_strategy_of_that_test_really_switches(switched: tuple[Path, RunResult]) -> None:
    decisions = [report.decision for report in switched[1].reports]
    assert decisions[0] == Decision.of(NET3)
    assert decisions[-1] == Decision.of(INT8)
    first = decisions.index(Decision.of(INT8))
    assert 1 <= first <= 7  # some interruptions come before it, some after
    assert decisions[first:] == [Decision.of(INT8)] * (10 - first)


class Failing(FixedStrategy):
    """Raises in the middle of a run, between two checkpoints."""

    calls = 0

    def decide(self, features: Features) -> Decision:
        Failing.calls += 1
        if Failing.calls == CHECKPOINT_EVERY + 3:
            raise RuntimeError("a bug in a user's strategy")
        return super().decide(features)


def test_any_exception_leaves_a_checkpoint_of_the_last_whole_interval(
    uncut: tuple[Path, RunResult], tmp_path: Path
) -> None:
    Failing.calls = 0
    with pytest.raises(UserError, match="a bug"):
        run(Failing(), tmp_path)
    assert load_checkpoint(tmp_path / CHECKPOINT)["intervals"] == CHECKPOINT_EVERY + 2
    run(FixedStrategy(), tmp_path, resume=True)
    assert list(read_metrics(tmp_path)) == uncut[1].reports


def test_an_interruption_in_the_first_interval_can_be_resumed_too(
    uncut: tuple[Path, RunResult], tmp_path: Path
) -> None:
    class Interrupted(FixedStrategy):
        def decide(self, features: Features) -> Decision:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(), tmp_path)
    resumed = run(FixedStrategy(), tmp_path, resume=True)
    assert resumed.reports == uncut[1].reports


def test_a_kill_between_two_checkpoints_drops_only_what_came_after_the_last(
    uncut: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """As a kill -9 leaves it: metrics ahead of the checkpoint, the last line cut off."""
    path, whole = uncut
    kept = tmp_path / "kept"

    def keep(report: IntervalReport) -> None:
        if report.index == CHECKPOINT_EVERY + 2:
            shutil.copytree(tmp_path / "run", kept)
            metrics = (kept / "metrics.jsonl").read_text()
            (kept / "metrics.jsonl").write_text(metrics[:-40])

    run(FixedStrategy(), tmp_path / "run", on_interval=keep)
    resumed = run(FixedStrategy(), kept, resume=True)
    assert resumed.reports == whole.reports
    assert final_state(kept) == final_state(path)


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    longer = replace(config(), seconds=0.06)
    run(FixedStrategy(), tmp_path / "run")
    resumed = run(FixedStrategy(), tmp_path / "run", config=longer, resume=True)
    whole = run(FixedStrategy(), tmp_path / "whole", config=longer)
    assert resumed.summary["seconds"] == pytest.approx(0.06)
    # What was left for the tenth interval differs from the interval by rounding.
    assert resumed.reports[:9] == whole.reports[:9]
    assert len(resumed.reports) == len(whole.reports) == 15


@pytest.mark.parametrize("below", ["run", "deep/er/run"])
def test_an_unwritable_out_is_refused_before_anything_is_made(tmp_path: Path, below: str) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match="cannot write to"):
        run(FixedStrategy(), tmp_path / "taken" / below)
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]
    assert (tmp_path / "taken").read_text() == "a file"


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Refuse to let any file of this process grow beyond `size` bytes: a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_the_last_checkpoint(
    uncut: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """The kernel refuses the bytes; nothing is pretended. The run then goes on as if never hurt."""
    path, whole = uncut
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(FixedStrategy(), out, on_interval=interrupting(3))
    checkpoint = files_hash(out / CHECKPOINT)
    limit = (out / CHECKPOINT / "tensors.safetensors").stat().st_size - 1
    with (
        no_file_above(limit),
        pytest.raises(UserError, match="cannot write the checkpoint") as full,
    ):
        run(FixedStrategy(), out, resume=True)
    assert "\n" not in str(full.value)
    assert files_hash(out / CHECKPOINT) == checkpoint
    assert not list(out.glob(".*.tmp"))
    assert run(FixedStrategy(), out, resume=True).reports == whole.reports
    assert final_state(out) == final_state(path)


@pytest.mark.parametrize("size", [500, 6000])
def test_a_full_disk_at_the_start_is_one_line(size: int, tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match=r"cannot write .*json: .*free some space")
    with no_file_above(size), refused as full:
        run(FixedStrategy(), tmp_path)
    assert "\n" not in str(full.value)
    assert len(run(FixedStrategy(), tmp_path).reports) == 10


def test_a_disk_that_cannot_even_hold_the_metrics_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(FixedStrategy(), tmp_path, on_interval=interrupting(3))
    size = (tmp_path / "metrics.jsonl").stat().st_size
    with no_file_above(size + 100), pytest.raises(UserError):
        run(FixedStrategy(), tmp_path, resume=True)
    assert load_checkpoint(tmp_path / CHECKPOINT)["intervals"] == 4
    assert len(run(FixedStrategy(), tmp_path, resume=True).reports) == 10


def test_seconds_without_a_rollout_are_those_of_what_acts_in_the_next() -> None:
    """Rollouts may outlast intervals: the run's seconds are all shared out."""
    acted = [{}, {NET3: 0.3, INT8: 0.1}, {}, {}, {INT8: 0.2}, {}]
    reports = [
        make_report(index, 1.0, None, Decision.of(NET3), spec_seconds=specs)
        for index, specs in enumerate(acted)
    ]
    shared = summarise({}, reports)["spec_seconds"]
    assert shared == pytest.approx({NET3.label: 1.5, INT8.label: 4.5})
    assert summarise({}, reports[:1])["spec_seconds"] == {}


def test_the_summary_adds_up(tmp_path: Path) -> None:
    result = run(switching(), tmp_path, strategy_name="kl-threshold")
    summary = read_json(tmp_path / "summary.json")
    assert summary == json.loads(json.dumps(result.summary))
    reports = list(read_metrics(tmp_path))
    assert set(summary) <= set(SUMMARY_FIELDS)
    assert summary["seconds"] == pytest.approx(0.04)
    assert summary["env_steps"] == sum(report.env_steps for report in reports)
    assert summary["env_steps_per_second"] == pytest.approx(summary["env_steps"] / 0.04)
    assert summary["learner_updates"] == reports[-1].total_learner_updates
    assert summary["final_return"] == reports[-1].learner_return
    assert summary["best_return"] == max(report.learner_return or 0.0 for report in reports)
    assert set(summary["phases"]) == set(PHASES)
    for name, seconds in summary["phases"].items():
        assert seconds == pytest.approx(sum(report.phase_seconds[name] for report in reports))
    assert set(summary["spec_seconds"]) == {NET3.label, INT8.label}
    assert sum(summary["spec_seconds"].values()) == pytest.approx(summary["seconds"])
    decisions = [Decision.from_json(entry["decision"]) for entry in summary["decisions"]]
    assert decisions == [Decision.of(NET3), Decision.of(INT8)]
    started = [entry["seconds"] for entry in summary["decisions"]]
    assert started[0] == 0.0
    assert started[1] == pytest.approx(
        next(r for r in reports if r.decision == Decision.of(INT8)).index * 0.004
    )
    named = ("env", "seed", "runtime", "tier", "strategy", "preset")
    assert [summary[name] for name in named] == [
        "catch", 0, "serial", "virtual", "kl-threshold", "catch"
    ]  # fmt: skip
    assert summary["profile"] == {"name": "fast", "hash": fast_profile().hash}


def test_a_last_interval_is_as_long_as_what_is_left() -> None:
    reports = run(FixedStrategy(), None, config=replace(config(), seconds=0.01)).reports
    assert [report.seconds for report in reports] == pytest.approx([0.004, 0.004, 0.002])


def test_returns_of_runs_without_j_are_means_of_twenty_episodes() -> None:
    result = run(FixedStrategy(), None, config=config(eval_episodes=0))
    episodes = [score for report in result.reports for score in report.episode_returns]
    assert len(episodes) > 40
    assert result.summary["final_return"] == pytest.approx(sum(episodes[-20:]) / 20)
    means = [sum(episodes[i : i + 20]) / 20 for i in range(len(episodes) - 19)]
    assert result.summary["best_return"] == pytest.approx(max(means))


@pytest.mark.parametrize("episodes", [8, 0], ids=["J", "episodes"])
def test_a_run_without_its_summary_is_summed_up_alike(episodes: int, tmp_path: Path) -> None:
    written = run(switching(), tmp_path, config=config(eval_episodes=episodes)).summary
    (tmp_path / "summary.json").unlink()
    read = load_run(tmp_path)
    assert not read.finished
    assert read.summary["final_return"] is not None
    assert read.summary == {name: written[name] for name in read.summary}
    unknown = {"profile", "strategy_events", "versions", "fingerprint"}
    assert written.keys() - read.summary.keys() == unknown


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    longer = tiny_catch(seconds=0.3, interval_seconds=0.3, publish_every=4, eval_episodes=64)
    assert run(FixedStrategy(NET3), out, config=longer).summary["final_return"] > 0.5
    return out


@pytest.mark.parametrize("spec", [IDENTITY, INT8, NET3], ids=lambda spec: spec.label)
def test_a_checkpoint_is_played_as_trained(spec: CompressionSpec, trained: Path) -> None:
    """Far better than random play (-0.6), and the compressed policies with it."""
    played = evaluate_checkpoint(trained, 100, spec, seed=3)
    assert played["episodes"] == len(played["returns"]) == 100
    assert played["mean_return"] == pytest.approx(sum(played["returns"]) / 100)
    assert played["std_return"] ** 2 == pytest.approx(1.0 - played["mean_return"] ** 2)
    assert set(played["returns"]) <= {-1.0, 1.0}
    assert played["spec"] == spec.to_json()
    assert played["mean_return"] > 0.4


def test_evaluation_depends_on_its_seed_alone(uncut: tuple[Path, RunResult]) -> None:
    path, _ = uncut
    first = evaluate_checkpoint(path, 50, INT8, seed=3)
    assert evaluate_checkpoint(path, 50, INT8, seed=3) == first
    assert evaluate_checkpoint(path, 50, INT8, seed=4)["returns"] != first["returns"]


def test_evaluating_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run directory"):
        evaluate_checkpoint(tmp_path, 3)
    with pytest.raises(UserError, match="episodes must be at least 1"):
        evaluate_checkpoint(tmp_path, 0)
