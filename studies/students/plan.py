"""What is compared: games, machines, learners, specs, and ways to correct what small actors do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accerl.spec import IDENTITY, CompressionSpec
from studies.learning.job import settings_keeping_pace

INT8 = CompressionSpec(bits=8)
NET1 = CompressionSpec(bits=8, student="net1")
NET2 = CompressionSpec(bits=8, student="net2")
NET3 = CompressionSpec(bits=8, student="net3")
PRUNED = CompressionSpec(bits=8, sparsity=0.5)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to act and to learn that is compared with the first of its case."""

    label: str
    spec: CompressionSpec
    settings: Mapping[str, Any] = field(default_factory=dict)
    """of `RunConfig`, by ``section.name``, on top of the case's"""


def acting(*specs: CompressionSpec) -> tuple[Variant, ...]:
    """Return a variant of each spec, and nothing else changed."""
    return tuple(Variant(label=spec.label, spec=spec) for spec in specs)


@dataclass(frozen=True, kw_only=True)
class Start:
    """A run before those that are compared: all variants of a seed go on from its learner.

    How long a game stays on its first plateau is luck that differs between runs of one seed too,
    and where it takes most of a run there is little else to be seen.
    """

    score: float
    """at which it ends"""
    env_steps: int
    """that it makes at most"""
    profile: str = "gpu-learner"
    spec: CompressionSpec = IDENTITY
    """what acts"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A game on a machine, with a learner's network."""

    game: str
    profile: str
    network: str
    env_steps: int
    scores: tuple[float, ...]
    """that every variant is to reach, as means of 20 episodes that its actors play"""
    variants: tuple[Variant, ...]
    """the first is what the others are compared with"""
    seeds: int
    ends_at_score: bool = False
    """whether a run is over once it has reached the last of `scores`; `env_steps` are its limit"""
    start: Start | None = None
    """None: runs begin with an untrained learner"""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def title(self, profile: str = "") -> str:
        """Return its game, machine (or `profile`), learner and start, and who acts if one does."""
        specs = {variant.spec for variant in self.variants}
        start = f" from a score of {self.start.score:g}" if self.start else ""
        acts = f", {next(iter(specs)).label} acts" if len(specs) == 1 else ""
        return f"{self.game} on {profile or self.profile}, learner {self.network}{start}{acts}"


def on_machine(cases: Sequence[Case], profile: str) -> list[Case]:
    """Return cases as they are on one machine; of those that are equal then, that with most seeds.

    Args:
        cases: of a budget.
        profile: name or path of the machine; empty: each case has its own.
    """
    found: dict[str, Case] = {}
    for case in cases:
        start = case.start
        if start is not None:
            start = replace(start, profile=profile or start.profile)
        one = replace(case, profile=profile or case.profile, start=start)
        key = repr(replace(one, seeds=0))
        if key not in found or found[key].seeds < one.seeds:
            found[key] = one
    return [*found.values()]


SCORES = {"breakout": (5.0, 10.0), "pong": (-10.0, 0.0)}
"""on the way to what the presets reach in a million env steps"""
ONWARDS = {
    "breakout": (Start(score=5.0, env_steps=1_000_000), (10.0, 15.0)),
    "pong": (Start(score=-15.0, env_steps=1_000_000), (0.0, 10.0)),
}
"""where runs begin that go on from a learner past the first plateau, and where they end"""
SMALL_SCORES = {"minatar-breakout": (2.0, 4.0), "minatar-space-invaders": (15.0, 25.0)}
"""likewise, in 200,000"""
MACHINES = ("gpu-learner", "paper-1080ti")
COMPARED = (*MACHINES, "two-core")
"""for which seconds are calculated where runs were made on another one"""


def _atari(machine: str, game: str, variants: tuple[Variant, ...], **changes: Any) -> Case:
    values: dict[str, Any] = {"network": "net1", "env_steps": 500_000, "seeds": 3} | changes
    return Case(game=game, profile=machine, scores=SCORES[game], variants=variants, **values)


def _to_score(machine: str, game: str, variants: tuple[Variant, ...], **changes: Any) -> Case:
    """Return a case whose runs begin untrained and end at the game's last score."""
    limits = {"env_steps": 1_000_000, "ends_at_score": True}
    return _atari(machine, game, variants, **(limits | changes))


def _onwards(machine: str, game: str, variants: tuple[Variant, ...], **changes: Any) -> Case:
    """Return a case whose runs go on from one learner a seed, and end at the last score."""
    start, scores = ONWARDS[game]
    values = {"env_steps": 600_000, "ends_at_score": True, "start": start} | changes
    return replace(_atari(machine, game, variants, **values), scores=scores)


def _of_original(game: str) -> Case:
    """Return a case whose learner is the paper's large network: students have much to save."""
    actors = acting(INT8, NET1, NET2, PRUNED, NET3)
    return _atari("paper-1080ti", game, actors, network="original", seeds=2)


def _minatar(machine: str, game: str) -> Case:
    """Return a case of a game that stands in for Atari's, whose students keep pace as theirs do."""
    return Case(
        game=game,
        profile=machine,
        network="original",
        env_steps=200_000,
        scores=SMALL_SCORES[game],
        variants=_SMALL_ACTORS,
        seeds=5,
        settings=settings_keeping_pace(game),
    )


def _resting(*bounds: float) -> tuple[Variant, ...]:
    """Return INT8, and small actors that rest at a KL below each of the bounds, 0 for never."""
    small = [
        Variant(
            label=f"{spec.label}, {f'rests below {bound:g}' if bound else 'never rests'}",
            spec=spec,
            settings={"compression.distill_rest_kl_nats": bound},
        )
        for spec in (NET2, NET3)
        for bound in bounds
    ]
    return (*acting(INT8), *small)


def _with_passes(spec: CompressionSpec, reuse: int, distill: int = 12) -> Variant:
    """Return a spec behind a learner that uses every rollout so often."""
    return Variant(
        label=f"{spec.label}, {reuse} passes" + (f", {distill} to distil" if distill < 12 else ""),
        spec=spec,
        settings={"learner.reuse": reuse, "compression.distill_updates": distill},
    )


_WITH_FEWER_PASSES = (
    *acting(INT8),
    _with_passes(INT8, 2),
    _with_passes(NET2, 2, distill=4),
    _with_passes(NET3, 2, distill=4),
)
"""with three passes of Original the paper's learner hardly keeps up with more than INT8 actors
collect: with fewer there is more for students to save"""
_SMALL_ACTORS = acting(IDENTITY, INT8, NET2, PRUNED, NET3)
_FEWER_ACTORS = acting(IDENTITY, NET2, PRUNED, NET3)
_CATCH = {"game": "catch", "profile": "paper-1080ti", "network": "original", "scores": (0.0,)}
_CORRECTORS = ("vtrace+importance", "truncated-importance", "retrace+importance", "importance")


def _corrected(actor: CompressionSpec, *names: str) -> tuple[Variant, ...]:
    """Return the same actor, corrected in each of these ways."""
    return tuple(
        Variant(label=name, spec=actor, settings={"learner.corrector": name}) for name in names
    )


def _correctors(actor: CompressionSpec) -> tuple[Variant, ...]:
    """Return every way to correct what one small actor does."""
    changed = {
        "rho-bar 2": {"learner.clip_rho": 2.0},
        "both bars 2": {"learner.clip_rho": 2.0, "learner.clip_c": 2.0},
        "weighted moments": {"learner.advantage_moments": "weighted"},
    }
    return (
        *_corrected(actor, *_CORRECTORS),
        *(
            Variant(
                label=f"{_CORRECTORS[0]}, {name}",
                spec=actor,
                settings={"learner.corrector": _CORRECTORS[0], **settings},
            )
            for name, settings in changed.items()
        ),
    )


STUDENTS: Mapping[str, tuple[Case, ...]] = {
    "tiny": (
        Case(
            **_CATCH,
            env_steps=80_000,
            variants=acting(IDENTITY, NET3, PRUNED),
            seeds=2,
            start=Start(score=-0.4, env_steps=40_000, profile="paper-1080ti"),
        ),
    ),
    "minatar": tuple(_minatar(machine, game) for machine in MACHINES for game in SMALL_SCORES),
    "rest": tuple(
        replace(_minatar(machine, game), variants=_resting(0.0, 0.25), seeds=3)
        for machine in ("paper-1080ti", "two-core")
        for game in SMALL_SCORES
    ),
    "short": (
        *(_to_score("gpu-learner", game, _FEWER_ACTORS) for game in SCORES),
        _to_score("paper-1080ti", "breakout", _WITH_FEWER_PASSES, network="original", seeds=2),
    ),
    "onwards": tuple(_onwards("gpu-learner", game, _FEWER_ACTORS) for game in ONWARDS),
    "default": (
        *(_atari(machine, game, _SMALL_ACTORS) for machine in MACHINES for game in SCORES),
        *map(_of_original, SCORES),
        *(_atari("two-core", game, _SMALL_ACTORS, seeds=1) for game in SCORES),
    ),
}
"""cases by budget: do small actors cost env steps, and do they save seconds?"""
CORRECTORS: Mapping[str, tuple[Case, ...]] = {
    "tiny": (Case(**_CATCH, env_steps=16_000, variants=_correctors(NET3)[:2], seeds=2),),
    "minatar": tuple(
        replace(_minatar("paper-1080ti", game), variants=_correctors(actor), seeds=3)
        for actor in (NET2, NET3)
        for game in SMALL_SCORES
    ),
    "short": tuple(
        _atari("gpu-learner", game, _corrected(actor, "vtrace+importance", "importance"))
        for game, actors in (
            ("breakout", (IDENTITY, NET2, PRUNED, NET3)),
            ("pong", (IDENTITY, NET2)),
        )
        for actor in actors
    ),
    "default": tuple(
        _atari("gpu-learner", "breakout", _correctors(actor), env_steps=300_000, seeds=2)
        for actor in (INT8, NET2, NET3)
    ),
}
"""likewise: which correction suits actors that differ from the learner?"""
