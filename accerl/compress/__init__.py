"""Compressor: prune, distil, factorise, quantise and export the policy that actors act with.

Names are imported when they are first used: an actor that acts in ONNX Runtime needs no torch. The
package itself can be called: `accerl.compress(module, spec, observations)` is `compress_policy`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from accerl.spec import IDENTITY, CompressionSpec

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

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
    from accerl.compress.policy import EnginePolicy, compress_policy

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
    "EnginePolicy",
    "LowRank",
    "Pruning",
    "Quantizer",
    "SimulatedQuantizer",
    "TorchScript",
    "compress_policy",
    "make_engine",
]

_ELSEWHERE = {
    "Artifact": "artifact",
    "CompressorChain": "chain",
    "CompressionConfig": "config",
    "Compressor": "compressor",
    "Engine": "engine",
    "EnginePolicy": "policy",
    "compress_policy": "policy",
    "make_engine": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'links')}"), name)


class _CallablePackage(ModuleType):
    """A package that is a function too: both have the right name."""

    def __call__(
        self,
        module: nn.Module,
        spec: CompressionSpec = IDENTITY,
        observations: np.ndarray | None = None,
        **options: Any,
    ) -> EnginePolicy:
        compress = import_module(f"{__name__}.policy").compress_policy
        return compress(module, spec, observations, **options)


sys.modules[__name__].__class__ = _CallablePackage
