"""What `accerl bench graphs` measures: ways to run the same network, and whether they agree."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from accerl.compress import (
    ONNX,
    CompressorChain,
    Eager,
    Quantizer,
    TorchScript,
    make_engine,
)
from accerl.networks.policy_net import Architecture, ObservationSpec, PolicyNet
from accerl.spec import CompressionSpec
from studies.benchmarks.bench import interleaved, naive_session, per_item, result_of, torch_threads
from studies.benchmarks.pong import fitted_policy, record_states

Infer = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
SPARSITIES = (0.8, 0.9, 0.95)
STATES = 128


def bench_graphs(
    batches: Sequence[int] = (1, 16),
    repeats: int = 7,
    *,
    compile_torch: bool = True,
    seconds_per_call: float = 0.02,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure ways to run Original: fused or as exported, fixed or dynamic batch, sparse or dense.

    Args:
        batches: states per call.
        repeats: interleaved rounds.
        compile_torch: also torch.compile, which takes up to a minute for each batch size.
        seconds_per_call: how long one way is timed in one round.
        seed: of the recorded states and the weights.

    Returns:
        `rows`, one for each way and batch: microseconds per state, speed-up over eager torch, the
        largest difference of a logit from eager's, and the milliseconds until it could act. And
        `sparse`: the large linear layer alone in torch's CSR format, and how much faster it is
        than ONNX Runtime's dense ones.
    """
    states = record_states(STATES, seed)
    rows: list[dict[str, Any]] = []
    with torch_threads(1):
        policy = fitted_policy("original", states, torch.Generator().manual_seed(seed))
        for batch in batches:
            obs = np.ascontiguousarray(states[:batch])
            ways, ready_ms = _ways(policy, states, batch, compile_torch)
            seconds = interleaved(
                {name: _call(infer, obs) for name, infer in ways.items()}, repeats, seconds_per_call
            )
            exact = ways["eager"](obs)[0]
            rows += [
                {
                    "name": name,
                    "batch": batch,
                    **per_item(seconds[name] / batch),
                    "ratio_eager": float(np.median(seconds["eager"] / seconds[name])),
                    "logit_difference": float(np.abs(infer(obs)[0] - exact).max()),
                    "ready_ms": ready_ms[name],
                }
                for name, infer in ways.items()
            ]
        sparse = _sparse_rows(policy, batches, repeats, seconds_per_call)
    return result_of("graphs", rows) | {"sparse": sparse, "seed": seed}


def _ways(
    policy: PolicyNet, states: np.ndarray, batch: int, compile_torch: bool
) -> tuple[dict[str, Infer], dict[str, float]]:
    """Return every way to act, by name, and how long each took to make."""

    def chain(*links: Any) -> Infer:
        artifact = CompressorChain(links).compress(policy, observations=states[:64])
        return make_engine(artifact).infer

    makers: dict[str, Callable[[], Infer]] = {
        "eager": lambda: chain(Eager()),
        "TorchScript, frozen": lambda: chain(TorchScript()),
        "ONNX fp32, as torch exports it": lambda: _exported(policy, states, 32),
        "ONNX fp32": lambda: chain(ONNX()),
        "ONNX fp32, fixed batch": lambda: chain(ONNX(batch=batch)),
        "ONNX INT8, as its quantiser makes it": lambda: _exported(policy, states, 8),
        "ONNX INT8": lambda: chain(Quantizer("INT8"), ONNX()),
        "ONNX INT8, fixed batch": lambda: chain(Quantizer("INT8"), ONNX(batch=batch)),
    }
    if compile_torch:
        makers["torch.compile"] = lambda: _compiled(policy, states[:batch])
    ways, ready_ms = {}, {}
    for name, make in makers.items():
        start = time.perf_counter()
        ways[name] = make()
        ready_ms[name] = 1e3 * (time.perf_counter() - start)
    return ways, ready_ms


def _exported(policy: PolicyNet, states: np.ndarray, bits: int) -> Infer:
    session = naive_session(CompressionSpec(bits=bits), policy, states)

    def infer(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits, values = session.run(("logits", "value"), {"obs": obs})
        return np.asarray(logits), np.asarray(values)

    return infer


def _compiled(policy: PolicyNet, obs: np.ndarray) -> Infer:
    module = torch.compile(policy, dynamic=False, mode="max-autotune-no-cudagraphs")

    def infer(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            logits, values = module(torch.from_numpy(obs))
        return logits.numpy(), values.numpy()

    infer(np.ascontiguousarray(obs))  # compiles
    return infer


def _sparse_rows(
    policy: PolicyNet, batches: Sequence[int], repeats: int, seconds_per_call: float
) -> list[dict[str, Any]]:
    """Time the large linear layer with its smallest weights set to zero, and dense with all."""
    (layer,) = [module for module in policy.body if isinstance(module, nn.Linear)]
    weight = layer.weight.detach()
    sparse = {}
    for sparsity in SPARSITIES:
        limit = weight.abs().flatten().kthvalue(int(sparsity * weight.numel())).values
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch calls its CSR tensors beta
            sparse[sparsity] = (weight * (weight.abs() > limit)).to_sparse_csr()
    rows = []
    for batch in batches:
        inputs = torch.rand(batch, layer.in_features, generator=torch.Generator().manual_seed(0))
        columns = inputs.t().contiguous()
        calls: dict[Any, Callable[[], object]] = {
            name: _call(infer, inputs.numpy()) for name, infer in _dense(layer, inputs).items()
        }
        for sparsity, csr in sparse.items():
            calls[sparsity] = lambda w=csr, x=columns: w @ x
        with torch.inference_mode():
            seconds = interleaved(calls, repeats, seconds_per_call)
        rows += [
            {
                "sparsity": sparsity,
                "batch": batch,
                **per_item(seconds[sparsity] / batch),
                "ratio_fp32": float(np.median(seconds["fp32"] / seconds[sparsity])),
                "ratio_int8": float(np.median(seconds["INT8"] / seconds[sparsity])),
            }
            for sparsity in SPARSITIES
        ]
    return rows


def _dense(layer: nn.Linear, inputs: Tensor) -> dict[str, Infer]:
    """Return ONNX Runtime's ways to run a linear layer, with two heads behind it."""
    observation = ObservationSpec((layer.in_features,), "float32")
    net = PolicyNet(Architecture((), (layer.out_features,)), observation, 1)
    with torch.no_grad():
        net.body[1].load_state_dict(layer.state_dict())
    return {
        name: make_engine(CompressorChain(links).compress(net, observations=inputs.numpy())).infer
        for name, links in {"fp32": [ONNX()], "INT8": [Quantizer("INT8"), ONNX()]}.items()
    }


def _call(infer: Infer, obs: np.ndarray) -> Callable[[], object]:
    return lambda: infer(obs)
