"""Episodes that are continued in several ways: the jobs of the oracle gap's study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.evaluate import play_episodes, policy_infer
from accerl.presets import load_preset
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.serial.run import SerialRun
from accerl.seeds import Role, number
from accerl.spec import CompressionSpec, Decision
from controller.env.control_env import CompressionControlEnv
from controller.env.instances import INTERVALS, Instance, choose_horizon, game_instance
from controller.env.references import load_reference
from controller.objective import default_beta, discounted_gain
from studies.jobs.workers import SAME_VERSION

SWITCHES = (3, 6, 9)
"""intervals after which the second phase may begin"""
REPORT_EPISODES = 32
"""per measurement of J that counts"""
CHOOSE_EPISODES = 96
"""per measurement that the oracle chooses by, with other seeds"""
VERSION = 1
"""of the rules below: results of another are not reused"""


def describe(game: str, profile: str, env_steps: int) -> dict[str, Any]:
    """Return what every job of a game on a machine says; results depend on all of it."""
    return {
        "version": VERSION,
        "game": game,
        "profile": profile,
        "profile_hash": load_profile(profile).hash,
        "config": load_preset(game).hash,
        "reference": load_reference(game).to_json(),
        "env_steps": env_steps,
        "intervals": INTERVALS,
        "episodes": [REPORT_EPISODES, CHOOSE_EPISODES],
    }


def _instance(job: Mapping[str, Any]) -> Instance:
    preset, latency = load_preset(job["game"]), load_profile(job["profile"])
    if (preset.hash, latency.hash) != (job["config"], job["profile_hash"]):
        raise UserError(
            f"preset {job['game']!r} or profile {job['profile']!r} is another one here; "
            f"{SAME_VERSION}"
        )
    config = preset.with_runtime(eval_episodes=REPORT_EPISODES)
    horizon, interval = choose_horizon(config, latency, job["env_steps"], INTERVALS)
    return game_instance(
        config,
        latency,
        reference=load_reference(job["game"]),
        horizon_seconds=horizon,
        interval_seconds=interval,
        seed=job["seed"],
    )


def do_job(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job here: a kind of schedule for one (game, profile, seed); see the functions."""
    kinds: dict[str, Callable[[Branching, dict[str, Any]], dict[str, Any]]] = {
        "static": _static,
        "two-phase": _two_phase,
        "oracle": _oracle,
    }
    branching = Branching(_instance(job))
    try:
        return kinds[job["kind"]](branching, job)
    finally:
        branching.env.close()


class Branching:
    """An episode of the outer environment that can be continued in several ways."""

    def __init__(self, instance: Instance) -> None:
        self.env = CompressionControlEnv([instance])
        self.env.reset()
        self.times = [0.0]
        self.scores = [instance.reference.random_return]

    @property
    def done(self) -> bool:
        """Whether the horizon is reached."""
        return len(self.times) > INTERVALS

    def step(self, spec: CompressionSpec) -> None:
        """Act with `spec` for one interval."""
        *_, info = self.env.step_decision(Decision.of(spec))
        self.times.append(info["total_seconds"])
        self.scores.append(info["learner_return"])

    def snapshot(self) -> dict[str, Any]:
        """Return everything, for `restore`."""
        return {
            "env": self.env.snapshot(),
            "times": list(self.times),
            "scores": list(self.scores),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        self.env.restore(snapshot["env"])
        self.times, self.scores = list(snapshot["times"]), list(snapshot["scores"])

    def value(self) -> float:
        """Return the discounted gain of the whole episode, normalised by the game's reference."""
        reference = self.env.instance.reference
        levels = [reference.normalise(score) for score in self.scores]
        return discounted_gain(self.times, levels, default_beta(self.times[-1]))


def _static(branching: Branching, job: dict[str, Any]) -> dict[str, Any]:
    spec = CompressionSpec.from_json(job["spec"])
    while not branching.done:
        branching.step(spec)
    return {"value": branching.value(), "scores": branching.scores}


def _two_phase(branching: Branching, job: dict[str, Any]) -> dict[str, Any]:
    """Act with `first`; from every switch on, also with each of `seconds`."""
    first = CompressionSpec.from_json(job["first"])
    branches = []
    while not branching.done:
        if len(branching.times) - 1 in SWITCHES:
            branches.append((len(branching.times) - 1, branching.snapshot()))
        branching.step(first)
    rows = []
    for at, snapshot in branches:
        for second in map(CompressionSpec.from_json, job["seconds"]):
            branching.restore(snapshot)
            while not branching.done:
                branching.step(second)
            rows.append({"at": at, "second": second.to_json(), "value": branching.value()})
    return {"rows": rows}


def _oracle(branching: Branching, job: dict[str, Any]) -> dict[str, Any]:
    """Greedy branches over `specs`, beginning with `base`; of a placebo, over other dice."""
    acting = CompressionSpec.from_json(job["base"])
    specs = [CompressionSpec.from_json(spec) for spec in job["specs"]]
    envs = make_envs(job["game"], CHOOSE_EPISODES)
    chosen: list[str] = []
    errors: list[float] = []
    try:
        while not branching.done:
            start, decision = branching.snapshot(), len(branching.times)
            evaluation = number(0, Role.ORACLE_EVALUATION, decision)
            found: list[tuple[CompressionSpec, np.ndarray, dict[str, Any]]] = []
            others = [spec for spec in specs if spec != acting]
            if job["placebo"]:
                others = [acting] * len(others)
            for index, spec in enumerate([acting, *others]):
                if index:
                    branching.restore(start)
                run = branching.env.run
                assert isinstance(run, SerialRun)
                if job["placebo"] and index:
                    for place, actor in enumerate(run.actors):
                        at = (decision, index, place)
                        actor.reseed(number(job["seed"], Role.PLACEBO, *at))
                branching.step(spec)
                infer = policy_infer(run.learner.policy)
                # Without mirrored pairs: standard errors are those of independent episodes.
                scores = play_episodes(envs, infer, evaluation, antithetic=False)
                found.append((spec, scores, branching.snapshot()))
            best = clearly_best([scores for _, scores, _ in found])
            errors.append(float(found[0][1].std(ddof=1) / np.sqrt(CHOOSE_EPISODES)))
            acting = found[best][0]
            chosen.append(acting.label)
            branching.restore(found[best][2])
    finally:
        envs.close()
    return {
        "value": branching.value(),
        "scores": branching.scores,
        "chosen": chosen,
        "standard_error": float(np.mean(errors)),
    }


def clearly_best(scores: Sequence[np.ndarray]) -> int:
    """Return the branch to take: the first, unless one beats it by more than a standard error.

    Branches are compared episode by episode: starts and dice of the evaluation are the same.
    """
    gains = [own - scores[0] for own in scores]
    means = np.array([gain.mean() for gain in gains])
    errors = np.array([gain.std(ddof=1) / np.sqrt(len(gain)) for gain in gains])
    clear = means > errors
    clear[0] = False
    return int(np.argmax(np.where(clear, means, -np.inf))) if clear.any() else 0
