"""Order, Tag and Delivery: what is asked of the compressor, and what became of it.

They travel between processes and into checkpoints. Nothing here needs torch: actors do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accerl.spec import CompressionSpec, Decision, by_label, by_spec


@dataclass(frozen=True)
class Order:
    """A publication that is to be made."""

    number: int
    decision: Decision
    updates: int
    """learner updates of the weights that it is made of"""
    check: bool = False
    """whether to measure what compression does to it, see `KLProbe`"""

    def to_json(self) -> dict[str, Any]:
        """Return the order as a JSON object."""
        return {**vars(self), "decision": self.decision.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Order:
        """Read an order written by `to_json`."""
        return cls(**{**data, "decision": Decision.from_json(data["decision"])})


@dataclass(frozen=True)
class Tag:
    """What acted in a rollout: the spec, and the learner update its weights were taken at."""

    spec: CompressionSpec
    version: int

    def to_json(self) -> list[Any]:
        """Return spec and version."""
        return [self.spec.to_json(), self.version]

    @classmethod
    def from_json(cls, data: list[Any]) -> Tag:
        """Read a tag written by `to_json`."""
        return cls(CompressionSpec.from_json(data[0]), data[1])


@dataclass(frozen=True, kw_only=True)
class KLSplit:
    """The two parts of KL(learner || actor), each alone; means over sampled states, in nats."""

    compression_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || engine made of the same weights)"""
    staleness_nats: float | None = None
    """KL(learner || its own weights one publication earlier)"""
    staleness_updates: int = 0
    """learner updates between those two"""
    cpu_seconds: float = 0.0
    """processor seconds that measuring took"""

    def to_json(self) -> dict[str, Any]:
        """Return the split as a JSON object."""
        return {**vars(self), "compression_nats": by_label(self.compression_nats)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KLSplit:
        """Read a split written by `to_json`."""
        return cls(**{**data, "compression_nats": by_spec(data["compression_nats"])})


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A publication that was made, or found to be what acts already."""

    order: Order
    acted: tuple[Tag, ...]
    """what it holds, in the order of the decision's specs"""
    unchanged: bool = False
    """whether what acts already would act alike, so that nothing was sent"""
    size_bytes: int = 0
    """what was sent to each actor"""
    rejected: Mapping[CompressionSpec, str] = field(default_factory=dict)
    """why specs that were ordered are not in it"""
    student_kl_nats: Mapping[CompressionSpec, float] = field(default_factory=dict)
    """KL(learner || student or pruned network) by the spec that acts with it"""
    split: KLSplit = field(default_factory=KLSplit)
    seconds: float = 0.0
    """what compressing and sending took, on the run's clock"""

    def to_json(self) -> dict[str, Any]:
        """Return the delivery as a JSON object."""
        return {
            **vars(self),
            "order": self.order.to_json(),
            "acted": [tag.to_json() for tag in self.acted],
            "rejected": by_label(self.rejected),
            "student_kl_nats": by_label(self.student_kl_nats),
            "split": self.split.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Delivery:
        """Read a delivery written by `to_json`."""
        parts = {
            "order": Order.from_json(data["order"]),
            "acted": tuple(map(Tag.from_json, data["acted"])),
            "rejected": by_spec(data["rejected"]),
            "student_kl_nats": by_spec(data["student_kl_nats"]),
            "split": KLSplit.from_json(data["split"]),
        }
        return cls(**{**data, **parts})
