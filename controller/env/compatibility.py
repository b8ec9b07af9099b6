"""Whether a run can act with a spec, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec, Decision

ENGINES = {"onnx": ("onnx", "onnxruntime")}
"""by graph, the packages that its engine needs besides torch"""


def incompatibility(
    network: str, profile: LatencyProfile | None, spec: CompressionSpec
) -> str | None:
    """Return why a run cannot act with `spec`, in a few words; None: it can.

    Args:
        network: the learner's.
        profile: of the virtual clock, as this learner sees it (`LatencyProfile.for_network`);
            None on the real clock.
        spec: what actors would act with.
    """
    missing = [name for name in ENGINES.get(spec.graph, ()) if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    try:
        Decision.of(spec).check_students(network)
    except UserError:
        return f"student not smaller than the learner's network {network}"
    if profile is not None and not profile.has(spec):
        return f"no times in latency profile {profile.name}"
    return None


def possible(
    config: RunConfig, times: LatencyProfile | None, specs: Sequence[CompressionSpec]
) -> tuple[CompressionSpec, ...]:
    """Return those of `specs` that a run can act with.

    Args:
        config: of the run.
        times: of its machine, as the run sees it; None: they are not known.
        specs: that it may act with.
    """
    modelled = times if config.runtime.clock == "virtual" else None
    return tuple(s for s in specs if incompatibility(config.network, modelled, s) is None)
