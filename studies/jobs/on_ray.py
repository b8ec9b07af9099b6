"""An executor on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import accerl
from accerl.errors import UserError
from accerl.runtime.ray.cluster import (
    alive_nodes,
    connect,
    found_version,
    on_node,
    quiet,
    wrong_version,
)
from studies.jobs.cached import CachedExecutor
from studies.jobs.executor import Job
from studies.jobs.local import JOB_BYTES
from studies.jobs.work import Done, End, Failed, Lost, packed

WHOLE_NODE = "accerl_whole_node"
"""custom resource of the nodes on which may be timed"""
NEEDS = {"CPU": 1.0, "memory": float(JOB_BYTES)}
LOOK_SECONDS = 1.0
"""between two looks at whether nodes have joined"""


class RayExecutor(CachedExecutor):
    """Runs jobs as Ray tasks; arguments are those of `open_executor`.

    A job takes one CPU. Timed work takes all CPUs of a node that has the resource `WHOLE_NODE`,
    always of the same one: seconds of two machines are not to be mixed. Nodes may come and go.

    Raises:
        UserError: there is no such cluster, or none of its nodes has room for a job.
    """

    is_local = False

    def __init__(self, out: Path, workers: int, cluster: str, *, saved_only: bool = False) -> None:
        self._ray, self._is_own = connect(cluster)
        self._limit = workers
        self._timed_node: Mapping[str, Any] | None = None
        self._running: dict[Any, str] = {}
        self._quiet = ExitStack()
        self._quiet.enter_context(quiet())
        try:
            super().__init__(out, saved_only=saved_only)
            self._node_with(NEEDS, advice="start nodes with more: `ray start --num-cpus --memory`")
            self._task = self._ray.remote(max_retries=0)(_task())  # losses are counted here
            self.workers = self._room()
        except BaseException:
            self.close()
            raise

    def has_room(self, job: Job[Any]) -> bool:
        """Whether a CPU of the cluster, as it is now, is free of this study's jobs."""
        self.workers = self._room()
        return len(self._running) < self.workers

    def start(self, name: str, job: Job[Any]) -> None:
        """Have Ray run a job wherever there is room."""
        options: dict[str, Any] = {"num_cpus": NEEDS["CPU"], "memory": NEEDS["memory"]}
        if job.is_timed:
            options |= self._alone()
        task = self._task.options(**options)
        self._running[task.remote(packed(job, self.folder, self.precision))] = name

    def ended(self, *, wait: bool) -> list[tuple[str, End]]:
        """Return what came of the jobs that have ended."""
        if not self._running:
            return []
        timeout, least = (LOOK_SECONDS, 1) if wait else (0, len(self._running))
        ready, _ = self._ray.wait([*self._running], num_returns=least, timeout=timeout)
        return [(self._running.pop(ref), self._end(ref)) for ref in ready]

    def _end(self, ref: Any) -> End:
        try:
            end = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            return Failed(error=str(error.cause).partition("\n")[0])
        except self._ray.exceptions.RayError as error:
            return Lost(cause=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        if isinstance(end, Done | Failed):
            return end
        raise wrong_version(end["node"], end["found"])

    def _room(self) -> int:
        return self._limit or max(1, int(self._ray.cluster_resources().get("CPU", 0.0)))

    def _alone(self) -> dict[str, Any]:
        """Return what gives a task a node to itself.

        Raises:
            UserError: no node may be timed on, or the one that was has died.
        """
        alive = {node["NodeID"] for node in alive_nodes(self._ray)}
        if self._timed_node is not None and self._timed_node["NodeID"] not in alive:
            raise UserError(
                f"node {self._timed_node['NodeManagerHostname']}, on which is timed, has left the "
                "cluster; start the same command again to time what is left on another one, or "
                "give --out a new folder to have all seconds from one machine"
            )
        if self._timed_node is None:
            needs = {**NEEDS, WHOLE_NODE: 1.0}
            start = f"ray start --resources='{{\"{WHOLE_NODE}\": 1}}'"
            self._timed_node = self._node_with(needs, advice=f"start one by {start}")
        return {
            "num_cpus": self._timed_node["Resources"]["CPU"],
            "resources": {WHOLE_NODE: 1.0},
            "scheduling_strategy": on_node(self._timed_node["NodeID"]),
        }

    def _node_with(self, needs: Mapping[str, float], *, advice: str) -> Mapping[str, Any]:
        """Return a node that has all that a job needs.

        Raises:
            UserError: none has.
        """
        nodes = alive_nodes(self._ray)
        for node in nodes:
            if all(node["Resources"].get(name, 0.0) >= many for name, many in needs.items()):
                return node
        wanted = ", ".join(
            f"{name} {many / 2**30:g} GiB" if name == "memory" else f"{name} {many:g}"
            for name, many in needs.items()
        )
        raise UserError(
            f"none of the cluster's {len(nodes)} nodes has room for a job ({wanted}); {advice}"
        )

    def close(self) -> None:
        """End the jobs at once; what was under way is done again next time."""
        for ref in self._running:
            self._ray.cancel(ref, force=True)
        self._running.clear()
        if self._is_own:
            self._ray.shutdown()
        self._quiet.close()


def _task() -> Callable[[bytes], Any]:
    """Return what a node runs. It travels by value: a node without AcceRL can say so."""
    other_version = found_version(accerl.__version__)

    def accerl_job(data: bytes) -> Any:
        import platform

        found = other_version()
        if found is not None:
            return {"node": platform.node(), "found": found}
        from studies.jobs.work import do

        return do(data)

    return accerl_job
