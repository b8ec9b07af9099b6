"""Inner runs as jobs: plain JSON in, plain JSON out, so that any process can do them.

On the virtual clock a job's result depends on the job alone. Finished jobs are therefore kept in
a storage, and a study that was interrupted goes on by asking for the same jobs again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path
from time import monotonic
from typing import Any

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import make_strategy
from accerl.monitor.strategy import Strategy
from accerl.presets import load_preset
from accerl.records import SUMMARY
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.process.messages import News
from accerl.runtime.process.supervise import Supervisor, Worker
from accerl.runtime.process.wire import PeerGoneError
from accerl.training import run_training
from controller.actions import ActionSpace
from controller.bundle.schedule import ReplayedSchedule, Schedule
from controller.comparators.by_name import COMPARATORS, make_comparator
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import Instance, game_instance
from controller.objective import GameReference
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from controller.policy.shield import Shielded
from controller.training.cloning import record
from controller.training.rollouts import rollout
from studies.contest.costs import Meter
from studies.jobs.storage import JOURNAL, open_storage, shown, storage_errors
from studies.jobs.store import JobStore
from studies.jobs.workers import SAME_VERSION, local_worker, name_of
from studies.progress import console
from studies.study_folder import make_folder, unpack_records


@dataclass(frozen=True, kw_only=True)
class GameSetup:
    """One game on one machine; lengths are seconds of the virtual clock."""

    game: str
    profile: str
    """name of the latency profile that charges its seconds"""
    horizon_seconds: float
    interval_seconds: float
    random_return: float = 0.0
    reference_return: float = 1.0
    target_return: float = 1.0
    fp32_gain: float = 1.0
    """discounted gain of runs without compression on this machine: what gains are measured in"""

    @property
    def name(self) -> str:
        """A name for folders and figures."""
        return f"{self.game}-{self.profile}"

    def config(self, seed: int) -> RunConfig:
        """Return the inner run of `seed`."""
        config = replace(load_preset(self.game), seed=seed, seconds=self.horizon_seconds)
        return config.with_runtime(interval_seconds=self.interval_seconds)

    @property
    def reference(self) -> GameReference:
        """The score scale of the game."""
        return GameReference(self.random_return, self.reference_return)

    def to_json(self) -> dict[str, Any]:
        """Return all fields."""
        return dict(vars(self))


def strategy_job(
    setup: GameSetup,
    seed: int,
    strategy: dict[str, Any],
    profile: LatencyProfile,
    out: Path | None = None,
) -> dict[str, Any]:
    """Return the job of one run under a strategy, ``{"name": ..., "params": {...}}``."""
    return {
        "kind": "strategy",
        "setup": setup.to_json(),
        "config": setup.config(seed).hash,
        "seed": seed,
        "strategy": strategy,
        "profile": profile.to_json(),
        "out": None if out is None else str(out),
    }


def rollout_job(
    setup: GameSetup,
    seed: int,
    action_seed: int | None,
    policy: dict[str, Any],
    actions: ActionSpace,
    profile: LatencyProfile,
) -> dict[str, Any]:
    """Return the job of one episode of the controller; see `rollouts.rollout`."""
    return {
        "kind": "rollout",
        "setup": setup.to_json(),
        "config": setup.config(seed).hash,
        "seed": seed,
        "action_seed": action_seed,
        "policy": policy,
        "actions": actions.to_json(),
        "profile": profile.to_json(),
    }


def record_job(
    setup: GameSetup,
    seed: int,
    strategy: dict[str, Any],
    actions: ActionSpace,
    profile: LatencyProfile,
) -> dict[str, Any]:
    """Return the job of one episode of a hand-set strategy, recorded to be cloned."""
    return {
        "kind": "record",
        "setup": setup.to_json(),
        "config": setup.config(seed).hash,
        "seed": seed,
        "strategy": strategy,
        "actions": actions.to_json(),
        "profile": profile.to_json(),
    }


def build_strategy(description: dict[str, Any], setup: GameSetup) -> Strategy:
    """Return the strategy that a job describes, in the units of the game.

    ``{"name": ..., "params": {...}, "shield": {"threshold_nats": 14.0}}``; the shield is optional.
    """
    strategy = _unshielded(description, setup)
    shield = description.get("shield")
    return strategy if shield is None else Shielded.from_json(strategy, shield)


def _unshielded(description: dict[str, Any], setup: GameSetup) -> Strategy:
    if description["name"] == "learned":
        policy = ControllerPolicy.from_json(description["policy"])
        return LearnedStrategy(policy, ActionSpace.from_json(description["actions"]))
    if description["name"] == "schedule":
        return ReplayedSchedule(Schedule.from_json(description["points"]))
    make = make_comparator if description["name"] in COMPARATORS else make_strategy
    return make(description["name"], **_in_units(description, setup)["params"])


def _in_units(description: dict[str, Any], setup: GameSetup) -> dict[str, Any]:
    """Return a hand-set strategy, or a composition of some, with the game's scale of scores."""
    params = dict(description["params"])
    if description["name"] == "reward-gap":
        params["scale"] = setup.reference.span
    if description["name"] == "first-that-fires":
        params["rules"] = [_in_units(rule, setup) for rule in params["rules"]]
    return {"name": description["name"], "params": params}


def do_job(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job here.

    Returns:
        For a strategy: ``times`` and ``returns`` (J, after random play at 0), and ``specs``, the
        decision of every interval. For a rollout: a `Trajectory` as JSON; for a recording: an
        `RecordedEpisode` likewise, and ``env_steps``.
    """
    setup = GameSetup(**job["setup"])
    if setup.config(job["seed"]).hash != job["config"]:
        raise UserError(f"preset {setup.game!r} is another one here; {SAME_VERSION}")
    profile = LatencyProfile.from_json(job["profile"])
    if job["kind"] == "rollout":
        instance = make_instance(setup, profile)
        actions = ActionSpace.from_json(job["actions"])
        trajectory = rollout(job["policy"], actions, instance, job["seed"], job["action_seed"])
        return trajectory.to_json()
    if job["kind"] == "record":
        return _record(job, setup, profile)
    description = job["strategy"]
    result = run_training(
        setup.config(job["seed"]),
        build_strategy(description, setup),
        strategy_name=description.get("label", description["name"]),
        out=None if job["out"] is None else Path(job["out"]),
        profile=profile,
    )
    reports = result.reports
    return {
        "times": [0.0, *(report.total_seconds for report in reports)],
        "returns": [setup.random_return, *(report.learner_return for report in reports)],
        "decisions": [report.decision.to_json() for report in reports],
        "env_steps": reports[-1].total_env_steps,
    }


def _record(job: dict[str, Any], setup: GameSetup, profile: LatencyProfile) -> dict[str, Any]:
    actions = ActionSpace.from_json(job["actions"])
    env = CompressionControlEnv([make_instance(setup, profile)], actions=actions)
    try:
        (episode,) = record(env, build_strategy(job["strategy"], setup), [job["seed"]])
        steps = env.total_env_steps
    finally:
        env.close()
    return {**episode.to_json(), "env_steps": steps}


def make_instance(setup: GameSetup, profile: LatencyProfile) -> Instance:
    """Return the controller's outer task of a game."""
    return game_instance(
        setup.config(0),
        profile,
        reference=setup.reference,
        horizon_seconds=setup.horizon_seconds,
        interval_seconds=setup.interval_seconds,
    )


LOST_SECONDS = 2.0
"""for whoever has ended an attempt at a job to put it back, before it is taken for lost"""


def check_workers(workers: int, storage: str) -> None:
    """Refuse, before anything is done, what `InnerRuns` could not work with.

    Raises:
        UserError: a number of processes below zero, or a storage that cannot be opened.
    """
    if workers < 0:
        raise UserError(
            f"--workers must be at least 0 (all is left to workers elsewhere), got {workers}"
        )
    if storage:
        open_storage(storage)


class InnerRuns:
    """Has jobs done, by processes of its own and by workers elsewhere on the same storage.

    Args:
        out: the study's folder; jobs write their run directories below it.
        workers: processes of its own; they start with the first job that is not done yet.
        do: what its jobs are for, of `studies.jobs.workers.FUNCTIONS`.
        study: name under which workers elsewhere find the jobs.
        storage: see `studies.jobs.storage`; by default a journal in the folder.
    """

    def __init__(
        self, out: Path, workers: int, do: str = "inner", *, study: str, storage: str = ""
    ) -> None:
        self._folder = make_folder(out)
        self._where = storage or str(out / JOURNAL)
        self._do = do
        with storage_errors(self._where):
            self._store = JobStore(open_storage(self._where), study)
        self._supervisor = Supervisor(advice="start the same command again to go on")
        arguments = (self._where, study, self._folder)
        self._workers = [
            Worker("worker", index, local_worker, lambda _: arguments) for index in range(workers)
        ]
        self._are_started = False
        self._lost: dict[str, float] = {}
        self._meters: list[Meter] = []
        if storage or workers == 0:
            place = f"--storage '{shown(storage)}'" if storage else f"--out {out}"
            command = f"accerl study worker --study {study} {place}"
            console.print(f"More workers: {command}", markup=False, soft_wrap=True)

    def map(self, jobs: list[dict[str, Any]], on_done: Callable[[], None]) -> list[dict[str, Any]]:
        """Return the result of every job, in order; `on_done` is called for each.

        Raises:
            UserError: a job failed time and again, too many processes died, or the storage has
                stopped to answer. What was done is kept.
        """
        with storage_errors(self._where):
            stored = [self._stored(job) for job in jobs]
            keys = self._store.add(stored, is_whole=self._has_records)
            asked, left = dict(zip(keys, stored, strict=True)), Counter(keys)
            if any(self._store.state(key) != "done" for key in left):
                self._wake_workers()
            while True:
                for key in [key for key in left if self._store.state(key) == "done"]:
                    self._save_records(key, asked[key])
                    for _ in range(left.pop(key)):
                        on_done()
                if not left:
                    for meter in self._meters:
                        meter.add({key: self._store.seconds(key) for key in keys})
                    return [self._store.result(key) for key in keys]
                self._check_on({key: asked[key] for key in left})
                self._watch_workers()
                self._store.look()
                self._store.reclaim()

    @contextmanager
    def metered(self) -> Iterator[Meter]:
        """Count what is asked for meanwhile, whether it had to be done or was there already."""
        meter = Meter()
        self._meters.append(meter)
        try:
            yield meter
        finally:
            self._meters.remove(meter)

    def _stored(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return a job as any worker can do it: it says what by, and which folder it means."""
        job = {"do": self._do, **job}
        if job.get("out") is None:
            return job
        out = os.path.relpath(job["out"], self._folder.path)
        return {**job, "out": out, "folder": self._folder.mark}

    def _run_folder(self, job: dict[str, Any]) -> Path | None:
        return None if job.get("out") is None else self._folder.path / job["out"]

    def _has_records(self, key: str, job: dict[str, Any]) -> bool:
        """Whether a job that is done has left its run directory, or can be given it now."""
        run = self._run_folder(job)
        return run is None or (run / SUMMARY).is_file() or self._store.records(key) is not None

    def _save_records(self, key: str, job: dict[str, Any]) -> None:
        """Write the run directory of a job that was done where the folder cannot be seen."""
        run, records = self._run_folder(job), self._store.records(key)
        if run is not None and records is not None and not (run / SUMMARY).is_file():
            unpack_records(records, run)

    def _wake_workers(self) -> None:
        """Tell the workers that there are jobs; start them if they are not."""
        self._store.is_finished = False
        for worker in self._workers:
            if self._are_started:
                worker.send(News())
            else:
                self._supervisor.start(worker)
        self._are_started = True

    def _check_on(self, left: dict[str, dict[str, Any]]) -> None:
        """See to it that all that is left to do can be done."""
        states = {key: self._store.state(key) for key in left}
        for key, state in states.items():
            if state == "failed":
                raise UserError(
                    f"a job was given up ({name_of(left[key])}): {self._store.error(key)}; all "
                    "that was done is kept: start the same command again to try it again"
                )
        now = monotonic()
        lost = [key for key, state in states.items() if state == "lost"]
        self._lost = {key: self._lost.get(key, now) for key in lost}
        late = [key for key, since in self._lost.items() if now - since > LOST_SECONDS]
        if late:
            self._store.add([left[key] for key in late])

    def _watch_workers(self) -> None:
        """Wait until a worker has something to say, or it is time to look at the storage."""
        pipes = [worker.channel.pipe for worker in self._workers]
        ready = connection.wait(pipes, self._store.patience_seconds)
        for worker, pipe in zip(self._workers, pipes, strict=True):
            if self._is_gone(worker, pipe in ready):
                self._supervisor.replace(
                    worker, seconds=monotonic(), recovered="what it was doing is done again"
                )

    def _is_gone(self, worker: Worker, has_news: bool) -> bool:
        try:
            if has_news:
                worker.receive()
        except PeerGoneError:
            return True
        return self._supervisor.hangs(worker)

    def close(self) -> None:
        """End the processes at once; what they were doing is done again next time."""
        for worker in self._workers:
            worker.end(patience_seconds=0.0)

    def __enter__(self) -> InnerRuns:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            with storage_errors(self._where):
                self._store.is_finished = True
