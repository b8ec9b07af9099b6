"""Advice: what compressing the actors' network is worth on a machine, by its latency profile.

The steady state of the pipeline that the serial runtime plays event by event. A rollout has
S = T B env steps; G groups of actors fill rollouts, one learner makes an update of each, and a
compressor distils after every update for which it is free and publishes after every p-th. With
core-seconds per env step of the whole pipeline, and q publications and d distillations per env
step,

    w_actor      = (env + infer + write) / (B G) + load min(q, 1 / (G S))     for each group
    w_learner    = reuse learn + copy q
    w_compressor = publish q + distil d
    w*           = max(w_actor, w_learner),

the slowest of those that others wait for is always busy, and nobody is busy longer than that:

    seconds per env step = max(w*, (G w_actor + w_learner + min(w_compressor, w*)) / C)

on C cores, which all share alike. Publishing holds nobody up: weights are only older when they
act. One publication is under way at a time, and the compressor begins work after updates only,
so that the updates between two publications and between two distillations are whole numbers:

    q = 1 / (S max(p, ceil(age / update))),   d = 1 / (S ceil(distil slowdown / update)),
    age = copy + (distil + publish) slowdown + send,   update = S seconds per env step.

Chance is left out: where cores are shared, more processes than usual are sometimes busy at once,
which costs some 5%. So are warm-ups, and integers that did not change and need not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from accerl.compress.config import CompressionConfig
from accerl.config import RunConfig
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.wiring import Wiring
from accerl.spec import IDENTITY, CompressionSpec

WORTHWHILE = 1.05
"""a smaller gain is none: profiles drift by as much"""
STALE_UPDATES = 16.0
"""weights that need more learner updates than these to reach the actors count as stale"""
LIMITS = {
    "emulator": "the actors limit, busy with the emulator most of the time",
    "inference": "the actors limit, busy with inference most of the time",
    "learner": "the learner limits",
    "cores": "the cores that all share limit",
    "publication": "publishing limits (weights are stale when they arrive)",
    "network": "the network limits (weights are stale when they arrive)",
}
"""what is to be relieved first, in words"""
_ROUNDS = 30  # of the fixed point of q and d; it settles in a few


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What acting with one spec is predicted to bring."""

    spec: CompressionSpec
    env_steps_per_second: float
    limit: str
    """a key of `LIMITS`"""
    age_seconds: float
    """from the update that orders a publication until actors have it"""
    age_updates: float
    """the same in learner updates"""
    policy_lag: float
    """learner updates between the weights that acted and the update that uses them, roughly"""
    speedup: float = 1.0
    """over fp32"""

    @property
    def is_stale(self) -> bool:
        """Whether its weights are too old when they arrive."""
        return self.age_updates > STALE_UPDATES

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {**asdict(self), "spec": self.spec.to_json(), "is_stale": self.is_stale}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Whether compressing pays, and what to start from."""

    rows: tuple[Prediction, ...]
    """one per spec of the profile, mildest first"""
    bound: float
    """speed-up over fp32 that nothing exceeds: inference and compressing cost nothing"""
    start: Prediction
    """the mildest spec that comes near the fastest; fp32 where compressing does not pay"""
    sentence: str

    @property
    def pays(self) -> bool:
        """Whether compressing pays."""
        return self.start.spec != IDENTITY

    @property
    def fp32(self) -> Prediction:
        """The prediction without compression."""
        return next(row for row in self.rows if row.spec == IDENTITY)


def advise(profile: LatencyProfile, config: RunConfig) -> Advice:
    """Predict every spec of a profile for a configuration, and whether compressing pays.

    Args:
        profile: of the machine; its wiring is used.
        config: gives network, environments per rollout, unroll, reuse and how often to publish.

    Raises:
        UserError: the profile has no times for the network, or none of fp32.
    """
    profile = times_of_run(profile, config)
    fp32 = predict(profile, config, IDENTITY)
    others = {row.spec for row in profile.specs} - {IDENTITY}
    predicted = [
        fp32,
        *(
            predict(profile, config, spec)
            for spec in sorted(others, key=lambda spec: spec.mildness)
        ),
    ]
    rows = tuple(
        replace(row, speedup=row.env_steps_per_second / fp32.env_steps_per_second)
        for row in predicted
    )
    bound = free_steps_per_second(profile, config) / fp32.env_steps_per_second
    start = choose(rows)
    return Advice(rows=rows, bound=bound, start=start, sentence=_sentence(rows, bound, start))


def predict(profile: LatencyProfile, config: RunConfig, spec: CompressionSpec) -> Prediction:
    """Return the steady state of the module's equations for one spec.

    Args:
        profile: as the learner's network sees it, see `LatencyProfile.for_network`.
        config: of the run.
        spec: what acts.

    Raises:
        UserError: the profile has no times for the spec.
    """
    return steady_state(Work.of(profile, config, spec), config, spec)


def steady_state(work: Work, config: RunConfig, spec: CompressionSpec) -> Prediction:
    """Return the steady state of a pipeline whose work is known; see `predict` for the others."""
    every = config.runtime.publish_every
    updates, distils_every = every, 1
    state = work.steady(updates, distils_every)
    for _ in range(_ROUNDS):
        # Rarer work leaves others faster: these two only grow.
        updates = max(updates, math.ceil(state.age_updates))
        distils_every = max(distils_every, math.ceil(state.distill_updates))
        state = work.steady(updates, distils_every)
    if state.age_updates > STALE_UPDATES:
        limit = "network" if 2.0 * work.send > state.age else "publication"
    elif state.slowdown > 1.0 + 1e-9:
        limit = "cores"
    elif state.learner_is_slowest:
        limit = "learner"
    else:
        limit = "inference" if 2.0 * work.infer > work.act else "emulator"
    queued = config.runtime.queue_rollouts if state.learner_is_slowest else 0
    return Prediction(
        spec=spec,
        env_steps_per_second=1.0 / state.seconds,
        limit=limit,
        age_seconds=state.age,
        age_updates=state.age_updates,
        policy_lag=work.wiring.actors + queued + state.age_updates + (updates - 1) / 2,
    )


@dataclass(frozen=True, kw_only=True)
class _Steady:
    """The pipeline's pace, for certain numbers of updates between two publications and so on."""

    seconds: float  # per env step
    learner_is_slowest: bool
    slowdown: float  # of everybody, where cores are shared
    age: float  # seconds
    age_updates: float
    distill_updates: float  # how many updates are made while it distils once


@dataclass(frozen=True, kw_only=True)
class Work:
    """Core-seconds of what is done with one spec, in the names of the module's equations."""

    wiring: Wiring
    rollout: int  # env steps, S
    act: float  # per env step, as are infer and learn
    infer: float
    learn: float
    distill: float  # per update, where all below are per publication
    publish: float
    copy: float
    load: float
    send: float

    @classmethod
    def of(cls, profile: LatencyProfile, config: RunConfig, spec: CompressionSpec) -> Work:
        """Return the work of a profile's pipeline, acting with `spec`."""
        runtime = config.runtime
        wiring = Wiring.of(runtime, profile)
        acted = profile.act_seconds(spec, runtime.num_envs, runtime.infer_batch)
        env_steps = runtime.num_envs * wiring.actors
        return cls(
            wiring=wiring,
            rollout=config.learner.unroll * runtime.num_envs,
            act=sum(acted) / env_steps,
            infer=acted[1] / env_steps,
            learn=profile.learn_seconds(config.learner.reuse),
            distill=_distill_seconds(profile, config.compression, spec),
            publish=profile.publish_seconds(spec),
            copy=profile.copy_seconds(),
            load=profile.load_seconds(spec),
            send=profile.send_seconds(spec),
        )

    def steady(self, updates: int, distils_every: int) -> _Steady:
        """Return the pace with so many updates between publications, and between distillations."""
        groups, cores, distiller = self.wiring.actors, self.wiring.cores, self.wiring.distillers > 0
        q = 1.0 / (updates * self.rollout)
        publish, distill = self.publish * q, self.distill / (distils_every * self.rollout)
        actor = self.act + self.load * min(q, 1.0 / (groups * self.rollout))
        learner = self.learn + self.copy * q
        helpers = [publish, distill] if distiller else [publish + distill]
        if not self.wiring.compressor:
            learner, helpers = learner + publish + distill, []
        slowest = max(actor, learner)
        total = groups * actor + learner + sum(min(work, slowest) for work in helpers)
        seconds = max(slowest, total / cores if cores else 0.0)
        first = 0.0 if distiller else self.distill  # what distils does so before it publishes
        slowdown = seconds / slowest
        age = self.copy + (first + self.publish) * slowdown + self.send
        return _Steady(
            seconds=seconds,
            learner_is_slowest=learner >= actor,
            slowdown=slowdown,
            age=age,
            age_updates=age / (seconds * self.rollout),
            distill_updates=self.distill * slowdown / (seconds * self.rollout),
        )


def free_steps_per_second(profile: LatencyProfile, config: RunConfig) -> float:
    """Return what no compression exceeds (Amdahl's law): env, write and learn are all there is."""
    work = Work.of(profile, config, IDENTITY)
    act, cores = work.act - work.infer, work.wiring.cores
    total = act * work.wiring.actors + work.learn
    return 1.0 / max(act, work.learn, total / cores if cores else 0.0)


def uncompressed_seconds_per_step(profile: LatencyProfile, config: RunConfig) -> float:
    """Return what an env step takes without compression and with a core for each process.

    Whichever is slower counts, the actors or the learner; publications are left out of account.

    Args:
        profile: as the learner's network sees it.
        config: of the run.
    """
    work = Work.of(profile, config, IDENTITY)
    return max(work.act, work.learn)


def choose(rows: Sequence[Prediction]) -> Prediction:
    """Return the mildest row within 5% of the fastest, of those whose weights are not stale.

    Fp32 is kept for less than 5%. If the weights of all are stale, the freshest is returned.

    Args:
        rows: fp32 first, then mildest first.
    """
    fresh = [row for row in rows if not row.is_stale]
    if not fresh:
        return min(rows, key=lambda row: row.age_updates)
    enough = max(row.env_steps_per_second for row in fresh) / WORTHWHILE
    if fresh[0] is rows[0]:
        enough = max(enough, rows[0].env_steps_per_second * WORTHWHILE)
    return next((row for row in fresh if row.env_steps_per_second >= enough), fresh[0])


def _distill_seconds(
    profile: LatencyProfile, config: CompressionConfig, spec: CompressionSpec
) -> float:
    """Return core-seconds of distilling once, if anything that acts must be distilled."""
    if spec.student_key is None:
        return 0.0
    states = min(config.distill_batch, config.calibration_states)
    return config.distill_updates * profile.distill_seconds(spec, states)


def _sentence(rows: Sequence[Prediction], bound: float, start: Prediction) -> str:
    """Say whether compressing pays, why, and what to start from."""
    fp32, name = rows[0], start.spec.label
    limit = LIMITS[fp32.limit]
    if fp32.is_stale and start is not fp32:
        return (
            f"Yes: {limit}: fp32 weights take {fp32.age_seconds:,.1f} s or "
            f"{fp32.age_updates:,.0f} learner updates to reach the actors, those of {name} "
            f"{start.age_seconds:,.1f} s or {start.age_updates:,.0f}, at {start.speedup:.2f} times "
            f"the env steps/s; start from {name}."
        )
    if start is not fp32:
        return (
            f"Yes: {limit}; start from {name}, {start.speedup:.2f} times fp32's env steps/s "
            f"(at most {bound:.2f} times, if inference cost nothing)."
        )
    if bound < WORTHWHILE:
        return (
            f"No: {limit}; even inference that costs nothing would bring {bound:.2f} times fp32's "
            f"env steps/s; stay with {name}."
        )
    fastest = max(rows, key=lambda row: row.speedup)
    return (
        f"No: {limit}, and inference that costs nothing would bring {bound:.2f} times fp32's env "
        f"steps/s, but no spec does so by 5% (the fastest, {fastest.spec.label}, is at "
        f"{fastest.speedup:.2f} times); stay with {name}."
    )
