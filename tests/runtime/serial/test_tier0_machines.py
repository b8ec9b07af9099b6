"""Tier 0 on real machines against the serial runtime, which plays them event by event."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from accerl.compress.distillation.effort import usual_kl_nats
from accerl.config import RunConfig
from accerl.presets import load_preset
from accerl.runtime.conditions import CO_TENANT, Condition, Conditions, Moment
from accerl.runtime.latency.families import sample_machine
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.run import InnerRun, IntervalReport
from accerl.runtime.serial.clock import VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.analytic.fidelity import GameFidelity
from controller.analytic.machine_run import MachineRun
from controller.analytic.pace import MachinePace

NET3 = CompressionSpec(student="net3", bits=8)
GAME = GameFidelity(gain_per_step=1e-5)
SMALL = load_preset("catch").with_runtime(eval_episodes=0, num_envs=8).with_learner(reuse=1)
USUAL = load_preset("catch").with_runtime(eval_episodes=0)


def reports(run: InnerRun, spec: CompressionSpec, seconds: list[float]) -> list[IntervalReport]:
    """Return the reports of every other interval, from the second on."""
    with closing(run):
        run.apply(Decision.of(spec))
        return [run.advance(each) for each in seconds][1::2]


def both(
    machine: tuple[str, int], spec: CompressionSpec, config: RunConfig, updates: int
) -> list[tuple[IntervalReport, IntervalReport]]:
    """Return what each says before and while another program takes half of the cores.

    Args:
        machine: family and number.
        spec: what acts.
        config: of the run.
        updates: of the learner in each interval, whole rounds of the machine's actors; what it had
            waiting is used up in as many.
    """
    latency = sample_machine(*machine)
    pace = MachinePace(latency, config).of(((spec, 1.0),), (), Moment(), usual_kl_nats)
    interval = updates * pace.update_seconds
    settled = pace.delay_seconds + 2.0 * pace.fill_seconds + interval
    taken = Condition(
        at_seconds=settled + interval,
        lasts_seconds=4.0 * interval,
        kind=CO_TENANT,
        amount=float(max(latency.cores // 2, 1)),
    )
    config = replace(config, conditions=Conditions((taken,)), seconds=settled + 4.0 * interval)
    serial = SerialRun(config, VirtualClock(times_of_run(latency, config)))
    modelled = MachineRun(MachinePace(latency, config), GAME, 0)
    lengths = [settled, interval, interval, interval]
    return list(zip(reports(serial, spec, lengths), reports(modelled, spec, lengths), strict=True))


def check(serial: IntervalReport, modelled: IntervalReport, *, lag_abs: float = 0.0) -> None:
    """Refuse differences in pace of more than a tenth or so.

    Args:
        serial: what the serial runtime says.
        modelled: what tier 0 says of the same interval.
        lag_abs: learner updates that policy lags may differ by, if that is more than 15%.
    """
    updates = modelled.learner_updates
    assert modelled.env_steps == pytest.approx(serial.env_steps, rel=0.08 + 1.0 / updates)
    assert modelled.policy_lag == pytest.approx(serial.policy_lag, rel=0.15, abs=lag_abs)
    for phase in modelled.phase_seconds:
        shares = [
            report.phase_seconds[phase] / sum(report.phase_seconds.values())
            for report in (serial, modelled)
        ]
        assert shares[1] == pytest.approx(shares[0], rel=0.1, abs=0.03), phase
    cores = [
        report.actor_core_seconds
        / sum(report.phase_seconds[name] for name in ("env", "infer", "write"))
        for report in (serial, modelled)
    ]
    assert cores[1] == pytest.approx(cores[0], rel=0.1)


def test_what_a_server_does_while_another_program_takes_half_of_its_cores() -> None:
    for serial, modelled in both(("server", 8_002), IDENTITY, SMALL, 6):
        check(serial, modelled)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [IDENTITY, NET3], ids=lambda spec: spec.label)
@pytest.mark.parametrize(
    "machine",
    [("laptop", 8_001), ("gpu-few-cores", 8_003), ("server", 8_002), ("edge", 8_000)],
    ids=lambda machine: machine[0],
)
def test_what_machines_do_while_another_program_takes_half_of_their_cores(
    machine: tuple[str, int], spec: CompressionSpec
) -> None:
    # A laptop's slots are held back: of the few rollouts under way one is more than 15%.
    lag_abs = 1.1 if machine[0] == "laptop" else 0.0
    for serial, modelled in both(machine, spec, USUAL, 56):
        check(serial, modelled, lag_abs=lag_abs)
