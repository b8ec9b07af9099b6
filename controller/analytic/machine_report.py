"""What an interval of a run on a drawn game has seen, and the report that is made of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accerl.runtime.run import PHASES, IntervalReport, Takeover
from accerl.spec import CompressionSpec, Decision
from controller.analytic.fidelity import GameFidelity
from controller.analytic.pace import Mix, Pace

EPISODES = 8
"""whose returns an interval reports, at most"""
NOISES = 4 + EPISODES
"""normal numbers that an interval draws: luck, J, KL, entropy, episodes"""
_UNTRAINED_NOISE = 0.2  # of J, as a share of what it is at the reference


@dataclass
class Sums:
    """What an interval has seen so far, and the totals that it began with."""

    env_steps: float
    updates: float
    publications: float
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    actor_core: float = 0.0
    acted: defaultdict[CompressionSpec, float] = field(default_factory=lambda: defaultdict(float))
    """actor seconds"""
    weight: float = 0.0
    """learner updates, which the next three are summed over"""
    lag: float = 0.0
    fill: float = 0.0
    kl: float = 0.0
    sent_bytes: float = 0.0
    distill_updates: float = 0.0
    distill_core: float = 0.0
    publish_every: float = 0.0
    takeovers: list[Takeover] = field(default_factory=list)

    def add(
        self, pace: Pace, mix: Mix, seconds: float, updates: float, kl_nats: float, lag: float
    ) -> None:
        """Add some seconds of one pace, at a policy lag."""
        env_steps = seconds * pace.env_steps_per_second
        acting = 0.0
        for phase, per_step in pace.phases:
            self.phases[phase] += env_steps * per_step
            acting += env_steps * per_step if phase in ("env", "infer", "write") else 0.0
        self.phases["wait"] += seconds - env_steps * pace.learner_busy
        for spec, share in mix:
            self.acted[spec] += share * acting
        self.actor_core += env_steps * pace.actor_core
        self.weight += updates
        self.lag += updates * lag
        self.fill += updates * pace.queue_fill
        self.kl += updates * kl_nats
        self.sent_bytes += updates / pace.publish_every * pace.publish_bytes
        self.distill_updates += updates * pace.distill_updates
        self.distill_core += env_steps * pace.distill_core
        self.publish_every = pace.publish_every

    def counted(self, totals: tuple[float, float, float]) -> tuple[int, int, int]:
        """Return the env steps, learner updates and publications that were finished.

        Args:
            totals: at the end of the interval.
        """
        env_steps, updates, publications = totals
        return (
            int(env_steps) - int(self.env_steps),
            int(updates) - int(self.updates),
            int(publications) - int(self.publications),
        )


def make_report(
    game: GameFidelity,
    sums: Sums,
    noise: Sequence[float],
    *,
    index: int,
    seconds: float,
    total_seconds: float,
    totals: tuple[float, float, float],
    skill: float,
    kl: Mapping[CompressionSpec, float],
    acted_kl: Mapping[CompressionSpec, float],
    shadow: Mapping[CompressionSpec, float],
    waiting: Mapping[CompressionSpec, float | None],
    decision: Decision,
    switch_seconds: float,
    conditions: tuple[Mapping[str, Any], ...],
    episodes: int,
) -> IntervalReport:
    """Return an interval's report.

    Args:
        game: that is played.
        sums: of the interval.
        noise: `NOISES` normal numbers.
        index: of the interval.
        seconds: its length.
        total_seconds: the clock at its end.
        totals: env steps, learner updates and publications at its end.
        skill: of the learner.
        kl: of compression by spec that acts or waits at its end, nats.
        acted_kl: the same by spec that acted in it.
        shadow: the same of what does not act.
        waiting: by spec that was asked for and is not admitted, see `IntervalReport`.
        decision: in effect.
        switch_seconds: what changing it took.
        conditions: what was under way.
        episodes: that J is the mean of.
    """
    weight = max(sums.weight, 1e-9)
    lag, shown = sums.lag / weight, math.exp(game.kl_noise * noise[2])
    live = (sums.kl / weight + game.stale_kl * lag) * shown
    env_steps, updates, publications = sums.counted(totals)
    acted = skill * math.exp(-sums.kl / weight)
    return IntervalReport(
        index=index,
        seconds=seconds,
        total_seconds=total_seconds,
        env_steps=env_steps,
        total_env_steps=int(totals[0]),
        learner_updates=updates,
        total_learner_updates=int(totals[1]),
        phase_seconds=sums.phases,
        queue_fill=sums.fill / weight,
        policy_lag=lag,
        kl_mean_nats=live,
        kl_var=4.0 * live**2,
        kl_max_nats=20.0 * live,
        entropy_nats=math.log(game.num_actions)
        * min(1.0, (1.0 - 0.9 * skill) * math.exp(0.03 * noise[3])),
        episode_returns=_episodes(game, acted, noise[4:]) if env_steps else (),
        learner_return=game.score(skill)
        + _spread(game, skill) / math.sqrt(max(episodes, 1)) * noise[1],
        decision=decision,
        spec_seconds=dict(sums.acted),
        switch_seconds=switch_seconds,
        acted_kl_nats=_acted_kl(acted_kl, game.stale_kl * lag, shown),
        losses=diagnostics(live),
        conditions=conditions,
        actor_core_seconds=sums.actor_core,
        distill_updates=round(sums.distill_updates),
        distill_core_seconds=sums.distill_core,
        publications=publications,
        publication_bytes=round(sums.sent_bytes),
        shadow_kl_nats={spec: nats * shown for spec, nats in shadow.items()},
        waiting_kl_nats={
            spec: None if nats is None else nats * shown for spec, nats in waiting.items()
        },
        takeovers=tuple(sums.takeovers),
        **(_compared(game, sums, kl, shown) if publications else {}),
    )


def _episodes(game: GameFidelity, acted: float, noise: Sequence[float]) -> tuple[float, ...]:
    """Return the scores of episodes that actors of this skill have played."""
    spread = _spread(game, acted)
    return tuple(game.score(acted) + spread * each for each in noise)


def _acted_kl(
    kl: Mapping[CompressionSpec, float],
    stale: float,
    shown: float,
) -> dict[CompressionSpec, float]:
    """Return KL(learner || actor) by what acted: of compression, `kl`, and of staleness."""
    return {spec: (nats + stale) * shown for spec, nats in kl.items()}


def _compared(
    game: GameFidelity, sums: Sums, kl: Mapping[CompressionSpec, float], shown: float
) -> dict[str, Any]:
    """Return the report's fields that are measured when something is published.

    Args:
        game: that is played.
        sums: of the interval.
        kl: of compression by spec, nats.
        shown: factor of what is measured, by chance.
    """
    measured = {spec: nats * shown for spec, nats in kl.items()}
    stale = math.ceil(sums.publish_every)
    return {
        "student_kl_nats": {s: nats for s, nats in measured.items() if s.student_key is not None},
        "compression_kl_nats": {s: nats for s, nats in measured.items() if s in sums.acted},
        "staleness_kl_nats": game.stale_kl * stale * shown,
        "staleness_updates": stale,
    }


def _spread(game: GameFidelity, skill: float) -> float:
    """Return the standard deviation of one episode's return; weak policies score alike."""
    share = (skill - game.initial_skill) / (game.reference_skill - game.initial_skill)
    share = min(max(share, _UNTRAINED_NOISE), 1.0)
    return game.episode_noise * share * game.reference.span


def diagnostics(kl_nats: float) -> dict[str, float]:
    """Return what correctors would see of actors this far from the learner.

    The variance of a ratio near 1 is twice the KL, and its effective sample size 1 / (1 + that).
    Its log is taken for normal: then it is above 1, and clipped, with the probability
    erfc(sqrt(KL) / 2) / 2.
    """
    return {
        "argmax_agreement": math.exp(-math.sqrt(kl_nats)),
        "ess_fraction": 1.0 / (1.0 + 2.0 * kl_nats),
        "clipped_share": 0.5 * math.erfc(0.5 * math.sqrt(kl_nats)),
    }
