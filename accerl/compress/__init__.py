"""Compressor: prune, distil, factorise, quantise and export the policy that actors act with."""

from __future__ import annotations

from accerl.compress.artifact import Artifact
from accerl.compress.chain import (
    ONNX,
    CompressionState,
    CompressorChain,
    Distillation,
    Eager,
    LowRank,
    Pruning,
    Quantizer,
    TorchScript,
)
from accerl.compress.compressor import CompressionConfig, Compressor
from accerl.compress.engine import Engine, make_engine

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
    "TorchScript",
    "make_engine",
]
