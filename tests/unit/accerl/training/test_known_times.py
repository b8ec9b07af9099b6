"""What a strategy knows of the machine before its run begins."""

from __future__ import annotations

from dataclasses import replace

from accerl.config import RunConfig
from accerl.monitor.strategies import FixedStrategy
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile, this_machine
from accerl.training.run import run_training
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch


class Remembering(FixedStrategy):
    """Remembers it."""

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        assert times is not None
        self.machine = times.name


def known_machine(
    clock: str, profile: LatencyProfile | None = None, times: LatencyProfile | None = None
) -> str:
    config = tiny_catch(0, seconds=0.02, interval_seconds=0.01, clock=clock)
    run_training(config, strategy := Remembering(), profile=profile, times=times)
    return strategy.machine


def test_on_the_real_clock_it_is_the_times_that_are_given() -> None:
    just_now = replace(fast_profile(), name="measured just now")
    assert known_machine("real", times=just_now) == just_now.name
    assert known_machine("real") == load_profile(this_machine()).name


def test_on_the_virtual_clock_it_is_what_charges_the_clock() -> None:
    just_now = replace(fast_profile(), name="measured just now")
    assert known_machine("virtual", profile=fast_profile(), times=just_now) == fast_profile().name
