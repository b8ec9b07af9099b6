"""Order, Tag and Delivery: what is asked of the compressor, and what became of it.

They travel between processes and into checkpoints. Nothing here needs torch: actors do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from accerl.json_fields import JsonFields
from accerl.spec import CompressionSpec, Decision


@dataclass(frozen=True)
class Order(JsonFields):
    """A publication that is to be made."""

    number: int
    decision: Decision
    updates: int
    """learner updates of the weights that it is made of"""
    check: bool = False
    """whether to measure what compression does to it, see `KLProbe`"""
    shadow: CompressionSpec | None = None
    """what to compress and compare as well, after that; None: the decision has no shadow, or it
    was measured in this interval"""


@dataclass(frozen=True)
class Tag(JsonFields):
    """What acted in a rollout: the spec, and the learner update its weights were taken at."""

    spec: CompressionSpec
    version: int


@dataclass(frozen=True, kw_only=True)
class KLSplit(JsonFields):
    """The two parts of KL(learner || actor), each alone; means over sampled states, in nats."""

    compression_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || engine made of the same weights)"""
    staleness_nats: float | None = None
    """KL(learner || its own weights one publication earlier)"""
    staleness_updates: int = 0
    """learner updates between those two"""
    cpu_seconds: float = 0.0
    """processor seconds that measuring took"""


@dataclass(frozen=True, kw_only=True)
class Shadow(JsonFields):
    """What became of an order's shadow; it was not sent."""

    spec: CompressionSpec
    kl_nats: float | None = None
    """KL(learner || engine made of the same weights); None: it must be distilled first and too few
    states were played, or it was rejected"""
    rejected: str | None = None
    """why its engine could not act"""
    is_refused: bool = False
    """whether it was rejected whatever the weights, so that trying again is of no use"""
    seconds: float = 0.0
    """what compressing and comparing took, on the run's clock"""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more can be found out by trying again at once."""
        return self.kl_nats is not None or self.rejected is not None


@dataclass(frozen=True, kw_only=True)
class Delivery(JsonFields):
    """A publication that was made, or found to be what acts already."""

    order: Order
    acted: tuple[Tag, ...]
    """what it holds, in the order of its engines: what really acts"""
    unchanged: bool = False
    """whether what acts already would act alike, so that nothing was sent"""
    size_bytes: int = 0
    """what was sent to each actor"""
    rejected: Mapping[CompressionSpec, str] = field(default_factory=dict)
    """why specs that were ordered are not in it"""
    refused: tuple[CompressionSpec, ...] = ()
    """those of them that cannot be built whatever the weights"""
    waiting: Mapping[CompressionSpec, float | None] = field(default_factory=dict)
    """specs that were ordered and not admitted yet: KL(learner || engine) on held-out states, None
    where too few were played; something milder acts for them"""
    admitted: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """the same KL of what was admitted just now"""
    student_kl_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || student or pruned network) by the spec that acts with it, or is to"""
    split: KLSplit = field(default_factory=KLSplit)
    seconds: float = 0.0
    """what compressing and sending took, on the run's clock"""
