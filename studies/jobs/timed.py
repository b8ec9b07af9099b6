"""Timed work as jobs: a machine's latency profile, and runs on the real clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from accerl.config import RunConfig
from accerl.records import fingerprint
from accerl.runtime.latency.measure import measure_profile
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec
from accerl.training.run import run_training
from controller.env.instances import Instance
from studies.jobs.executor import Job
from studies.jobs.inner import build_strategy

OF_GAME = "real-"
"""what the name of a profile begins with that is a game's, measured for runs on the real clock"""


@dataclass(frozen=True, kw_only=True)
class ProfileJob(Job[LatencyProfile]):
    """Measures a latency profile; fields are the arguments of `measure_profile`."""

    kind: ClassVar[str] = "profile"
    is_timed: ClassVar[bool] = True
    name: str
    config: RunConfig | None = None
    specs: tuple[CompressionSpec, ...]
    batches: tuple[int, ...]
    networks: tuple[str, ...]
    repeats: int

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            "kind": self.kind,
            "profile": self.name,
            "config": None if self.config is None else self.config.to_json(),
            "specs": [spec.to_json() for spec in self.specs],
            "batches": list(self.batches),
            "networks": list(self.networks),
            "repeats": self.repeats,
        }

    def run(self) -> LatencyProfile:
        """Measure the machine that this runs on."""
        return measure_profile(
            self.name,
            config=self.config,
            specs=self.specs,
            batches=self.batches,
            networks=self.networks,
            repeats=self.repeats,
        )

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> LatencyProfile:
        """Read a profile."""
        return LatencyProfile.from_json(data)


@dataclass(frozen=True)
class Machine:
    """Where something was timed."""

    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {"fingerprint": self.fingerprint}


@dataclass(frozen=True, kw_only=True)
class RealRunJob(Job[Machine]):
    """A run on the real clock; what it showed stands in its run directory."""

    kind: ClassVar[str] = "real"
    is_timed: ClassVar[bool] = True
    config: RunConfig
    instance: Instance
    """whose units the strategy counts scores in"""
    strategy: Mapping[str, Any]
    """see `build_strategy`"""
    times: LatencyProfile
    """what the strategy knows of the machine"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            "kind": self.kind,
            "seed": self.config.seed,
            "config": self.config.to_json(),
            "instance": self.instance.to_json(),
            "strategy": dict(self.strategy),
            "times": self.times.hash,
        }

    def run(self) -> Machine:
        """Do the run."""
        run_training(
            self.config,
            build_strategy(self.strategy, self.instance, self.config.seed),
            strategy_name=self.strategy["label"],
            out=self.out,
            times=self.times,
        )
        return Machine(fingerprint()["id"])

    @classmethod
    def read_result(cls, data: Mapping[str, Any]) -> Machine:
        """Read where it was made."""
        return Machine(data["fingerprint"])
