"""Advice: what compressing the actors' network is worth on a machine, by its latency profile.

The steady state of the pipeline that the serial runtime plays event by event. A rollout has
S = T B env steps; G groups of actors fill rollouts, one learner makes an update of each, H helpers
(a compressor, and distillers) publish after every p-th and distil without pause, up to A updates of
D core-seconds per learner update that the n of them share who distil. With core-seconds per env
step of the whole pipeline, q publications per env step and c copies of the learner's weights
(after every update where something is distilled, else q),

    w_actor      = (env + infer + write) / (B G) + load min(q, 1 / (G S))     for each group
    w_learner    = reuse learn + copy c
    w_distiller  = D A / (n S), infinite without a limit                      for each of n
    w_compressor = publish q, plus w_distiller if there are no distillers
    w*           = max(w_actor, w_learner),

the slowest of those that others wait for is always busy, and nobody is busy longer than that:

    seconds per env step = max(w*, (G w_actor + w_learner + sum_helpers min(w_helper, w*)) / C)

on C cores, which all share alike. Publishing holds nobody up: weights are only older when they
act. One publication is under way at a time. A compressor that does not distil begins it after an
update, so that the updates between two are a whole number; one that does lets a piece of m updates
come first:

    q = 1 / (S max(p, ceil(age / update))) or, if it distils, 1 / (S max(p, age / update)),
    age = copy + (m D + publish) slowdown + send,   update = S seconds per env step.

Chance is left out: where cores are shared, more processes than usual are sometimes busy at once,
which costs some 5%. So are warm-ups, and integers that did not change and need not be sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from accerl.config import RunConfig
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.publishing.charges import PIECE_UPDATES, most_sharers
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
_ROUNDS = 30  # of the fixed point of q; it settles in a few


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


def fastest_first(
    profile: LatencyProfile, config: RunConfig, specs: Sequence[CompressionSpec]
) -> tuple[CompressionSpec, ...]:
    """Return specs by the env steps per second that they are predicted to bring.

    Those whose weights would be stale come after all others; what has no times is left out.

    Args:
        profile: of the machine; `times_of_run` is applied here.
        config: of the run.
        specs: to sort; of equals the first stays first.
    """
    times = times_of_run(profile, config)
    rows = [predict(times, config, spec) for spec in specs if times.has(spec)]
    ranked = sorted(rows, key=lambda row: (row.is_stale, -row.env_steps_per_second))
    return tuple(row.spec for row in ranked)


def steady_state(work: Work, config: RunConfig, spec: CompressionSpec) -> Prediction:
    """Return the steady state of a pipeline whose work is known; see `predict` for the others."""
    every = config.runtime.publish_every
    updates = float(every)
    state = work.steady(updates)
    for _ in range(_ROUNDS):
        # Rarer work leaves others faster: it only grows.
        updates = max(updates, state.age_updates if work.piece else math.ceil(state.age_updates))
        state = work.steady(updates)
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
    """The pipeline's pace, for a certain number of updates between two publications."""

    seconds: float  # per env step
    learner_is_slowest: bool
    slowdown: float  # of everybody, where cores are shared
    age: float  # seconds
    age_updates: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """Core-seconds of what is done with one spec, in the names of the module's equations."""

    wiring: Wiring
    rollout: int  # env steps, S
    act: float  # per env step, as are infer and learn
    infer: float
    learn: float
    distillers: int  # that share the distilling; 0: nothing is distilled, or others do it
    distill: float  # of each of them per update, infinite without a limit
    piece: float  # that comes before a publication
    publish: float  # per publication, as all below
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
        once, allowed = 0.0, config.compression.distill_updates
        if spec.student_key is not None:
            once = profile.distill_seconds(spec, config.compression.distill_batch)
        sharers = most_sharers(wiring.distillers, allowed)
        share = allowed / max(sharers, 1) if allowed else math.inf
        if not wiring.compressor:  # the learner, which goes on learning after some
            share = allowed or PIECE_UPDATES
        return cls(
            wiring=wiring,
            rollout=config.learner.unroll * runtime.num_envs,
            act=sum(acted) / env_steps,
            infer=acted[1] / env_steps,
            learn=profile.learn_seconds(config.learner.reuse),
            distillers=sharers if once else 0,
            distill=once * share if once else 0.0,
            piece=0.0 if wiring.distillers else once * min(allowed or PIECE_UPDATES, PIECE_UPDATES),
            publish=profile.publish_seconds(spec),
            copy=profile.copy_seconds(),
            load=profile.load_seconds(spec),
            send=profile.send_seconds(spec),
        )

    def steady(self, updates: float) -> _Steady:
        """Return the pace with so many updates between publications."""
        groups, cores = self.wiring.actors, self.wiring.cores
        q = 1.0 / (updates * self.rollout)
        publish, distill = self.publish * q, self.distill / self.rollout
        actor = self.act + self.load * min(q, 1.0 / (groups * self.rollout))
        learner = self.learn + self.copy * (1.0 / self.rollout if self.distill else q)
        helpers = [publish, *[distill] * self.distillers]
        if not self.wiring.distillers:
            helpers = [publish + distill]
        if not self.wiring.compressor:
            learner, helpers = learner + publish + distill, []
        slowest = max(actor, learner)
        total = groups * actor + learner + sum(min(work, slowest) for work in helpers)
        seconds = max(slowest, total / cores if cores else 0.0)
        slowdown = seconds / slowest
        age = self.copy + (self.piece + self.publish) * slowdown + self.send
        return _Steady(
            seconds=seconds,
            learner_is_slowest=learner >= actor,
            slowdown=slowdown,
            age=age,
            age_updates=age / (seconds * self.rollout),
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
