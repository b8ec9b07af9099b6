"""The configuration that the paper's `Learner` makes of its arguments."""

from __future__ import annotations

from pathlib import Path

from accerl.paper import ONNX, Actor, CompressorChain, Learner, Pruning, QManager, policy_for
from accerl.presets import load_preset
from accerl.records import write_json


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


def test_it_goes_on_with_rewards_in_the_unit_that_its_run_began_with(tmp_path: Path) -> None:
    policy = policy_for("catch")
    memory = QManager([Actor("catch", CompressorChain().add(Pruning(policy, 0.5)).policy, 0)])
    measured = load_preset("catch").with_learner(reward_scale=0.25)
    write_json(tmp_path / "config.json", measured.to_json())
    for resume, reward_scale in ((False, 1.0), (True, 0.25)):
        found = Learner(policy, memory, out=tmp_path, resume=resume).config
        assert found.learner.reward_scale == reward_scale
