"""CompressionControlEnv: steering one inner run is an episode, one interval is a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, Features
from accerl.monitor.monitor import Monitor
from accerl.runtime.run import InnerRun
from accerl.spec import Decision
from controller.actions import ActionSpace
from controller.analytic import AnalyticConfig
from controller.objective import GameReference, default_beta, gain_per_second, num_intervals
from controller.simulator import AnalyticRun

DEFAULT_HORIZON_SECONDS = 60.0
DEFAULT_INTERVAL_SECONDS = 3.0


class CompressionControlEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """The outer problem over any InnerRun, as a Gymnasium environment.

    Observation: the unitless feature vector, float32 [F]. Action: one level index per head of
    the action space. Reward: the gain of J in one interval, normalised per game and *not*
    discounted; ``info["discount"]`` = exp(-beta * interval) discounts the next step, so the
    discounted return is `objective.discounted_gain` up to a constant factor.

    J is the return of the learner's full-precision policy. An interval that did not measure it
    has reward 0, and the next measurement brings the whole gain. An episode never terminates; it
    is truncated at the horizon.

    Args:
        make_run: makes the inner run of a seed; None is the analytic run of tier 0.
        num_actions: actions of the game, the scale of the entropy feature.
        actions: the compression levels to choose from.
        reference: the game's score scale.
        horizon_seconds: length of an episode on the run's clock.
        interval_seconds: length of one step.
        beta: discount rate per second; None is 2 / horizon.
        render_mode: only None exists.

    ``info`` holds "report" (IntervalReport), "features" (Features), "discount", "eq6_ratio"
    (raw score per second, paper, eq. 6; NaN where J was not measured) and "seed" after a reset.

    Raises:
        UserError: make_run is given without num_actions and reference, or a length is wrong.
    """

    def __init__(
        self,
        make_run: Callable[[int], InnerRun] | None = None,
        *,
        num_actions: int | None = None,
        actions: ActionSpace | None = None,
        reference: GameReference | None = None,
        horizon_seconds: float = DEFAULT_HORIZON_SECONDS,
        interval_seconds: float = DEFAULT_INTERVAL_SECONDS,
        beta: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        if make_run is None:
            config = AnalyticConfig()
            make_run = _analytic_run
            num_actions = config.num_actions if num_actions is None else num_actions
            reference = config.reference if reference is None else reference
        if num_actions is None or reference is None:
            raise UserError("control env: make_run also needs num_actions and reference")
        num_intervals(horizon_seconds, interval_seconds)  # raises where they do not fit
        self.make_run = make_run
        self.num_actions = num_actions
        self.actions = ActionSpace() if actions is None else actions
        self.reference = reference
        self.horizon_seconds = horizon_seconds
        self.interval_seconds = interval_seconds
        self.beta = default_beta(horizon_seconds) if beta is None else beta
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-3.0, 3.0, (len(FEATURE_NAMES),), np.float32)
        self.action_space = spaces.MultiDiscrete(list(self.actions.sizes))
        self._run: InnerRun | None = None
        self._monitor = Monitor(num_actions, horizon_seconds)
        self._features = self._monitor.start()
        self._measured_seconds = 0.0
        self._measured_return = reference.random_return
        self._done = True

    @property
    def features(self) -> Features:
        """What a strategy sees before the next step."""
        return self._features

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a new inner run with exactly this seed, or with one drawn from the env's own."""
        super().reset(seed=seed)
        self.close()
        run_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._run = self.make_run(run_seed)
        self._monitor = Monitor(self.num_actions, self.horizon_seconds)
        self._features = self._monitor.start()
        # A run that starts above random play, such as a resumed one, says so itself.
        self._measured_return = getattr(self._run, "initial_return", self.reference.random_return)
        self._measured_seconds = 0.0
        self._done = False
        return self._features.vector.copy(), {"features": self._features, "seed": run_seed}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act with the spec that `action` names for one interval."""
        return self.step_decision(self.actions.decision([int(index) for index in action]))

    def step_decision(
        self, decision: Decision
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act with any decision, such as a hand-set strategy's mix, for one interval.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset and after the horizon.
        """
        if self._run is None or self._done:
            raise gymnasium.error.ResetNeeded("call reset() first: no inner run is in progress")
        self._run.apply(decision)
        report = self._run.advance(self.interval_seconds)
        self._features = self._monitor.update(report)
        reward, ratio = 0.0, math.nan
        if report.learner_return is not None:
            reward = (report.learner_return - self._measured_return) / self.reference.span
            times = (self._measured_seconds, report.total_seconds)
            ratio = float(gain_per_second(times, (self._measured_return, report.learner_return))[0])
            self._measured_seconds, self._measured_return = times[1], report.learner_return
        self._done = report.total_seconds >= self.horizon_seconds * (1.0 - 1e-9)
        info = {
            "report": report,
            "features": self._features,
            "discount": math.exp(-self.beta * self.interval_seconds),
            "eq6_ratio": ratio,
        }
        return self._features.vector.copy(), reward, False, self._done, info

    def close(self) -> None:
        """Close the inner run; safe to call twice."""
        if self._run is not None:
            self._run.close()
            self._run = None


def _analytic_run(seed: int) -> AnalyticRun:
    return AnalyticRun(AnalyticConfig(), seed)
