"""Every mistake of a user costs one line and exit code 2, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.command_line import Finished, accerl, call
from tests.fixtures.controllers.made_bundles import make_bundle
from tests.fixtures.runs.inner_runs import files_hash

TRAIN = ["train", "catch", "--seconds", "2"]
MEASURE_NET2 = ["profile", "measure", "--game", "pong", "--network", "net2"]
PARAMS = "--strategy-params"
OWN = "tests.fixtures.own_strategies:Careful"
THROTTLED = (
    '{"kind": "throttle", "at_seconds": 1, "lasts_seconds": 1, "amount": 2, "process": "gpu"}'
)
KL = ["--strategy", "kl-threshold", PARAMS]

MISTAKES: list[tuple[list[str], str]] = [
    (["train", "pongg"], "game 'pongg' does not exist; did you mean 'pong'?"),
    (["train", "LunarLandr-v3"], "did you mean 'LunarLander-v3'? (or 'LunarLanderContinuous-v3',"),
    (["train", "Pendulum-v1"], "its actions are continuous"),
    (["train", "Blackjack-v1"], "flatten them with --set env.wrappers=FlattenObservation"),
    (["train", "nobody:Has-v0"], "importing 'nobody' failed, ModuleNotFoundError"),
    (["train", "CartPole-v1", "--set", "env.wrap=x"], "did you mean 'wrappers'?"),
    (["train", "CartPole-v1", "--set", "env.wrappers=3"], "a value like [] is needed, got 3"),
    (["train", "CartPole-v1", "--set", "env.resize=84"], "and observations have shape [4]"),
    (["train", "gymnasium:CartPol-v1"], "did you mean 'gymnasium:CartPole-v1'?"),
    ([*TRAIN, "--set", "env.frame_stack=4"], "game 'catch' is shown in one way"),
    ([*TRAIN, "--config", "nothing.toml"], "--config nothing.toml: no such file"),
    ([*TRAIN, "--events", "nothing.json"], "--events nothing.json: no such file"),
    ([*TRAIN, "--set", 'conditions.events=[{"kind": "quake"}]'], "event: it lacks at_seconds"),
    ([*TRAIN, "--set", f"conditions.events=[{THROTTLED}]"], "event 1: the run has no process"),
    (
        ["train", "catch", "--seconds", "1", "--set", f"conditions.events=[{THROTTLED}]"],
        "event 1 (gpu 2 times slower) begins at 1 s, and the run ends at 1 s",
    ),
    (["traine", "pong"], "command 'traine' does not exist; did you mean 'train'?"),
    (["profile", "shoow"], "command 'profile' has no 'shoow'; did you mean 'show'?"),
    ([*TRAIN, "--spec", '{"bit": 8}'], "spec: unknown key 'bit'; did you mean 'bits'?"),
    ([*TRAIN, "--spec", '{"sparsity": 1.2}'], "must lie in [0, 1), got 1.2"),
    ([*TRAIN, "--spec", '{"bits": 7}'], "spec: bits must be one of [32, 16, 8], got 7"),
    ([*TRAIN, "--spec", "{bits: 8}"], "spec: not valid JSON"),
    ([*TRAIN, "--spec", "[8]"], "spec: expected a JSON object"),
    ([*TRAIN, "--spec", '{"bits": 8, "graph": "eager"}'], "use graph 'onnx'"),
    (["train", "catch", "--seconds", "-5"], "--seconds must be positive and finite, got -5"),
    (["train", "catch", "--seconds", "nan"], "--seconds must be positive and finite, got nan"),
    (["train", "catch", "--seconds", "inf"], "--seconds must be positive and finite, got inf"),
    (["train", "catch", "--seed", "-1"], "--seed must not be negative, got -1"),
    (["train", "catch", "--seed", str(2**128)], "--seed must be below 2^128, got 3402"),
    ([*TRAIN, "--shield", "nan", "--print-config"], "shield: threshold_nats must be a number"),
    (["bench", "learner", "--repeats", "0"], "--repeats must be at least 1, got 0"),
    (["bench", "publish", "--repeats", "0"], "--repeats must be at least 1, got 0"),
    (["bench", "publish", "--publications", "-1"], "--publications must not be negative, got -1"),
    (
        ["profile", "sample", "--fleet", "2", "--link-gbit", "inf"],
        "link_gbit must be positive and finite, got inf",
    ),
    ([*TRAIN, "--strategy", "kl-treshold"], "did you mean 'kl-threshold'?"),
    ([*TRAIN, "--strategy", "kl-threshold", "--spec", '{"bits": 8}'], "--spec goes with the fixed"),
    ([*TRAIN, *KL, "{threshold_nats: 1}"], "--strategy-params: not valid JSON"),
    ([*TRAIN, *KL, "[1]"], "--strategy-params: expected a JSON object such as"),
    ([*TRAIN, *KL, '{"threshold": 1}'], "unknown parameter 'threshold'; did you mean 'threshold_n"),
    ([*TRAIN, *KL, '{"threshold_nats": "1"}'], "threshold_nats must be a number at least 0.0"),
    ([*TRAIN, *KL, '{"aggressive": {"bit": 8}}'], "spec: unknown key 'bit'; did you mean 'bits'?"),
    ([*TRAIN, *KL, '{"dwell_intervals": 0}'], "dwell_intervals must be a whole number at least 1"),
    ([*TRAIN, "--strategy", "random"], "strategy random: give it specs, such as"),
    ([*TRAIN, "--strategy", "first-that-fires"], "strategy first-that-fires: give it rules, such"),
    (
        [*TRAIN, "--strategy", "first-that-fires", PARAMS, '{"rules": [{"name": "fixd"}]}'],
        "strategy 'fixd' does not exist; did you mean 'fixed'?",
    ),
    (
        [*TRAIN, "--spec", '{"bits": 8}', PARAMS, '{"spec": {"bits": 8}}'],
        "--spec and --strategy-params both set the fixed spec; give one",
    ),
    ([*TRAIN, PARAMS, '{"bits": 8}'], "strategy fixed: unknown parameter 'bits'; allowed: spec"),
    ([*TRAIN, *KL, '{"conservative": {"rank": 0.5}}'], "has no times for 'original rank 50%"),
    (
        [*TRAIN, "--strategy", "reward-gap", "--set", "runtime.eval_episodes=0"],
        "add --set runtime.eval_episodes=16",
    ),
    (["train", "catch", "--strategy", "kl-treshold", PARAMS, "{"], "did you mean 'kl-threshold'?"),
    ([*TRAIN, "--profile", "papper"], "latency profile 'papper' does not exist; did you mean"),
    ([*TRAIN, "--profile", "missing.json"], "missing.json does not exist"),
    ([*TRAIN, "--clock", "sundial"], "clock 'sundial' does not exist"),
    ([*TRAIN, "--runtime", "cluster"], "runtime 'cluster' does not exist"),
    ([*TRAIN, "--runtime", "process", "--clock", "virtual"], "runs on the real clock"),
    ([*TRAIN, "--set", "runtime.first_interval_seconds=99"], "must lie in 0..interval_seconds"),
    ([*TRAIN, "--set", "compression.prune_criterion=tayler"], "did you mean 'taylor'?"),
    ([*TRAIN, "--set", "compression.prune_criterium=l1"], "did you mean 'prune_criterion'?"),
    ([*TRAIN, "--set", "compressor.prune_criterion=l1"], "did you mean 'compression'?"),
    ([*TRAIN, "--set", "prune_criterion=l1"], "write it like compression.prune_criterion=taylor"),
    ([*TRAIN, "--set", "runtime.num_envs=many"], "a value like 32 is needed, got 'many'"),
    ([*TRAIN, "--set", "learner.sparse=0.9"], "or null is needed, got 0.9"),
    ([*TRAIN, "--start", "no-such-run"], "no-such-run does not exist; give the folder of a run"),
    ([*TRAIN, "--spec", '{"student": "os:walk"}'], "network 'os:walk' cannot be made for"),
    (
        ["train", "cartpole", "--spec", '{"student": "tests.fixtures.own_networks:small"}'],
        "on the real clock it can act at once: add --clock real",
    ),
    ([*TRAIN, "--clock", "real", "--spec", '{"student": "no.such:net"}'], "give the import path"),
    (
        [*TRAIN, "--clock", "real", "--spec", '{"student": "tests.fixtures.own_networks:tanh"}'],
        "network 'tests.fixtures.own_networks:tanh' cannot be made for",
    ),
    ([*TRAIN, "--network", "impala"], "impala reads images [C, H, W], not observations of shape"),
    ([*TRAIN, "--network", "os:walk", "--clock", "real"], "network 'os:walk' cannot be made for"),
    ([*TRAIN, "--network", "tests.fixtures.own_networks:residual_board"], "add --clock real"),
    ([*TRAIN, "--set", "runtime.num_actors=4"], "goes with the real clock"),
    ([*TRAIN, "--strategy", "indicator", "--strict"], "go with a schedule bundle"),
    ([*TRAIN, "--strategy", OWN, "--strict"], "go with a schedule bundle"),
    ([*TRAIN, "--strategy", OWN, "--bundle-mode", "nonsense"], "go with a schedule bundle"),
    ([*TRAIN, "--print-config", "--strategy", "nosuch"], "strategy 'nosuch' does not exist"),
    ([*TRAIN, "--print-config", "--spec", "int8"], "write it like"),
    ([*TRAIN, "--precision", "fp8"], "precision must be auto, fp32 or bf16"),
    (["train", "catch", "--spec", '{"rank": 0.5, "bits": 16}'], "has no times for"),
    ([*TRAIN, "--network", "net4"], "network 'net4' does not exist; did you mean"),
    ([*TRAIN, "--network", "net1", "--spec", '{"student": "net1"}'], "is not smaller than the"),
    ([*TRAIN, "--network", "net3", "--strategy", "linear-kl"], "not smaller than the learner"),
    (["train", "pong", "--spec", '{"student": "net1"}'], "use net2 or net3 or original"),
    (["profile", "show", "papper"], "latency profile 'papper' does not exist"),
    (["profile", "measure", "--repeats", "0"], "--repeats must be at least 1"),
    (["profile", "measure", "--name", "two-core"], "two-core, gpu-learner, edge"),
    (["profile", "measure", "--name", "two-core", "--out", "here"], "are taken"),
    (["profile", "measure", "--name", "a/b"], "use letters, digits, - and _"),
    (["profile", "measure", "--specs", "indicator"], "--network, --set and --specs go with"),
    ([*MEASURE_NET2, "--specs", '{"student": "net1"}'], "not smaller than the learner's network"),
    (["profile", "diff", "paper", "papper"], "latency profile 'papper' does not exist"),
    (["profile", "advise", "--profile", "papper"], "latency profile 'papper' does not exist"),
    (["profile", "advise", "--env", "pongg"], "game 'pongg' does not exist; did you mean"),
    (["profile", "advise", "--network", "net4"], "network 'net4' does not exist; did you mean"),
    (
        ["profile", "advise", "--profile", "paper", "--set", "runtime.num_actors=3"],
        "'paper-1080ti' is of another machine and says how many it has; leave this out",
    ),
    (["profile", "advise", "--set", "runtime.num_learners=2"], "predictions are of one learner"),
    (["profile", "sample", "3", "--family", "toaster"], "family 'toaster' does not exist"),
    (["profile", "show", "laptop-10000"], "machines of a family are laptop-0000 to laptop-9999"),
    (["profile", "show", ".."], ".. is no latency profile; give a name, or a file"),
    (["profile", "sample", "3", "--fleet", "10"], "give how many"),
    (["profile", "sample"], "give how many machines to draw, or --fleet"),
    (["profile", "sample", "0"], "draw at least 1 machine, got 0"),
    (["profile", "sample", "1", "--first", "10000"], "machines have numbers 0 to 9,999"),
    (["profile", "sample", "--fleet", "9", "--family", "edge"], "not with --fleet"),
    (["profile", "sample", "9", "--store-gb", "4"], "--store-gb goes with --fleet"),
    (["profile", "measure", "--name", "laptop-0017"], "names of drawn machines"),
    (["profile", "sample", "--fleet", "0"], "--fleet must be at least 1, got 0"),
    (["profile", "sample", "--fleet", "9", "--link-gbit", "0"], "link_gbit must be positive"),
    (["profile", "sample", "--fleet", "9", "--costs", "none.json"], "none.json does not exist"),
    ([*TRAIN, "--cluster", "auto"], "--cluster goes with --runtime ray"),
    ([*TRAIN, "--runtime", "ray", "--cluster", "ray://h:10001"], "make this machine a node"),
    ([*TRAIN, "--runtime", "ray", "--cluster", "127.0.0.1:1"], "no Ray cluster answers at"),
    ([*TRAIN, "--runtime", "ray", "--clock", "virtual"], "the ray runtime runs on the real clock"),
    (["bench", "pipelines"], "command 'bench' has no 'pipelines'; did you mean 'pipeline'?"),
    (["bench", "pipeline", "--configs", "int9"], "configuration 'int9' does not exist; did you"),
    (["bench", "pipeline", "--seconds", "0"], "--seconds must be positive"),
    (["bench", "clock", "--games", "pung"], "no game 'pung'; did you mean 'pong'?"),
    (["bench", "clock", "--seeds", "0"], "are positive"),
    (["bench", "inner", "--precisions", "fp8"], "--precisions"),
    (["bench", "students", "--run", "r", "--seed", "-1"], "--seed must not be negative, got -1"),
    (["bench", "infer", "--run", "r", "--network", "impala"], "--network goes without --run"),
    (["bench", "events", "--events", "e.json", "--up-mbit", "0"], "do not go with --events"),
    (["study", "run", "oracle-gap", "--out", "gap", "--budget", "tinny"], "did you mean 'tiny'?"),
    (["study", "run", "oracle-gap", "--out", "gap", "--profile", "edgy"], "'edgy' does not exist"),
    (["study", "run", "quickstart", "--out", "q", "--storage", "jobs.db"], "neither a URL such as"),
    (
        ["study", "run", "quickstart", "--out", "q", "--storage", "postgresql://me@127.0.0.1:1/x"],
        "the storage postgresql://me:***@127.0.0.1:1/x does not answer (connection failed",
    ),
    (["study", "run", "oracle-gap", "--out", "q", "--storage", "q.journal"], "tunes nothing"),
    (["study", "list", "nowhere"], "nowhere does not exist; give the --out of"),
    (["study", "run", "oracle-gap", "--out", "q", "--cluster", "127.0.0.1:1"], "no Ray cluster an"),
    ([*TRAIN, "--set", "learner.corrector=own"], "only Python code can give; choose one of none"),
    ([*TRAIN, "--set", "learner.corrector=retrce"], "corrector 'retrce' does not exist"),
    (["bench", "pipeline", "--network", "net9"], "network 'net9' does not exist"),
    (["schedule", "show", "nowhere"], "nowhere"),
    (["schedule", "verify", "nowhere"], "nowhere"),
    (["report", ".", "--html", "x.html", "--figures", "/dev/null"], "give --figures a writable"),
    (["report", "a", "--html", "x.html", "--scores", "abc"], "not allowed are the values ['abc']"),
    (["eval", "nowhere"], "nowhere does not exist; give the folder of a run"),
    (["report", "nowhere", "--html", "report.html"], "nowhere"),
    (["report", "nowhere"], "nowhere does not exist; give the folder of a run"),
    (["report", ".", "--html", "a.html", "--out", "b"], "give --html, a file, or --out, a folder"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "expected"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_costs_one_line(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path / "home"))
    assert expected in accerl(capsys, *arguments).complaint
    assert list(tmp_path.rglob("*")) == []


def test_a_study_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "study"
    unknown = accerl(capsys, "study", "run", "quikstart", "--out", out)
    assert "did you mean 'quickstart'?" in unknown.complaint
    unknown = accerl(capsys, "study", "run", "quickstart", "--budget", "tinny", "--out", out)
    assert "'tinny' does not exist; did you mean 'tiny'?" in unknown.complaint
    unknown = accerl(capsys, "study", "run", "quickstart", "--workers", -1, "--out", out)
    assert "--workers must be at least 0" in unknown.complaint
    unknown = accerl(capsys, "study", "run", "quickstart", "--seed", -1, "--out", out)
    assert "--seed must lie between" in unknown.complaint
    unknown = accerl(capsys, "controller", "train", "--seed", -3, "--out", out)
    assert "--seed must lie between" in unknown.complaint
    unknown = accerl(capsys, "controller", "train", "--draws", 0, "--out", out)
    assert "--draws must be" in unknown.complaint
    assert not out.exists()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("controller") / "bundle"
    return make_bundle(out)


def users(capsys: pytest.CaptureFixture[str], bundle: Path, out: Path) -> list[Finished]:
    """Every command that reads a bundle."""
    return [
        accerl(capsys, *TRAIN, "--strategy", bundle, "--out", out),
        accerl(capsys, "schedule", "show", bundle),
        accerl(capsys, "schedule", "verify", bundle),
        accerl(capsys, "schedule", "replay", bundle, "--preset", "catch", "--out", out),
        accerl(capsys, "schedule", "export", bundle, "--out", out),
    ]


def test_a_bundle_has_its_own_parameters(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    done = accerl(capsys, *TRAIN, "--strategy", bundle, PARAMS, '{"seed": 1}', "--out", out)
    assert "--strategy-params goes with a hand-set strategy" in done.complaint
    assert not out.exists()


def test_a_folder_that_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "folder", tmp_path / "out"
    folder.mkdir()
    for finished in users(capsys, folder, out):
        assert "bundle" in finished.complaint
    assert not out.exists()


def test_damaged_bundles_are_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file in turn: cut off, altered by one byte, and missing."""
    assert [done.code for done in users(capsys, bundle, tmp_path / "fine")[1:3]] == [0, 0]
    names = sorted(path.name for path in bundle.iterdir() if path.is_file())
    assert len(names) >= 3
    out = tmp_path / "out"
    for name in names:
        for damage in ("cut", "altered", "missing"):
            copied = tmp_path / f"{damage}-{name}"
            shutil.copytree(bundle, copied)
            path = copied / name
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(bytes(data) if damage == "altered" else path.read_bytes()[:-9])
            finished = accerl(capsys, "schedule", "verify", copied)
            assert str(copied) in finished.complaint or name in finished.complaint
            finished = accerl(capsys, *TRAIN, "--strategy", copied, "--out", out)
            assert finished.complaint
    assert not out.exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert call(*TRAIN, "--out", out) == 0
    return out


def test_an_existing_run_is_never_overwritten(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_hash(run)
    refused = accerl(capsys, *TRAIN, "--out", run)
    assert "already holds a run; add --resume, or give another --out" in refused.complaint
    assert files_hash(run) == before


@pytest.mark.parametrize(
    "other",
    [
        ["--seed", "1"],
        ["--spec", '{"bits": 8}'],
        ["--strategy", "kl-threshold"],
        [PARAMS, '{"spec": {"bits": 8}}'],
        ["--precision", "bf16"],
        ["--clock", "real"],
        ["--runtime", "process"],
    ],
    ids=" ".join,
)
def test_resuming_a_run_with_other_settings(
    other: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_hash(run)
    refused = accerl(capsys, "train", "catch", "--seconds", 4, *other, "--out", run, "--resume")
    assert "was started with other settings" in refused.complaint
    assert files_hash(run) == before


def test_a_strategy_is_resumed_with_its_own_parameters_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, specs = tmp_path / "run", '"specs": [{"bits": 8}, {"student": "net3"}]'
    command = ["train", "catch", "--strategy", "random", "--out", out, "--json"]
    first = accerl(capsys, *command, "--seconds", 2, PARAMS, f'{{{specs}, "seed": 1}}').json
    assert first["strategy"] == "random(specs=(original INT8, net3 fp32), seed=1)"
    more = [*command, "--seconds", 3, "--resume"]
    assert "started with other" in accerl(capsys, *more, PARAMS, f"{{{specs}}}").complaint
    assert accerl(capsys, *more, PARAMS, f'{{{specs}, "seed": 1}}').json["seconds"] >= 3.0


def test_resuming_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = accerl(capsys, *TRAIN, "--out", tmp_path / "nothing", "--resume")
    assert "holds no run with a checkpoint" in refused.complaint
    assert list(tmp_path.iterdir()) == []


UNWRITABLE: list[list[Any]] = [
    [*TRAIN],
    ["controller", "train", "--iterations", "1"],
    ["study", "run", "quickstart", "--budget", "tiny"],
    ["profile", "measure", "--repeats", "1"],
]


@pytest.mark.parametrize("command", UNWRITABLE, ids=lambda command: " ".join(command[:2]))
def test_an_out_folder_that_cannot_be_written(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before any work is done, not after it."""
    (tmp_path / "file").write_text("in the way")
    finished = accerl(capsys, *command, "--out", tmp_path / "file" / "out")
    assert "cannot write" in finished.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_report_that_cannot_be_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    html = tmp_path / "file" / "report.html"
    refused = accerl(capsys, "report", run, "--html", html)
    assert str(html.parent) in refused.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_damaged_run_is_not_played(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.json", "checkpoint/state.json", "checkpoint/tensors.safetensors"):
        copied = tmp_path / name.replace("/", "-")
        shutil.copytree(run, copied)
        (copied / name).write_bytes((copied / name).read_bytes()[:-20])
        assert name.split("/")[-1] in accerl(capsys, "eval", copied).complaint
    config = json.loads((run / "config.json").read_text())
    copied = tmp_path / "unknown"
    shutil.copytree(run, copied)
    (copied / "config.json").write_text(json.dumps({**config, "colour": "red"}))
    assert "config.json" in accerl(capsys, "eval", copied).complaint
    assert "--episodes must be at least 1" in accerl(capsys, "eval", run, "--episodes", 0).complaint


def test_the_installed_command_exits_with_2_and_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "studies.cli", "train", "pongg"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("accerl: game 'pongg'")
    assert len(done.stderr.splitlines()) == 1
