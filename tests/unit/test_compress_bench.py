from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console

from accerl.compress.engine import make_engine
from accerl.spec import CompressionSpec
from studies import bench
from studies.pong import DOWN, STAY, UP, fitted_policy, record_states, ridge, rule


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


def test_bench_infer_reports_every_row(monkeypatch: pytest.MonkeyPatch, pong: np.ndarray) -> None:
    net3 = CompressionSpec(student="net3", bits=8)
    monkeypatch.setattr(bench, "STATES", 96)
    monkeypatch.setattr(bench, "COMPARED", 32)
    monkeypatch.setattr(bench, "INFER_SPECS", (bench.EAGER, CompressionSpec(), net3))
    threads = torch.get_num_threads()
    result = bench.bench_infer(batches=(1, 2), repeats=2, seconds_per_call=0.0, seed=5)
    assert torch.get_num_threads() == threads
    json.dumps(result)
    assert result["fingerprint"]["id"]
    assert result["versions"]["torch"]
    assert [(row["spec"]["student"], row["batch"]) for row in result["rows"]] == [
        ("original", 1),
        ("original", 1),
        ("net3", 1),
        ("original", 2),
        ("original", 2),
        ("net3", 2),
    ]
    eager, exact, small = result["rows"][:3]
    assert eager["ratio_eager"] == 1.0
    assert exact["ratio_ort_fp32"] == 1.0
    assert exact["kl_mean"] < 1e-8
    assert exact["macs"] > 30 * small["macs"]
    assert exact["bytes"] > 100 * small["bytes"]
    assert 0.0 < small["kl_mean"] < 0.05


def test_publishing_is_as_exact_as_the_naive_way(pong: np.ndarray) -> None:
    net = fitted_policy("net3", pong, torch.Generator().manual_seed(0))
    for spec in (CompressionSpec(student="net3"), CompressionSpec(student="net3", bits=8)):
        with torch.no_grad():
            exact = net(torch.from_numpy(pong))[0].numpy()
        own, naive = (
            np.abs(make_engine(artifact).infer(pong)[0] - exact).mean()
            for artifact in (bench.build(spec, net, pong), bench.naive_artifact(spec, net, pong))
        )
        assert max(own, naive) < (1e-5 if spec.bits == 32 else 0.5)
        assert own <= max(naive, 1e-5)


def test_bench_learner_and_its_table() -> None:
    result = bench.bench_learner(students=("net3",), repeats=1)
    assert {row["precision"] for row in result["rows"]} == {"fp32", "bf16"}
    assert all(row["batch"] == 160 and row["us_per_sample"] > 0.0 for row in result["rows"])
    text = io.StringIO()
    bench.print_table(result, Console(file=text, width=120))
    assert "us_per_sample" in text.getvalue()
    assert "interquartile" in text.getvalue()
