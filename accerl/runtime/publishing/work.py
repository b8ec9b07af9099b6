"""The work of a publication, wherever it is done: sample states, compress, compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from accerl.acting.rollout import Rollout
from accerl.compress.admission import Verdict
from accerl.compress.artifact import Artifact
from accerl.compress.check import EngineMismatchError
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.graphs.onnx_payload import same_integers
from accerl.errors import CannotCompressError, RefusedBeforeError
from accerl.networks.graph_policy import Policy
from accerl.runtime.publishing.delivery import Delivery, Order, Shadow, Tag
from accerl.runtime.publishing.probe import KLProbe
from accerl.spec import CompressionSpec
from accerl.weights import Publication


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What it took to compress the policy as one spec says, and how that went."""

    asked: CompressionSpec
    seconds: float
    """measured by the process that made it, warm-up included"""
    built: tuple[CompressionSpec, ...]
    """the engines that were built for it: none if another part has the same, more than one if what
    was asked for must wait, or fails its check"""
    warmup_states: int
    """states that were distilled before a student could act (again)"""
    verdict: Verdict = field(default_factory=Verdict)
    """whether the spec may act, and how it compares with the learner"""
    rejected: str | None = None
    """why the engine that was asked for does not act"""
    is_refused: bool = False
    """whether it cannot, whatever the weights"""


@dataclass(frozen=True, kw_only=True)
class MadePart(Attempt):
    """What a publication holds for one spec of the decision, and what it took."""

    tried: CompressionSpec
    """what was built for it: where it has to wait, another spec"""
    artifact: Artifact
    """what acts for it: if it may not, or was rejected, of another spec"""


@dataclass(frozen=True)
class Made:
    """A publication that has just been made."""

    delivery: Delivery
    parts: tuple[MadePart, ...]
    publication: Publication | None
    """None if what acts already would act alike, so that nothing needs to be sent"""


def sample_states(rollout: Rollout, config: CompressionConfig) -> np.ndarray:
    """Return a sample [N, *shape] of a rollout's states, spread over its steps and environments."""
    steps, envs = rollout.action.shape
    wanted = min(max(config.calibration_states // 4, 1), steps * envs)
    step = np.linspace(0, steps - 1, wanted).round().astype(int)
    # An even stride through [T, B] would meet the same few environments at every step.
    return rollout.obs[step, np.arange(wanted) % envs]


def make_publication(
    compressor: Compressor,
    probe: KLProbe,
    policy: Policy,
    order: Order,
    current: Publication | None = None,
    send: Callable[[Publication | None], None] | None = None,
) -> Made:
    """Compress the policy as `order` says, send it, and measure how far it is from the learner.

    What is not admitted yet is replaced by something milder (`Admission`), which takes as long as
    it takes: its engine is built and compared with the learner first. What fails its check is
    replaced too (`Compressor.fallback`). Nobody waits for the other measurements: they follow when
    the publication is sent.

    Args:
        compressor: what compresses.
        probe: what measures the parts of the actors' KL.
        policy: the learner's policy.
        order: what is asked for.
        current: what acts now, if that is known: it may serve on.
        send: called with what actors are to act with; None if `current` serves on.
    """
    before = perf_counter()
    made: dict[CompressionSpec, Artifact] = {}
    specs = order.decision.specs
    parts = tuple(_make_part(compressor, policy, spec, order.updates, made) for spec in specs)
    if order.decision.shadow is not None:
        compressor.keep_warm(order.decision.shadow, order.updates)
    publication = _publication(order, parts)
    acting = tuple(artifact.spec for artifact in publication.artifacts)
    compressor.admission.acted(acting)
    unchanged = current is not None and _act_alike(publication, current)
    new = None if unchanged else publication
    if send is not None:
        send(new)
    seconds = perf_counter() - before
    compared = {s: compressor.student_kl_nats(s, policy) for s in (*specs, *acting)}
    delivery = Delivery(
        order=order,
        acted=tuple(Tag(artifact.spec, artifact.version) for artifact in publication.artifacts),
        unchanged=unchanged,
        size_bytes=0
        if unchanged
        else sum(len(artifact.payload) for artifact in publication.artifacts),
        waiting={p.asked: p.verdict.kl_nats for p in parts if not p.verdict.admitted},
        admitted={
            part.asked: kl
            for part in parts
            if part.verdict.admitted and (kl := part.verdict.kl_nats) is not None
        },
        rejected={part.tried: part.rejected for part in parts if part.rejected},
        refused=tuple(dict.fromkeys(part.tried for part in parts if part.is_refused)),
        student_kl_nats={spec: kl for spec, kl in compared.items() if kl is not None},
        split=probe.measure(policy, publication, compressor.states, check=order.check),
        seconds=seconds,
    )
    return Made(delivery, parts, new)


def _make_part(
    compressor: Compressor,
    policy: Policy,
    spec: CompressionSpec,
    version: int,
    made: dict[CompressionSpec, Artifact],
) -> MadePart:
    """Make what acts for one spec, and add it to what was `made` for the publication so far."""
    before = perf_counter()
    verdict, rejected = Verdict(), None
    artifact, built, updates = made.get(spec), (), 0
    tried = spec
    try:
        if artifact is None:
            artifact, verdict = compressor.admit(spec, policy, version)
            if artifact is not None or verdict.states:
                built, updates = (spec,), compressor.last_build_updates
        if artifact is None:
            tried = compressor.admission.stand_in(spec)
            artifact = made.get(tried)
            if artifact is None:
                artifact = compressor.build(tried, policy, version)
                built = (*built, tried)
                updates += compressor.last_build_updates
    except CannotCompressError as error:
        if not (compressor.has_built or isinstance(error, EngineMismatchError)):
            raise  # nothing is lost yet: whoever asked for it should hear of it
        if not isinstance(error, RefusedBeforeError):  # what failed has been built as well
            built = (*built, tried)
        updates += compressor.last_build_updates
        artifact, rejected = compressor.fallback(policy, version), str(error)
        built = (*built, artifact.spec)
        updates += compressor.last_build_updates
    made.setdefault(artifact.spec, artifact)
    seconds = perf_counter() - before
    return MadePart(
        asked=spec,
        tried=tried,
        artifact=artifact,
        seconds=seconds,
        built=built,
        warmup_states=updates * compressor.states_per_update,
        verdict=verdict,
        rejected=rejected,
        is_refused=rejected is not None and compressor.refuses(tried),
    )


def try_shadow(compressor: Compressor, policy: Policy, order: Order) -> tuple[Shadow, Attempt]:
    """Compress the policy as the order's shadow says, and compare that with it; nobody acts so.

    It is done when the publication was sent, of the same weights. The learner's own network is
    compared on the states that `KLProbe` samples; what is distilled on held-out states, as for
    `Admission`, once enough were played.

    Args:
        compressor: what compresses.
        policy: the learner's policy, as it was when the publication was made of it.
        order: that has a shadow.

    Raises:
        ValueError: it has none.
    """
    spec, admission = order.shadow, compressor.admission
    if spec is None:
        raise ValueError("the order has no shadow")
    before = perf_counter()
    verdict, rejected = Verdict(), None
    built = (spec,) if spec.student_key is None or admission.has_states else ()
    if built:
        try:
            artifact = compressor.build_aside(spec, policy, order.updates)
            if spec.student_key is None:
                verdict = KLProbe.compare(policy, artifact, compressor.states)
            else:
                verdict = admission.judge(artifact, policy)
        except CannotCompressError as error:
            rejected = str(error)
            if isinstance(error, RefusedBeforeError):
                built = ()
    seconds = perf_counter() - before
    updates = compressor.last_build_updates if built else 0
    is_refused = rejected is not None and compressor.refuses(spec)
    attempt = Attempt(
        asked=spec,
        seconds=seconds,
        built=built,
        warmup_states=updates * compressor.states_per_update,
        verdict=verdict,
        rejected=rejected,
        is_refused=is_refused,
    )
    shadow = Shadow(
        spec=spec,
        kl_nats=verdict.kl_nats,
        rejected=rejected,
        is_refused=is_refused,
        seconds=seconds,
    )
    return shadow, attempt


def _publication(order: Order, parts: Iterable[MadePart]) -> Publication:
    """Return the publication of these parts: each engine once, with the shares of all it acts for.

    A spec that waits and one that does not may act with the same engine.
    """
    artifacts: dict[CompressionSpec, Artifact] = {}
    shares: defaultdict[CompressionSpec, float] = defaultdict(float)
    for part, (_, share) in zip(parts, order.decision.mix, strict=True):
        artifacts.setdefault(part.artifact.spec, part.artifact)
        shares[part.artifact.spec] += share
    return Publication(order.number, list(artifacts.values()), list(shares.values()))


def _act_alike(publication: Publication, current: Publication) -> bool:
    """Whether two publications hold the same integers; only INT8 can be alike in that sense."""
    pairs = list(zip(publication.artifacts, current.artifacts, strict=False))
    return (
        publication.shares == current.shares
        and len(publication.artifacts) == len(current.artifacts)
        and all(new.spec == old.spec and new.spec.bits == 8 for new, old in pairs)
        and all(same_integers(new.payload, old.payload) for new, old in pairs)
    )
