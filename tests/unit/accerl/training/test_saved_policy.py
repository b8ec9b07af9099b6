"""The policy of a finished run: what it plays with."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest

import accerl
from accerl.acting.evaluate import policy_infer
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategies import FixedStrategy
from accerl.networks.structure import rebuild
from accerl.spec import IDENTITY, CompressionSpec, Decision
from accerl.training.run import run_training
from accerl.training.run_folder import saved_run
from accerl.training.saved_policy import evaluate_checkpoint
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

NET3 = CompressionSpec(student="net3")


def test_a_finished_run_plays_with_the_students_that_its_distillers_made(tmp_path: Path) -> None:
    """On the virtual clock, where the compressor's own were only begun."""
    profile = replace(fast_profile(num_actors=1), num_distillers=1)
    run_training(tiny_catch(seconds=0.3), FixedStrategy(NET3), out=tmp_path, profile=profile)
    played = evaluate_checkpoint(tmp_path, 100, NET3)["mean_return"]
    assert played > evaluate_checkpoint(tmp_path, 100)["mean_return"] - 0.4  # random play: -0.6


class Leaving:
    """Acts with net3 at first, and with the learner's own network from then on."""

    def reset(self) -> None:
        self._decisions = chain([NET3], repeat(IDENTITY))

    def decide(self, features: Features) -> Decision:
        return Decision.of(next(self._decisions))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("left") / "run"
    run_training(tiny_catch(seconds=0.1), Leaving(), out=out, profile=fast_profile())
    return out


def test_a_student_that_acts_no_more_is_loaded_as_it_was_saved(left: Path) -> None:
    (entry,) = saved_run(left)["publishing"]["compressor"]["students"]
    policy = accerl.load_policy(left, NET3)
    student = rebuild(entry["network"], policy.observation, num_actions=3)
    student.load_state_dict(entry["state"]["student"])
    obs = np.eye(50, dtype=np.uint8).reshape(50, 10, 5)
    np.testing.assert_allclose(policy.logits(obs), policy_infer(student)(obs), atol=1e-5)


@pytest.mark.parametrize("spec", [CompressionSpec(student="net2"), CompressionSpec(sparsity=0.5)])
def test_a_student_that_was_never_distilled_is_refused(spec: CompressionSpec, left: Path) -> None:
    with pytest.raises(
        UserError, match=r'never distilled .*; .* it holds: {"student": "net3"'
    ) as no:
        evaluate_checkpoint(left, 3, spec)
    assert "\n" not in str(no.value)
    assert evaluate_checkpoint(left, 3, CompressionSpec(rank=0.5, bits=8))["episodes"] == 3
