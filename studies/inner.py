"""Inner runs as jobs: plain JSON in, plain JSON out, so that any process can do them.

On the virtual clock a job's result depends on the job alone. Finished jobs are therefore kept in
a file, and a study that was interrupted goes on by asking for the same jobs again.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import make_strategy
from accerl.monitor.strategy import Strategy
from accerl.presets import load_preset
from accerl.records import SUMMARY
from accerl.runtime.latency import LatencyProfile
from accerl.runtime.supervise import ignoring_interrupts
from accerl.train import train
from controller.actions import ActionSpace
from controller.comparators import COMPARATORS, make_comparator
from controller.instances import Instance, game_instance
from controller.objective import GameReference
from controller.policy import ControllerPolicy, LearnedStrategy
from controller.rollouts import rollout
from controller.shield import Shielded
from studies.kept import Kept


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
    action_seed: int,
    policy: dict[str, Any],
    actions: ActionSpace,
    profile: LatencyProfile,
) -> dict[str, Any]:
    """Return the job of one exploring episode of the controller."""
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
        decision of every interval. For a rollout: a `Trajectory` as JSON.
    """
    setup = GameSetup(**job["setup"])
    profile = LatencyProfile.from_json(job["profile"])
    if job["kind"] == "rollout":
        instance = make_instance(setup, profile)
        actions = ActionSpace.from_json(job["actions"])
        trajectory = rollout(job["policy"], actions, instance, job["seed"], job["action_seed"])
        return trajectory.to_json()
    description = job["strategy"]
    result = train(
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


def make_instance(setup: GameSetup, profile: LatencyProfile) -> Instance:
    """Return the controller's outer task of a game."""
    return game_instance(
        setup.config(0),
        profile,
        reference=setup.reference,
        horizon_seconds=setup.horizon_seconds,
        interval_seconds=setup.interval_seconds,
    )


Job = Callable[[dict[str, Any]], dict[str, Any]]
"""a job in plain JSON -> its result, likewise"""


def _start_worker() -> None:
    """Prepare a worker process: one torch thread, as results depend on the number."""
    torch.set_num_threads(1)


class InnerRuns:
    """A pool of processes that does jobs, and the file of those that are done."""

    def __init__(self, path: Path, workers: int, do: Job = do_job) -> None:
        """Read the finished jobs from `path` (JSON lines); processes start with the first job.

        Args:
            path: of the file.
            workers: processes.
            do: does one job; a function that other processes can import.
        """
        self._do = do
        self._kept = Kept(path)
        self._pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_start_worker
        )

    def map(self, jobs: list[dict[str, Any]], on_done: Callable[[], None]) -> list[dict[str, Any]]:
        """Return the result of every job, in order; `on_done` is called after each.

        Raises:
            UserError: a worker process was killed.
        """
        with ignoring_interrupts():  # workers inherit it: Ctrl-C is this process's to handle
            missing = {self._pool.submit(self._do, job): job for job in jobs if not self._has(job)}
        for _ in range(len(jobs) - len(missing)):
            on_done()
        try:
            for future in as_completed(missing):
                self._kept.keep(missing[future], future.result())
                on_done()
        except BrokenProcessPool as error:
            raise UserError(
                "a worker process was killed (out of memory?); start the same command again to go "
                "on, with fewer --workers if memory is short"
            ) from error
        return [self._kept[job] for job in jobs]

    def _has(self, job: dict[str, Any]) -> bool:
        out = job.get("out")
        return job in self._kept and (out is None or (Path(out) / SUMMARY).is_file())

    def close(self) -> None:
        """End the processes at once; what they were doing is done again next time."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        for child in multiprocessing.active_children():
            child.join(2.0)

    def __enter__(self) -> InnerRuns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
