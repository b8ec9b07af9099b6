"""Runs on a Ray cluster of several nodes: nodes that die, and what is refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import accerl
from accerl.compress.links import CompressionState, Stage
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.records import read_metrics
from accerl.runtime.machine import memory
from accerl.runtime.parts import Parts
from accerl.runtime.process.supervise import Supervisor
from accerl.runtime.ray.cluster import connect, described, start_here
from accerl.runtime.ray.compressing import unpacked
from accerl.runtime.ray.config import RayConfig
from accerl.runtime.ray.distillers import RayDistillers
from accerl.runtime.ray.run import RayRun
from accerl.runtime.ray.worker import RayWorker
from accerl.spec import CompressionSpec, Decision
from tests.fixtures.command_line import call
from tests.fixtures.runs.process_runs import PATIENCE_SECONDS
from tests.fixtures.runs.processes import wait_for
from tests.fixtures.runs.ray_runs import advance_until, ray_catch
from tests.fixtures.studies.clusters import add_node, cluster

NET3 = CompressionSpec(student="net3", bits=8)


@pytest.mark.parametrize("how", ["start_here", "connect"])
def test_ctrl_c_while_ray_starts_leaves_nothing_behind(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = MagicMock()
    ray.is_initialized.return_value = False
    ray.init.side_effect = KeyboardInterrupt
    monkeypatch.setattr("accerl.runtime.ray.cluster.import_ray", lambda _: ray)
    with pytest.raises(KeyboardInterrupt):
        start_here(1, 10**8) if how == "start_here" else connect("auto")
    ray.shutdown.assert_called_once_with()


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    with cluster(1, num_cpus=2) as made:
        yield made


def test_ray_sends_no_statistics_and_its_actors_are_as_nice_as_the_learner() -> None:
    names = ["RAY_USAGE_STATS_ENABLED", "RAY_worker_niceness"]
    code = (
        "import os\n"
        f"for name in {names}: os.environ.pop(name, None)\n"
        "from accerl.runtime.ray.cluster import import_ray\n"
        "import_ray('--runtime ray')\n"
        f"print([os.environ[name] for name in {names}])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['0', '0']"


def on(address: str, config: RunConfig | None = None, **changes: Any) -> RunConfig:
    return replace(config or ray_catch(), ray=RayConfig(address=address, **changes))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"no Ray cluster answers at 127.0.0.1:1 \(.*ray start --head"),
        ("somewhere", "'somewhere' is none of auto, HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster_is_refused(address: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RayRun(on(address))


def test_a_run_begins_nothing_without_the_cluster_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tests may have one running: Ray would find it."""

    def find_none(address: str) -> None:
        raise UserError(f"no Ray cluster answers at {address}")

    monkeypatch.setattr("accerl.runtime.ray.cluster.connect", find_none)
    command = ["train", "catch", "--runtime", "ray", "--cluster", "auto", "--seconds", "1"]
    assert call(*command, "--out", str(tmp_path / "run")) == 2
    assert not (tmp_path / "run").exists()


def test_a_client_cannot_hold_the_learner() -> None:
    with pytest.raises(UserError, match=r"make this machine a node .* use --cluster auto"):
        RayConfig(address="ray://127.0.0.1:10001")


def test_without_ray_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(UserError, match=r"^--runtime ray needs Ray: pip install 'ray"):
        RayRun(ray_catch())


@pytest.mark.slow
def test_a_cluster_of_this_machine_has_room_for_the_run_it_is_started_for() -> None:
    """Also where actors take shares of CPUs, and there are more of them than the machine has."""
    cpus = os.cpu_count() or 1
    run = RayRun(replace(ray_catch(num_actors=cpus + 1), ray=RayConfig(actor_cpus=0.9)))
    try:
        assert run._cluster.has_room()
    finally:
        run.close()


def test_a_cluster_that_does_not_fit_is_refused_in_one_line(
    head: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    address = head.address
    refusals = {
        r"1 nodes have CPUs for 2 of 5 actors \(1 each\); start more nodes": on(
            address, ray_catch(num_actors=5)
        ),
        r"none of the cluster's 1 nodes has the resource 'gpu_box'": on(
            address, helper_resource="gpu_box"
        ),
        r"object store holds 80 MB, .* may take .* runtime.queue_rollouts": on(
            address, ray_catch(queue_rollouts=50_000)
        ),
    }
    for message, config in refusals.items():
        with pytest.raises(UserError, match=message) as error:
            RayRun(config)
        assert "\n" not in str(error.value)
        assert not ray.is_initialized()
    with monkeypatch.context() as patched:
        patched.setattr(accerl, "__version__", "0.0.7")
        with pytest.raises(UserError, match=r"node .* has AcceRL .*, this is AcceRL 0\.0\.7"):
            RayRun(on(address))
        assert not ray.is_initialized()
    with monkeypatch.context() as patched:
        patched.setattr(ray, "__version__", "2.0.0")
        with pytest.raises(UserError, match=r"has another Ray or Python: .*2\.0\.0"):
            RayRun(on(address))
    assert not ray.is_initialized()


def test_a_full_object_store_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.exceptions import ObjectStoreFullError, OutOfDiskError

    for error in (ObjectStoreFullError("full"), OutOfDiskError("full")):
        with pytest.raises(UserError, match=r"^the cluster's object store is full.*queue_rollouts"):
            described(ray, error)
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: SimpleNamespace(used=0, free=2**20))
    with pytest.raises(UserError, match=r"/dev/shm has 1 MB; lower runtime.num_actors"):
        RayRun(ray_catch())
    assert not ray.is_initialized()


def test_an_actor_that_finds_no_place_asks_who_has_the_cpus() -> None:
    """The nodes have CPUs for it, but another driver's actors hold them."""
    seconds = [0.0]
    supervisor = Supervisor(clock=lambda: seconds[0])
    actor = RayWorker(MagicMock(), "actor", 0, object, lambda _: ())
    supervisor.start(actor)
    seconds[0] = 121.0
    supervisor.replace(actor, seconds=0.0, recovered="")
    seconds[0] = 242.0
    with pytest.raises(UserError, match=r"twice in a row; are the cluster's CPUs taken by others"):
        supervisor.replace(actor, seconds=0.0, recovered="")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_really_full_object_store_ends_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    """Another driver fills it in the middle, and Ray may not write to the disk instead."""
    import ray
    from ray.exceptions import OutOfDiskError

    kept: list[Any] = []

    def fill(kept: list[Any]) -> None:
        while True:
            kept.append(ray.put(np.zeros(200_000, np.uint8)))

    out = tmp_path / "run"
    nowhere_else = {"local_fs_capacity_threshold": 0.001}
    with cluster(1, num_cpus=1, _system_config=nowhere_else) as made:
        command = "import sys; from studies.cli.main import main; main(sys.argv[1:])"
        large = ["--set", "learner.unroll=1000", "--set", "runtime.eval_episodes=0"]
        train = [sys.executable, "-c", command, "train", "catch", "--runtime", "ray"]
        train += ["--cluster", made.address, "--out", str(out), *large]
        run = subprocess.Popen([*train, "--seconds", "900"], stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: (out / "checkpoint").is_dir(), "a checkpoint", seconds=200.0)
            connect(made.address)
            with pytest.raises(OutOfDiskError):
                fill(kept)
            _, told = run.communicate()
        finally:
            run.kill()
            ray.shutdown()
        assert run.returncode == 2
        last = told.strip().splitlines()[-1]
        assert "the cluster's object store is full" in last
        assert "--resume goes on from the checkpoint" in last
        assert "Traceback" not in told
        before = list(read_metrics(out))
        seconds = str(before[-1].total_seconds + 1.0)
        subprocess.run([*train, "--seconds", seconds, "--resume"], check=True, capture_output=True)
    after = list(read_metrics(out))
    assert after[: len(before)] == before
    assert after[-1].total_seconds > before[-1].total_seconds


class Mine:
    """A link of the user's own."""

    stage = Stage.TUNE

    def apply(self, state: CompressionState) -> CompressionState:
        """Change nothing."""
        return state


def test_a_class_of_the_script_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mine, "__module__", "__main__")
    with pytest.raises(UserError, match=r"^Mine: .* move class Mine to a module of its own"):
        RayRun(ray_catch(), parts=Parts(links=(Mine(),)))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_outlives_a_node_and_its_actors_come_back_when_one_joins() -> None:
    """The head is the learner's; two nodes of one CPU hold the actors; one dies, one joins."""
    with cluster(1, num_cpus=0) as made:
        add_node(made)
        doomed = add_node(made)
        made.wait_for_nodes()
        run = RayRun(on(made.address, ray_catch(num_actors=2, eval_episodes=4)))
        try:
            run.apply(Decision.of(NET3))
            reports = advance_until(run, 10)
            nodes = [actor.started.node for actor in run._actors if actor.started is not None]
            assert len(set(nodes)) == 2
            assert run._cluster.node not in nodes
            (dying,) = (
                a for a, node in zip(run._actors, nodes, strict=True) if node == doomed.node_id
            )
            made.remove_node(doomed, allow_graceful=False)
            while not dying.restarts:
                reports.append(run.advance(0.2))
            updates = run.learner.updates
            while run.learner.updates < updates + 5:  # with the actor that is left
                reports.append(run.advance(0.2))
            assert not dying.ready
            add_node(made)
            reports += advance_until(run, updates + 20)
            (event,) = [event for report in reports for event in report.events]
            assert event["role"] == "actor"
            assert "its node died" in event["cause"]
            assert "of its slots reclaimed" in event["action"]
            assert reports[-1].total_env_steps == run.learner.updates * 72
        finally:
            run.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_distillers_on_several_nodes_add_up_and_outlive_one_of_them() -> None:
    """What the dead node's distiller had added is still counted, and its successor adds to it."""
    with cluster(1, num_cpus=0) as made:
        nodes = [add_node(made) for _ in range(3)]  # the actor and each distiller have their own
        made.wait_for_nodes()
        config = ray_catch(num_distillers=2)
        compression = replace(config.compression, distill_updates=0)
        run = RayRun(on(made.address, replace(config, compression=compression)))
        distillers = run.publishing.distillers
        try:
            run.apply(Decision.of(NET3))
            advance_until(run, 30)
            places = {worker.name: worker.started.node for worker in run.workers if worker.started}
            assert run._cluster.node not in (places["distiller-0"], places["distiller-1"])
            doomed = next(node for node in nodes if node.node_id == places["distiller-1"])
            before = added(distillers)
            made.remove_node(doomed, allow_graceful=False)
            while not distillers.workers[1].restarts:
                run.advance(0.2)
            add_node(made)
            after = added(distillers)
            end = monotonic() + PATIENCE_SECONDS
            while not all(now[1] != then[1] for then, now in zip(before, after, strict=True)):
                assert monotonic() < end, "they add no more"
                run.advance(0.2)
                after = added(distillers)
        finally:
            run.close()
    assert before[1][0] == after[1][0] == after[0][0]  # the same weights are added to


def added(distillers: RayDistillers) -> list[tuple[tuple[int, int], float]]:
    """Return of each distiller the mark of what it adds to, and how much it has added."""
    import ray

    entries = [unpacked(ray.get(shown))[0] for shown in distillers._shown]
    return [
        (
            (entry["generation"], entry["base"]),
            sum(float(delta.abs().sum()) for delta in entry["delta"].values()),
        )
        for entry in entries
    ]
