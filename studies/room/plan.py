"""What the study of room runs: games, machines, specs and seeds; the rules stand beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from accerl.runtime.latency.families import FAMILIES, machine_name
from accerl.runtime.latency.profiles import PAPER
from accerl.spec import IDENTITY, CompressionSpec
from analysis.comparison.room.kl_cost import DRAWN
from analysis.comparison.room.matrix import CHOICES, GATE
from controller.env.instances import Instance
from controller.env.machine_instances import SPECS, STRETCH
from controller.env.machines import NUMBERS
from controller.indicator.prior import SET_ON
from studies.students.plan import INT8, NET3

SEEDS = range(300, 320)
"""of the matrix: what this study tunes is tested on them, and never tuned (some were played before,
by runs of MinAtar's Breakout and Space Invaders that the indicator's prior was set by)"""
COPY_SEEDS = range(1_000, 2_000)
"""of the placebo's copies"""
TARGETS = (0.5, 0.9)
"""shares of the way from random play to what long runs without compression reach"""
INTERVALS = 20
"""measurements of J and decisions of a run"""
CONFIRMED_MACHINES, CONFIRMED_SEEDS = 2, 2
"""of games that are compared apart"""
FIRST_SEEDS = 2
"""after which a spec may be stopped on an instance"""
STOP = 1.5
"""it is stopped if it took so many times the seconds of the fastest with each of them"""
STEADY, CHANGING = DRAWN
EASY, CONTROL, CONFIRMED = "easy games", "no room by construction", "confirmation"
"""groups: of what is drawn by rule, whose room is asked for, and of what stands beside"""


@dataclass(frozen=True, kw_only=True)
class RoomBudget:
    """How much the study spends."""

    games: Mapping[str, int]
    """env steps by game: the length of the reference runs, and the measure of horizons"""
    machines: tuple[str, ...]
    """drawn by rule"""
    specs: tuple[CompressionSpec, ...] = SPECS
    seeds: int
    reference_runs: int
    easy: Mapping[str, int] = field(default_factory=dict)
    """games that every spec learns: played on all machines, reported apart"""
    control_machine: str = ""
    """on which nothing is to be gained, for every easy game, or without one for all; "": none"""
    copied: tuple[str, ...] = ()
    """games in which copies of one spec are compared, on all machines"""
    copies: int = 8
    indicator: bool = False
    """whether the indicator that ships is tested beside the rules"""
    rules: tuple[str, ...] = ()
    """hand-set strategies that are tuned, one parameter set for all instances"""
    rule_runs: int = 0
    """inner runs that each of them spends on tuning"""
    rule_instances: int = 0
    """on which it is tuned, one seed each"""
    rule_seeds: int = 1
    """of the matrix, on which the tuned rules are tested; intervals are over games and seeds"""
    scheduled: int = 0
    """instances for which a schedule is searched"""
    confirmed: Mapping[str, int] = field(default_factory=dict)
    """games that are compared on few machines with few seeds, apart from the room"""
    precision: str | None = None
    """of learners and of distilling; None: the preset's; clocks are charged the same"""
    keeps_pace: bool = False
    """whether students are distilled as often as Atari's, see `instances.keeping_pace`"""

    @property
    def matrix_seeds(self) -> list[int]:
        """The seeds of the matrix."""
        return list(SEEDS[: self.seeds])


def _machines(count: int) -> tuple[str, ...]:
    """Return the first of every family that nothing was trained on, a family side by side."""
    numbers = NUMBERS["validation"][:count]
    return tuple(machine_name(family, number) for family in FAMILIES for number in numbers)


MACHINES = _machines(2)


def _minatar(*names: str, env_steps: int) -> dict[str, int]:
    return {f"minatar-{name}": env_steps for name in names}


BUDGETS = {
    "tiny": RoomBudget(
        games={"catch": 16_000, "cartpole": 24_000},
        machines=(MACHINES[0], MACHINES[-1]),
        specs=(IDENTITY, INT8, NET3),
        seeds=2,
        reference_runs=2,
        control_machine="slow-env",
        copied=("catch",),
        copies=3,
        rules=("advise-kl-cap",),
        rule_runs=8,
        rule_instances=2,
        scheduled=1,
    ),
    "short": RoomBudget(
        # The other games learn nothing within so few env steps, or not with every seed. What a spec
        # is worth differs more from machine to machine than from seed to seed.
        games=_minatar("breakout", "space-invaders", env_steps=100_000),
        machines=_machines(4),
        seeds=3,
        reference_runs=20,
        easy={"catch": 16_000, "cartpole": 24_000},
        copied=("catch",),
        copies=4,
        rules=("kl-threshold", "reward-gap", "three-stage", "advise-kl-cap"),
        rule_runs=12,
        rule_instances=6,
        rule_seeds=3,
        precision="auto",
        keeps_pace=True,
    ),
    "medium": RoomBudget(
        # The five games of `default` in shorter runs; rules have fewer inner runs.
        games=_minatar("breakout", "freeway", "space-invaders", env_steps=200_000)
        | _minatar("asterix", "seaquest", env_steps=500_000),
        machines=MACHINES,
        seeds=4,
        reference_runs=10,
        easy={"catch": 16_000, "cartpole": 24_000},
        control_machine="slow-env",
        copied=("catch",),
        copies=4,
        indicator=True,
        rules=("kl-threshold", "reward-gap", "three-stage", "advise-kl-cap"),
        rule_runs=48,
        rule_instances=8,
        rule_seeds=3,
        scheduled=2,
        precision="auto",
        keeps_pace=True,
    ),
    "default": RoomBudget(
        # Asterix is at random play's score for the first 300,000 env steps of fp32.
        games=_minatar("breakout", "freeway", "space-invaders", env_steps=500_000)
        | _minatar("asterix", "seaquest", env_steps=1_000_000),
        machines=MACHINES,
        seeds=4,
        keeps_pace=True,
        reference_runs=20,
        easy={"catch": 30_000, "cartpole": 60_000},
        control_machine="slow-env",
        copied=("catch", "cartpole"),
        indicator=True,
        rules=("kl-threshold", "reward-gap", "three-stage", "advise-kl-cap"),
        rule_runs=128,
        rule_instances=16,
        rule_seeds=3,
        scheduled=4,
        confirmed={"pong": 1_000_000, "breakout": 500_000},
    ),
}

QUESTION = (
    "How many seconds to target does a spec that suits its game and machine save over the one spec "
    "that is best for all, and how much more do schedules and rules that change it during a run?"
)
RULES = {
    "instances": (
        "Every game on every machine; machines are the first of each family's validation split, as "
        "many of each family. Half of the instances have changing conditions: those where the sum "
        "of the places of game and machine is odd. Their events are drawn once for each instance, "
        "so they are the same with all seeds. No draw is thrown away. Easy games on all "
        "machines, a machine on which inference costs nothing, and copies of one spec are reported "
        "apart, as are the games of the confirmation."
    ),
    "horizon": (
        f"The seconds in which the spec that `profile advise` predicts fastest makes {STRETCH:g} "
        f"times the game's env steps; J is measured {INTERVALS} times."
    ),
    "target": (
        "50% and 90% of the way from random play to the median final return of fp32 runs of the "
        f"game's env steps on {PAPER}. A run that has not reached it is censored at the horizon "
        "(restricted time). A run's seconds are the geometric mean of those to both targets."
    ),
    "stop": (
        f"After {FIRST_SEEDS} seeds a spec stops on an instance if, with each of them, it took at "
        f"least {STOP:g} times the seconds of the fastest; no compression, which gains are over, "
        "never does. Where a choice turns out to need one of its runs after all, that run is made."
    ),
    "choices": (
        "Cross-fitted: for every seed, specs are chosen on the other seeds of all instances, and "
        "only the seed that was left out is reported. Room is measured with the last of: "
        f"{', '.join(CHOICES)}; it pools fidelity over machines, drawn together by as much as it "
        "is noise."
    ),
    "tuned": (
        "Rules are tuned on seed 0 and chosen on seed 50, schedules are searched on seeds 0 to 3. "
        "All are tested on seeds of the matrix, where the statics that they are compared with are "
        "cross-fitted. The indicator that ships is tested as it is: nothing is tuned for these "
        f"instances, but its prior was set by runs of {', '.join(SET_ON)}, some with these seeds."
    ),
    "gate": GATE,
}


def make_plan(
    budget: RoomBudget,
    instances: Sequence[Instance],
    left_out: Mapping[str, Sequence[str]],
    *,
    seed: int,
) -> dict[str, Any]:
    """Return the plan as JSON; equal plans have equal hashes.

    Args:
        budget: of the study.
        instances: all of them, without references.
        left_out: machines without times for a spec, by its label: it is not compared.
        seed: of samplers.
    """
    return {
        "question": QUESTION,
        "rules": RULES,
        "instances": [
            {
                "name": item.name,
                "game": item.game,
                "machine": item.profile,
                "group": item.group,
                "profile_hash": item.latency.hash if item.latency else None,
                "config_hash": item.config(0).hash,
                "horizon_seconds": item.horizon_seconds,
                "interval_seconds": item.interval_seconds,
                "events": [event.to_json() for event in item.config(0).conditions.events],
            }
            for item in instances
        ],
        "budget": asdict(budget),
        "specs_left_out": {label: list(names) for label, names in left_out.items()},
        "seeds": budget.matrix_seeds,
        "seed": seed,
    }
