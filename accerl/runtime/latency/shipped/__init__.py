"""Latency profiles that come with the package besides the paper's: one measured, four assembled.

The assembled ones are machines nobody measured: two-core's measured times, some of them multiplied
or replaced as the docstrings say. They show where compressing pays, not what a machine will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from accerl.records import read_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.row import SpecLatency

GPU_US_PER_SAMPLE = 6.0
"""one pass of Original over one sample on a data-centre GPU"""
GPU_FLOOR_US = 1.0
"""below this a GPU does not get per sample: it waits for its kernels to be launched"""


@cache
def two_core() -> LatencyProfile:
    """Return what was measured on two cores that actor, learner and compressor share."""
    return LatencyProfile.from_json(read_json(Path(__file__).with_name("two-core.json")))


def gpu_learner() -> LatencyProfile:
    """Return a server whose learner has a data-centre GPU; assembled, not measured.

    Assumed: 16 actors with a core each like two-core's, of which 4 fill a batch side by side;
    learning takes 6 us per sample of Original, and distillation and smaller learners as much less
    as on two-core, but at least 1 us; both share the GPU. Compressing happens as on two-core, after
    a copy from the GPU at 10 GB/s. 18 cores are as many as processes: none waits for one.
    """
    base = two_core()
    return replace(
        with_gpu(base),
        name="gpu-learner",
        source=f"assembled, not measured: actors and compressor of {base.name}, a core each; "
        f"learning and distilling as on a GPU with {GPU_US_PER_SAMPLE:g} us per sample of Original",
        num_actors=16,
        actors_per_batch=4,
        cores=18,
    )


def edge() -> LatencyProfile:
    """Return eight small machines that act, far from a learner with a GPU; assembled.

    Assumed: 8 actors, each on a machine of its own whose core is six times slower than two-core's;
    learner and compressor of gpu-learner, on 2 cores. 12.5 Mbit/s carry publications to each of
    them, as many carry its rollouts back, with each frame once, deflated (400 bytes an env step,
    the middle of eight Atari games).
    """
    base, slower = two_core(), 6.0
    learner = with_gpu(base)
    return replace(
        learner,
        name="edge",
        source=f"assembled, not measured: actors {slower:g} times slower than {base.name}'s, "
        "learner and compressor of gpu-learner, 12.5 Mbit/s to and from each actor",
        env_step_us=slower * base.env_step_us,
        write_us=slower * base.write_us,
        specs=tuple(_slower_actor(row, slower) for row in learner.specs),
        num_actors=8,
        actors_per_batch=1,
        num_hosts=8,
        cores=2,
        down_bytes_per_second=12.5e6 / 8.0,
        up_bytes_per_second=12.5e6 / 8.0,
    )


def slow_env() -> LatencyProfile:
    """Return a machine whose simulator needs 20 ms per step; assembled, not measured.

    Assumed: all else as on two-core, with 4 actors and 6 cores, one for each process. Inference is
    a hundredth of what an actor does: nothing can be gained by compressing.
    """
    base = two_core()
    return _assembled(
        base,
        name="slow-env",
        source=f"assembled, not measured: {base.name}, a core per process, with 4 actors whose "
        "environments take 20 ms per step",
        env_step_us=20_000.0,
        num_actors=4,
        actors_per_batch=1,
        cores=6,
    )


def learner_bound() -> LatencyProfile:
    """Return a machine whose actors wait for a slow learner; assembled, not measured.

    Assumed: 4 actors with a core each like two-core's; the learner has one core of half the speed
    and computes in float32, which takes three times as long as two-core's bfloat16; students are
    distilled, in float32 there as here, on another such core. That makes 6 cores.
    """
    base, half_speed, float32 = two_core(), 2.0, 3.0
    slower = half_speed * float32
    return _assembled(
        base,
        name="learner-bound",
        source=f"assembled, not measured: 4 actors of {base.name}, a core per process; a learner "
        f"in float32 on a slow core, {slower:g} times slower",
        learner_us_per_sample=slower * base.learner_us_per_sample,
        small_learner_us={net: slower * us for net, us in base.small_learner_us.items()},
        specs=tuple(replace(row, distill_us=half_speed * row.distill_us) for row in base.specs),
        num_actors=4,
        actors_per_batch=1,
        cores=6,
    )


MAKERS: dict[str, Callable[[], LatencyProfile]] = {
    "two-core": two_core,
    "gpu-learner": gpu_learner,
    "edge": edge,
    "slow-env": slow_env,
    "learner-bound": learner_bound,
}
"""what makes each profile, by its name"""


def _assembled(base: LatencyProfile, **changes: Any) -> LatencyProfile:
    """Return `base` changed; it is the profile of no machine any more."""
    nowhere: dict[str, Any] = {"fingerprint": {}, "spread": {}}
    return replace(base, **{**nowhere, **changes})


def with_gpu(base: LatencyProfile, us_per_sample: float = GPU_US_PER_SAMPLE) -> LatencyProfile:
    """Return `base` with a GPU for learning and distilling, from which weights are copied.

    Args:
        base: of which all else is kept.
        us_per_sample: what one pass of Original takes.
    """
    share = us_per_sample / base.learner_us_per_sample
    return _assembled(
        base,
        learner="gpu",
        learner_us_per_sample=us_per_sample,
        small_learner_us={
            net: max(share * us, GPU_FLOOR_US) for net, us in base.small_learner_us.items()
        },
        specs=tuple(
            replace(row, distill_us=max(share * row.distill_us, GPU_FLOOR_US)) for row in base.specs
        ),
        copy_bytes_per_second=10e9,
    )


def _slower_actor(row: SpecLatency, factor: float) -> SpecLatency:
    infer_us = {batch: factor * us for batch, us in row.infer_us.items()}
    return replace(row, infer_us=infer_us, load_ms=factor * row.load_ms)
