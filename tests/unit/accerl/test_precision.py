"""What "auto" means follows the processor, and is decided before a run begins."""

from __future__ import annotations

import pytest

import accerl.precision as precision
from accerl.precision import choose_precision, note_on_precision
from accerl.presets import load_preset


@pytest.mark.parametrize("computes", [False, True])
def test_auto_is_what_the_processor_has_instructions_for(
    computes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "computes_bfloat16", lambda: computes)
    expected = "bf16" if computes else "fp32"
    note = note_on_precision("bf16", "cpu")
    assert (note is None) if computes else ("emulated" in str(note))
    assert note_on_precision("auto", "cpu") is note_on_precision("fp32", "cpu") is None
    assert choose_precision("auto") == expected
    assert load_preset("pong").adapted().learner.precision == expected


def test_what_is_asked_for_stays() -> None:
    config = load_preset("pong")
    for name in ("fp32", "bf16"):
        assert choose_precision(name) == name
        assert config.with_learner(precision=name).adapted().learner.precision == name
