"""Families of machines that users have: latency profiles drawn around those that were measured.

A machine is drawn from its family and number alone: `laptop-0017` is the same everywhere. Numbers
are multiplied by exp(spread z), z normal and cut off at 2, unless the docstrings say otherwise.
What inference takes, with t the base table's times per state,

    t'(spec, b) = core kernel r(spec, b)^contrast l(b)^cache t(fp32, largest b),
    r(spec, b) = t(spec, b) / t(fp32, b),    l(b) = t(fp32, b) / t(fp32, largest b),

where `core` is how slow a core is, `contrast` how much a smaller network saves, `cache` how much
more a batch of one costs (its weights come from memory for every state), and `kernel` how well an
engine does with a network and its bits. What takes no longer than another in the base table, and
cannot by its work, does not here either: more pruning, fewer bits, a smaller student, larger
batches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from accerl.config import actors_beside
from accerl.errors import UserError, did_you_mean
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.row import SpecLatency
from accerl.runtime.latency.shipped import GPU_US_PER_SAMPLE, two_core, with_gpu
from accerl.runtime.latency.shipped.paper import paper_profile
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY, STUDENTS, CompressionSpec

MACHINES = 10_000
"""of each family; their numbers begin with 0"""
_CUT = 2.0


class Draw:
    """The random numbers of one machine."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def around(self, value: float, spread: float) -> float:
        """Return a number around `value`, which is the median."""
        z = float(np.clip(self._rng.standard_normal(), -_CUT, _CUT))
        return value * math.exp(spread * z)

    def between(self, low: float, high: float) -> float:
        """Return a number between two, evenly on a logarithmic scale."""
        return float(math.exp(self._rng.uniform(math.log(low), math.log(high))))

    def count(self, low: int, high: int) -> int:
        """Return a whole number between two, both included."""
        return int(self._rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        """Return True in that share of the draws."""
        return bool(self._rng.random() < share)


def sample_machine(family: str, number: int) -> LatencyProfile:
    """Return a machine of a family.

    Args:
        family: a key of `FAMILIES`.
        number: which one, below `MACHINES`.

    Raises:
        UserError: there is no such family, or no such number.
    """
    check_family(family)
    if not 0 <= number < MACHINES:
        raise UserError(f"family {family!r}: machines have numbers 0 to {MACHINES - 1:,}")
    draw = Draw(generator(number, Role.MACHINE, list(FAMILIES).index(family)))
    return replace(FAMILIES[family](draw), name=machine_name(family, number))


def check_family(family: str) -> None:
    """Raise a UserError if there is no such family."""
    if family not in FAMILIES:
        hint = did_you_mean(family, list(FAMILIES))
        raise UserError(f"family {family!r} does not exist; {hint}")


def machine_name(family: str, number: int) -> str:
    """Return a machine's name, such as laptop-0017."""
    return f"{family}-{number:04d}"


def machine_of(name: str) -> tuple[str, int] | None:
    """Return family and number of a machine's name; None: it is none."""
    found = re.fullmatch(r"(.+)-(\d{4})", name)
    if found is None or found[1] not in FAMILIES:
        return None
    return found[1], int(found[2])


def _laptop(draw: Draw) -> LatencyProfile:
    """Return a laptop or desktop: 2 to 8 cores that all processes share, which learn too.

    Around two-core. Half of them have no bfloat16 and learn in float32, which takes 2.5 times as
    long; emulators differ by game.
    """
    base = two_core()
    cores = 2 * draw.count(1, 4)
    core = draw.around(1.0, 0.3)
    env_us = core * draw.around(base.env_step_us, 0.4)
    learner = core * draw.around(1.0, 0.15) * (2.5 if draw.chance(0.5) else 1.0)
    return replace(
        _around(base, draw, core, env_us=env_us, helper=core, distill=core),
        source=f"drawn around {base.name}: {cores} shared cores, a learner on one of them",
        learner_us_per_sample=learner * base.learner_us_per_sample,
        small_learner_us={net: learner * us for net, us in base.small_learner_us.items()},
        num_actors=actors_beside(1, cores),
        cores=cores,
    )


def _gpu_few_cores(draw: Draw) -> LatencyProfile:
    """Return a rented GPU with few cores: 2 to 8 actors beside a learner on the GPU.

    Around gpu-learner, with simulators that take 10 us to 0.3 ms a step, and learners that take
    4 to 40 us per sample of Original (`with_gpu`). There is one core more than actors, for whoever
    has the GPU compute: that takes 0.2 (blocking) to 1 (PyTorch's active waiting) of one.
    """
    base = two_core()
    core = draw.around(1.0, 0.25)
    env_us = draw.between(10.0, 300.0)
    learner_us = draw.between(4.0, 40.0)
    actors = draw.count(2, 8)
    return replace(
        _around(with_gpu(base, learner_us), draw, core, env_us=env_us, helper=core, distill=1.0),
        source=f"drawn around {base.name}: {actors} actors on {actors + 1} cores; a GPU learns and "
        "distils",
        num_actors=actors,
        cores=actors + 1,
        gpu_core=draw.between(0.2, 1.0),
    )


def _server(draw: Draw) -> LatencyProfile:
    """Return a server as the paper's: 8 to 32 actors that infer one state at a time, and slowly.

    Around the paper's profile, with 2 to 6 distillers that share the GPU with the learner; all
    actors fill one batch side by side, on 16 to 64 cores.
    """
    base = paper_profile()
    core = draw.around(1.0, 0.3)
    learner = draw.around(1.0, 0.4)
    actors = 4 * draw.count(2, 8)
    distillers = draw.count(2, 6)
    cores = 2 ** draw.count(4, 6)
    env_us = core * draw.around(base.env_step_us, 0.3)
    return replace(
        _around(base, draw, core, env_us=env_us, helper=core, distill=learner),
        source=f"drawn around {base.name}: {actors} actors on {cores} cores, {distillers} "
        "distillers",
        learner_us_per_sample=learner * base.learner_us_per_sample,
        small_learner_us={net: learner * us for net, us in base.small_learner_us.items()},
        num_actors=actors,
        actors_per_batch=actors,
        num_distillers=distillers,
        cores=cores,
    )


def _edge(draw: Draw) -> LatencyProfile:
    """Return 4 to 16 weak machines that act, far from a learner with a GPU.

    Around edge: cores 3 to 10 times slower than two-core's, a link that carries 2 to 200 Mbit/s to
    each of them and a tenth of that up to as much back, and games whose frames deflate well or not.
    Learner and compressor have 2 cores.
    """
    base = two_core()
    core = draw.between(3.0, 10.0)
    actors = draw.count(4, 16)
    mbit = draw.between(2.0, 200.0)
    up_mbit = mbit * draw.between(0.1, 1.0)
    env_us = core * draw.around(base.env_step_us, 0.4)
    gpu = with_gpu(base, draw.around(GPU_US_PER_SAMPLE, 0.4))
    return replace(
        # The compressor is beside the learner, not on the actors' cores.
        _around(gpu, draw, core, env_us=env_us, helper=1.0, distill=1.0),
        source=f"drawn around {base.name}: {actors} actors {core:.1f} times slower, a GPU learns "
        f"and distils, {mbit:.0f} Mbit/s to and {up_mbit:.1f} from each actor",
        num_actors=actors,
        num_hosts=actors,
        cores=2,
        down_bytes_per_second=mbit * 1e6 / 8.0,
        up_bytes_per_second=up_mbit * 1e6 / 8.0,
        step_bytes=draw.around(base.step_bytes, 0.4),
    )


FAMILIES: dict[str, Callable[[Draw], LatencyProfile]] = {
    "laptop": _laptop,
    "gpu-few-cores": _gpu_few_cores,
    "server": _server,
    "edge": _edge,
}
"""what draws a machine of each family; their order is part of every machine's seed"""


def _around(
    base: LatencyProfile, draw: Draw, core: float, *, env_us: float, helper: float, distill: float
) -> LatencyProfile:
    """Return `base` with other actors and engines.

    Args:
        base: a measured or published profile.
        draw: the machine's random numbers.
        core: how many times as long an actor's core takes.
        env_us: one step of an environment.
        helper: how many times as long the compressor's core takes.
        distill: the same of whatever distils.
    """
    rows = tuple(
        replace(
            row,
            infer_us={batch: core * us for batch, us in row.infer_us.items()},
            publish_ms=helper * row.publish_ms,
            load_ms=core * row.load_ms,
            distill_us=distill * row.distill_us,
        )
        for row in drawn_engines(with_low_rank(base.specs), draw)
    )
    return replace(
        base,
        env_step_us=env_us,
        write_us=core * base.write_us,
        specs=rows,
        fingerprint={},
        spread={},
    )


def with_low_rank(rows: Sequence[SpecLatency]) -> tuple[SpecLatency, ...]:
    """Return rows with Original at a quarter of its rank, in float32 and INT8.

    What is not measured is derived. It keeps 0.73 of the multiplications, pruning by a quarter
    0.61, so that inference lies 0.68 of the way to that. 0.42 of the bytes are sent and loaded;
    factorising takes some 50 ms more.
    """
    known = {row.spec: row for row in rows}
    added = []
    for bits in (32, 8):
        if CompressionSpec(bits=bits, rank=0.25) in known:
            continue
        whole = known[CompressionSpec(bits=bits)]
        pruned = known[CompressionSpec(bits=bits, sparsity=0.25)]
        added.append(
            replace(
                whole,
                spec=CompressionSpec(bits=bits, rank=0.25),
                infer_us={
                    batch: us + 0.68 * (pruned.infer_us[batch] - us)
                    for batch, us in whole.infer_us.items()
                },
                publish_ms=whole.publish_ms + 50.0,
                load_ms=0.42 * whole.load_ms,
                size_bytes=round(0.42 * whole.size_bytes),
            )
        )
    return (*rows, *added)


def drawn_engines(rows: Sequence[SpecLatency], draw: Draw) -> tuple[SpecLatency, ...]:
    """Return rows whose inference takes what the module's equation says, for `core` 1."""
    contrast, cache = draw.around(1.0, 0.1), draw.around(1.0, 0.15)
    of_bits = {32: 1.0, 16: draw.around(1.0, 0.15), 8: draw.around(1.0, 0.12)}
    kernels: dict[tuple[str, int, str], float] = {}
    fp32 = next(row.infer_us for row in rows if row.spec == IDENTITY)
    largest = max(fp32)
    found: dict[CompressionSpec, SpecLatency] = {}
    for row in sorted(rows, key=lambda row: _place(row.spec)):
        spec = row.spec
        key = spec.student, spec.bits, spec.graph
        if key not in kernels:
            own = spec == IDENTITY
            kernels[key] = of_bits[spec.bits] * (1.0 if own else draw.around(1.0, 0.04))
        infer_us = {
            batch: kernels[key]
            * (us / fp32[batch]) ** contrast
            * (fp32[batch] / fp32[largest]) ** cache
            * fp32[largest]
            for batch, us in row.infer_us.items()
        }
        for larger in rows:
            if larger.spec in found and is_less_work(spec, larger.spec):
                for batch, us in row.infer_us.items():
                    if us <= larger.infer_us[batch]:
                        most = found[larger.spec].infer_us[batch]
                        infer_us[batch] = min(infer_us[batch], most)
        for smaller, batch in zip(sorted(infer_us), sorted(infer_us)[1:], strict=False):
            if row.infer_us[batch] <= row.infer_us[smaller]:
                infer_us[batch] = min(infer_us[batch], infer_us[smaller])
        found[spec] = replace(row, infer_us=infer_us)
    return tuple(found[row.spec] for row in rows)


def is_less_work(spec: CompressionSpec, other: CompressionSpec) -> bool:
    """Whether `spec` differs from `other` only in that it computes less, or with fewer bits."""
    return (
        spec != other
        and spec.graph == other.graph
        and STUDENTS.index(spec.student) >= STUDENTS.index(other.student)
        and spec.bits <= other.bits
        and spec.sparsity >= other.sparsity
        and spec.rank <= other.rank
    )


def _place(spec: CompressionSpec) -> tuple[float, ...]:
    """Sort what is more work first."""
    return STUDENTS.index(spec.student), -spec.bits, spec.sparsity, -spec.rank
