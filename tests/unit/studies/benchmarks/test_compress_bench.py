from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from accerl.compress import CompressorChain, make_engine
from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.spec import CompressionSpec
from analysis.figures.bench import pareto, pareto_front
from analysis.figures.export import write_pngs
from studies.benchmarks import infer as bench_infer
from studies.benchmarks import publish
from studies.benchmarks.learner import bench_learner
from studies.benchmarks.pong import DOWN, STAY, UP, fitted_policy, record_states, ridge, rule
from studies.benchmarks.tables import print_rows

NET3_INT8 = CompressionSpec(student="net3", bits=8)


@pytest.fixture(scope="module")
def pong() -> np.ndarray:
    return record_states(96, seed=5)


def test_ridge_is_the_textbook_solution() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=generator)
    targets = torch.randn(30, 2, generator=generator)
    weight, bias = ridge(features, targets)
    centred = features - features.mean(0)
    penalty = 0.3 * centred.square().sum(1).mean()
    primal = torch.linalg.solve(
        centred.T @ centred + penalty * torch.eye(4), centred.T @ (targets - targets.mean(0))
    )
    torch.testing.assert_close(weight, primal.T, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weight @ features.mean(0) + bias, targets.mean(0))


def test_the_rule_follows_the_ball() -> None:
    frames = np.full((3, 4, 84, 84), 87, dtype=np.uint8)
    frames[:, -1, 40:48, 73:76] = 147  # the paddle
    frames[0, -1, 20:22, 50] = 236  # the ball is above
    frames[1, -1, 70:72, 50] = 236  # below
    actions, values = rule(frames)
    assert actions.tolist() == [UP, DOWN, STAY]
    assert values[0] < 0.0
    assert values[2] == 0.0


def test_recorded_states_repeat_with_the_seed(pong: np.ndarray) -> None:
    assert pong.shape == (96, 4, 84, 84)
    np.testing.assert_array_equal(pong, record_states(96, seed=5))
    assert len(np.unique(rule(pong)[0])) == 3


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    """Few states and specs: what is tested is what is reported, not how fast it is."""
    patch = pytest.MonkeyPatch()
    patch.setattr(bench_infer, "STATES", 96)
    patch.setattr(bench_infer, "COMPARED", 32)
    patch.setattr(bench_infer, "SPECS", (bench_infer.EAGER, bench_infer.FP32, NET3_INT8))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def measured(small: None) -> Iterator[dict[str, Any]]:
    torch.set_num_threads(2)  # a benchmark takes one, and gives back what there was
    yield bench_infer.bench_infer(
        (1, 2), repeats=2, seconds_per_call=0.0, seed=5, distill_updates=40
    )
    torch.set_num_threads(1)


@pytest.mark.slow
def test_bench_infer_reports_every_row(measured: dict[str, Any]) -> None:
    assert torch.get_num_threads() == 2
    json.dumps(measured)
    assert measured["fingerprint"]["id"]
    assert measured["versions"]["torch"]
    assert [(row["spec"]["student"], row["batch"]) for row in measured["rows"]] == [
        ("original", 1),
        ("original", 1),
        ("net3", 1),
        ("original", 2),
        ("original", 2),
        ("net3", 2),
    ]
    eager, exact, small = measured["rows"][:3]
    assert eager["ratio_eager"] == 1.0
    assert exact["ratio_ort_fp32"] == 1.0
    assert exact["kl_mean"] < 1e-8
    assert exact["argmax_agreement"] == 1.0
    assert exact["macs"] > 30 * small["macs"]
    assert exact["bytes"] > 100 * small["bytes"]
    assert 1e-3 < small["kl_mean"] < 3.0  # a student after a few updates


def test_a_batch_of_more_states_than_there_are_repeats_them() -> None:
    seen: list[np.ndarray] = []

    def infer(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append(obs)
        return obs, obs

    states = np.arange(6).reshape(3, 2)
    for batch in (2, 7):
        bench_infer._call(infer, states, batch)()
    assert [obs[:, 0].tolist() for obs in seen] == [[0, 2], [0, 2, 4, 0, 2, 4, 0]]
    assert all(obs.flags.c_contiguous for obs in seen)


def test_the_front_holds_what_nothing_beats() -> None:
    pairs = [(10.0, 0.5), (20.0, 0.1), (20.0, 0.2), (30.0, 0.1), (40.0, 0.0), (9.0, 0.9)]
    rows = [{"us_per_state": time, "kl_mean": kl} for time, kl in pairs]
    front = [(row["us_per_state"], row["kl_mean"]) for row in pareto_front(rows)]
    assert front == [(40.0, 0.0), (20.0, 0.1), (10.0, 0.5), (9.0, 0.9)]


def test_time_against_kl_is_drawn_for_every_batch(measured: dict[str, Any], tmp_path: Path) -> None:
    paths = write_pngs((pareto(measured, batch) for batch in (1, 2)), tmp_path)
    assert [path.name for path in paths] == ["pareto-batch-1.png", "pareto-batch-2.png"]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in paths)
    table = pareto(measured, 1).table
    assert {row["label"] for row in table} >= {"original fp32", NET3_INT8.label}
    assert any(row["front"] != "beaten" for row in table)
    with pytest.raises(ValueError, match="batch 7"):
        pareto(measured, 7)


def test_a_run_that_learned_something_else_is_refused(tmp_path: Path) -> None:
    config = load_preset("pong").to_json()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="this run learns net1; train one with --network original"):
        bench_infer.trained(tmp_path, 0)
    with pytest.raises(UserError, match="does not exist; give the folder of a run"):
        bench_infer.trained(tmp_path / "nowhere", 0)


def test_publishing_is_as_exact_as_the_naive_way(pong: np.ndarray) -> None:
    net = fitted_policy("net3", pong, torch.Generator().manual_seed(0))
    for bits in (32, 8):
        spec = CompressionSpec(bits=bits)
        with torch.no_grad():
            exact = net(torch.from_numpy(pong))[0].numpy()
        engine = make_engine(CompressorChain.from_spec(spec).compress(net, observations=pong))
        session = publish.naive_session(spec, net, pong)
        own, naive = (
            np.abs(logits - exact).mean()
            for logits in (engine.infer(pong)[0], session.run(("logits",), {"obs": pong})[0])
        )
        assert max(own, naive) < (1e-5 if bits == 32 else 0.5)
        assert own <= max(naive, 1e-5)


def test_bench_publish_reports_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "STATES", 64)
    monkeypatch.setattr(publish, "SPECS", (NET3_INT8,))
    (row,) = publish.bench_publish(repeats=1)["rows"]
    assert row["spec"]["student"] == "net3"
    assert row["ratio"] == pytest.approx(row["naive_ms"] / row["ms"])
    assert 0 < row["bytes"] < 50_000


def test_bench_learner_and_its_table() -> None:
    result = bench_learner(students=("net3",), repeats=1)
    assert {row["precision"] for row in result["rows"]} == {"fp32", "bf16"}
    assert all(row["batch"] == 160 and row["us_per_sample"] > 0.0 for row in result["rows"])
    text = io.StringIO()
    print_rows(result, Console(file=text, width=120))
    assert "us_per_sample" in text.getvalue()
    assert "interquartile" in text.getvalue()
