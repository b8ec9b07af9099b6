"""`accerl bench infer`: what each compression costs and gives when it acts, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accerl.acting.evaluate import policy_infer
from accerl.compress import Artifact, CompressionConfig, Compressor, make_engine
from accerl.compress.check import kl_nats
from accerl.compress.lowrank import factorise
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy, count_macs
from accerl.networks.policy_net import PolicyNet
from accerl.spec import STUDENTS, CompressionSpec
from accerl.training.run_folder import read_config, saved_run
from accerl.training.saved_policy import learned_policy
from studies.benchmarks.pong import imitator, record_states
from studies.benchmarks.publish import compressed_network
from studies.benchmarks.repeats import (
    SPREAD,
    Clock,
    interleaved,
    per_item,
    result_of,
    torch_threads,
)
from studies.benchmarks.tables import FITTED

EAGER, FP32 = CompressionSpec(graph="eager"), CompressionSpec()
SPECS = (
    EAGER,
    FP32,
    *(CompressionSpec(bits=bits) for bits in (16, 8)),
    *(CompressionSpec(sparsity=0.5, bits=bits) for bits in (32, 8)),
    *(CompressionSpec(rank=0.25, bits=bits) for bits in (32, 8)),
    *(
        CompressionSpec(student=student, bits=bits)
        for student in ("net1", "net2", "net3")
        for bits in (32, 8)
    ),
    CompressionSpec(student="net1", sparsity=0.5, bits=8),  # the paper's Code 1
)
GRAPH_SPECS = (
    EAGER,
    FP32,
    *(CompressionSpec(bits=bits) for bits in (16, 8)),
    *(CompressionSpec(sparsity=0.5, bits=bits) for bits in (32, 8)),
)
"""of a network that is no chain of layers"""
BATCHES = (1, 8, 16, 32)
STATES, COMPARED = 640, 256
EVERY = 5  # steps between two recorded states of a game
SETTLING = 400  # steps before the first one


@dataclass(frozen=True)
class Subject:
    """A policy that reacts to what it sees, and states from its games."""

    policy: Policy
    states: np.ndarray
    """[N, *shape], in random order"""
    origin: str
    network: str
    """its name"""


def fitted(seed: int, network: str = "original") -> Subject:
    """Return a network that follows Pong's ball, and states of games."""
    states = record_states(STATES, seed)
    generator = torch.Generator().manual_seed(seed)
    policy = imitator(network, states[COMPARED:], generator)
    return Subject(policy, states, FITTED, network)


def trained(path: Path, seed: int) -> Subject:
    """Return the policy of a run's checkpoint and states of games that it plays.

    Raises:
        UserError: there is no such run or checkpoint, or it learns one of the paper's students.
    """
    config = read_config(path)
    if config.network in STUDENTS[1:]:
        raise UserError(
            f"{path}: bench infer compares with Original and this run learns {config.network}; "
            "train one with --network original or impala"
        )
    saved = saved_run(path)
    envs = make_envs(config.game, 8, config.env)
    generator = np.random.default_rng(seed)
    try:
        policy = learned_policy(saved, config, envs, torch.Generator())
        infer = policy_infer(policy)
        obs = envs.reset(seed)
        recorded: list[np.ndarray] = []
        for step in range(SETTLING + EVERY * STATES // envs.num_envs):
            logits = infer(obs)
            gumbel = generator.gumbel(size=logits.shape)
            obs = envs.step((logits + gumbel).argmax(1)).obs
            if step >= SETTLING and step % EVERY == 0:
                recorded.append(obs.copy())
    finally:
        envs.close()
    states = generator.permutation(np.concatenate(recorded))[:STATES]
    return Subject(policy, states, path.name, config.network)


def bench_infer(
    batches: Sequence[int] = BATCHES,
    repeats: int = 7,
    seconds_per_call: float = 0.02,
    seed: int = 0,
    run: Path | None = None,
    distill_updates: int = 150,
    network: str = "original",
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """Measure acting: microseconds per state of each compression, and its distance from Original.

    Students and pruned networks are distilled on the recorded states, and compared on others.

    Args:
        batches: states per call.
        repeats: interleaved rounds.
        seconds_per_call: how long one configuration is timed in one round.
        seed: of the recorded states and of new weights.
        run: a run directory whose policy is compressed; None: see `fitted`.
        distill_updates: gradient steps of each student.
        network: what is compressed if there is no run: original, or impala, impala-small or
            impala-tiny.
        clock: see `interleaved`; all engines compute in one thread.

    Returns:
        `rows` as in the command line's contract; ratios are speed-ups over that network in eager
        torch and in ONNX Runtime float32, at the same batch.
    """
    subject = fitted(seed, network) if run is None else trained(run, seed)
    specs = SPECS if isinstance(subject.policy, PolicyNet) else GRAPH_SPECS
    compared, seen = subject.states[:COMPARED], subject.states[COMPARED:]
    with torch_threads(1):
        artifacts = compressed(subject.policy, seen, specs, distill_updates, seed)
        engines = {spec: make_engine(artifact) for spec, artifact in artifacts.items()}
        losses = {spec: _loss(subject.policy, artifacts[spec], compared) for spec in specs}
        macs = {spec: _macs(spec, subject.policy) for spec in specs}
        rows = []
        for batch in batches:
            calls = {spec: _call(engine.infer, compared, batch) for spec, engine in engines.items()}
            seconds = interleaved(calls, repeats, seconds_per_call, clock)
            rows += [
                {
                    "spec": spec.to_json(),
                    "batch": batch,
                    **per_item(seconds[spec] / batch, "us_per_state"),
                    "repeats_us": [float(each) for each in seconds[spec] * 1e6 / batch],
                    "ratio_eager": float(np.median(seconds[EAGER] / seconds[spec])),
                    "ratio_ort_fp32": float(np.median(seconds[FP32] / seconds[spec])),
                    "bytes": len(artifacts[spec].payload),
                    "macs": macs[spec],
                    "kl_mean": losses[spec][0],
                    "argmax_agreement": losses[spec][1],
                }
                for spec in specs
            ]
    return result_of(
        "infer",
        spread_is=SPREAD,
        rows=rows,
        policy=subject.origin,
        network=subject.network,
        distill_updates=distill_updates,
        seed=seed,
    )


def compressed(
    policy: Policy,
    states: np.ndarray,
    specs: Sequence[CompressionSpec],
    distill_updates: int,
    seed: int,
) -> dict[CompressionSpec, Artifact]:
    """Return `policy` compressed in each way; students learn from it on `states`."""
    config = CompressionConfig(
        calibration_states=len(states), distill_warmup_updates=distill_updates, distill_batch=64
    )
    generator = torch.Generator().manual_seed(seed)
    compressor = Compressor(policy.observation, policy.num_actions, config, generator)
    compressor.observe(states)
    return {spec: compressor.build(spec, policy, 0) for spec in specs}


def _macs(spec: CompressionSpec, policy: Policy) -> int:
    net = compressed_network(spec, policy)
    return count_macs(factorise(net, spec.rank) if spec.rank < 1.0 else net)


def _call(
    infer: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], states: np.ndarray, batch: int
) -> Callable[[], object]:
    """Return a call on so many states; a batch of more than there are repeats them."""
    obs = np.resize(states, (batch, *states.shape[1:]))
    return lambda: infer(obs)


def _loss(policy: Policy, artifact: Artifact, states: np.ndarray) -> tuple[float, float]:
    """Return mean KL(policy || artifact) in nats and the agreement of their greedy actions."""
    logits = policy_infer(policy)(states)
    acted, _ = make_engine(artifact).infer(states)
    agreement = (logits.argmax(-1) == acted.argmax(-1)).mean()
    return float(kl_nats(logits, acted).mean()), float(agreement)
