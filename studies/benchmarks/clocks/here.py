"""What the comparisons share: this machine's latencies, and a real run on the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accerl.config import RunConfig
from accerl.runtime.latency.measure import measure_profile
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec
from studies.progress import share_bar


def measured_here(
    name: str, config: RunConfig, specs: Sequence[CompressionSpec], repeats: int
) -> LatencyProfile:
    """Return the latencies of a run's environments and networks on this machine.

    Args:
        name: of the profile.
        config: the run, as many of whose actors the profile has.
        specs: to time acting with.
        repeats: interleaved rounds.
    """
    with share_bar(f"latency profile of {config.game}") as on_progress:
        measured = measure_profile(
            name,
            config=config,
            specs=specs,
            batches=(config.runtime.infer_batch or config.runtime.num_envs,),
            networks=(config.network,),
            repeats=repeats,
            on_progress=on_progress,
        )
    return replace(measured, num_actors=config.runtime.num_actors)


def on_virtual_clock(config: RunConfig) -> RunConfig:
    """Return a run of the process runtime as the serial one plays it on the virtual clock.

    The profile says what a learner on a GPU takes; what is learned here is learned on the CPU.
    """
    return config.with_runtime(runtime="serial", clock="virtual").with_learner(device="cpu")
