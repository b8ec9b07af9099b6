"""The indicator that ships: it is whole, decides in runs, and says what it was compared with."""

from __future__ import annotations

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.strategy import bind, specs_of
from accerl.presets import load_preset
from accerl.records import read_json
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profiles import PAPER, load_profile
from accerl.spec import IDENTITY
from controller.env.machine_instances import SPECS, DrawnInstances
from controller.env.play import play
from controller.objective import SLOWER, gain_ratio
from controller.shipped import SHIPPED, shipped_indicator


def test_it_knows_every_spec_that_studies_compare() -> None:
    config = load_preset("pong")
    strategy = shipped_indicator()
    bind(strategy, config, times_of_run(load_profile(PAPER), config))
    assert set(strategy.strategy.settings.specs) == {IDENTITY, *SPECS}  # pyright: ignore
    # Net1 learns, and the paper's machine has no times of low rank.
    known = {spec for spec in SPECS if spec.student != "net1" and spec.rank == 1.0}
    assert set(specs_of(strategy)) == {IDENTITY, *known}


@pytest.mark.slow
def test_it_gains_more_than_no_compression_on_machines_that_it_never_saw() -> None:
    ratios = []
    for number in range(32):
        instance = DrawnInstances("validation")[number]
        fp32 = play(shipped_indicator(specs=[]), instance, number)
        assert {decision.main for decision in fp32.decisions} == {IDENTITY}
        own = play(shipped_indicator(), instance, number)
        ratios.append(gain_ratio(own.gain(instance), fp32.gain(instance)))
    assert np.log(ratios).mean() > 0.3
    # What is trained for: never slower by more than 3%. Lags that no profile knows leave a few.
    assert np.mean(np.array(ratios) < SLOWER) < 0.1
    assert min(ratios) > 0.85


def test_settings_can_be_others() -> None:
    assert shipped_indicator(cap_nats=0.3).strategy.settings.cap_nats == 0.3  # pyright: ignore
    with pytest.raises(UserError, match="no setting 'cap'; it has specs, mixes, cap_nats"):
        shipped_indicator(cap=0.3)
    with pytest.raises(UserError, match="cap_nats must be a number"):
        shipped_indicator(cap_nats="much")


def test_what_it_was_compared_with_lies_beside_it() -> None:
    results = read_json(SHIPPED)["results"]
    assert "the rule that training starts from" in {row["against"] for row in results}
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in results)
