"""The Advanced Indicator scores mixes of specs as it scores specs, and acts with them in runs."""

from __future__ import annotations

import pytest
import torch

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategy import reject
from accerl.presets import load_preset
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.env.machine_instances import DrawnInstances
from controller.env.play import play
from controller.indicator.candidates import SCORED
from controller.indicator.prior import Prior
from controller.indicator.scorer import SpecScorer
from controller.indicator.strategy import AdvancedIndicator, IndicatorSettings
from controller.shipped import shipped_indicator
from tests.fixtures.controllers.raw_indicators import raw

INT8 = CompressionSpec(bits=8)
NET3 = CompressionSpec(student="net3", bits=8)
SPECS = (IDENTITY, INT8, NET3)
HALF = Decision(((NET3, 0.5), (IDENTITY, 0.5)))


def make_indicator(cap_nats: float) -> AdvancedIndicator:
    """Return the rule with a steeper cap, bound to a machine on which Net3 is many times faster."""
    settings = IndicatorSettings(
        specs=(IDENTITY, NET3), mixes=(HALF,), cap_nats=cap_nats, uses_shadows=False
    )
    scorer = SpecScorer(generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scorer.linear[list(SCORED).index("above_cap")] = -30.0
    indicator = AdvancedIndicator(scorer, Prior(), settings)
    config = load_preset("catch")
    indicator.bind(config, times_of_run(load_profile("edge-8000"), config))
    indicator.reset()
    return indicator


def features(**known: float) -> Features:
    start = raw(entropy_fraction=2.0 / 3.0)
    return Features.of({**start, "seconds": 1.0, "time_fraction": 0.1, **known})


def first_kl_nats() -> float:
    """Return what is believed of Net3's KL before anything was seen."""
    indicator = make_indicator(10.0)
    indicator.decide(features())
    return indicator.explanation[NET3.label]["kl_nats"]


def test_a_mix_is_believed_to_be_the_mean_of_its_specs() -> None:
    indicator = make_indicator(10.0)
    indicator.decide(features())
    net3, fp32, half = (
        indicator.explanation[label] for label in (NET3.label, IDENTITY.label, HALF.label)
    )
    # Rollouts follow one another: seconds per env step are what is averaged.
    rates = [row["env_steps_per_second"] for row in (net3, fp32)]
    seconds = sum(0.5 / rate for rate in rates)
    assert half["env_steps_per_second"] == pytest.approx(1.0 / seconds)
    for what in ("efficiency", "kl_nats"):
        assert half[what] == pytest.approx(0.5 * (net3[what] + fp32[what]))
    assert fp32["efficiency_doubt"] < half["efficiency_doubt"] < net3["efficiency_doubt"]


def test_a_mix_acts_where_its_fastest_spec_alone_is_too_far_away() -> None:
    kl_nats = first_kl_nats()
    assert make_indicator(10.0).decide(features()) == Decision.of(NET3)
    assert make_indicator(0.6 * kl_nats).decide(features()) == HALF
    assert make_indicator(0.1 * kl_nats).decide(features()) == Decision.of(IDENTITY)


def test_nothing_is_learned_of_a_spec_while_a_mix_acts() -> None:
    indicator = make_indicator(0.6 * first_kl_nats())
    assert indicator.decide(features()) == HALF
    before = dict(indicator.explanation[NET3.label])
    seen = {"compression_kl_nats": 3.0, "compression_kl_is_new": 1.0, "kl_mean_nats": 3.0}
    clock = {"seconds": 2.0, "env_steps": 10.0, "learner_updates": 50.0}
    indicator.decide(features(served_share=1.0, **seen, **clock))
    assert indicator.explanation[NET3.label]["env_steps_per_second"] == pytest.approx(
        before["env_steps_per_second"]
    )
    assert indicator.explanation[NET3.label]["kl_nats"] < 0.5  # more decided, and not 3 nats


def test_a_mix_of_a_spec_that_cannot_be_built_is_out_as_well() -> None:
    indicator = make_indicator(10.0)
    reject(indicator, NET3)
    assert indicator.decide(features()) == Decision.of(IDENTITY)
    assert HALF.label not in indicator.explanation


def test_mixes_are_read_as_they_were_written_and_what_they_are_of_may_act() -> None:
    settings = IndicatorSettings(specs=(INT8,), mixes=(HALF,))
    assert settings.specs == (IDENTITY, INT8, NET3)
    assert IndicatorSettings.from_json(settings.to_json()) == settings
    with pytest.raises(UserError, match="shares must sum to 1"):
        shipped_indicator(mixes=[[{"spec": NET3.to_json(), "share": 0.5}]])


def test_the_indicator_that_ships_plays_with_mixes_that_it_was_not_trained_on() -> None:
    item = DrawnInstances("validation")[18].quiet()
    mixes = [Decision(((spec, 0.7), (IDENTITY, 0.3))).to_json() for spec in (INT8, NET3)]
    given = shipped_indicator(mixes=mixes)
    chosen = play(given, item, 0)
    assert set(given.explanation) >= {Decision.from_json(mix).label for mix in mixes}
    alone = play(shipped_indicator(), item, 0)
    assert chosen.gain(item) > 0.9 * alone.gain(item)
