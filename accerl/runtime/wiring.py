"""Wiring: how many processes of each role a run has, on this machine or on one that is modelled."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.config import RuntimeConfig
from accerl.runtime.conditions import Conditions
from accerl.runtime.latency.profile import LatencyProfile


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """The processes of a run; everybody who needs their numbers asks here."""

    actors: int
    """how many fill rollouts side by side; several that fill one together count once"""
    learners: int = 1
    distillers: int = 0
    """processes that only distil"""
    compressor: bool = False
    """whether a process of its own compresses; otherwise the learner's does"""
    cores: int = 0
    """cores that all share; 0: each process has one to itself"""

    @classmethod
    def of(cls, runtime: RuntimeConfig, profile: LatencyProfile | None = None) -> Wiring:
        """Return the processes of a run.

        Args:
            runtime: of the run; what is left to the machine is decided (`RunConfig.adapted`).
            profile: of the machine that is modelled; None: the run is on the real clock.
        """
        if profile is not None:
            apart = runtime.compressor_process
            return cls(
                actors=profile.groups,
                distillers=profile.num_distillers if apart else 0,
                compressor=apart,
                cores=profile.cores,
            )
        if runtime.runtime == "serial":
            return cls(actors=runtime.num_actors)
        return cls(
            actors=runtime.num_actors,
            learners=runtime.num_learners,
            distillers=runtime.num_distillers,
            compressor=True,
        )

    def process_names(self, conditions: Conditions) -> list[str]:
        """Return the names of the processes, with the actors that join during the run.

        Raises:
            UserError: an event is about another process.
        """
        names = ["learner", *(f"learner-{index}" for index in range(1, self.learners))]
        names += ["compressor", *(f"distiller-{index}" for index in range(self.distillers))]
        actors = conditions.most_actors(self.actors)
        names += [f"actor-{index}" for index in range(actors)]
        conditions.check_processes(names)
        return names

    def slots_each(self, queue_rollouts: int) -> int:
        """Return the slots of each actor: one is filled, one is learned from, others may wait."""
        return 2 + -(-queue_rollouts // self.actors)
