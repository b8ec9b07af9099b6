"""What there is to win on drawn instances: who reaches the target, and who does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accerl.spec import IDENTITY
from controller.analytic.machine_run import MachineRun
from controller.env.drawn_room import measure, seconds_to_target, table
from controller.env.machine_instances import SPECS, DrawnInstances

COUNT = 12


def test_a_run_that_never_reaches_the_target_takes_the_whole_horizon() -> None:
    """Whatever its intervals add up to: below the horizon, it would count as having reached it."""
    below = 0
    for number in range(COUNT):
        item = DrawnInstances("validation")[number].quiet()
        far = replace(
            item,
            first_interval_seconds=0.0,
            horizon_seconds=item.num_intervals * item.interval_seconds,
            reference_return=item.random_return + 100.0 * item.reference.span,
        )
        run = MachineRun(far.pace, far.fidelity, 0)
        assert seconds_to_target(run, far) == far.horizon_seconds
        below += run.seconds < far.horizon_seconds
        assert table([measure(far, switches=())]).endswith("The target is reached on 0%.")
    assert below > 0


def test_a_run_that_reaches_it_takes_less() -> None:
    item = DrawnInstances("validation")[0].quiet()
    near = replace(item, reference_return=item.random_return + 0.2 * item.reference.span)
    worth = measure(near, switches=(2,))
    seconds = worth.statics[SPECS.index(IDENTITY)]
    assert 0.0 < worth.switched <= seconds < near.horizon_seconds
    assert worth.switched <= min(each for each in worth.statics if each > 0.0)
    run = MachineRun(near.pace, near.fidelity, 0)
    run.advance(seconds)
    reached = run.game.score(run.skill) - near.random_return
    assert reached == pytest.approx(0.9 * near.reference.span, rel=0.02)
