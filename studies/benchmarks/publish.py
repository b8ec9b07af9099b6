"""`accerl bench publish`: what a publication takes, from weights to an engine that acts."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from accerl.compress import CompressionConfig, Compressor, make_engine
from accerl.compress.pruning.prune import prune
from accerl.compress.quantization.quantize import spread
from accerl.networks.graph_policy import Policy
from accerl.networks.make import make_network
from accerl.networks.policy_net import PolicyNet
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.machine.usage import memory
from accerl.spec import CompressionSpec
from studies.benchmarks.pong import ACTIONS, PIXELS, imitator, record_states
from studies.benchmarks.repeats import SPREAD, median_and_spread, result_of, torch_threads

SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(sparsity=0.5, bits=8),
    *(CompressionSpec(student=student, bits=8) for student in ("net1", "net2", "net3")),
)
STATES = 256
SEED = 0
"""of the weights and states"""
GRAPH_SPECS = (CompressionSpec(), CompressionSpec(bits=8), CompressionSpec(sparsity=0.5, bits=8))
"""of a network that is no chain of layers"""


def bench_publish(
    repeats: int = 5, publications: int = 0, network: str = "original"
) -> dict[str, Any]:
    """Measure publishing: from a policy's weights to an engine that acts, in milliseconds.

    What is measured is every publication but the first: its graph is known, its ranges are
    refreshed. `naive_ms` is what the libraries offer: torch.onnx.export, and for INT8 ONNX
    Runtime's pre-processing and static quantisation on as many states as a first publication
    uses; then a session, as here.

    Args:
        repeats: interleaved rounds.
        publications: then publish so often, with changing weights and specs, and report how much
            memory this process holds after every tenth of them.
        network: the learner's: original, or impala, impala-small or impala-tiny.
    """
    keep_freed_memory()  # as the process that compresses does
    states = record_states(STATES, SEED)
    rows = []
    with torch_threads(1):
        policy = imitator(network, states, torch.Generator().manual_seed(SEED))
        config = CompressionConfig(calibration_states=len(states), distill_warmup_updates=1)
        compressor = Compressor(PIXELS, ACTIONS, config, torch.Generator().manual_seed(SEED))
        compressor.observe(states)
        specs = SPECS if isinstance(policy, PolicyNet) else GRAPH_SPECS
        for spec in specs:
            compressor.build(spec, policy, 0)
        seconds, sizes = np.empty((2, len(specs), repeats)), [0] * len(specs)
        for repeat in range(repeats):
            for place, spec in enumerate(specs):
                start = time.perf_counter()
                artifact = compressor.build(spec, policy, 0)
                make_engine(artifact)
                seconds[0, place, repeat] = time.perf_counter() - start
                compressed = compressed_network(spec, policy)
                start = time.perf_counter()
                naive_session(spec, compressed, states)
                seconds[1, place, repeat] = time.perf_counter() - start
                sizes[place] = len(artifact.payload)
        for spec, own, naive, size in zip(specs, *seconds, sizes, strict=True):
            ms, spread_ms = median_and_spread(1e3 * own)
            naive_ms, naive_spread = median_and_spread(1e3 * naive)
            rows.append(
                {
                    "spec": spec.to_json(),
                    **{"ms": ms, "spread": spread_ms, "naive_ms": naive_ms},
                    **{"naive_spread": naive_spread, "ratio": float(np.median(naive / own))},
                    "bytes": size,
                }
            )
        held = _memory_over(publications, compressor, policy, specs)
    return result_of(
        "publish",
        spread_is=SPREAD,
        rows=rows,
        network=network,
        **({"memory_mb": held} if held else {}),
    )


def _memory_over(
    publications: int, compressor: Compressor, policy: Policy, specs: Sequence[CompressionSpec]
) -> list[float]:
    """Return resident megabytes of this process after each tenth of so many publications."""
    held, generator = [], torch.Generator().manual_seed(0)
    for number in range(1, publications + 1):
        spec = specs[number % len(specs)]
        with torch.no_grad():
            head = next(policy.parameters())
            head += 1e-3 * torch.randn(head.shape, generator=generator)
        make_engine(compressor.build(spec, policy, number))
        if number % max(publications // 10, 1) == 0:
            now = memory(os.getpid())
            held.append(0.0 if now is None else now.rss / 2**20)
    return held


def compressed_network(spec: CompressionSpec, policy: Policy) -> Policy:
    """Return a network with the layers of `policy` compressed to `spec`; its weights are new."""
    net = policy
    if spec.student != "original":
        generator = torch.Generator()
        net = make_network(spec.student, policy.observation, policy.num_actions, generator)
    return prune(net, spec.sparsity) if spec.sparsity else net


def naive_session(
    spec: CompressionSpec, net: Policy, states: np.ndarray
) -> onnxruntime.InferenceSession:
    """Return what torch's exporter and ONNX Runtime's quantiser make of `net` (32 or 8 bits)."""
    from onnxruntime.quantization import QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(np.array_split(spread(states), 4))

        def get_next(self) -> Any:
            batch = next(self.rest, None)
            return None if batch is None else {"obs": batch}

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The exporter that needs no further package announces its successor at every call.
        warnings.simplefilter("ignore", DeprecationWarning)
        path, ready, small = (Path(folder) / name for name in ("a.onnx", "b.onnx", "c.onnx"))
        torch.onnx.export(
            net,
            (torch.from_numpy(states[:1]),),
            str(path),
            input_names=["obs"],
            output_names=["logits", "value"],
            dynamic_axes={name: {0: "batch"} for name in ("obs", "logits", "value")},
            dynamo=False,
        )
        if spec.bits == 8:
            quant_pre_process(str(path), str(ready))
            quantize_static(
                str(ready),
                str(small),
                Reader(),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
            path = small
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(
            path.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
