"""Ray: the one module that knows it; it is imported when a cluster is asked for."""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import accerl
from accerl.errors import UserError

CONNECT_SECONDS = 5.0


def import_ray(asked_by: str) -> Any:
    """Return Ray, quiet and without its statistics.

    Args:
        asked_by: the option that needs it.

    Raises:
        UserError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns
    # Ray's default is 15: beside the learner, or anything else, actors would starve.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Calls that nobody waits for may fail with their actor, whose death is told by others.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray
    except ImportError as error:
        raise UserError(f"{asked_by} needs Ray: pip install 'ray[client]'") from error
    return ray


def connect(cluster: str) -> tuple[Any, bool]:
    """Return Ray, connected to a cluster, and whether it was not before.

    Args:
        cluster: auto, ``host:port`` or ``ray://host:port``.

    Raises:
        UserError: Ray is not installed, or there is no such cluster, or one of another version.
    """
    ray = import_ray("--cluster")
    if ray.is_initialized():
        return ray, False
    if cluster != "auto":
        _check_listens(cluster)
    try:
        with _own_signals():
            ray.init(address=cluster, logging_level=logging.ERROR, log_to_driver=False)
    except BaseException as error:  # any: what it raises depends on the way it is connected to
        ray.shutdown()  # what it had begun with
        if not isinstance(error, Exception):  # Ctrl-C, say
            raise
        raise _refusal(cluster, error) from error
    return ray, True


def check_reachable(address: str) -> None:
    """Refuse, before anything is written, what a run could not connect to.

    Args:
        address: see `RayConfig.address`.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    import_ray("--runtime ray")
    if address == "auto":
        ray, is_own = connect(address)
        if is_own:
            ray.shutdown()
    elif address:
        _check_listens(address)


def start_here(cpus: int, store_bytes: int) -> tuple[Any, bool]:
    """Return Ray with a cluster of this machine alone, and whether it was not connected before.

    Args:
        cpus: that it may give to actors, however many cores there are.
        store_bytes: size of its object store.

    Raises:
        UserError: Ray is not installed, or does not start.
    """
    ray = import_ray("--runtime ray")
    if ray.is_initialized():
        return ray, False
    try:
        with _own_signals():
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=store_bytes,
                include_dashboard=False,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except BaseException as error:  # any: whatever a machine may lack
        ray.shutdown()
        if not isinstance(error, Exception):  # Ctrl-C, say
            raise
        message = " ".join(str(error).split())
        raise UserError(f"Ray does not start on this machine: {message[:300]}") from error
    return ray, True


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what Ray's threads print on standard output, which is where results go as JSON."""
    with redirect_stdout(_WithoutRay()):
        yield


class _WithoutRay(io.TextIOBase):
    """Standard output without what Ray's threads print, such as the log of a node that died."""

    def __init__(self) -> None:
        self._out = sys.stdout

    def write(self, text: str, /) -> int:
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()


def found_version(version: str) -> Callable[[], str | None]:
    """Return a task that says what a node has where it has not this version of AcceRL.

    It travels by value: a node without AcceRL can say so.
    """

    def other_version() -> str | None:
        try:
            import accerl
        except ImportError:
            return "no AcceRL"
        return None if accerl.__version__ == version else f"AcceRL {accerl.__version__}"

    return other_version


def wrong_version(node: str, found: str) -> UserError:
    """Return the error of a node that has something else."""
    return UserError(
        f"node {node} of the cluster has {found}, this is AcceRL {accerl.__version__}; install "
        "the same everywhere"
    )


def check_versions(ray: Any) -> None:
    """Refuse a cluster with a node that has another version of AcceRL, or none.

    Raises:
        UserError: with what it has.
    """
    nodes = alive_nodes(ray)
    task = ray.remote(num_cpus=0, max_retries=0)(found_version(accerl.__version__))
    asked = [task.options(scheduling_strategy=on_node(node["NodeID"])).remote() for node in nodes]
    for node, ref in zip(nodes, asked, strict=True):
        try:
            found = ray.get(ref)
        except ray.exceptions.RayError:
            continue  # it has left the cluster meanwhile, or just now
        if found is not None:
            raise wrong_version(node["NodeManagerHostname"], found)


def alive_nodes(ray: Any) -> list[Mapping[str, Any]]:
    """Return the nodes that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def on_node(node_id: str) -> Any:
    """Return the strategy that places something on a node, and nowhere without it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def this_node() -> str:
    """Return the node that this process is on."""
    import ray

    return ray.get_runtime_context().get_node_id()


def put(value: Any) -> Any:
    """Put a value into this node's object store; return the reference to it."""
    import ray

    return ray.put(value)


@contextmanager
def full_store_errors(ray: Any) -> Iterator[None]:
    """Say in one line that an object store is full.

    Raises:
        UserError: it is.
    """
    try:
        yield
    except ray.exceptions.RayError as error:
        _refuse_full_store(ray, error)
        raise


def _refuse_full_store(ray: Any, error: Exception) -> None:
    full = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)
    if isinstance(error, full) or isinstance(getattr(error, "cause", None), full):
        raise UserError(
            "the cluster's object store is full, and so is the disk behind it; lower "
            "runtime.num_actors, runtime.num_envs or runtime.queue_rollouts, or start its nodes "
            "with more (`ray start --object-store-memory`); --resume goes on from the checkpoint"
        ) from error


def described(ray: Any, error: Exception) -> tuple[str, bool]:
    """Return what a worker died of, in words, and whether its node died.

    Raises:
        UserError: the object store is full.
    """
    _refuse_full_store(ray, error)
    cause = getattr(error, "cause", None)
    text = " ".join(str(error).split())
    if "node has died" in text or "node failure" in text or "Node Id" in text:
        return "its node died", True
    if isinstance(error, ray.exceptions.RayTaskError):
        return f"it raised {type(cause).__name__}: {' '.join(str(cause).split())[:200]}", False
    if "worker process has died" in text:
        return "its process ended", False
    return f"{type(error).__name__}: {text[:200]}", False


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this program's handler of SIGTERM; Ray sets its own."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _check_listens(cluster: str) -> None:
    """Refuse an address at which nobody listens: Ray itself would try for minutes."""
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"--cluster {cluster!r} is none of auto, HOST:PORT and ray://HOST:10001")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster answers at {cluster} ({error}); is its head node running "
            "(`ray start --head`)?"
        ) from error


def _refusal(cluster: str, error: Exception) -> UserError:
    message = " ".join(str(error).split())
    if isinstance(error, ConnectionError) and cluster == "auto":
        return UserError(
            "no Ray cluster runs on this machine; start one (`ray start --head`), or name another "
            "by --cluster"
        )
    if "ersion mismatch" in message:
        return UserError(f"the cluster at {cluster} has another Ray or Python: {message}")
    return UserError(f"cannot connect to the cluster at {cluster}: {message[:300]}")
