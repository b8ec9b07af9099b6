"""What "auto" means follows the processor, and is decided before a run begins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import accerl.networks.autocast as autocasting
import accerl.precision as precision
from accerl.networks.autocast import autocast
from accerl.precision import choose_precision, note_on_precision
from accerl.presets import load_preset


@pytest.mark.parametrize("gains", [False, True])
def test_auto_is_what_is_faster_on_the_processor(
    gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "gains_by_bfloat16", lambda: gains)
    expected = "bf16" if gains else "fp32"
    note = note_on_precision("bf16", "cpu")
    assert (note is None) if gains else ("is not faster than float32" in str(note))
    assert note_on_precision("auto", "cpu") is note_on_precision("fp32", "cpu") is None
    assert choose_precision("auto") == expected
    assert load_preset("pong").adapted().learner.precision == expected


def test_what_is_asked_for_stays() -> None:
    config = load_preset("pong")
    for name in ("fp32", "bf16"):
        assert choose_precision(name) == name
        assert config.with_learner(precision=name).adapted().learner.precision == name


def _layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 16))


def _gradients(low: bool) -> list[torch.Tensor]:
    net = _layers()
    with autocast(torch.device("cpu"), low=low):
        features = net(torch.rand(256, 3, 10, 10))
        assert features.dtype == (torch.bfloat16 if low else torch.float32)
    features.float().square().mean().backward()
    return [weight.grad for weight in net.parameters() if weight.grad is not None]


def test_emulated_gradients_are_as_close_to_those_in_float32_as_bfloat16_resolves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch's own kernels for processors without bfloat16 lose half of a convolution's gradient."""
    monkeypatch.setattr(precision, "computes_bfloat16", lambda: False)
    exact, emulated = _gradients(low=False), _gradients(low=True)
    assert len(exact) == len(emulated) == 4
    for right, found in zip(exact, emulated, strict=True):
        assert found.dtype == torch.float32
        assert 0.0 < (found - right).norm() < 0.02 * right.norm()


def test_what_is_emulated_is_what_instructions_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    given, weight = torch.rand(5, 7), torch.rand(3, 7)
    exact = given.bfloat16().double() @ weight.bfloat16().double().t()
    monkeypatch.setattr(precision, "computes_bfloat16", lambda: False)
    with autocast(torch.device("cpu"), low=True):
        found = nn.functional.linear(given, weight)
        with torch.autocast("cpu", enabled=False):  # as heads do
            assert torch.equal(nn.functional.linear(given, weight), given @ weight.t())
        products = {"matmul": given @ weight.t(), "mm": torch.mm(given, weight.t())}
    for name, product in products.items():
        assert torch.equal(product, found), name
    assert torch.equal(found, exact.bfloat16())
    with autocast(torch.device("cpu"), low=True):  # which leaves float64 alone
        double = nn.functional.linear(given.double(), weight.double())
    assert torch.equal(double, given.double() @ weight.double().t())
    assert nn.functional.linear(given, weight).dtype == torch.float32


def test_with_instructions_nothing_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError("emulated")

    monkeypatch.setattr(precision, "computes_bfloat16", lambda: True)
    monkeypatch.setattr(autocasting, "_RoundedProducts", fail)
    with autocast(torch.device("cpu"), low=True):
        assert nn.functional.linear(torch.ones(5, 7), torch.ones(3, 7)).dtype == torch.bfloat16
    monkeypatch.setattr(precision, "computes_bfloat16", lambda: False)
    with autocast(torch.device("cpu"), low=False):
        pass
    with pytest.raises(AssertionError, match="emulated"), autocast(torch.device("cpu"), low=True):
        pass
