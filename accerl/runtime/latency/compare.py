"""How two latency profiles differ: ratios of times, wiring in words; and what lies between."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from accerl.errors import UserError
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.row import SpecLatency
from accerl.spec import CompressionSpec


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of two profiles; times are microseconds, sizes bytes."""

    operation: str
    """env, write, learner, learner NETWORK, inference, publish, distill, load or bytes"""
    a: float
    b: float
    spec: CompressionSpec | None = None
    """None for what does not depend on what acts"""
    batch: int | None = None
    """of inference"""

    @property
    def ratio(self) -> float | None:
        """B / a; None where a has nothing to compare with."""
        return self.b / self.a if self.a else None

    @property
    def size(self) -> float:
        """How far the ratio is from 1, on a logarithmic scale; infinite if one of both is zero."""
        return abs(math.log(self.b / self.a)) if self.a and self.b else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return all fields and the ratio as a JSON object."""
        spec = None if self.spec is None else self.spec.to_json()
        return {**asdict(self), "spec": spec, "ratio": self.ratio}


def same_times(a: LatencyProfile, b: LatencyProfile) -> tuple[LatencyProfile, LatencyProfile]:
    """Return the first times of two profiles that are of one game and one learner's network.

    Raises:
        UserError: they have none in common.
    """
    for mine in (a, *a.games):
        for theirs in (b, *b.games):
            if (mine.game, mine.network) == (theirs.game, theirs.network):
                return mine, theirs
    have = (", ".join(sorted({times.game for times in (p, *p.games)})) for p in (a, b))
    raise UserError(
        f"latency profiles {a.name!r} (of {next(have)}) and {b.name!r} (of {next(have)}) have no "
        "game and network in common; measure one on both machines (`accerl profile measure --game`)"
    )


def compare(a: LatencyProfile, b: LatencyProfile) -> list[Difference]:
    """Return every number that both profiles have, of what no spec changes first."""
    found = [
        Difference(operation="env", a=a.env_step_us, b=b.env_step_us),
        Difference(operation="write", a=a.write_us, b=b.write_us),
        Difference(operation="learner", a=a.learner_us_per_sample, b=b.learner_us_per_sample),
    ]
    for network in sorted(a.small_learner_us.keys() & b.small_learner_us.keys()):
        times = a.small_learner_us[network], b.small_learner_us[network]
        found.append(Difference(operation=f"learner {network}", a=times[0], b=times[1]))
    others = {row.spec: row for row in b.specs}
    for row in a.specs:
        if row.spec in others:
            found += _compare_rows(row, others[row.spec])
    return [each for each in found if each.a or each.b]


def _compare_rows(a: SpecLatency, b: SpecLatency) -> Iterable[Difference]:
    """Compare what two profiles say of one spec."""
    for batch in sorted(a.infer_us.keys() & b.infer_us.keys()):
        times = a.infer_us[batch], b.infer_us[batch]
        yield Difference(operation="inference", spec=a.spec, batch=batch, a=times[0], b=times[1])
    pairs = {
        "publish": (a.publish_ms * 1e3, b.publish_ms * 1e3),
        "distill": (a.distill_us, b.distill_us),
        "load": (a.load_ms * 1e3, b.load_ms * 1e3),
        "bytes": (float(a.size_bytes), float(b.size_bytes)),
    }
    for operation, (first, second) in pairs.items():
        yield Difference(operation=operation, spec=a.spec, a=first, b=second)


def describe_wiring(profile: LatencyProfile) -> list[str]:
    """Return which processes run beside which, in words, one aspect a line."""
    actors = f"{profile.num_actors} actor{'s' if profile.num_actors > 1 else ''}"
    if profile.actors_per_batch > 1:
        actors += f", {profile.actors_per_batch} of which fill a batch side by side"
    elif profile.num_actors > 1:
        actors += ", each fills batches of its own"
    distillers = f"{profile.num_distillers} distiller{'s' if profile.num_distillers > 1 else ''}"
    down, up = profile.down_bytes_per_second, profile.up_bytes_per_second
    copy, hosts = profile.copy_bytes_per_second, profile.num_hosts
    learner = f"on a GPU, with {profile.gpu_core:.0%} of a core" if profile.on_gpu else "on a core"
    everybody = "for all actors together"
    to_whom, from_whom = ("to each machine", "from each") if hosts else (everybody, everybody)
    return [
        actors,
        distillers if profile.num_distillers else "the compressor distils",
        f"learning and distilling happen {learner}",
        f"{'learner and compressor' if hosts else 'all'} share {profile.cores} "
        f"core{'s' if profile.cores > 1 else ''}",
        f"actors are on {hosts} other machine{'s' if hosts > 1 else ''}, with a core each"
        if hosts
        else "actors are on the same machine",
        f"publications travel at {down / 1e6:.3g} MB/s {to_whom}"
        if down
        else "publications need not travel",
        f"rollouts travel at {up / 1e6:.3g} MB/s {from_whom}, "
        f"{profile.step_bytes:,.0f} bytes an env step"
        if up
        else "rollouts need not travel",
        f"the learner copies its weights at {copy / 1e9:.3g} GB/s"
        if copy
        else "the learner copies its weights at once",
    ]


_OF_SPECS = ("publish_ms", "distill_us", "load_ms")
_OF_MACHINE = ("env_step_us", "write_us", "learner_us_per_sample", "copy_bytes_per_second")


def middle(before: LatencyProfile, after: LatencyProfile) -> LatencyProfile:
    """Return the mean of two measurements of the same specs on the same machine."""

    def mean(a: float, b: float) -> float:
        return (a + b) / 2.0

    specs = tuple(
        replace(
            a,
            infer_us={batch: mean(us, b.infer_us[batch]) for batch, us in a.infer_us.items()},
            **{name: mean(getattr(a, name), getattr(b, name)) for name in _OF_SPECS},
        )
        for a, b in zip(before.specs, after.specs, strict=True)
    )
    times = {name: mean(getattr(before, name), getattr(after, name)) for name in _OF_MACHINE}
    rates = before.copy_bytes_per_second, after.copy_bytes_per_second
    if all(rates):  # the mean of the times that they stand for
        times["copy_bytes_per_second"] = 2.0 / sum(1.0 / rate for rate in rates)
    small = before.small_learner_us
    learners = {name: mean(us, after.small_learner_us[name]) for name, us in small.items()}
    return replace(before, specs=specs, small_learner_us=learners, **times)


def drift(before: LatencyProfile, after: LatencyProfile) -> dict[str, float]:
    """Return after over before of what counts most, in times; of inference, the median over specs.

    Of a rate, the time that it stands for: above 1 everything takes longer.
    """
    names = [name for name in _OF_MACHINE if getattr(before, name)]
    found = {name: getattr(after, name) / getattr(before, name) for name in names}
    if rate := found.pop("copy_bytes_per_second", None):
        found["copy_us"] = 1.0 / rate
    pairs = zip(before.specs, after.specs, strict=True)
    infer = [b.infer_us[batch] / us for a, b in pairs for batch, us in a.infer_us.items()]
    return {**found, "infer_us": median(infer)}
