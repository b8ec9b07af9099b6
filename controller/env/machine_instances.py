"""Instances of tier 0 on real machines: drawn games, on drawn machines, under drawn conditions.

`DrawnInstances` is what a controller is meta-trained on: 2^31 instances of a split, each made when
it is asked for. `machine_instance` puts a drawn game on any latency profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from accerl.config import RunConfig
from accerl.runtime.conditions import UNCHANGING, Conditions, draw_conditions
from accerl.runtime.latency.families import FAMILIES, sample_machine
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import predict
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import InnerRun
from accerl.runtime.wiring import Wiring
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY, CompressionSpec
from controller.analytic.fidelity import FidelityPrior, GameFidelity
from controller.analytic.machine_run import MachineRun
from controller.analytic.pace import MachinePace
from controller.env.compatibility import incompatibility
from controller.env.instances import (
    SPLITS,
    Instance,
    find_split,
    keeping_pace,
    measured_preset,
    num_actions,
)
from controller.env.machines import NUMBERS

INTERVALS = 40
"""decisions of a drawn run"""
FIRST_SHARE = 0.1
"""length of the first interval over that of the others, as in contests"""
STRETCH = 1.5
"""in a horizon the fastest predicted spec makes so many times a game's env steps"""
CHANGING = 0.5
"""share of the drawn instances whose conditions change"""
INT8 = CompressionSpec(bits=8)
SPECS = (
    IDENTITY,
    INT8,
    replace(INT8, rank=0.25),
    replace(INT8, sparsity=0.5),
    replace(INT8, student="net1"),
    replace(INT8, student="net2"),
    replace(INT8, student="net3"),
    replace(INT8, student="net3", sparsity=0.5),
)
"""of which the fastest that a machine has sets the horizon"""
GAMES = {
    "easy": ("catch", "cartpole"),
    "minatar": tuple(
        f"minatar-{name}"
        for name in ("asterix", "breakout", "freeway", "seaquest", "space-invaders")
    ),
    "atari": ("pong", "breakout"),
}
"""presets by kind: their configurations are used, and how they are learned is drawn"""
SHARES = {"easy": 0.2, "minatar": 0.5, "atari": 0.3}
"""of the drawn instances, by kind"""
PIXEL_LEARNERS = ("net1", "original")
"""learners of Atari games, equally often"""


@dataclass(frozen=True, kw_only=True)
class MachineInstance(Instance):
    """A drawn game on a machine with a latency profile; `make_run` takes microseconds."""

    not_in_json: ClassVar[tuple[str, ...]] = (*Instance.not_in_json, "fidelity")
    fidelity: GameFidelity
    """how the game is learned"""
    number: int | None = None
    """of the draw"""
    tier: str = "analytic"

    @property
    def name(self) -> str:
        """A name for folders, rows and figures."""
        return super().name if self.number is None else f"{super().name}-{self.number}"

    @cached_property
    def pace(self) -> MachinePace:
        """What is worked out once for all runs of the instance."""
        if self.latency is None:
            raise ValueError(f"{self.name} has no latency profile")
        return MachinePace(self.latency, self.config(0))

    def make_run(self, seed: int) -> InnerRun:
        """Start the inner run of `seed`."""
        return MachineRun(self.pace, self.fidelity, seed)

    def has(self, spec: CompressionSpec) -> bool:
        """See `Instance.has`."""
        return incompatibility(self.pace.config.network, self.pace.times, spec) is None

    def quiet(self) -> MachineInstance:
        """Return the instance without chance."""
        return replace(self, fidelity=self.fidelity.quiet())


def stretched_horizon(
    config: RunConfig,
    times: LatencyProfile,
    env_steps: float,
    specs: Sequence[CompressionSpec],
    intervals: int,
) -> tuple[float, float]:
    """Return horizon and interval: the seconds that the fastest of some specs takes.

    The interval is rounded to three digits, and the horizon is so many of them.

    Args:
        config: the inner run.
        times: of its machine, as its learner sees it.
        env_steps: that it makes in that time.
        specs: that the machine has times for.
        intervals: decisions of the whole run.
    """
    rate = max(predict(times, config, spec).env_steps_per_second for spec in specs)
    interval = float(f"{env_steps / rate / intervals:.3g}")
    return interval * intervals, interval


def drawn_conditions(
    seed: int, horizon_seconds: float, config: RunConfig, times: LatencyProfile
) -> Conditions:
    """Return events that are drawn for a run of that length on a machine.

    Args:
        seed: of the stream.
        horizon_seconds: length of the run.
        config: the inner run.
        times: of the machine.
    """
    return draw_conditions(
        seed,
        horizon_seconds,
        actors=Wiring.of(config.runtime, times).actors,
        cores=times.cores,
        linked=times.has_links,
        hosts=times.num_hosts,
    )


def machine_instance(
    config: RunConfig,
    latency: LatencyProfile,
    fidelity: GameFidelity,
    env_steps: float,
    *,
    conditions_seed: int | None = None,
    intervals: int = INTERVALS,
    first_share: float = 1.0,
    **fields: Any,
) -> MachineInstance:
    """Return a game on a machine, as long as the room study would have it.

    Args:
        config: the inner run, but for its length.
        latency: of the machine.
        fidelity: how the game is learned.
        env_steps: of its runs without compression.
        conditions_seed: draws the events; None: conditions do not change.
        intervals: decisions of the run.
        first_share: length of the first interval over that of the others.
        fields: others of `MachineInstance`.

    Raises:
        UserError: the machine has no times for the learner.
    """
    # Atari's presets are for the process runtime, which has no link that events could slow down.
    config = config.with_runtime(runtime="serial", clock="virtual")
    times = times_of_run(latency, config)
    specs = [spec for spec in SPECS if incompatibility(config.network, times, spec) is None]
    steps = STRETCH * env_steps
    horizon, interval = stretched_horizon(config, times, steps, specs, intervals)
    first = first_share * interval if first_share < 1.0 else 0.0
    horizon -= (interval - first) if first else 0.0
    conditions = UNCHANGING
    if conditions_seed is not None:
        conditions = drawn_conditions(conditions_seed, horizon, config, times)
    return MachineInstance(
        game=config.preset,
        profile=latency.name,
        latency=latency,
        base=replace(config, seconds=horizon, conditions=conditions),
        fidelity=fidelity,
        horizon_seconds=horizon,
        interval_seconds=interval,
        first_interval_seconds=first,
        random_return=fidelity.random_return,
        reference_return=fidelity.reference_return,
        target_return=fidelity.reference_return,
        **fields,
    )


class DrawnInstances:
    """The instances of a split on tier 0's real machines, made when asked for.

    Number i is drawn from the seed sequence (split, i): a machine of the split, family by family
    equally often; a kind of game, and how it is learned; half of them with changing conditions.

    Args:
        split: train, validation or test; whose machines (`NUMBERS`).
        prior: what games are drawn from.
        intervals: decisions of a run.
        keeps_pace: whether small games' students are distilled as often as Atari's.

    Raises:
        UserError: the split does not exist.
    """

    def __init__(
        self,
        split: str,
        prior: FidelityPrior | None = None,
        intervals: int = INTERVALS,
        *,
        keeps_pace: bool = False,
    ) -> None:
        find_split(split)
        self.split = split
        self.prior = prior or FidelityPrior()
        self.intervals = intervals
        self.keeps_pace = keeps_pace

    def __len__(self) -> int:
        return 2**31

    def __getitem__(self, number: int, /) -> MachineInstance:
        if not 0 <= number < len(self):
            raise IndexError(f"drawn instance {number} is not in 0..{len(self) - 1}")
        rng = generator(number, Role.ANALYTIC_GAME, list(SPLITS).index(self.split), 1)
        family = list(FAMILIES)[int(rng.integers(len(FAMILIES)))]
        machine = int(rng.choice(NUMBERS[self.split]))
        kind = str(rng.choice(list(SHARES), p=list(SHARES.values())))
        config = measured_preset(str(rng.choice(GAMES[kind])))
        if self.keeps_pace:
            config = keeping_pace(config)
        learner = str(rng.choice(PIXEL_LEARNERS))
        if kind == "atari":
            config = replace(config, network=learner)
        changing, conditions_seed = rng.random() < CHANGING, int(rng.integers(2**48))
        fidelity, env_steps = self.prior.draw(rng, kind, num_actions(config.preset))
        return machine_instance(
            config,
            sample_machine(family, machine),
            fidelity,
            env_steps,
            conditions_seed=conditions_seed if changing else None,
            intervals=self.intervals,
            first_share=FIRST_SHARE,
            group="changing conditions" if changing else "same machine throughout",
            number=number,
        )
