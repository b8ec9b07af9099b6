"""CompressionControlEnv: the Gymnasium contract, the reward, and ownership of the inner run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import controller
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, Decision
from controller.analytic.machine_run import MachineRun
from controller.env.control_env import CompressionControlEnv
from controller.env.machine_instances import MachineInstance
from controller.objective import discounted_gain
from tests.fixtures.controllers.outer_envs import drawn_instance

GAME = drawn_instance(intervals=20)


class LoggedRun(MachineRun):
    """A run of tier 0 that remembers its seed and how often it was closed."""

    def __init__(self, instance: MachineInstance, seed: int, skip: tuple[int, ...] = ()) -> None:
        super().__init__(instance.pace, instance.fidelity, seed)
        self.seed, self.skip, self.closes = seed, skip, 0

    def advance(self, seconds: float) -> IntervalReport:
        report = super().advance(seconds)
        return replace(report, learner_return=None) if report.index in self.skip else report

    def close(self) -> None:
        self.closes += 1


@dataclass(frozen=True, kw_only=True)
class LoggedInstance(MachineInstance):
    """An instance of tier 0 that remembers its runs."""

    made: list[LoggedRun]
    skip: tuple[int, ...]

    def make_run(self, seed: int) -> LoggedRun:
        self.made.append(LoggedRun(self, seed, self.skip))
        return self.made[-1]


def logged_env(skip: tuple[int, ...] = (), **kwargs: Any) -> tuple[CompressionControlEnv, list]:
    made: list[LoggedRun] = []
    fields = {name: value for name, value in vars(GAME).items() if name != "pace"}
    return CompressionControlEnv([LoggedInstance(made=made, skip=skip, **fields | kwargs)]), made


def episode(env: CompressionControlEnv, seed: int) -> tuple[list, list, list]:
    choices = np.random.default_rng(0)
    observations, rewards, infos = [env.reset(seed=seed)[0]], [], []
    truncated = False
    while not truncated:
        action = choices.integers(env.actions.sizes)
        observation, reward, terminated, truncated, info = env.step(action)
        assert not terminated
        observations.append(observation)
        rewards.append(reward)
        infos.append(info)
    return observations, rewards, infos


@pytest.mark.filterwarnings("error::UserWarning")
def test_gymnasium_env_checker_passes() -> None:
    env = gymnasium.make(controller.ENV_ID)
    check_env(env.unwrapped)
    env.close()


def test_an_instance_may_make_any_run() -> None:
    env, _ = logged_env(horizon_seconds=2.0 * GAME.interval_seconds)
    env.reset(seed=0)
    assert env.step(np.array([0, 0, 0]))[3] is False
    assert env.step(np.array([1, 2, 3]))[3] is True


def test_equal_seeds_give_equal_episodes_and_others_do_not() -> None:
    first, second, other = (episode(CompressionControlEnv(), seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]
    assert [info["report"] for info in first[2]] == [info["report"] for info in second[2]]
    assert first[1] != other[1]


def test_rewards_sum_to_the_normalised_gain() -> None:
    _, rewards, infos = episode(CompressionControlEnv([GAME]), 0)
    final = infos[-1]["report"].learner_return
    assert sum(rewards) == pytest.approx(GAME.reference.normalise(final))
    assert len(rewards) == 20


def test_discounted_rewards_are_the_objective_up_to_one_factor() -> None:
    env = CompressionControlEnv([GAME])
    _, rewards, infos = episode(env, 1)
    discount = infos[0]["discount"]
    assert discount == pytest.approx(math.exp(-2.0 / 20.0))
    times = [0.0, *(info["report"].total_seconds for info in infos)]
    returns = [0.0]
    returns += [GAME.reference.normalise(info["report"].learner_return) for info in infos]
    total = sum(discount ** (step + 1) * reward for step, reward in enumerate(rewards))
    assert total == pytest.approx(discounted_gain(times, returns, env.beta))


def test_eq6_ratio_is_in_raw_score_per_second() -> None:
    _, rewards, infos = episode(CompressionControlEnv([GAME]), 2)
    for reward, info in zip(rewards, infos, strict=True):
        gained = reward * GAME.reference.span
        assert info["eq6_ratio"] == pytest.approx(gained / GAME.interval_seconds)


def test_an_unmeasured_interval_pays_later_and_nothing_is_lost() -> None:
    env, _ = logged_env(skip=(0, 4, 5))
    _, rewards, infos = episode(env, 0)
    full = episode(CompressionControlEnv([GAME]), 0)
    assert [rewards[k] for k in (0, 4, 5)] == [0.0, 0.0, 0.0]
    assert math.isnan(infos[4]["eq6_ratio"])
    assert rewards[1] == pytest.approx(full[1][0] + full[1][1])
    per_second = GAME.reference.span / (3.0 * GAME.interval_seconds)
    assert infos[6]["eq6_ratio"] == pytest.approx(rewards[6] * per_second)
    assert sum(rewards) == pytest.approx(sum(full[1]))


def test_reset_uses_exactly_the_seed_and_closes_the_old_run() -> None:
    env, made = logged_env()
    env.reset(seed=7)
    env.reset(seed=0)
    _, info = env.reset()
    env.close()
    env.close()
    assert [run.seed for run in made] == [7, 0, info["seed"]]
    assert [run.closes for run in made] == [1, 1, 1]


def test_unseeded_resets_follow_from_the_last_seed() -> None:
    seeds = []
    for _ in range(2):
        env, made = logged_env()
        env.reset(seed=5)
        env.reset()
        env.reset()
        seeds.append([run.seed for run in made])
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


def test_truncation_survives_rounding_of_the_clock() -> None:
    env, _ = logged_env(horizon_seconds=1.0, interval_seconds=0.1)
    assert len(episode(env, 0)[1]) == 10


def test_stepping_without_a_run_is_refused() -> None:
    env, _ = logged_env(horizon_seconds=GAME.interval_seconds)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.array([0, 0, 0]))
    episode(env, 0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.array([0, 0, 0]))


def test_step_decision_takes_a_mix() -> None:
    env = CompressionControlEnv([GAME])
    env.reset(seed=0)
    mix = Decision(((CompressionSpec(student="net3"), 0.25), (CompressionSpec(), 0.75)))
    info = env.step_decision(mix)[4]
    assert info["report"].decision == mix
    assert env.features == info["features"]


def test_environment_steps_are_those_of_the_episode() -> None:
    env = CompressionControlEnv([GAME])
    env.reset(seed=0)
    assert env.total_env_steps == 0
    reports = [env.step(np.array([0, 0, 0]))[4]["report"] for _ in range(3)]
    assert env.total_env_steps == sum(report.env_steps for report in reports) > 0
    env.reset(seed=1)
    assert env.total_env_steps == 0
