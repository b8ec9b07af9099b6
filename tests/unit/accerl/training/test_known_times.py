"""What a strategy knows of the machine before its run begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.records import fingerprint
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import (
    MEASURED,
    load_profile,
    profile_folder,
    save_profile,
    this_machine,
)
from accerl.training.run import known_times, run_training
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


def test_who_reads_no_times_needs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / f"{MEASURED}.json").write_text("{}")
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path))
    config = tiny_catch(0, seconds=0.02, interval_seconds=0.01, clock="real")
    run_training(config, FixedStrategy())
    with pytest.raises(UserError, match=r"measured.json: .*; or delete it"):
        run_training(config, Remembering())


def test_on_the_virtual_clock_it_is_what_charges_the_clock() -> None:
    just_now = replace(fast_profile(), name="measured just now")
    assert known_machine("virtual", profile=fast_profile(), times=just_now) == fast_profile().name


def test_nothing_is_known_of_a_network_that_nobody_acted_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after measuring some specs of one game."""
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path))
    paper = load_profile("paper-1080ti")
    rows = tuple(row for row in paper.specs if row.spec.student == "original")
    few = replace(paper, name=MEASURED, fingerprint=fingerprint(), specs=rows)
    assert few.knows("original")
    assert not few.knows("net1")
    with pytest.raises(UserError, match="has no times for a learner of 'net1'"):
        few.for_network("net1")
    save_profile(few, profile_folder() / f"{MEASURED}.json")
    config = replace(tiny_catch(0).with_runtime(clock="real"), network="net1")
    assert known_times(config, None) is None


def test_a_resumed_run_knows_what_it_knew_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path / "home"))

    def known(*, resume: bool) -> str:
        config = tiny_catch(0, seconds=0.04 if resume else 0.02, interval_seconds=0.01)
        config = config.with_runtime(clock="real")
        run_training(config, strategy := Remembering(), out=tmp_path / "run", resume=resume)
        return strategy.machine

    assert known(resume=False) == "two-core"
    measured = replace(load_profile("laptop-0003"), name=MEASURED, fingerprint=fingerprint())
    save_profile(measured, profile_folder() / f"{MEASURED}.json")
    assert this_machine() == MEASURED
    assert known(resume=True) == "two-core"
