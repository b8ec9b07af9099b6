"""SpecLatency: a row of a latency profile's table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accerl.json_fields import JsonFields
from accerl.spec import CompressionSpec


@dataclass(frozen=True, kw_only=True)
class SpecLatency(JsonFields):
    """One row of the table: what acting with `spec` costs."""

    spec: CompressionSpec
    infer_us: dict[int, float]
    """microseconds per state, by batch size"""
    publish_ms: float
    """compress + export, milliseconds per publication"""
    distill_us: float
    """one distillation update of this student or pruned network, microseconds per state"""
    load_ms: float = 0.0
    """what it takes an actor to make an engine of it, milliseconds per publication"""
    size_bytes: int = 0
    """what is sent to each actor per publication"""

    def per_state_us(self, batch: int) -> float:
        """Return microseconds per state, linear in log2(batch) between measured batch sizes."""
        if batch in self.infer_us:
            return self.infer_us[batch]
        sizes = sorted(self.infer_us)
        known = [self.infer_us[size] for size in sizes]
        return float(np.interp(np.log2(batch), np.log2(sizes), known))
