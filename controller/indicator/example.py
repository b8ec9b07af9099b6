"""`python -m controller.indicator.example DIR`: a run whose strategy explains itself, to look at.

The Advanced Indicator that ships plays CartPole on a machine with a GPU and few cores. Other
programs come and go, then the learner's core is throttled. The run is on the virtual clock, so
everybody gets the same; `accerl report DIR --html FILE --figures PICTURES` draws it as
`decision-explainer.png`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from accerl.presets import load_preset
from accerl.runtime.conditions import CO_TENANT, THROTTLE, Condition, Conditions
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec
from accerl.training.run import RunResult, run_training
from controller.arguments import one_line_mistakes, read_folder
from controller.shipped import shipped_indicator

GAME, MACHINE, SEED = "cartpole", "gpu-few-cores-8004", 0
SECONDS, INTERVALS = 10.0, 40
SPECS = (
    IDENTITY,
    CompressionSpec(bits=8),
    CompressionSpec(sparsity=0.5, bits=8),
    CompressionSpec(student="net1", bits=8),
    CompressionSpec(student="net3", bits=8),
    CompressionSpec(student="net3", sparsity=0.5, bits=8),
)
EVENTS = (
    Condition(at_seconds=3.0, lasts_seconds=2.5, kind=CO_TENANT, amount=24),
    Condition(at_seconds=7.0, lasts_seconds=1.5, kind=THROTTLE, amount=3.0, process="learner"),
)


def run_example(out: Path, seconds: float = SECONDS) -> RunResult:
    """Make the run; a shorter one is its beginning.

    Raises:
        UserError: `out` cannot be written.
    """
    events = tuple(event for event in EVENTS if event.at_seconds < seconds)
    config = replace(
        load_preset(GAME), seconds=seconds, seed=SEED, conditions=Conditions(events)
    ).with_runtime(runtime="serial", clock="virtual", interval_seconds=SECONDS / INTERVALS)
    strategy = shipped_indicator(specs=[spec.to_json() for spec in SPECS])
    profile = load_profile(MACHINE)
    return run_training(config, strategy, strategy_name="indicator", out=out, profile=profile)


def main(arguments: list[str]) -> None:
    """Make the run in the folder; a user's mistake is one line and exit code 2."""
    with one_line_mistakes("example"):
        run_example(read_folder(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
