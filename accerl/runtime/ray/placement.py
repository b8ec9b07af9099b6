"""RayCluster: the cluster of one run, and where on it each of its actors goes."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import PurePath
from typing import Any

from accerl.acting.rollout import RolloutShape
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.runtime.machine.memory import require_shared_memory
from accerl.runtime.machine.usage import descendants
from accerl.runtime.ray.cluster import (
    alive_nodes,
    check_versions,
    connect,
    on_node,
    quiet,
    start_here,
)
from accerl.runtime.ray.roles import BESIDE

OTHER_BYTES = 128 * 2**20
"""of an object store that a run starts, for weights, publications and states"""
WITH_CPUS = ("actor", "distiller")
"""roles that take CPUs of their own, on any node"""


class RayCluster:
    """The cluster that a run has connected to, or has started.

    Raises:
        UserError: there is no such cluster, or it has other versions, or no room.
    """

    def __init__(self, config: RunConfig, shape: RolloutShape, slots: int) -> None:
        """Connect, and look whether the run has room.

        Args:
            config: of the run.
            shape: of its rollouts.
            slots: rollouts that there may be at once.
        """
        self.config = config.ray
        self._distillers = config.runtime.num_distillers
        self._placed = config.runtime.num_actors + self._distillers
        need = slots * shape.size_bytes
        with ExitStack() as stack:
            stack.enter_context(quiet())
            if self.config.address:
                self.ray, own = connect(self.config.address)
            else:
                what = "the object store of this run"
                require_shared_memory(what, need + OTHER_BYTES)
                wanted = math.ceil(self._placed * self.config.actor_cpus - 1e-9)
                cpus = max(os.cpu_count() or 1, wanted)
                self.ray, own = start_here(cpus, need + OTHER_BYTES)
            if own:
                stack.callback(self.ray.shutdown)
            self.node = self.ray.get_runtime_context().get_node_id()
            """the learner's node"""
            self._check_room(need)
            if self.config.address:
                check_versions(self.ray)
            self._open = stack.pop_all()

    def _room(self) -> int:
        """Return how many actors and distillers the nodes that are alive have CPUs for."""
        each = self.config.actor_cpus
        cpus = [node["Resources"].get("CPU", 0.0) for node in alive_nodes(self.ray)]
        return self._placed if each == 0.0 else sum(int(many / each + 1e-9) for many in cpus)

    def has_room(self) -> bool:
        """Whether the nodes that are alive have CPUs for all actors and distillers."""
        return self._room() >= self._placed

    def _check_room(self, need: int) -> None:
        nodes = alive_nodes(self.ray)
        if not self.has_room():
            who = "actors and distillers" if self._distillers else "actors"
            advice = ", runtime.num_distillers" if self._distillers else ""
            raise UserError(
                f"the cluster's {len(nodes)} nodes have CPUs for {self._room()} of {self._placed} "
                f"{who} ({self.config.actor_cpus:g} each); start more nodes (`ray start "
                f"--address=HOST:PORT`), or lower runtime.num_actors{advice} or ray.actor_cpus"
            )
        wanted = self.config.helper_resource
        if wanted and not any(node["Resources"].get(wanted) for node in nodes):
            raise UserError(
                f"none of the cluster's {len(nodes)} nodes has the resource {wanted!r} that "
                "ray.helper_resource names; start one by `ray start "
                f"--resources='{{\"{wanted}\": 1}}'`"
            )
        store = sum(node["Resources"].get("object_store_memory", 0.0) for node in nodes)
        if store < need:
            raise UserError(
                f"the cluster's object store holds {store / 2**20:,.0f} MB, and this run's "
                f"rollouts may take {need / 2**20:,.0f} MB; start its nodes with more "
                "(`ray start --object-store-memory`), or lower runtime.num_actors, "
                "runtime.num_envs or runtime.queue_rollouts"
            )

    def start(self, role: str, kind: type) -> Any:
        """Create an actor for a role: on any node, or as `ray.helper_resource` says."""
        options: dict[str, Any] = {"max_restarts": 0, "concurrency_groups": {BESIDE: 1}}
        helper = self.config.helper_resource
        if role in WITH_CPUS:
            options["num_cpus"] = self.config.actor_cpus
            options["scheduling_strategy"] = "SPREAD"
        elif helper:
            options |= {"num_cpus": 0, "resources": {helper: 1e-3}}
        else:
            options |= {"num_cpus": 0, "scheduling_strategy": on_node(self.node)}
        return self.ray.remote(**options)(kind).remote()

    @property
    def home(self) -> str:
        """Node on which all read rollouts as they are; none if others than the learner may not."""
        elsewhere = self._distillers > 0 and len(alive_nodes(self.ray)) > 1
        return "" if elsewhere or self.config.helper_resource else self.node

    def processes(self, workers: Collection[int]) -> dict[str, int]:
        """Return Ray's own processes by name, if the run has started them.

        Args:
            workers: processes that are known already.
        """
        if self.config.address:
            return {}
        found: dict[str, int] = {}
        for pid, line in descendants(os.getpid()).items():
            if pid not in workers and (line.startswith("ray::") or "/ray/" in line):
                part = next((part for part in line.split() if "/ray/" in part), line)
                name = "ray-" + PurePath(part.removeprefix("ray::")).stem.lower()
                same = sum(other.partition(" ")[0] == name for other in found)
                found[f"{name} {same}" if same else name] = pid
        return found

    def ready(self, refs: Sequence[Any], timeout_seconds: float) -> list[Any]:
        """Return those of `refs` whose values are here; wait for one of them at most."""
        many = len(refs) if timeout_seconds == 0.0 else 1
        found, _ = self.ray.wait([*refs], num_returns=many, timeout=timeout_seconds)
        return found

    def close(self) -> None:
        """Let go of the cluster, and end it if the run has started it. Safe to call twice."""
        self._open.close()
