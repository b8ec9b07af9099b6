"""Wiring: how many processes of each role a run has, on this machine or on one that is modelled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from accerl.config import RuntimeConfig
from accerl.runtime.conditions import Conditions
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.machine.cores import usable_cores

UPLINK = "uplink"
"""what names of links begin with"""


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
    cores: float = math.inf
    """cores of the learner's machine; infinite: each process has one to itself, as the serial
    runtime assumes on the real clock, and Ray arranges"""
    group_cores: float = 1.0
    """of them, what those that fill one rollout occupy; 0: they are on machines of their own"""
    on_gpu: bool = False
    """whether a GPU learns and distils"""
    gpu_core: float = 1.0
    """share of a core that a process takes while the GPU computes for it"""
    hosts: int = 0
    """links that rollouts travel on, one for each machine that acts"""

    @classmethod
    def of(
        cls,
        runtime: RuntimeConfig,
        profile: LatencyProfile | None = None,
        *,
        on_gpu: bool = False,
    ) -> Wiring:
        """Return the processes of a run.

        Args:
            runtime: of the run; what is left to the machine is decided (`RunConfig.adapted`).
            profile: of the machine that is modelled; None: the run is on the real clock.
            on_gpu: whether a GPU learns, on the real clock.
        """
        if profile is not None:
            apart = runtime.compressor_process
            return cls(
                actors=profile.groups,
                distillers=profile.num_distillers if apart else 0,
                compressor=apart,
                cores=profile.cores,
                group_cores=profile.group_cores(runtime.num_envs),
                on_gpu=profile.on_gpu,
                gpu_core=profile.gpu_core,
                hosts=max(profile.num_hosts, 1) if profile.up_bytes_per_second else 0,
            )
        if runtime.runtime == "serial":
            return cls(actors=runtime.num_actors)
        return cls(
            cores=usable_cores() if runtime.runtime == "process" else math.inf,
            actors=runtime.num_actors,
            learners=runtime.num_learners,
            distillers=runtime.num_distillers,
            compressor=True,
            on_gpu=on_gpu and runtime.runtime == "process",  # Ray's helpers see none
        )

    @property
    def is_crowded(self) -> bool:
        """Whether processes share a GPU, or there are more of them than cores."""
        own = self.learners + self.compressor + self.distillers
        return self.on_gpu or self.group_cores * self.actors + own > self.cores

    def process_names(self, conditions: Conditions) -> list[str]:
        """Return the names of processes, with actors that join during the run, and of links.

        Raises:
            UserError: an event is about another process, or one on another machine.
        """
        names = ["learner", *(f"learner-{index}" for index in range(1, self.learners))]
        names += ["compressor"] if self.compressor else []
        names += [f"distiller-{index}" for index in range(self.distillers)]
        actors = conditions.most_actors(self.actors)
        names += [f"actor-{index}" for index in range(actors)]
        conditions.check_processes(names)
        conditions.check_machines(apart=self.group_cores == 0.0)
        names += [f"{UPLINK}-{index}" for index in range(self.hosts)]
        return names

    def slots_each(self, queue_rollouts: int) -> int:
        """Return the slots of each actor: one is filled, one is learned from, others may wait."""
        return 2 + -(-queue_rollouts // self.actors)
