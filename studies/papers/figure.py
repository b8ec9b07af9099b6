"""PaperFigure: the runs behind one figure of a paper, and what it claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from accerl.errors import UserError
from accerl.records import json_hash
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import CompressionSpec
from studies.learning.curve import LearningCurve
from studies.learning.job import LearningJob, acting_with
from studies.papers.targets import TARGETS
from studies.papers.verdict import Verdict

PAPER, HERE = "paper-1080ti", "two-core"
"""the paper's machine, and one like most readers have"""


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """One line of a figure."""

    label: str
    strategy: Mapping[str, Any]
    """see `LearningJob`"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `RunConfig`, by ``section.name``"""

    @classmethod
    def acting(cls, spec: CompressionSpec, label: str = "") -> PaperRun:
        """Return the line of acting with one spec throughout."""
        return cls(label=label or spec.label, strategy=acting_with(spec))

    @property
    def is_rule(self) -> bool:
        """Whether it may change what acts during a run."""
        return self.strategy["name"] != "fixed"

    @property
    def may_distil(self) -> bool:
        """Whether something that acts may have to be distilled."""
        spec = self.strategy["params"].get("spec")
        return spec is None or CompressionSpec.from_json(spec).student_key is not None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A game, and the lines that are drawn for it; the first is what the others are held against.

    All runs of a panel begin with the same seeds (common random numbers), and have as many seconds
    as actors without compression are predicted to take for `env_steps`.
    """

    game: str
    runs: tuple[PaperRun, ...]
    env_steps: int = 500_000
    seeds: int = 2
    score: float | None = None
    """that its runs are timed to; None: the game's, see `target_score`"""

    @property
    def baseline(self) -> str:
        """Label of the first run."""
        return self.runs[0].label


LEARNER = "original"
"""the learner's network in all figures"""


Curves = Mapping[tuple[str, str, int], LearningCurve]
"""of a panel, by machine, label of the run, and seed"""


class Check(Protocol):
    """Something that a paper claims."""

    def __call__(self, panels: Sequence[tuple[Panel, Curves]]) -> Verdict:
        """Hold it against runs."""
        ...


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """What it takes to draw a figure of a paper again."""

    name: str
    """such as fig8"""
    title: str
    claim: str
    """what the paper says, in our words"""
    panels: tuple[Panel, ...] = ()
    short_panels: tuple[Panel, ...] = ()
    """on MinAtar's games, where it takes more than another game; see `plan.at_budget`"""
    checks: tuple[Check, ...] = ()
    num_actors: int = 12
    """NA, on the paper's machine"""
    num_distillers: int = 0
    """ND, likewise; 0: the compressor distils"""
    bound_kl_max_nats: float = 0.0
    """on the largest KL, which is drawn with it; 0: it is not drawn"""
    shows_stages: bool = False
    shows_switches: bool = False
    """whether it is marked where the decision changes"""
    rules: str = ""
    """by which it is judged where it has no checks"""
    shows_costs: bool = False
    """whether what its lines take to a score is drawn beside the baseline's"""

    @property
    def key(self) -> str:
        """A hash of what is run and asked, by which results of another version are known.

        Lengths, games, lines, machines' wiring, scores and checks count; presets do not.
        """
        panels = [
            {**asdict(panel), "score": panel.score or TARGETS.get(panel.game)}
            for panel in self.panels
        ]
        asked = [
            {name: value for name, value in vars(check).items() if not callable(value)}
            for check in self.checks
        ]
        wiring = [self.num_actors, self.num_distillers]
        rules = {"rules": self.rules} if self.rules else {}
        return json_hash({"panels": panels, "asked": asked, "wiring": wiring, **rules})[:12]

    def machines(self, profile: str = "") -> dict[str, LatencyProfile]:
        """Return the machines by name: the paper's, wired as the figure says, and another.

        Args:
            profile: name or path of the other; empty: `HERE`.

        Raises:
            UserError: the other is the paper's, or does not exist.
        """
        paper = load_profile(PAPER)
        own = load_profile(profile or HERE)
        if own.name == PAPER:
            raise UserError(f"--profile: {PAPER} is the paper's machine, which is there already")
        actors = self.num_actors  # they fill one batch together
        wired = replace(
            paper,
            num_actors=actors,
            actors_per_batch=actors,
            num_distillers=self.num_distillers,
        )
        return {PAPER: wired, own.name: own}

    def jobs(
        self, seed: int = 0, profile: str = ""
    ) -> dict[tuple[int, str, str, int], LearningJob]:
        """Return all runs by number of the panel, machine, label and seed.

        Seed by seed, and a seed's on the paper's machine first, so that what is interrupted can be
        read. Runs that distil nothing have no distillers, so that figures share them.

        Args:
            seed: the first.
            profile: see `machines`.
        """
        machines = self.machines(profile)
        most = max((panel.seeds for panel in self.panels), default=0)
        return {
            (number, machine, run.label, seed + index): LearningJob(
                game=panel.game,
                network=LEARNER,
                latency=latency if run.may_distil else replace(latency, num_distillers=0),
                strategy=run.strategy,
                settings=run.settings,
                env_steps=panel.env_steps,
                seed=seed + index,
            )
            for index in range(most)
            for machine, latency in machines.items()
            for number, panel in enumerate(self.panels)
            for run in panel.runs
            if index < panel.seeds
        }
