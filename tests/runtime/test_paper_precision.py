"""The precision that the paper's `Learner(amp=...)` asks for."""

from __future__ import annotations

from accerl.paper import ONNX, Actor, CompressorChain, Learner, Pruning, QManager, policy_for
from accerl.presets import load_preset


def test_without_amp_it_learns_and_distils_in_float32_whatever_the_configuration_says() -> None:
    policy = policy_for("catch")
    chain = CompressorChain().add(Pruning(policy, 0.5)).add(ONNX())
    memory, config = QManager([Actor("catch", chain.policy, 0)]), load_preset("catch")
    low = config.with_precision("bf16")
    for amp, precision in ((False, "fp32"), (True, "auto")):
        found = Learner(policy, memory, amp=amp, config=low).config
        assert found.learner.precision == precision
        assert found.compression.distill_precision == precision
    assert Learner(policy, memory).config.learner.precision == "fp32"
