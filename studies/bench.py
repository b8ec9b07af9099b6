"""What `accerl bench infer|publish|learner` measures on the machine at hand.

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
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from accerl.compress import Artifact, CompressionState, CompressorChain, make_engine
from accerl.compress.check import kl_nats
from accerl.compress.quantize import spread
from accerl.learner import Learner, LearnerConfig
from accerl.networks import ObservationSpec, PolicyNet, count_macs, make_policy
from accerl.records import fingerprint, versions
from accerl.rollout import Rollout, RolloutShape
from accerl.spec import CompressionSpec
from studies.pong import PIXELS, fitted_policy, record_states
from studies.progress import console

Key = TypeVar("Key", bound=Hashable)
EAGER = CompressionSpec(graph="eager")
INFER_SPECS = (
    EAGER,
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(bits=16),
    CompressionSpec(sparsity=0.5),
    CompressionSpec(sparsity=0.5, bits=8),
    *(
        CompressionSpec(student=student, bits=bits)
        for student in ("net1", "net2", "net3")
        for bits in (32, 8)
    ),
)
PUBLISH_SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(sparsity=0.5, bits=8),
    CompressionSpec(student="net1", bits=8),
    CompressionSpec(student="net3", bits=8),
)
STATES = 640  # recorded: 384 to fit and calibrate on, 256 to compare on
COMPARED = 256
LEARNER_ENVS, LEARNER_UNROLL = 32, 5  # the paper's batch of 160


def bench_infer(
    batches: Sequence[int] = (1, 16),
    repeats: int = 15,
    seconds_per_call: float = 0.02,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure acting: microseconds per state of each compression, and what it costs in KL.

    Every policy has an orthogonal random body and heads fitted to a simple Pong rule (see
    `studies.pong`): a freshly initialised policy is uniform, which no compression could hurt.
    Networks are measured as they are, without distillation, and their KL and argmax agreement
    compare them with their *own* float32 version on states they were not calibrated on, so both
    show the loss of precision alone.

    Args:
        batches: states per call.
        repeats: interleaved rounds.
        seconds_per_call: how long one configuration is timed in one round.
        seed: of the recorded states and weights.

    Returns:
        `rows` as in the command line's contract; ratios are speed-ups over Original in eager
        torch and in ONNX Runtime float32, at the same batch.
    """
    states = record_states(STATES, seed)
    compared, calibration = states[:COMPARED], states[COMPARED:]
    with torch_threads(1):
        nets = _networks(INFER_SPECS, calibration, seed)
        artifacts = {spec: build(spec, nets[spec], calibration) for spec in INFER_SPECS}
        engines = {spec: make_engine(artifact) for spec, artifact in artifacts.items()}
        rows = []
        for batch in batches:
            calls = {
                spec: _infer_call(engine.infer, compared[:batch])
                for spec, engine in engines.items()
            }
            seconds = interleaved(calls, repeats, seconds_per_call)
            for spec in INFER_SPECS:
                kl_mean, agreement = _loss_of_precision(nets[spec], artifacts[spec], compared)
                rows.append(
                    {
                        "spec": spec.to_json(),
                        "batch": batch,
                        **_per_item(seconds[spec] / batch),
                        "ratio_eager": float(np.median(seconds[EAGER] / seconds[spec])),
                        "ratio_ort_fp32": float(
                            np.median(seconds[CompressionSpec()] / seconds[spec])
                        ),
                        "bytes": len(artifacts[spec].payload),
                        "macs": count_macs(nets[spec]),
                        "kl_mean": kl_mean,
                        "argmax_agreement": agreement,
                    }
                )
    return _result("infer", rows)


def bench_publish(repeats: int = 5, seed: int = 0) -> dict[str, Any]:
    """Measure publishing: from a policy's weights to an engine that acts, in milliseconds.

    `naive_ms` is what the libraries offer: torch.onnx.export, and for INT8 ONNX Runtime's
    pre-processing and static quantisation on the same states; then a session, as here.
    """
    states = record_states(STATES, seed)
    calibration = states[COMPARED:]
    rows = []
    with torch_threads(1):
        nets = _networks(PUBLISH_SPECS, calibration, seed)
        for spec in PUBLISH_SPECS:
            own, naive, payload_bytes = [], [], 0
            for _ in range(repeats):
                start = time.perf_counter()
                artifact = build(spec, nets[spec], calibration)
                make_engine(artifact)
                own.append(time.perf_counter() - start)
                start = time.perf_counter()
                make_engine(naive_artifact(spec, nets[spec], calibration))
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
    return _result("publish", rows)


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
                    **_per_item(measured / (LEARNER_ENVS * LEARNER_UNROLL), "us_per_sample"),
                    "threads": threads,
                }
            )
    return _result("learner", rows)


def build(spec: CompressionSpec, net: PolicyNet, states: np.ndarray) -> Artifact:
    """Return the artifact of `net`, which is already the student that `spec` names, pruned."""
    state = CompressionState(
        policy=net, net=net, observations=states, student=spec.student, sparsity=spec.sparsity
    )
    rest = replace(spec, student="original", sparsity=0.0)
    return CompressorChain.from_spec(rest).run(state)


def naive_artifact(spec: CompressionSpec, net: PolicyNet, states: np.ndarray) -> Artifact:
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
        return Artifact(spec, 0, "onnx", path.read_bytes())


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


EXPLANATIONS = {
    "infer": "Acting, one core. Ratios are speed-ups over Original at the same batch; KL and "
    "agreement are against the same network in float32.",
    "publish": "From weights to an engine that acts. naive: torch.onnx.export, ONNX Runtime's "
    "static quantisation and a session.",
    "learner": "One update of the learner on the paper's batch of 160.",
}


def print_table(result: dict[str, Any], stream: Console = console) -> None:
    """Print a benchmark for people, on standard error unless told otherwise."""
    table = Table(title=f"bench {result['bench']}", title_justify="left")
    for name in result["rows"][0]:
        table.add_column(
            name, justify="left" if name == "spec" else "right", no_wrap=name == "spec"
        )
    for row in result["rows"]:
        table.add_row(*(_cell(value) for value in row.values()))
    stream.print(table)
    stream.print(EXPLANATIONS[result["bench"]])
    stream.print(f"spread: {result['spread_is']}; machine: {result['fingerprint']['cpu']}")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return CompressionSpec.from_json(value).label
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _result(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "bench": name,
        "fingerprint": fingerprint(),
        "versions": versions(),
        "spread_is": "interquartile range over repeats, in the unit of the median beside it",
        "rows": rows,
    }


def _per_item(seconds: np.ndarray, name: str = "us_per_state") -> dict[str, float]:
    low, median, high = np.percentile(seconds * 1e6, (25, 50, 75))
    return {name: float(median), "spread": float(high - low)}


def _networks(
    specs: Sequence[CompressionSpec], states: np.ndarray, seed: int
) -> dict[CompressionSpec, PolicyNet]:
    """Return a fitted network for each spec; specs of equal layers share one."""
    shapes = dict.fromkeys((spec.student, spec.sparsity) for spec in specs)
    fitted = {
        (student, sparsity): fitted_policy(
            student, states, torch.Generator().manual_seed(seed), sparsity=sparsity
        )
        for student, sparsity in shapes
    }
    return {spec: fitted[spec.student, spec.sparsity] for spec in specs}


def _infer_call(
    infer: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], obs: np.ndarray
) -> Callable[[], object]:
    contiguous = np.ascontiguousarray(obs)
    return lambda: infer(contiguous)


def _loss_of_precision(
    net: PolicyNet, artifact: Artifact, states: np.ndarray
) -> tuple[float, float]:
    """Return mean KL in nats and argmax agreement of an artifact with its float32 network."""
    with torch.no_grad():
        logits = net(torch.from_numpy(states))[0].numpy()
    acted, _ = make_engine(artifact).infer(states)
    agreement = (logits.argmax(-1) == acted.argmax(-1)).mean()
    return float(kl_nats(logits, acted).mean()), float(agreement)


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
