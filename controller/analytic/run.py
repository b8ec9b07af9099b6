"""Tier 0: an inner run in microseconds per interval, and its optimum by dynamic programming."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from accerl.errors import UserError
from accerl.runtime.run import PHASES, IntervalReport, Snapshot
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY, Decision
from controller.actions import Actions
from controller.analytic.machine_report import diagnostics
from controller.analytic.model import AnalyticConfig, infer_ms, learn, mismatch, speed
from controller.objective import discounted_gain, num_intervals

_STATE = ("skill", "owed_seconds", "index", "seconds", "env_steps", "updates")
"""the numbers that, beside the decision and the random generator, are all that a run is"""


class AnalyticRun:
    """An InnerRun whose learner is the closed-form curve above; `seed` drives measurement noise."""

    EPISODES = 4  # finished per interval

    def __init__(self, config: AnalyticConfig, seed: int) -> None:
        self.config = config
        self._rng = generator(seed, Role.ANALYTIC_RUN)
        self._skill = config.initial_skill
        self._decision: Decision | None = None
        self._owed_seconds = 0.0
        self._index = 0
        self._seconds = 0.0
        self._env_steps = 0.0
        self._updates = 0.0

    @property
    def num_actions(self) -> int:
        """See `InnerRun.num_actions`."""
        return self.config.num_actions

    @property
    def initial_return(self) -> float:
        """J before training."""
        return self._score(self.config.initial_skill)

    def apply(self, decision: Decision) -> None:
        """Act with `decision` from now on; the first one is free, every change costs seconds."""
        last, self._decision = self._decision, decision
        if last is not None and decision.without_shadow != last.without_shadow:
            self._owed_seconds += self.config.switch_seconds

    def advance(self, seconds: float) -> IntervalReport:
        """Run for `seconds`, of which a switch takes its share first."""
        if not seconds > 0.0:
            raise UserError(f"advance needs positive seconds, got {seconds!r}")
        config, decision = self.config, self._decision or Decision.of(IDENTITY)
        switch_seconds = min(self._owed_seconds, seconds)
        self._owed_seconds -= switch_seconds
        acting_seconds = seconds - switch_seconds
        actor_speed, steps_per_second = speed(config, decision)
        steps_before, updates_before = int(self._env_steps), int(self._updates)
        self._skill = learn(config, decision, self._skill, acting_seconds)
        self._env_steps += steps_per_second * acting_seconds
        self._updates = self._env_steps / 160.0  # the paper's batch
        self._index += 1
        self._seconds += seconds

        distance = mismatch(config, decision, self._skill)
        noise = self._rng.standard_normal(2 + self.EPISODES)  # a fixed count keeps seeds paired
        kl_mean = config.kl_scale_nats * distance * math.exp(0.1 * noise[0]) + 1e-3
        acted_skill = self._skill * (1.0 - 0.5 * distance)
        episodes = acted_skill + 3.0 * config.return_noise * noise[2:]
        load = steps_per_second / config.learner_steps_per_second
        per_step = 1e-3 * (int(self._env_steps) - steps_before)
        infer = sum(share * infer_ms(config, spec) for spec, share in decision.mix)
        busy = {"env": config.env_ms * per_step, "infer": infer * per_step}
        busy |= {"learn": load * acting_seconds, "wait": (1.0 - load) * acting_seconds}
        busy |= {"compress": 0.8 * switch_seconds, "publish": 0.2 * switch_seconds}
        return IntervalReport(
            index=self._index - 1,
            seconds=seconds,
            total_seconds=self._seconds,
            env_steps=int(self._env_steps) - steps_before,
            total_env_steps=int(self._env_steps),
            learner_updates=int(self._updates) - updates_before,
            total_learner_updates=int(self._updates),
            phase_seconds=dict.fromkeys(PHASES, 0.0) | busy,
            queue_fill=min(1.0, 0.5 * actor_speed / config.learner_steps_per_second),
            policy_lag=1.0 + load,
            kl_mean_nats=kl_mean,
            kl_var=kl_mean**2,
            kl_max_nats=5.0 * kl_mean,
            entropy_nats=math.log(config.num_actions) * (1.0 - 0.9 * self._skill),
            episode_returns=tuple(self._score(float(skill)) for skill in episodes),
            learner_return=self._score(self._skill + config.return_noise * float(noise[1])),
            decision=decision,
            spec_seconds={spec: share * acting_seconds for spec, share in decision.mix},
            switch_seconds=switch_seconds,
            acted_kl_nats=dict.fromkeys(decision.specs, kl_mean),
            losses=diagnostics(kl_mean),
            compression_kl_nats=dict.fromkeys(decision.specs, kl_mean),
            staleness_kl_nats=1e-3,
            staleness_updates=1,
        )

    def snapshot(self) -> Snapshot:
        """Return everything the run is, bit-exact."""
        return {
            **{name: getattr(self, f"_{name}") for name in _STATE},
            "decision": None if self._decision is None else self._decision.to_json(),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Become the run that `snapshot` was taken from."""
        for name in _STATE:
            setattr(self, f"_{name}", snapshot[name])
        decision = snapshot["decision"]
        self._decision = None if decision is None else Decision.from_json(decision)
        self._rng.bit_generator.state = snapshot["rng"]

    def close(self) -> None:
        """Nothing to release."""

    def _score(self, skill: float) -> float:
        return self.config.random_return + skill * self.config.reference.span


def schedule_value(
    config: AnalyticConfig,
    actions: Actions,
    schedule: Sequence[Sequence[int]],
    interval_seconds: float,
    beta: float,
) -> float:
    """Return the discounted gain of an open-loop schedule of index tuples, without noise."""
    times, skills = [0.0], [config.initial_skill]
    previous = None
    for indices in schedule:
        lost = config.switch_seconds if previous not in (None, tuple(indices)) else 0.0
        acting_seconds = interval_seconds - lost
        skills.append(learn(config, actions.decision(indices), skills[-1], acting_seconds))
        times.append(times[-1] + interval_seconds)
        previous = tuple(indices)
    return discounted_gain(times, skills, beta)


def optimum(
    config: AnalyticConfig,
    actions: Actions,
    horizon_seconds: float,
    interval_seconds: float,
    beta: float,
    *,
    grid_size: int = 201,
) -> tuple[float, list[tuple[int, ...]]]:
    """Return the best discounted gain and the schedule that reaches it.

    Backward dynamic programming over (interval, skill, last action): the value of a skill between
    two grid points is interpolated linearly. The returned value is that of the returned schedule
    replayed exactly, so interpolation can only make it too small.

    Raises:
        UserError: a switch costs more than one interval.
    """
    if config.switch_seconds >= interval_seconds:
        raise UserError(
            f"optimum: a switch ({config.switch_seconds:g} s) must be shorter than an interval "
            f"({interval_seconds:g} s)"
        )
    choices = actions.all_indices()
    decisions = [actions.decision(indices) for indices in choices]
    acting = (interval_seconds, interval_seconds - config.switch_seconds)  # stay, switch
    grid = np.linspace(config.initial_skill, 1.0, grid_size)
    after = np.array(  # [2, actions, grid]: skill one interval later
        [[[learn(config, d, x, seconds) for x in grid] for d in decisions] for seconds in acting]
    )
    steps = 1 + np.arange(num_intervals(horizon_seconds, interval_seconds))
    discounts = np.exp(-beta * interval_seconds * steps)

    values = [np.zeros((len(choices), grid_size))]  # value of (last action, skill), latest first
    for discount in discounts[::-1]:
        gain = discount * (after - grid)
        future = [
            [np.interp(after[s, a], grid, values[-1][a]) for a in range(len(choices))]
            for s in range(2)
        ]
        stay, switch = gain + np.array(future)
        values.append(np.maximum(stay, switch.max(axis=0)))
    values.reverse()

    schedule: list[tuple[int, ...]] = []
    skill, last = config.initial_skill, None
    for step, discount in enumerate(discounts):
        best, best_skill, best_value = 0, skill, -math.inf
        for action, decision in enumerate(decisions):
            reached = learn(config, decision, skill, acting[last not in (None, action)])
            future_value = np.interp(reached, grid, values[step + 1][action])
            value = discount * (reached - skill) + float(future_value)
            if value > best_value:
                best, best_skill, best_value = action, reached, value
        schedule.append(choices[best])
        skill, last = best_skill, best
    return schedule_value(config, actions, schedule, interval_seconds, beta), schedule
