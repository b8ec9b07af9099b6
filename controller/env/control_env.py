"""CompressionControlEnv: steering one inner run is an episode, one interval is a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES, LIMIT, Features
from accerl.monitor.indicators import Indicator
from accerl.runtime.run import InnerRun, IntervalReport, Snapshot
from accerl.spec import Decision
from accerl.training.episode import Episode
from controller.actions import ACTION_SPACES, Actions, PresetActions
from controller.env.instances import Instance, Instances
from controller.env.machine_instances import DrawnInstances
from controller.objective import default_beta


class CompressionControlEnv(gymnasium.Env[np.ndarray, Any]):
    """The outer problem over any InnerRun, as a Gymnasium environment.

    The first step is shorter where the instance says so, the last one where the others do not fill
    the horizon. Every reset picks one of `instances`, or takes ``options={"instance": ...}``: the
    place of one in `instances`, or an `Instance`. Equal instances, seeds and actions give equal
    episodes on tiers analytic and virtual.

    Observation: the unitless feature vector (`accerl.monitor.features`), float32 [F]. Action: one
    index per head of `actions`, or a single one for presets. An action that does not exist for
    this learner on this machine is replaced by `Actions.nearest`. Reward: the gain of J in one
    interval, r_k = (J_k - J_{k-1}) / (reference - random), *not* discounted. If each r_k is first
    multiplied by its own step's "discount" (below), the discounted return is
    `objective.discounted_gain` of the normalised J; as they are, it is so up to a constant factor,
    and only where all intervals have one length.

    J is the return of the learner's full-precision policy, measured off the clock. An interval
    that did not measure it has reward 0, and the next measurement brings the whole gain. An
    episode never terminates; it is truncated at the horizon.

    Args:
        instances: what to pick from; None: the training split of tier 0.
        actions: what to choose from; None is `ACTION_SPACES["factored"]`.
        beta: discount rate per second; None is 2 / horizon of the instance.
        make_indicators: returns new indicators of the user's own for every episode; their values
            are in ``info["features"].raw``.
        render_mode: only None exists.

    ``info`` of `reset` and `step` holds

    - "instance": name of the instance; "seed": of its inner run;
    - "features": `Features` (raw indicators by name, and the vector that is the observation);
    - "action_mask": which combinations exist, bool [N] in the order of `Actions.all_indices`;

    and of `step` alone

    - "report": the interval's `IntervalReport`;
    - "discount": exp(-beta tau), which discounts everything after this step;
    - "seconds": tau, the interval's real length; "total_seconds": the run's clock after it;
    - "switch_seconds": what the last change of decision cost, part of "seconds";
    - "learner_return": J_k, raw; NaN where it was not measured;
    - "eq6_ratio": raw gain of J per second since it was last measured (paper, eq. 6); NaN likewise;
    - "action_replaced": whether the action did not exist and a milder one acted instead.

    Raises:
        UserError: there are no instances.
    """

    def __init__(
        self,
        instances: Instances | None = None,
        *,
        actions: Actions | None = None,
        beta: float | None = None,
        make_indicators: Callable[[], Sequence[Indicator]] = tuple,
        render_mode: str | None = None,
    ) -> None:
        if instances is None:
            instances = DrawnInstances("train")
        if not instances:
            raise UserError("control env: give at least one instance")
        self.instances = instances
        self.instance = instances[0]
        self.actions = ACTION_SPACES["factored"] if actions is None else actions
        self.make_indicators = make_indicators
        self.render_mode = render_mode
        self._beta = beta
        self._decisions = [Decision.of(spec) for spec in self.actions.all_specs]
        self.observation_space = spaces.Box(-LIMIT, LIMIT, (len(FEATURE_NAMES),), np.float32)
        sizes = self.actions.sizes
        # What Gymnasium's generic type stands for here, it cannot say: an int or an array.
        self.action_space = (
            spaces.Discrete(sizes[0])
            if isinstance(self.actions, PresetActions)
            else spaces.MultiDiscrete(list(sizes))
        )
        self._mask = self.actions.mask(self.instance.has)
        self._reports: list[IntervalReport] = []
        self._episode: Episode | None = None

    @property
    def _current(self) -> Episode:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("call reset() first: no inner run is in progress")
        return self._episode

    @property
    def features(self) -> Features:
        """What a strategy sees before the next step.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        return self._current.features

    @property
    def run(self) -> InnerRun:
        """The inner run in progress.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        return self._current.run

    @property
    def total_env_steps(self) -> int:
        """Environment steps of the episode so far."""
        return self._reports[-1].total_env_steps if self._reports else 0

    @property
    def beta(self) -> float:
        """Discount rate per second of the current instance."""
        return default_beta(self.instance.horizon_seconds) if self._beta is None else self._beta

    def action_masks(self) -> np.ndarray:
        """Return which indices exist, bool, as MaskablePPO of sb3-contrib asks for it.

        Presets have one flag each. Several heads have the flags of each head alone, in the order
        of the heads (`Actions.head_masks`); ``info["action_mask"]`` has every combination.
        """
        return self.actions.head_masks(self._mask)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the inner run of an instance.

        An instance without a seed of its own gets exactly this one, or one drawn from the env's.

        Raises:
            UserError: options name no instance.
        """
        super().reset(seed=seed)
        instance, place = self._pick((options or {}).get("instance"))
        run_seed = instance.seed
        if run_seed is None:
            run_seed = int(self.np_random.integers(2**31)) if seed is None else seed
        episode = self._start(instance, place, run_seed)
        self._measured_return = instance.reference.random_return
        return episode.features.vector.copy(), self._info(episode)

    def _pick(self, wanted: Instance | int | None) -> tuple[Instance, int | None]:
        """Return an instance and its place in `instances`; None if it has none there."""
        count = len(self.instances)
        if isinstance(wanted, Instance):
            return wanted, None
        if wanted is None:
            wanted = int(self.np_random.integers(count)) if count > 1 else 0
        if isinstance(wanted, np.integer):
            wanted = int(wanted)
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted < count:
            raise UserError(
                f"control env: instance {wanted!r} is not in 0..{count - 1}; give the place of an "
                "instance, or an Instance"
            )
        return self.instances[wanted], wanted

    def _start(self, instance: Instance, place: int | None, seed: int) -> Episode:
        """Be before the first interval of an instance, with a new run."""
        self.close()
        self.instance, self._place, self._seed = instance, place, seed
        self._mask = self.actions.mask(instance.has)
        self._reports = []
        self._measured_seconds = 0.0
        self._episode = Episode(
            instance.make_run(seed),
            horizon_seconds=instance.horizon_seconds,
            interval_seconds=instance.interval_seconds,
            first_interval_seconds=instance.first_interval_seconds,
            indicators=self.make_indicators(),
        )
        return self._episode

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act for one interval with the spec that `action` names.

        Raises:
            UserError: it names none.
            gymnasium.error.ResetNeeded: before the first reset and after the horizon.
        """
        position = self.actions.position(np.atleast_1d(action).tolist())
        exists = bool(self._mask[position])
        acting = position if exists else self.actions.nearest(self._mask, position)
        observation, reward, terminated, truncated, info = self.step_decision(
            self._decisions[acting]
        )
        return observation, reward, terminated, truncated, info | {"action_replaced": not exists}

    def step_decision(
        self, decision: Decision
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act for one interval with any decision, such as a hand-set strategy's mix.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset and after the horizon.
        """
        episode = self._current
        if episode.finished:
            raise gymnasium.error.ResetNeeded("call reset() first: the episode has ended")
        features, report = episode.step(decision)
        self._reports.append(report)
        score, reward, ratio = report.learner_return, 0.0, math.nan
        if score is not None:
            gain = score - self._measured_return
            reward = gain / self.instance.reference.span
            ratio = gain / (report.total_seconds - self._measured_seconds)
            self._measured_seconds, self._measured_return = report.total_seconds, score
        info = self._info(episode) | {
            "report": report,
            "discount": math.exp(-self.beta * report.seconds),
            "seconds": report.seconds,
            "total_seconds": report.total_seconds,
            "switch_seconds": report.switch_seconds,
            "learner_return": math.nan if score is None else score,
            "eq6_ratio": ratio,
            "action_replaced": False,
        }
        return features.vector.copy(), reward, False, episode.finished, info

    def _info(self, episode: Episode) -> dict[str, Any]:
        return {
            "instance": self.instance.name,
            "seed": self._seed,
            "features": episode.features,
            "action_mask": self._mask.copy(),
        }

    def snapshot(self) -> Snapshot:
        """Return everything the episode is, for `restore` or `accerl.checkpoint.save_checkpoint`.

        It is bit-exact on tiers analytic and virtual, but for games that cannot be saved and begin
        anew: Atari's, and those of Gymnasium's registry (`Envs.exact_resume`).

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        episode = self._current.snapshot()
        return {
            "instance": self.instance.name,
            "lengths": list(self.instance.lengths),
            "place": self._place,
            "seed": self._seed,
            "np_random": self.np_random.bit_generator.state,
            "measured_seconds": self._measured_seconds,
            "measured_return": self._measured_return,
            "reports": [report.to_json() for report in self._reports],
            "episode": episode,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> np.ndarray:
        """Become the episode that `snapshot` was taken from; return its observation.

        Any environment with the same instances can, also one that was never reset.

        Raises:
            UserError: this environment's instances are others.
        """
        place = snapshot["place"]
        known = place is None or place < len(self.instances)
        instance = self.instances[place] if known and place is not None else self.instance
        lengths = list(instance.lengths)
        same = instance.name == snapshot["instance"] and lengths == snapshot["lengths"]
        if not known or not same:
            raise UserError(
                f"snapshot: it is of instance {snapshot['instance']!r} with horizon, interval and "
                f"first interval {snapshot['lengths']}, this environment has {instance.name!r} "
                f"with {lengths}; restore it where the instances are the same"
            )
        # A new run: nothing that another branch has left can show.
        episode = self._start(instance, place, snapshot["seed"])
        self.np_random.bit_generator.state = snapshot["np_random"]
        self._reports = [IntervalReport.from_json(report) for report in snapshot["reports"]]
        episode.restore(snapshot["episode"], self._reports)
        self._measured_seconds = snapshot["measured_seconds"]
        self._measured_return = snapshot["measured_return"]
        return episode.features.vector.copy()

    def close(self) -> None:
        """Close the inner run; safe to call twice."""
        if self._episode is not None:
            self._episode.close()
            self._episode = None
