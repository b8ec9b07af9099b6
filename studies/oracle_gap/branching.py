"""Episodes that are continued in several ways: the jobs of the oracle gap's study."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from accerl.acting.evaluate import play_episodes, policy_infer
from accerl.config import RunConfig
from accerl.envs import Envs, make_envs
from accerl.presets import load_preset
from accerl.runtime.serial.run import SerialRun
from accerl.seeds import Role, number
from accerl.spec import CompressionSpec, Decision
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import INTERVALS, Instance
from controller.objective import default_beta, discounted_gain
from studies.jobs.executor import R
from studies.jobs.inner import InstanceJob

SWITCHES = (3, 6, 9)
"""intervals after which the second phase may begin"""
REPORT_EPISODES = 32
"""per measurement of J that counts"""
CHOOSE_EPISODES = 96
"""per measurement that the oracle chooses by, with other seeds"""
VERSION = 1
"""of the rules below: results of another are not reused"""


@dataclass(frozen=True, kw_only=True)
class ScheduleResult:
    """An episode under one schedule."""

    value: float
    """discounted gain of the whole episode, normalised by the game's reference"""
    scores: tuple[float, ...]
    """J at the start and after every interval"""
    chosen: tuple[str, ...] = ()
    """label of the spec that an oracle chose in every interval"""
    standard_error: float = 0.0
    """of the mean score that an oracle chose by"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScheduleResult:
        """Read what `to_json` returned."""
        lists = {"scores": tuple(data["scores"]), "chosen": tuple(data["chosen"])}
        return cls(**{**data, **lists})


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A schedule of two phases: to `second` after `at` intervals."""

    at: int
    second: CompressionSpec
    value: float


@dataclass(frozen=True, kw_only=True)
class TwoPhaseResult:
    """All continuations of an episode that begins with one spec."""

    switches: tuple[Switch, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TwoPhaseResult:
        """Read what `to_json` returned."""
        rows = ({**row, "second": CompressionSpec(**row["second"])} for row in data["switches"])
        return cls(switches=tuple(Switch(**row) for row in rows))


def base_config(game: str) -> RunConfig:
    """Return the preset with more episodes in every measurement of J."""
    return load_preset(game).with_runtime(eval_episodes=REPORT_EPISODES)


@dataclass(frozen=True, kw_only=True)
class BranchingJob(InstanceJob[R], ABC):
    """A kind of schedule for one (game, profile, seed)."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and what else the result depends on."""
        rules = {"version": VERSION, "choose_episodes": CHOOSE_EPISODES}
        return {**super().to_json(), **rules}

    def run(self) -> R:
        """Play the schedule in an environment of its own."""
        branching = Branching(replace(self.instance, seed=self.seed))
        try:
            return self.play(branching)
        finally:
            branching.env.close()

    @abstractmethod
    def play(self, branching: Branching) -> R:
        """Play the schedule."""


class Branching:
    """An episode of the outer environment that can be continued in several ways."""

    def __init__(self, instance: Instance) -> None:
        self.env = CompressionControlEnv([instance])
        self.env.reset()
        self.times = [0.0]
        self.scores = [instance.reference.random_return]

    @property
    def done(self) -> bool:
        """Whether the horizon is reached."""
        return len(self.times) > INTERVALS

    def step(self, spec: CompressionSpec) -> None:
        """Act with `spec` for one interval."""
        *_, info = self.env.step_decision(Decision.of(spec))
        self.times.append(info["total_seconds"])
        self.scores.append(info["learner_return"])

    def snapshot(self) -> dict[str, Any]:
        """Return everything, for `restore`."""
        return {
            "env": self.env.snapshot(),
            "times": list(self.times),
            "scores": list(self.scores),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self.env.restore(snapshot["env"])
        self.times, self.scores = list(snapshot["times"]), list(snapshot["scores"])

    def value(self) -> float:
        """Return the discounted gain of the whole episode, normalised by the game's reference."""
        reference = self.env.instance.reference
        levels = [reference.normalise(score) for score in self.scores]
        return discounted_gain(self.times, levels, default_beta(self.times[-1]))


@dataclass(frozen=True, kw_only=True)
class StaticJob(BranchingJob[ScheduleResult]):
    """One spec throughout."""

    kind: ClassVar[str] = "static"
    spec: CompressionSpec

    def play(self, branching: Branching) -> ScheduleResult:
        """Act with the spec."""
        while not branching.done:
            branching.step(self.spec)
        return ScheduleResult(value=branching.value(), scores=tuple(branching.scores))

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> ScheduleResult:
        """Read a result."""
        return ScheduleResult.from_json(data)


@dataclass(frozen=True, kw_only=True)
class TwoPhaseJob(BranchingJob[TwoPhaseResult]):
    """One spec, and from every switch on also each of others."""

    kind: ClassVar[str] = "two-phase"
    first: CompressionSpec
    seconds: tuple[CompressionSpec, ...]

    def play(self, branching: Branching) -> TwoPhaseResult:
        """Act with `first`, then from every snapshot with each of `seconds`."""
        branches = []
        while not branching.done:
            if len(branching.times) - 1 in SWITCHES:
                branches.append((len(branching.times) - 1, branching.snapshot()))
            branching.step(self.first)
        found = []
        for at, snapshot in branches:
            for second in self.seconds:
                branching.restore(snapshot)
                while not branching.done:
                    branching.step(second)
                found.append(Switch(at=at, second=second, value=branching.value()))
        return TwoPhaseResult(switches=tuple(found))

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> TwoPhaseResult:
        """Read a result."""
        return TwoPhaseResult.from_json(data)


@dataclass(frozen=True, kw_only=True)
class OracleJob(BranchingJob[ScheduleResult]):
    """Greedy branches over `specs`, beginning with `base`; of a placebo, over other dice."""

    kind: ClassVar[str] = "oracle"
    base: CompressionSpec
    specs: tuple[CompressionSpec, ...]
    placebo: bool

    def play(self, branching: Branching) -> ScheduleResult:
        """Take the clearly best branch of every interval."""
        acting = self.base
        envs = make_envs(self.instance.game, CHOOSE_EPISODES)
        chosen: list[str] = []
        errors: list[float] = []
        try:
            while not branching.done:
                found = self._branches(branching, acting, envs)
                best = clearly_best([scores for _, scores, _ in found])
                errors.append(float(found[0][1].std(ddof=1) / np.sqrt(CHOOSE_EPISODES)))
                acting = found[best][0]
                chosen.append(acting.label)
                branching.restore(found[best][2])
        finally:
            envs.close()
        return ScheduleResult(
            value=branching.value(),
            scores=tuple(branching.scores),
            chosen=tuple(chosen),
            standard_error=float(np.mean(errors)),
        )

    def _branches(
        self, branching: Branching, acting: CompressionSpec, envs: Envs
    ) -> list[tuple[CompressionSpec, np.ndarray, dict[str, Any]]]:
        """Return every branch of one interval: its spec, scores and snapshot; `acting` first."""
        start, decision = branching.snapshot(), len(branching.times)
        evaluation = number(0, Role.ORACLE_EVALUATION, decision)
        others = [spec for spec in self.specs if spec != acting]
        if self.placebo:
            others = [acting] * len(others)
        found = []
        for index, spec in enumerate([acting, *others]):
            if index:
                branching.restore(start)
            run = branching.env.run
            assert isinstance(run, SerialRun)
            if self.placebo and index:
                for place, actor in enumerate(run.actors):
                    at = (decision, index, place)
                    actor.reseed(number(self.seed, Role.PLACEBO, *at))
            branching.step(spec)
            infer = policy_infer(run.learner.policy)
            # Without mirrored pairs: standard errors are those of independent episodes.
            scores = play_episodes(envs, infer, evaluation, antithetic=False)
            found.append((spec, scores, branching.snapshot()))
        return found

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> ScheduleResult:
        """Read a result."""
        return ScheduleResult.from_json(data)


def clearly_best(scores: Sequence[np.ndarray]) -> int:
    """Return the branch to take: the first, unless one beats it by more than a standard error.

    Branches are compared episode by episode: starts and dice of the evaluation are the same.
    """
    gains = [own - scores[0] for own in scores]
    means = np.array([gain.mean() for gain in gains])
    errors = np.array([gain.std(ddof=1) / np.sqrt(len(gain)) for gain in gains])
    clear = means > errors
    clear[0] = False
    return int(np.argmax(np.where(clear, means, -np.inf))) if clear.any() else 0
