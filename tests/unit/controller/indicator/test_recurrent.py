"""The recurrent indicator remembers, is trained on tier 0, and plays real runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.strategy import Strategy
from accerl.records import read_metrics
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.env.machine_instances import SPECS, DrawnInstances
from controller.indicator.recurrent import DESCRIBED, RecurrentIndicator, SpecMemory
from controller.indicator.trainable import read_indicator
from controller.indicator.training import train_on_tier0
from controller.training.gradient import GradientConfig
from studies.jobs.inner import StrategyJob
from tests.fixtures.runs.inner_runs import tiny_catch
from tests.fixtures.studies.jobs import INSTANCE

INT8 = CompressionSpec(bits=8)


def make(seed: int = 0, specs: Sequence[CompressionSpec] = SPECS) -> RecurrentIndicator:
    """Return one whose memory has a say."""
    generator = torch.Generator().manual_seed(seed)
    memory = SpecMemory(generator=generator)
    with torch.no_grad():
        memory.recalled.add_(3.0 * torch.randn(memory.recalled.shape, generator=generator))
    return RecurrentIndicator(memory, specs)


def seen(**known: float) -> Features:
    """Return features of a run's start, with some raw indicators known."""
    return Features.of({**made_up_features().raw, **known})


class TestRecurrent(StrategyCompliance):
    def make(self) -> Strategy:
        return make()


def test_it_starts_without_compression_and_with_some_hundred_weights() -> None:
    indicator = RecurrentIndicator(SpecMemory(generator=torch.Generator().manual_seed(0)), SPECS)
    assert indicator.decide(made_up_features()) == Decision.of(IDENTITY)
    assert 300 < indicator.policy.num_parameters() < 800


def test_what_was_seen_before_matters() -> None:
    """A memory of high KL, written by hand: equal features, other decisions."""
    indicator = make(specs=(INT8,))
    memory, size = indicator.memory, indicator.memory.hidden
    with torch.no_grad():
        for weights in memory.parameters():
            weights.zero_()
        memory.cell.weight_ih[2 * size, FEATURE_NAMES.index("log_kl_mean")] = 5.0
        memory.cell.bias_ih[size] = 1.0  # keeps most of what it was
        memory.recalled[list(DESCRIBED).index("int8"), 0] = -1.0

    def after(kl_nats: float) -> Decision:
        indicator.reset()
        for _ in range(3):
            indicator.decide(seen(kl_mean_nats=kl_nats))
        indicator.overruled(Decision.of(IDENTITY))  # the same acts
        return indicator.decide(seen(kl_mean_nats=0.01))

    assert after(3.0) == Decision.of(IDENTITY)
    assert after(1e-4) == Decision.of(INT8)


def test_only_what_the_run_can_act_with_is_chosen() -> None:
    indicator = make(specs=(INT8, CompressionSpec(student="net1"), CompressionSpec(rank=0.5)))
    config = replace(tiny_catch(), network="net2")
    indicator.bind(config, INSTANCE.latency)
    assert indicator.specs == (IDENTITY, INT8)
    indicator.rejected(INT8)
    assert indicator.specs == (IDENTITY,)
    indicator.reset()  # another run may build it
    assert indicator.specs == (IDENTITY, INT8)


def test_json_is_read_as_it_was_written() -> None:
    indicator = make()
    described = json.loads(json.dumps(indicator.to_json()))
    again = read_indicator(described)
    assert isinstance(again, RecurrentIndicator)
    assert again.to_json() == indicator.to_json()
    for step in range(5):
        features = seen(kl_mean_nats=0.1 * step)
        assert again.decide(features) == indicator.decide(features)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda params: params.pop("specs"), "lack 'specs'"),
        (lambda params: params.update(specs=5), "not of its kind"),
        (lambda params: params.update(memory=None), "not of its kind"),
        (lambda params: params.update(memory="x", specs=[]), "not of its kind"),
        (lambda params: params["memory"]["weights"].pop("linear"), "weights do not fit"),
        (lambda params: params["memory"].update(hidden=7), "weights do not fit"),
        (lambda params: params["memory"].update(features_version=2), "features of version 2"),
    ],
)
def test_damaged_parameters_are_refused(damage: Any, message: str) -> None:
    described = json.loads(json.dumps(make().to_json()))
    damage(described["params"])
    with pytest.raises(UserError, match=message):
        read_indicator(described)


def test_tier_0_trains_it() -> None:
    indicator = make()
    before = indicator.policy.to_json()
    drawn = DrawnInstances("train", intervals=4)
    config = GradientConfig(instances=2, pairs=2)
    rows = train_on_tier0(indicator, config, 2, draw=drawn.__getitem__)
    assert [row["iteration"] for row in rows] == [0, 1]
    assert all(row["spread"] > 0.0 for row in rows)
    assert indicator.policy.to_json() != before


def test_it_plays_a_real_run_under_the_shield(tmp_path: Path) -> None:
    strategy = {**make().to_json(), "shield": {"threshold_nats": 14.0}}
    job = StrategyJob(instance=INSTANCE, seed=3, strategy=strategy, out=tmp_path)
    made = job.run()
    assert len(made.decisions) == len(list(read_metrics(tmp_path))) == 3
    assert made == replace(job, out=None).run()
