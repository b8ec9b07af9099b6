"""Measures this machine's latency profile, as the process runtime really runs.

An actor's process acts while this one learns, so that each is timed beside the other: they share
caches and memory, and both are slower than alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.learner.config import choose_device
from accerl.precision import choose_precision
from accerl.presets import load_preset
from accerl.records import fingerprint
from accerl.runtime.latency.games import what_is_timed
from accerl.runtime.latency.measure_learning import Measuring, OnProgress
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import standard_specs
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.machine.threads import own_threads
from accerl.spec import IDENTITY, IMPALA_NETWORKS, STUDENTS, CompressionSpec, Decision

BATCHES = (1, 8, 16, 32)


def measure_profile(
    name: str = "measured",
    *,
    config: RunConfig | None = None,
    specs: Sequence[CompressionSpec] | None = None,
    batches: Sequence[int] | None = None,
    networks: Sequence[str] = STUDENTS,
    repeats: int = 5,
    on_progress: OnProgress | None = None,
) -> LatencyProfile:
    """Return this machine's profile: medians over `repeats` interleaved rounds.

    Args:
        name: what to call it.
        config: whose game and learner are timed; None: ALE Pong with a learner that computes in
            bfloat16 where its device does, else in float32.
        specs: what to time acting with; None: `standard_specs`.
        batches: states per inference call; None: some, up to those of this run's actors.
        networks: learners to time; the first is the one that teaches and is compressed.
        repeats: rounds.
        on_progress: called with how far it is.
    """
    keep_freed_memory()
    with own_threads(1), ExitStack() as stack:
        config = config or _pong()
        measuring = Measuring(config, networks, on_progress or _quiet, stack, repeats)
        batches = batches or _usual_batches(config)
        return measuring.profile(name, list(specs or standard_specs()), batches)


def _usual_batches(config: RunConfig) -> list[int]:
    """Return batches between which times are interpolated: no actor has more states than games."""
    runtime = config.runtime
    own = runtime.infer_batch or runtime.num_envs
    return sorted({own, *(batch for batch in BATCHES if batch < own)})


def check_ours(base: LatencyProfile | None) -> None:
    """Refuse to measure in place of what another machine was measured to be.

    Raises:
        UserError: `base` is of another machine.
    """
    if base is not None and base.fingerprint.get("id") != fingerprint()["id"]:
        raise UserError(
            f"latency profile {base.name!r} was not measured on this machine; give another --name"
        )


def measure_game(
    config: RunConfig,
    base: LatencyProfile | None,
    name: str,
    *,
    specs: Sequence[CompressionSpec] = (),
    repeats: int = 5,
    on_progress: OnProgress | None = None,
) -> LatencyProfile:
    """Return a profile that holds this machine's times of a run's game, network and learner.

    The network's smaller relatives are measured with it: learners, and students that act.

    Args:
        config: of the run.
        base: what they are added to; None: they are all that the profile holds.
        name: what to call it.
        specs: what to time acting with, beside no compression and what acts while students wait;
            none: all of `standard_specs` that can be made of the network.
        repeats: see `measure_profile`.
        on_progress: see `measure_profile`.

    Raises:
        UserError: `base` is of another machine, or a learner on another device, or a student is
            not smaller than the network.
    """
    check_ours(base)
    config = _decided(config)
    if base is not None and base.on_gpu != (config.learner.device != "cpu"):
        raise UserError(
            f"latency profile {base.name!r} is of a learner on the {base.learner}, and this one is "
            f"on {config.learner.device}; give another --name"
        )
    network, family = config.network, STUDENTS
    networks = family[family.index(network) :] if network in family else (network, *family[1:])
    for spec in specs:
        Decision.of(spec).check_students(network)
    waiting = (spec.undistilled for spec in specs if spec.student_key is not None)
    given = [*dict.fromkeys((IDENTITY, *specs, *waiting))] if specs else []
    acting = ["original", *networks[1:]]
    if network in IMPALA_NETWORKS:  # those of its own form, and of the paper's
        acting += IMPALA_NETWORKS[IMPALA_NETWORKS.index(network) + 1 :]
    times = measure_profile(
        name,
        config=config,
        specs=given or standard_specs(acting),
        networks=networks,
        repeats=repeats,
        on_progress=on_progress,
    )
    if base is None:
        return times
    own = what_is_timed(times)
    others = tuple(game for game in base.games if what_is_timed(game) != own)
    if what_is_timed(base) == own:
        return replace(times, games=others)
    return replace(base, games=(*others, times))


def _pong() -> RunConfig:
    return _decided(load_preset("pong"))


def _decided(config: RunConfig) -> RunConfig:
    """Return a configuration in which device and precision of the learner are decided."""
    device = choose_device(config.learner.device).type
    precision = choose_precision(config.learner.precision, device)
    return config.with_learner(device=device, precision=precision)


def _quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""
