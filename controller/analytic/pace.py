"""How fast a run goes on a machine, and where its seconds go, by what acts and at which moment.

All of it comes from `accerl.runtime.latency`: the steady state of the pipeline for the latency
profile's times, as `profile advise` works it out, under the conditions of the moment. It is worked
out once for each mix of specs, moment, and distance of what is distilled from the learner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from accerl.compress.admission import ADMISSION_STATES
from accerl.compress.distillation.effort import updates_due
from accerl.config import RunConfig
from accerl.runtime.conditions import Moment
from accerl.runtime.latency.freshness import freshness, learner_busy, learner_limits
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.steady import Work, settle
from accerl.runtime.publishing.probe import KLProbe
from accerl.spec import IDENTITY, CompressionSpec, StudentKey

Mix = tuple[tuple[CompressionSpec, float], ...]
"""specs and the shares of rollouts that they act in"""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """A run's pace; seconds are those of its clock."""

    env_steps_per_second: float
    policy_lag: float
    """learner updates between the weights that acted and the update that uses them"""
    update_seconds: float
    """from one learner update to the next"""
    publish_every: float
    """learner updates between two publications"""
    delay_seconds: float
    """from a decision until rollouts are of what was decided, without warm-up"""
    blocked_seconds: float
    """that the publication which is under way when somebody decides still takes, on average"""
    fill_seconds: float
    """in which an actor fills a rollout"""
    queue_fill: float
    phases: tuple[tuple[str, float], ...]
    """seconds of every phase but wait, per env step"""
    learner_busy: float
    """seconds of the learner, per env step"""
    actor_core: float
    """processor seconds of actors, per env step"""
    distill_states: tuple[tuple[StudentKey, float], ...]
    """that each network in use is distilled on, per learner update"""
    distill_updates: float
    """of all networks together, per learner update"""
    distill_core: float
    """processor seconds of that, per env step"""
    publish_seconds: float
    """of one publication, sending included"""
    publish_bytes: float


Distances = tuple[tuple[CompressionSpec, float], ...]
"""specs and the KL of what they distil, in nats"""
DUE_STEP = 0.2
"""of the logarithm of the updates that are due to a network, between two that are worked out"""
_Situation = tuple[Mix, tuple[CompressionSpec, ...], Moment, CompressionSpec | None, Distances]


class MachinePace:
    """The paces of one run on one machine.

    Args:
        latency: of the machine, as any learner's.
        config: of the run; its conditions are not used.

    Raises:
        UserError: the profile has no times for the learner.
    """

    def __init__(self, latency: LatencyProfile, config: RunConfig) -> None:
        self.config = config
        self.times = times_of_run(latency, config)
        self._known: dict[_Situation, Pace] = {}

    def of(
        self,
        mix: Mix,
        waiting: tuple[CompressionSpec, ...],
        moment: Moment,
        kl_nats: Callable[[CompressionSpec], float],
        shadow: CompressionSpec | None = None,
    ) -> Pace:
        """Return the pace with which a mix acts.

        Args:
            mix: what acts.
            waiting: what is distilled beside it until it may act.
            moment: the machine as it is.
            kl_nats: says how far from the learner the network is that a spec distils.
            shadow: what is compared, and distilled if need be, without acting.

        Raises:
            UserError: the profile has no times for a spec.
        """
        shadow = shadow if shadow and shadow.student_key else None
        beside = () if shadow is None else (shadow,)
        keys = _keys(mix, (*waiting, *beside)).values()
        known = tuple((spec, self._rounded(kl_nats(spec))) for spec in keys)
        key = mix, waiting, moment, shadow, known
        if key not in self._known:
            self._known[key] = self._work_out(*key)
        return self._known[key]

    def _rounded(self, kl_nats: float) -> float:
        """Return a KL at which about as many updates are due: few paces must be worked out."""
        compression = self.config.compression
        allowed, rest = compression.distill_updates, compression.rest_kl_nats
        if not allowed or not rest:
            return 0.0
        share = updates_due(allowed, kl_nats, rest) / allowed
        return rest * math.exp(round(math.log(share) / DUE_STEP) * DUE_STEP)

    def warmup_seconds(self, spec: CompressionSpec, moment: Moment) -> float:
        """Return the seconds in which a student is distilled before it may act."""
        states = self.config.compression.distill_warmup_updates * self._states
        seconds = self.times.distill_seconds(spec, states)
        return seconds if self.times.on_gpu else seconds * moment.slowdown("compressor")

    def shadow_seconds(self, spec: CompressionSpec) -> float:
        """Return what compressing a shadow once and comparing it takes."""
        times = self.times
        seconds = times.distill_seconds(spec, ADMISSION_STATES)
        if spec.student_key is None:
            pair = sum(times.infer_seconds(each, KLProbe.STATES) for each in (IDENTITY, spec))
            seconds = min(times.distill_seconds(spec, KLProbe.STATES), pair)
        return times.publish_seconds(spec) + seconds

    @property
    def _states(self) -> int:
        return self.config.compression.distill_batch

    def _work_out(
        self,
        mix: Mix,
        waiting: tuple[CompressionSpec, ...],
        moment: Moment,
        shadow: CompressionSpec | None,
        known: Distances,
    ) -> Pace:
        runtime, times = self.config.runtime, self.times
        distilled_for = (*waiting, *(() if shadow is None else (shadow,)))
        works = self._works(mix, distilled_for, dict(known))
        work = self._mixed(mix, waiting, distilled_for, works).under(moment)
        updates, state = settle(work, runtime.publish_every)
        acted = [
            (share, times.act_seconds(spec, runtime.num_envs, runtime.infer_batch))
            for spec, share in mix
        ]
        env, infer, write = (
            sum(share * seconds[phase] for share, seconds in acted) / runtime.num_envs
            for phase in range(3)
        )
        # What a rollout takes on the clock, over the core-seconds that it is charged.
        slower = work.act * work.wiring.actors / (env + infer + write) * state.actors_slower
        lag, between = freshness(work, state, runtime.publish_every)
        rarer = updates / between
        sent = work.send / (between * work.rollout)
        publish = rarer * state.publishing + state.copying + sent
        learner = learner_busy(work, state)
        fill = work.act * work.wiring.actors * work.rollout * state.actors_slower
        made = state.made
        keys = _keys(mix, distilled_for)
        distilled = self._distilled(keys, works, state.distilled * work.rollout)
        return Pace(
            env_steps_per_second=1.0 / state.seconds,
            policy_lag=lag,
            update_seconds=state.seconds * work.rollout,
            publish_every=between,
            delay_seconds=state.age + 0.5 * (state.seconds * work.rollout + fill),
            blocked_seconds=0.5 * made * min(made / (between * state.seconds * work.rollout), 1.0),
            fill_seconds=fill,
            queue_fill=float(learner_limits(work, state)),
            phases=(
                ("env", slower * env),
                ("infer", slower * infer),
                ("write", slower * write),
                ("learn", state.learning / work.rollout),
                ("compress", state.distilling),
                ("publish", publish),
            ),
            learner_busy=min(learner, state.seconds),
            actor_core=env + infer + write,
            distill_states=tuple((key, n * self._states) for key, n in distilled.items()),
            distill_updates=sum(distilled.values()),
            distill_core=state.distilled,
            publish_seconds=publish * between * work.rollout,
            publish_bytes=sum(times.size_bytes(spec) for spec, _ in mix),
        )

    def _distilled(
        self,
        keys: Mapping[StudentKey, CompressionSpec],
        works: Mapping[CompressionSpec, Work],
        core_seconds: float,
    ) -> dict[StudentKey, float]:
        """Return the updates of each network in so many core-seconds, shared as they are due."""
        total = sum(works[spec].distill for spec in keys.values())
        found = {}
        for key, spec in keys.items():
            once = self.times.distill_seconds(spec, self._states)
            # Without a limit they take turns.
            share = works[spec].distill / total if 0.0 < total < math.inf else 1.0 / len(keys)
            found[key] = share * core_seconds / once if once else 0.0
        return found

    def _works(
        self,
        mix: Mix,
        distilled_for: tuple[CompressionSpec, ...],
        known: Mapping[CompressionSpec, float],
    ) -> dict[CompressionSpec, Work]:
        specs = (*(spec for spec, _ in mix), *distilled_for)
        return {spec: Work.of(self.times, self.config, spec, known.get(spec)) for spec in specs}

    def _mixed(
        self,
        mix: Mix,
        waiting: tuple[CompressionSpec, ...],
        distilled_for: tuple[CompressionSpec, ...],
        works: Mapping[CompressionSpec, Work],
    ) -> Work:
        """Return the work of rollouts that several specs share, and of what waits."""
        first = works[mix[0][0]]
        if len(works) == 1:
            return first
        own = [works[spec] for spec, _ in mix]
        distilled = [works[spec] for spec in _keys(mix, distilled_for).values()]
        compared = sum(
            works[spec].publish + self.times.distill_seconds(spec, ADMISSION_STATES)
            for spec in waiting
        )
        return replace(
            first,
            act=sum(share * works[spec].act for spec, share in mix),
            infer=sum(share * works[spec].infer for spec, share in mix),
            distillers=max(work.distillers for work in works.values()),
            distill=sum(work.distill for work in distilled),
            piece=sum(work.piece for work in distilled),
            publish=sum(work.publish for work in own) + compared,
            load=sum(work.load for work in own),
            send=sum(work.send for work in own),
        )


def _keys(mix: Mix, waiting: tuple[CompressionSpec, ...]) -> dict[StudentKey, CompressionSpec]:
    """Return the networks that are distilled, each with a spec that it acts for."""
    specs = [*(spec for spec, _ in mix), *waiting]
    return {key: spec for spec in specs if (key := spec.student_key) is not None}
