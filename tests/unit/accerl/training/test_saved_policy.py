"""The policy of a finished run: what it plays with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accerl.monitor.strategies import FixedStrategy
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch


def test_a_finished_run_plays_with_the_students_that_its_distillers_made(tmp_path: Path) -> None:
    """On the virtual clock, where the compressor's own were only begun."""
    profile = replace(fast_profile(num_actors=1), num_distillers=1)
    student = CompressionSpec(student="net3")
    run_training(tiny_catch(seconds=0.3), FixedStrategy(student), out=tmp_path, profile=profile)
    played = evaluate_checkpoint(tmp_path, 100, student)["mean_return"]
    assert played > evaluate_checkpoint(tmp_path, 100)["mean_return"] - 0.4  # random play: -0.6
