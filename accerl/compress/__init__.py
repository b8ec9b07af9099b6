"""Compressor: prune, distil, factorise, quantise and export the policy that actors act with.

Names are imported when they are first used: an actor that acts in ONNX Runtime needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accerl.compress.artifact import Artifact
    from accerl.compress.chain import CompressorChain
    from accerl.compress.compressor import Compressor
    from accerl.compress.config import CompressionConfig
    from accerl.compress.engine import Engine, make_engine
    from accerl.compress.links import (
        ONNX,
        CompressionState,
        Distillation,
        Eager,
        LowRank,
        Pruning,
        Quantizer,
        SimulatedQuantizer,
        TorchScript,
    )

__all__ = [
    "ONNX",
    "Artifact",
    "CompressionConfig",
    "CompressionState",
    "Compressor",
    "CompressorChain",
    "Distillation",
    "Eager",
    "Engine",
    "LowRank",
    "Pruning",
    "Quantizer",
    "SimulatedQuantizer",
    "TorchScript",
    "make_engine",
]

_ELSEWHERE = {
    "Artifact": "artifact",
    "CompressorChain": "chain",
    "CompressionConfig": "config",
    "Compressor": "compressor",
    "Engine": "engine",
    "make_engine": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'links')}"), name)
