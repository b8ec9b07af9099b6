"""Credit assignment: which spec each change of the actors' return belongs to.

Comparators that learn within one run know nothing before it. They learn from J where the run
measures it, and from the actors' own episodes where it does not. A gain belongs to the spec that
acted before it was measured, not to the one that is chosen next (a slip of published code), and not
to one that was chosen but not yet served. While a student waits to be admitted something milder
acts for it: that is what choosing it brings, and is credited to it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from accerl.monitor.features import Features
from accerl.monitor.indicators import Raw, decision_levels
from accerl.monitor.strategies import HandSetStrategy, Levels
from accerl.monitor.strategies.checks import require_held
from accerl.monitor.strategies.search import suggest_arms
from accerl.seeds import Role, generator
from accerl.spec import CompressionSpec, Decision
from controller.actions import find_actions

if TYPE_CHECKING:
    import optuna

JOINT_SPECS = find_actions("joint").all_specs
"""what comparators choose from by default"""
PATIENCE = 3
"""choices of a spec that does not act, after which it counts as tried"""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """A spec's share of the change between two measured returns."""

    spec: CompressionSpec
    gain_per_second: float
    """change over the stretch of J, or of the actors' new episodes' return, in points a second"""
    share: float
    """of the stretch's seconds in which the spec acted, in (0, 1]"""
    time_fraction: float
    """of the horizon, at the beginning of the stretch"""
    return_level: float
    """of the actors' return on its own range, at the beginning of the stretch"""
    stretch: int = 0
    """which of the run's stretches it is of"""


class CreditAssignment:
    """Assigns every change of the return to the specs that acted meanwhile.

    The return is J once the run has measured it, and that of the actors' new episodes until then:
    long ones may end too seldom to learn from. An interval without it adds to the present stretch,
    as does one in which the learner used no rollout: what acted in it, the next interval tells.
    When it is next measured, all specs that acted share the change by their seconds.

    Args:
        specs: the arms; gains of other specs, and of mixes, are credited to none.
    """

    def __init__(self, specs: Sequence[CompressionSpec]) -> None:
        # The first of specs that have the same features; `chosen` decides between them.
        self._by_levels = {_levels_of(spec): spec for spec in reversed(specs)}
        self.chosen: CompressionSpec | None = None
        """what was decided last"""
        self._seconds = 0.0
        self._last: CompressionSpec | None = None
        self._acted_seconds: defaultdict[CompressionSpec | None, float] = defaultdict(float)
        self._opened: Raw | None = None
        self._stretches = 0
        self._measure = ""
        """name of the return that opened the present stretch"""

    def update(self, features: Features) -> list[Credit]:
        """Add the interval that has just ended; return credits if the return was measured in it."""
        raw = features.raw
        if raw["seconds"] > self._seconds:
            if math.isnan(raw["served_share"]) and not raw["waits"]:
                return []  # the learner used no rollout: the next interval says what acted in both
            self._add(raw, raw["seconds"] - self._seconds)
        self._seconds = raw["seconds"]
        # Older episodes, which the usual mean still holds, are what earlier specs have made.
        measure = "actor_return_new" if math.isnan(raw["learner_return"]) else "learner_return_new"
        if not math.isfinite(raw[measure]):
            return []
        opened = self._opened if measure == self._measure else None
        credits = [] if opened is None else self._shares(opened, raw)
        self._opened, self._measure = raw, measure
        self._acted_seconds.clear()
        return credits

    def _add(self, raw: Raw, seconds: float) -> None:
        """Add an interval's seconds to whatever acted in it."""
        acting = self._acting(raw)
        # What acts while a student waits is there on its behalf.
        share = 1.0 if raw["waits"] else raw["served_share"]
        self._acted_seconds[acting] += share * seconds
        self._acted_seconds[self._last] += (1.0 - share) * seconds
        if share > 0.0:
            self._last = acting

    def _acting(self, raw: Raw) -> CompressionSpec | None:
        """Return the arm that features say was acted with."""
        levels = tuple(raw[name] for name in _LEVELS)
        if self.chosen is not None and _levels_of(self.chosen) == levels:
            return self.chosen
        return self._by_levels.get(levels)

    def _shares(self, opened: Raw, raw: Raw) -> list[Credit]:
        """Return the credit of each arm since `opened`."""
        seconds = raw["seconds"] - opened["seconds"]
        if not seconds > 0.0:
            return []
        gained = raw[self._measure] - opened[self._measure]
        self._stretches += 1
        return [
            Credit(
                spec=spec,
                gain_per_second=gained / seconds,
                share=acted_seconds / seconds,
                time_fraction=opened["time_fraction"],
                return_level=opened["return_level"],
                stretch=self._stretches,
            )
            for spec, acted_seconds in self._acted_seconds.items()
            if spec is not None and acted_seconds > 0.0
        ]


_LEVELS = ("bits_level", "sparsity", "student_level")


def _levels_of(spec: CompressionSpec) -> tuple[float, ...]:
    levels = decision_levels(Decision.of(spec))
    return tuple(levels[name] for name in _LEVELS)


@dataclass
class _Memory:
    """What a comparator has learned in the present run, and what it is holding."""

    assignment: CreditAssignment
    rng: np.random.Generator
    credits: list[Credit] = field(default_factory=list)
    new: list[Credit] = field(default_factory=list)
    """those since the last choice"""
    in_vain: defaultdict[CompressionSpec, int] = field(default_factory=lambda: defaultdict(int))
    """how often each spec was chosen since it acted last, and did not act"""
    decision: Decision | None = None
    seconds: float = 0.0
    """the clock when it decided last"""
    held_intervals: int = 0
    """since the last choice"""


@dataclass(frozen=True)
class RunLearner(HandSetStrategy):
    """A strategy that learns within one run which specs pay; every reset forgets it all.

    Subclasses implement `choose`. A spec is kept until its gain has been measured, so that credits
    are not mixed while nothing is known.

    Raises:
        UserError: a parameter lies outside what is allowed.
    """

    specs: tuple[CompressionSpec, ...] = JOINT_SPECS
    seed: int = 0
    """of the random numbers that decide between equals, and of Thompson's draws"""
    hold_intervals: int = 1
    """intervals that a spec is kept at least; it also waits for a credit"""
    _memory: _Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        specs = require_held(self.name, self.specs, self.seed, self.hold_intervals)
        object.__setattr__(self, "specs", specs)
        self.reset()

    def reset(self) -> None:
        """Forget everything, and start the random numbers again."""
        memory = _Memory(CreditAssignment(self.specs), generator(self.seed, Role.BANDIT))
        object.__setattr__(self, "_memory", memory)

    def decide(self, features: Features) -> Decision:
        """Assign the gain of the interval just over; then choose what acts next."""
        memory, now = self._memory, features.raw["seconds"]
        memory.new += memory.assignment.update(features)
        memory.held_intervals += now > memory.seconds
        memory.seconds = now
        rested = memory.new and memory.held_intervals >= self.hold_intervals
        if memory.decision is None or rested:
            self._keep(memory)
            spec = self.choose(features, memory.credits, memory.rng)
            memory.assignment.chosen, memory.decision = spec, Decision.of(spec)
            memory.held_intervals = 0
        return memory.decision

    def _keep(self, memory: _Memory) -> None:
        """Remember the credits since the last choice.

        A spec that cannot be built, or whose publications take longer than it is held, would remain
        untried for ever: after PATIENCE choices in vain what acted meanwhile counts as its own.
        """
        chosen, new = memory.assignment.chosen, memory.new
        memory.credits += new
        for credit in new:
            memory.in_vain[credit.spec] = 0
        if chosen is not None and new and all(credit.spec != chosen for credit in new):
            memory.in_vain[chosen] += 1
            if memory.in_vain[chosen] >= PATIENCE:
                memory.credits += [replace(credit, spec=chosen) for credit in new]
        memory.new = []

    def choose(
        self, features: Features, credits: Sequence[Credit], rng: np.random.Generator
    ) -> CompressionSpec:
        """Return what to act with.

        Args:
            features: of this moment.
            credits: of this run, in the order of time.
            rng: the strategy's own.
        """
        raise NotImplementedError

    @classmethod
    def suggest(cls, trial: optuna.Trial, actions: Levels) -> dict[str, Any]:
        """Return what to choose from and how long to hold it; subclasses add what is their own."""
        return suggest_arms(trial, actions)


def highest(values: np.ndarray, rng: np.random.Generator) -> int:
    """Return the place of the largest value; `rng` decides between equals."""
    return int(rng.choice(np.flatnonzero(values == values.max())))


def standardised(gains: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return gains [N] about their weighted mean, over their weighted standard deviation.

    Exploration constants are then free of the game's units. Gains without a spread are all 0.
    """
    if not gains.size:
        return gains
    mean = np.average(gains, weights=weights)
    spread = math.sqrt(np.average(np.square(gains - mean), weights=weights))
    return (gains - mean) / (spread if spread > 0.0 else 1.0)
