"""One episode of the outer problem under any strategy, on any tier."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from accerl.monitor.strategy import Strategy, bind, tell_rejected
from accerl.runtime.latency.games import times_of_run
from accerl.spec import Decision
from accerl.training.episode import Episode
from controller.env.instances import Instance
from controller.objective import default_beta, discounted_gain


@dataclass(frozen=True, kw_only=True)
class Played:
    """What an episode of K intervals came to."""

    times: tuple[float, ...]
    """[K + 1]: the clock, from 0"""
    returns: tuple[float, ...]
    """[K + 1]: J, from random play; what was not measured is as it was before"""
    decisions: tuple[Decision, ...]
    """[K]"""
    env_steps: tuple[int, ...]
    """[K + 1]: since the start, from 0"""

    def gain(self, instance: Instance) -> float:
        """Return the outer objective: the discounted gain of J, on the game's scale."""
        beta = default_beta(instance.horizon_seconds)
        returns = [instance.reference.normalise(value) for value in self.returns]
        return discounted_gain(self.times, returns, beta)


def play(strategy: Strategy, instance: Instance, seed: int) -> Played:
    """Play one episode; the same arguments give the same, but on the real clock.

    Args:
        strategy: decides; it is bound to the run and reset.
        instance: game and machine.
        seed: of the inner run.
    """
    config = instance.config(seed)
    if instance.tier == "real":  # the profile says how long, and this machine how fast
        from accerl.training.run import known_times  # brings torch

        times, config = known_times(config, None), config.adapted()
    else:
        times = None if instance.latency is None else times_of_run(instance.latency, config)
    bind(strategy, config, times)
    strategy.reset()
    run = instance.make_run(seed)
    clock, returns, steps, decisions = [0.0], [instance.random_return], [0], []
    with closing(
        Episode(
            run,
            horizon_seconds=instance.horizon_seconds,
            interval_seconds=instance.interval_seconds,
            first_interval_seconds=instance.first_interval_seconds,
        )
    ) as episode:
        while not episode.finished:
            _, report = episode.step(strategy.decide(episode.features))
            tell_rejected(strategy, report.events)
            clock.append(report.total_seconds)
            score = report.learner_return
            returns.append(returns[-1] if score is None else score)
            steps.append(report.total_env_steps)
            decisions.append(report.decision.without_shadow)
    return Played(
        times=tuple(clock),
        returns=tuple(returns),
        env_steps=tuple(steps),
        decisions=tuple(decisions),
    )
