"""What `accerl bench publish|learner` measures on the machine at hand, and how all are measured.

Configurations are interleaved within every repeat, and ratios are formed within a repeat before
their median is taken: a machine that slows down for a second slows both sides of a ratio.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

from accerl.compress import CompressionConfig, Compressor, make_engine
from accerl.compress.pruning.prune import prune
from accerl.compress.quantization.quantize import spread
from accerl.learner.config import LearnerConfig
from accerl.learner.learner import Learner
from accerl.networks.policy_net import ObservationSpec, PolicyNet, make_policy
from accerl.records import fingerprint, versions
from accerl.rollout import Rollout, RolloutShape
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.machine.usage import memory
from accerl.spec import CompressionSpec
from studies.benchmarks.pong import ACTIONS, PIXELS, fitted_policy, record_states
from studies.progress import console

Key = TypeVar("Key", bound=Hashable)
PUBLISH_SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(sparsity=0.5, bits=8),
    *(CompressionSpec(student=student, bits=8) for student in ("net1", "net2", "net3")),
)
STATES = 256
LEARNER_ENVS, LEARNER_UNROLL = 32, 5  # the paper's batch of 160


def bench_publish(repeats: int = 5, seed: int = 0, publications: int = 0) -> dict[str, Any]:
    """Measure publishing: from a policy's weights to an engine that acts, in milliseconds.

    What is measured is every publication but the first: its graph is known, its ranges are
    refreshed. `naive_ms` is what the libraries offer: torch.onnx.export, and for INT8 ONNX
    Runtime's pre-processing and static quantisation on as many states as a first publication
    uses; then a session, as here.

    Args:
        repeats: interleaved rounds.
        seed: of the weights and states.
        publications: then publish so often, with changing weights and specs, and report how much
            memory this process holds after every tenth of them.
    """
    keep_freed_memory()  # as the process that compresses does
    states = record_states(STATES, seed)
    rows = []
    with torch_threads(1):
        policy = fitted_policy("original", states, torch.Generator().manual_seed(seed))
        config = CompressionConfig(calibration_states=len(states), distill_warmup_updates=1)
        compressor = Compressor(PIXELS, ACTIONS, config, torch.Generator().manual_seed(seed))
        compressor.observe(states)
        for spec in PUBLISH_SPECS:
            compressor.build(spec, policy, 0)
            own, naive, payload_bytes = [], [], 0
            for _ in range(repeats):
                start = time.perf_counter()
                artifact = compressor.build(spec, policy, 0)
                make_engine(artifact)
                own.append(time.perf_counter() - start)
                start = time.perf_counter()
                naive_session(spec, network(spec, policy), states)
                naive.append(time.perf_counter() - start)
                payload_bytes = len(artifact.payload)
            rows.append(
                {
                    "spec": spec.to_json(),
                    "ms": float(np.median(own)) * 1e3,
                    "naive_ms": float(np.median(naive)) * 1e3,
                    "ratio": float(np.median(np.array(naive) / np.array(own))),
                    "bytes": payload_bytes,
                }
            )
        memory = _memory_over(publications, compressor, policy)
    return result_of("publish", rows) | ({"memory_mb": memory} if memory else {})


def _memory_over(publications: int, compressor: Compressor, policy: PolicyNet) -> list[float]:
    """Return resident megabytes of this process after each tenth of so many publications."""
    held, generator = [], torch.Generator().manual_seed(0)
    for number in range(1, publications + 1):
        spec = PUBLISH_SPECS[number % len(PUBLISH_SPECS)]
        with torch.no_grad():
            head = policy.policy_head.weight
            head += 1e-3 * torch.randn(head.shape, generator=generator)
        make_engine(compressor.build(spec, policy, number))
        if number % max(publications // 10, 1) == 0:
            now = memory(os.getpid())
            held.append(0.0 if now is None else now.rss / 2**20)
    return held


def bench_learner(
    students: Sequence[str] = ("original", "net1"), repeats: int = 5, seed: int = 0
) -> dict[str, Any]:
    """Measure learning: microseconds per sample of one update on the paper's batch of 160."""
    rows = []
    for threads in sorted({1, os.cpu_count() or 1}):
        with torch_threads(threads):
            calls: dict[tuple[str, str], Callable[[], object]] = {
                (student, precision): _learner_call(student, precision, seed)
                for student in students
                for precision in ("fp32", "bf16")
            }
            seconds = interleaved(calls, repeats, 0.0)
        for (student, precision), measured in seconds.items():
            rows.append(
                {
                    "student": student,
                    "precision": precision,
                    "batch": LEARNER_ENVS * LEARNER_UNROLL,
                    **per_item(measured / (LEARNER_ENVS * LEARNER_UNROLL), "us_per_sample"),
                    "threads": threads,
                }
            )
    return result_of("learner", rows)


def network(spec: CompressionSpec, policy: PolicyNet) -> PolicyNet:
    """Return a network with the layers of `policy` compressed to `spec`; its weights are new."""
    net = policy
    if spec.student != "original":
        generator = torch.Generator()
        net = make_policy(spec.student, policy.observation, policy.num_actions, generator)
    return prune(net, spec.sparsity)


def naive_session(
    spec: CompressionSpec, net: PolicyNet, states: np.ndarray
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


def interleaved(
    calls: dict[Key, Callable[[], object]], repeats: int, seconds_per_call: float
) -> dict[Key, np.ndarray]:
    """Return seconds per call, [repeats] each: every round times every entry once."""
    rounds: dict[Key, int] = {}
    for key, call in calls.items():
        call()  # first calls allocate
        start = time.perf_counter()
        call()
        rounds[key] = max(1, round(seconds_per_call / max(time.perf_counter() - start, 1e-6)))
    seconds: dict[Key, np.ndarray] = {key: np.zeros(repeats) for key in calls}
    for repeat in range(repeats):
        for key, call in calls.items():
            start = time.perf_counter()
            for _ in range(rounds[key]):
                call()
            seconds[key][repeat] = (time.perf_counter() - start) / rounds[key]
    return seconds


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run a block with so many torch threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


LABELS = ("spec",)
EXPLANATIONS = {
    "infer": "Acting, one core. Ratios are speed-ups over Original at the same batch; KL (nats) "
    "and agreement of greedy actions are with Original, on states that nothing was fitted to.",
    "publish": "From weights to an engine that acts. naive: torch.onnx.export, ONNX Runtime's "
    "static quantisation and a session.",
    "learner": "One update of the learner on the paper's batch of 160.",
}


def print_table(result: dict[str, Any], stream: Console = console) -> None:
    """Print a benchmark for people, on standard error unless told otherwise."""
    table = Table(title=f"bench {result['bench']}", title_justify="left")
    for name in result["rows"][0]:
        table.add_column(
            name, justify="left" if name in LABELS else "right", no_wrap=name in LABELS
        )
    for row in result["rows"]:
        table.add_row(*(_cell(value) for value in row.values()))
    stream.print(table)
    stream.print(EXPLANATIONS[result["bench"]])
    if held := result.get("memory_mb"):
        sizes = ", ".join(f"{size:,.0f}" for size in held)
        stream.print(f"resident memory after each tenth of the publications: {sizes} MB")
    stream.print(f"spread: {result['spread_is']}; machine: {result['fingerprint']['cpu']}")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return CompressionSpec.from_json(value).label
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def result_of(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a benchmark's rows with the machine and the versions that they were measured on."""
    return {
        "bench": name,
        "fingerprint": fingerprint(),
        "versions": versions(),
        "spread_is": "interquartile range over repeats, in the unit of the median beside it",
        "rows": rows,
    }


def per_item(seconds: np.ndarray, name: str = "us_per_state") -> dict[str, float]:
    """Return the median of `seconds` [repeats] in microseconds, and their interquartile range."""
    low, median, high = np.percentile(seconds * 1e6, (25, 50, 75))
    return {name: float(median), "spread": float(high - low)}


def _learner_call(student: str, precision: str, seed: int) -> Callable[[], object]:
    actions = 6
    policy = make_policy(student, PIXELS, actions, torch.Generator().manual_seed(seed))
    learner = Learner(policy, LearnerConfig(unroll=LEARNER_UNROLL, precision=precision))
    rollout = _random_rollout(PIXELS, actions, np.random.default_rng(seed))
    return lambda: learner.update(rollout)


def _random_rollout(
    observation: ObservationSpec, actions: int, generator: np.random.Generator
) -> Rollout:
    """Return a rollout of noise, as acted by a uniform policy: time does not depend on content."""
    shape = RolloutShape(
        unroll=LEARNER_UNROLL,
        num_envs=LEARNER_ENVS,
        num_actions=actions,
        observation=observation,
    )
    rollout = Rollout.allocate(shape)
    rollout.obs[:] = generator.integers(0, 256, rollout.obs.shape)
    rollout.action[:] = generator.integers(actions, size=rollout.action.shape)
    rollout.log_prob[:] = -np.log(actions)
    rollout.reward[:] = generator.normal(size=rollout.reward.shape)
    return rollout
