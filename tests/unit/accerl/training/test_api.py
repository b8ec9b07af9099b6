"""`import accerl`: light, lazy and complete; a whole run from its names."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import accerl
from accerl import (
    ONNX,
    CompressionSpec,
    CompressorChain,
    CorrectorChain,
    Decision,
    FirstThatFires,
    FixedStrategy,
    ISCorrector,
    Pruning,
    Quantizer,
    RunConfig,
    ThreeStageStrategy,
    VTraceCorrector,
)
from accerl.envs import CatchEnvs, make_envs
from accerl.errors import UserError
from accerl.monitor.strategy import check_times
from accerl.networks.policy_net import ObservationSpec, make_policy
from accerl.presets import load_preset
from accerl.records import read_json
from accerl.runtime.latency.profiles import load_profile
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures.controllers.made_bundles import make_bundle
from tests.fixtures.own_games import own

README = Path(accerl.__file__).parent / "README.md"
INT8 = CompressionSpec(bits=8)
SHORT = {
    "runtime__interval_seconds": 0.5, "runtime__num_envs": 8, "runtime__eval_episodes": 8,
    "learner__unroll": 9,
}  # fmt: skip


def test_importing_accerl_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'gymnasium', 'onnxruntime', 'numpy'}"
    code = f"import sys, accerl; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", accerl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    called = {"Distiller": "Distillation"}  # the paper's word for it
    assert getattr(accerl, name).__name__.removeprefix("accerl.") == called.get(name, name)


def test_modules_do_not_hide_names_nor_names_modules() -> None:
    assert callable(accerl.train)
    assert accerl.compress.__name__ == "accerl.compress"
    assert not hasattr(accerl, "nothing")


def test_chains_are_built_from_public_names() -> None:
    observation, generator = ObservationSpec((10, 5), "uint8"), torch.Generator().manual_seed(0)
    policy = make_policy("net3", observation, 3, generator)
    chain = CompressorChain().add(Pruning(policy, 0.5)).add(Quantizer("INT8")).add(ONNX())
    assert chain.spec == CompressionSpec(sparsity=0.5, bits=8)
    correctors = CorrectorChain([VTraceCorrector(1.0, 1.0), ISCorrector(1.0)])
    assert len(correctors.correctors) == 2
    assert Decision.of(INT8).main == INT8
    assert isinstance(accerl.load_preset("catch"), RunConfig)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    result = accerl.train(
        "catch", strategy=FixedStrategy(INT8), seconds=1.0, seed=3, out=out, **SHORT
    )
    assert isinstance(result, accerl.RunResult)
    assert result.summary == read_json(out / "summary.json")
    assert result.best_return == result.summary["best_return"]
    return out


def test_settings_reach_the_run(run: Path) -> None:
    config, summary = read_json(run / "config.json"), read_json(run / "summary.json")
    assert (config["runtime"]["num_envs"], config["learner"]["unroll"]) == (8, 9)
    assert (config["seconds"], config["seed"]) == (1.0, 3)
    assert summary["spec_seconds"].keys() == {"original INT8"}
    assert summary["strategy"] == "fixed original INT8"


def test_a_run_is_not_written_over(run: Path) -> None:
    with pytest.raises(UserError, match="already holds a run"):
        accerl.train("catch", out=run)


def test_strategies_go_by_name_or_folder_and_networks_by_name(tmp_path: Path) -> None:
    named = accerl.train("catch", network="net1", strategy="fixed", seconds=0.5, **SHORT)
    assert named.summary["strategy"] == "fixed original fp32"
    bundle = make_bundle(tmp_path / "learned")
    by_path = accerl.train("catch", strategy=bundle, seconds=0.5, **SHORT)
    by_object = accerl.train("catch", strategy=accerl.load_bundle(bundle), seconds=0.5, **SHORT)
    assert by_path.summary["decisions"] == by_object.summary["decisions"]
    assert by_path.summary["strategy"] == str(bundle)


@pytest.mark.usefixtures("own_games")
def test_games_of_gymnasium_train_and_play_like_presets(tmp_path: Path) -> None:
    """Small images that are stacked, with a strategy by name; the saved policy knows the view."""
    game, out = own("ShownImage-v0"), tmp_path / "run"
    result = accerl.train(
        game,
        network="net1",
        strategy="kl-threshold",
        seconds=1.0,
        out=out,
        env__frame_stack=2,
        runtime__runtime="serial",  # on the virtual clock
        runtime__num_envs=4,
        runtime__interval_seconds=0.5,
        learner__unroll=5,
        compression__distill_updates=1,
    )
    assert result.summary["env"] == game
    assert result.summary["profile"]["name"] == "paper-1080ti"
    assert result.summary["final_return"] == 5.0  # raw: an episode is 5 steps of 1
    assert result.summary["learner_updates"] > 0
    policy = accerl.load_policy(out, INT8)
    assert policy.observation.shape == (6, 7, 9)
    assert evaluate_checkpoint(out, 3)["returns"] == [5.0] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "catchx"}, "did you mean"),
        ({"game": CatchEnvs}, r"^game: give its name, or module:Id .*CatchEnvs"),
        ({"strategy": "fixedx"}, r"did you mean 'fixed'.*the folder of a bundle, or an object"),
        ({"num_envs": 8}, "setting 'num_envs' lacks its section; write runtime__num_envs"),
        ({"strategy": "mine:Nothing"}, "strategy 'mine:Nothing': No module named 'mine'"),
        ({"runtime__nothing": 8}, "setting 'runtime__nothing' does not exist"),
        ({"runtime__num_envs": 0}, "num_envs"),
        ({"network": "net9"}, "network 'net9' does not exist"),
    ],
)
def test_mistakes_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        accerl.train(**{"game": "catch", **options})  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(refused.value)


def test_a_spec_without_times_is_refused_before_the_run_begins(tmp_path: Path) -> None:
    late = ThreeStageStrategy(converged=CompressionSpec(bits=8, rank=0.25))
    for strategy in (late, FirstThatFires((late,))):
        with pytest.raises(UserError, match="has no times for 'original rank 25% INT8'"):
            accerl.train("catch", strategy=strategy, seconds=0.5, out=tmp_path / "run", **SHORT)
    assert list(tmp_path.iterdir()) == []


def test_what_acts_while_a_student_waits_needs_times_too() -> None:
    times, student = load_profile("paper-1080ti"), CompressionSpec(student="net3", bits=8)
    rows = tuple(row for row in times.specs if row.spec in (CompressionSpec(), student))
    narrow, config = replace(times, specs=rows), load_preset("catch")
    waits = replace(config, compression=replace(config.compression, admit_kl_nats=0.5))
    check_times(FixedStrategy(student), narrow, config)
    check_times(FixedStrategy(student), times, waits)
    with pytest.raises(UserError, match="no times for 'original INT8', which acts while 'net3 INT"):
        check_times(FixedStrategy(student), narrow, waits)


def states(count: int) -> np.ndarray:
    envs = make_envs("catch", count)
    obs = envs.reset(0)
    envs.close()
    return obs


@pytest.mark.parametrize("spec", [CompressionSpec(), INT8], ids=lambda spec: spec.label)
def test_a_saved_policy_acts_the_same_in_any_onnx_runtime(
    spec: CompressionSpec, run: Path, tmp_path: Path
) -> None:
    policy, obs = accerl.load_policy(run, spec), states(32)
    policy.save(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    logits = np.asarray(session.run(["logits"], {"obs": obs})[0])
    np.testing.assert_allclose(logits, policy.logits(obs), atol=1e-5)
    np.testing.assert_array_equal(policy(obs), policy.logits(obs).argmax(-1))
    assert policy.spec == spec


def test_a_run_that_began_with_another_s_learner_goes_on_without_being_told(
    run: Path, tmp_path: Path
) -> None:
    quick: dict[str, Any] = {"out": tmp_path / "more", "runtime__interval_seconds": 0.05}
    accerl.train("catch", start=run, seconds=0.05, **quick)
    assert len(accerl.train("catch", resume=True, seconds=0.1, **quick).reports) == 2


def test_actions_are_drawn_as_the_policy_says(run: Path) -> None:
    policy, obs = accerl.load_policy(run), states(1).repeat(20_000, axis=0)
    found = np.bincount(policy(obs, np.random.default_rng(0)), minlength=3) / len(obs)
    odds = np.exp(policy.logits(obs[:1])[0].astype(float))
    np.testing.assert_allclose(found, odds / odds.sum(), atol=0.02)


def test_a_policy_says_what_it_cannot_do(run: Path, tmp_path: Path) -> None:
    eager = accerl.load_policy(run, CompressionSpec(graph="eager"))
    with pytest.raises(UserError, match="runs in torch"):
        eager.save(tmp_path / "policy.onnx")
    with pytest.raises(UserError, match=r"states must be .* \[B, "):
        eager(states(4)[:, 0])
    with pytest.raises(UserError, match="is not a run directory"):
        accerl.load_policy(tmp_path)


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[:1]
    (tmp_path / "example.py").write_text(code.replace("seconds=10", "seconds=2"))
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path("example.py")
    assert names["result"].best_return is not None
    assert (tmp_path / "catch.onnx").stat().st_size > 1000
    assert evaluate_checkpoint(tmp_path / "runs" / "catch-api", 4)["episodes"] == 4


def test_examples_of_two_pages_run_one_after_the_other() -> None:
    folders = [
        set(re.findall(r'out="([^"]+)"', page.read_text()))
        for page in (README, README.parents[1] / "README.md")
    ]
    assert all(folders)
    assert not folders[0] & folders[1]


def test_a_spec_is_a_strategy_and_a_number_is_none() -> None:
    spec = CompressionSpec(bits=8)
    found = accerl.train("catch", strategy=spec, seconds=0.05, runtime__interval_seconds=0.05)
    assert found.reports[0].decision.main == spec
    with pytest.raises(UserError, match=r"expected an object with decide\(\)"):
        accerl.train("catch", strategy=8, seconds=0.05)  # pyright: ignore
    with pytest.raises(UserError, match="must be positive and finite, got 'ten'"):
        accerl.train("catch", seconds="ten")  # pyright: ignore
