"""Advice: what compressing the actors' network is worth on a machine, by its latency profile.

The pace of a pipeline is worked out in `steady`, the age of its weights in `freshness`: their
docstrings have the equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from accerl.config import RunConfig
from accerl.runtime.latency.freshness import freshness
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.steady import Work, settle
from accerl.spec import IDENTITY, CompressionSpec

WORTHWHILE = 1.05
"""a smaller gain is none: profiles drift by as much"""
STALE_UPDATES = 16.0
"""weights that need more learner updates than these to reach the actors count as stale"""
ENOUGH = 0.98
"""share of the pace that fewer actors must keep, or weights that are fresher"""
FRESHER = 0.8
"""share of the policy lag from which on a spec with fresher weights is named"""
LIMITS = {
    "emulator": "the actors limit, with more emulation than inference",
    "inference": "the actors limit, with more inference than emulation",
    "learner": "the learner limits",
    "cores": "the cores that all share limit",
    "publication": "publishing limits (weights are stale when they arrive)",
    "network": "the network limits (weights are stale when they arrive)",
    "upload": "the links limit on which rollouts travel to the learner",
}
"""what is to be relieved first, in words"""


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
    """learner updates between the weights that acted and the update that uses them"""
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
    enough: Prediction | None = None
    """likewise `start` with `enough_actors`; None: no fewer actors would do"""
    enough_actors: int | None = None
    """the fewest that keep its pace, where that is two thirds of them or less"""

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
    sentence = _sentence(rows, bound, start) + _fresher(rows, start)
    fewer = find_fewer_actors(profile, config, start)
    if fewer is None:
        return Advice(rows=rows, bound=bound, start=start, sentence=sentence)
    actors, enough = fewer
    share = enough.env_steps_per_second / start.env_steps_per_second
    sentence += (
        f" {actors} of the {profile.num_actors} actors would do (--set runtime.num_actors="
        f"{actors}): {share:.0%} of its env steps/s"
    )
    if enough.policy_lag + 2.0 <= start.policy_lag:
        sentence += (
            f" at a policy lag of {enough.policy_lag:.0f} instead of {start.policy_lag:.0f} "
            "updates, so that an env step teaches more"
        )
    sentence += "."
    return Advice(
        rows=rows,
        bound=bound,
        start=start,
        sentence=sentence,
        enough=enough,
        enough_actors=actors,
    )


def find_fewer_actors(
    profile: LatencyProfile, config: RunConfig, start: Prediction
) -> tuple[int, Prediction] | None:
    """Return how many actors are enough, and what is predicted of them; None: all are needed.

    Where the learner limits, all that its actors have filled waits for it: every actor more makes
    nothing faster. Two thirds of them or less are enough if they keep 98% of the pace. Actors on
    machines of their own, and those that fill a rollout together, are not looked at.

    Args:
        profile: as the learner's network sees it.
        config: of the run.
        start: what all of its actors are predicted to bring.
    """
    if profile.num_hosts or profile.actors_per_batch > 1:
        return None
    for actors in range(1, 2 * profile.num_actors // 3 + 1):
        row = predict(replace(profile, num_actors=actors), config, start.spec)
        if row.env_steps_per_second >= ENOUGH * start.env_steps_per_second:
            return actors, row
    return None


def predict(profile: LatencyProfile, config: RunConfig, spec: CompressionSpec) -> Prediction:
    """Return the steady state of the equations of `steady` and `freshness` for one spec.

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
    _, state = settle(work, config.runtime.publish_every)
    if state.age_updates > STALE_UPDATES:
        limit = "network" if 2.0 * work.send > state.age else "publication"
    elif state.slowdown > 1.0 + 1e-9:
        limit = "cores"
    elif state.waits_for_upload:
        limit = "upload"
    elif state.learner_is_slowest:
        limit = "learner"
    else:
        limit = "inference" if 2.0 * work.infer > work.act else "emulator"
    lag, _ = freshness(work, state, config.runtime.publish_every)
    return Prediction(
        spec=spec,
        env_steps_per_second=1.0 / state.seconds,
        limit=limit,
        age_seconds=state.age,
        age_updates=state.age_updates,
        policy_lag=lag,
    )


def free_steps_per_second(profile: LatencyProfile, config: RunConfig) -> float:
    """Return what no compression exceeds (Amdahl's law): env, write and learn are all there is."""
    work = Work.of(profile, config, IDENTITY)
    act, wiring = work.act - work.infer, work.wiring
    learn = work.learn * (wiring.gpu_core if wiring.on_gpu else 1.0)
    total = act * wiring.group_cores * wiring.actors + learn
    return 1.0 / max(act, work.learn, work.uploading(act), total / wiring.cores)


def uncompressed_seconds_per_step(profile: LatencyProfile, config: RunConfig) -> float:
    """Return what an env step takes without compression and with a core for each process.

    The slowest counts: the actors, the learner or the links; publications are left out of account.

    Args:
        profile: as the learner's network sees it.
        config: of the run.
    """
    work = Work.of(profile, config, IDENTITY)
    return max(work.act, work.learn, work.uploading(work.act))


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


def _fresher(rows: Sequence[Prediction], start: Prediction) -> str:
    """Say what keeps the pace of `start` with fresher weights, if anything does."""
    equal = [r for r in rows if r.env_steps_per_second >= ENOUGH * start.env_steps_per_second]
    least = min(row.policy_lag for row in equal)
    best = next(row for row in equal if row.policy_lag <= WORTHWHILE * least)
    if best.policy_lag > FRESHER * start.policy_lag or best.policy_lag + 2.0 > start.policy_lag:
        return ""
    return (
        f" {best.spec.label} makes as many env steps/s at a policy lag of {best.policy_lag:.0f} "
        f"instead of {start.policy_lag:.0f} updates: each teaches more if it acts like the learner."
    )


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
