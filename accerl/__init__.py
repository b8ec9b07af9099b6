"""AcceRL: network compression inside actor-learner deep reinforcement learning.

The package implements the five components of the AcceRL paper (Zhang, 2022): Actor, Learner,
Compressor, Corrector and Monitor, and the runtimes that wire them into one inner run.

The names in `__all__` are imported when they are first used: an actor that acts in ONNX Runtime
needs no torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

# From 1.29 on ONNX Runtime tells Microsoft of every session, unless this is set before its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from pathlib import Path

    from accerl.compress import (
        ONNX,
        CompressorChain,
        Distillation,
        Eager,
        EnginePolicy,
        LowRank,
        Pruning,
        Quantizer,
        SimulatedQuantizer,
        TorchScript,
    )
    from accerl.compress import Distillation as Distiller
    from accerl.compress.policy import compress_policy as compress
    from accerl.config import RunConfig
    from accerl.correct import (
        CorrectorChain,
        ISCorrector,
        LeakyVTraceCorrector,
        PerDecisionCorrector,
        QLambdaCorrector,
        RetraceCorrector,
        TreeBackupCorrector,
        TruncatedISCorrector,
        VTraceCorrector,
    )
    from accerl.monitor.strategies import (
        AdviseKLCapStrategy,
        FirstThatFires,
        FixedStrategy,
        KLThresholdStrategy,
        LinearKLMixStrategy,
        RandomStrategy,
        RewardGapStrategy,
        ThreeStageStrategy,
    )
    from accerl.monitor.strategy import Strategy
    from accerl.presets import load_preset
    from accerl.spec import CompressionSpec, Decision
    from accerl.training.api import train
    from accerl.training.run import RunResult
    from accerl.training.saved_policy import load_policy

    def load_bundle(
        path: str | Path,
        *,
        mode: Literal["policy", "schedule"] = "policy",
        game: str | None = None,
    ) -> Strategy:
        """Return the strategy that a schedule bundle holds."""
        ...


__version__ = "0.1.0"

__all__ = [
    "ONNX",
    "AdviseKLCapStrategy",
    "CompressionSpec",
    "CompressorChain",
    "CorrectorChain",
    "Decision",
    "Distillation",
    "Distiller",
    "Eager",
    "EnginePolicy",
    "FirstThatFires",
    "FixedStrategy",
    "ISCorrector",
    "KLThresholdStrategy",
    "LeakyVTraceCorrector",
    "LinearKLMixStrategy",
    "LowRank",
    "PerDecisionCorrector",
    "Pruning",
    "QLambdaCorrector",
    "Quantizer",
    "RandomStrategy",
    "RetraceCorrector",
    "RewardGapStrategy",
    "RunConfig",
    "RunResult",
    "SimulatedQuantizer",
    "Strategy",
    "ThreeStageStrategy",
    "TorchScript",
    "TreeBackupCorrector",
    "TruncatedISCorrector",
    "VTraceCorrector",
    "compress",
    "load_bundle",
    "load_policy",
    "load_preset",
    "train",
]

_HOMES = {
    "AdviseKLCapStrategy": "accerl.monitor.strategies",
    "CompressionSpec": "accerl.spec",
    "CompressorChain": "accerl.compress",
    "CorrectorChain": "accerl.correct",
    "Decision": "accerl.spec",
    "Distillation": "accerl.compress",
    "Distiller": "accerl.paper",  # as the paper calls it
    "Eager": "accerl.compress",
    "EnginePolicy": "accerl.compress",
    "FirstThatFires": "accerl.monitor.strategies",
    "FixedStrategy": "accerl.monitor.strategies",
    "ISCorrector": "accerl.correct",
    "KLThresholdStrategy": "accerl.monitor.strategies",
    "LeakyVTraceCorrector": "accerl.correct",
    "LinearKLMixStrategy": "accerl.monitor.strategies",
    "LowRank": "accerl.compress",
    "ONNX": "accerl.compress",
    "PerDecisionCorrector": "accerl.correct",
    "Pruning": "accerl.compress",
    "QLambdaCorrector": "accerl.correct",
    "Quantizer": "accerl.compress",
    "RandomStrategy": "accerl.monitor.strategies",
    "RetraceCorrector": "accerl.correct",
    "RewardGapStrategy": "accerl.monitor.strategies",
    "RunConfig": "accerl.config",
    "RunResult": "accerl.training.run",
    "SimulatedQuantizer": "accerl.compress",
    "Strategy": "accerl.monitor.strategy",
    "ThreeStageStrategy": "accerl.monitor.strategies",
    "TorchScript": "accerl.compress",
    "TreeBackupCorrector": "accerl.correct",
    "TruncatedISCorrector": "accerl.correct",
    "VTraceCorrector": "accerl.correct",
    "load_policy": "accerl.training.saved_policy",
    "load_preset": "accerl.presets",
    "train": "accerl.training.api",
    # The one name that points up: to its user a bundle is a strategy like any other, and only the
    # layer that trains controllers can read one.
    "load_bundle": "controller.bundle.bundle",
}


def __getattr__(name: str) -> Any:
    if name == "compress":  # the package, which can be called
        return import_module("accerl.compress")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
