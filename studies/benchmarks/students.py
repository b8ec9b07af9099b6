"""`accerl bench students`: how close small networks come to a trained policy, and how fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accerl.acting.evaluate import policy_infer
from accerl.compress.artifact import Artifact
from accerl.compress.check import kl_nats
from accerl.compress.compressor import Compressor
from accerl.compress.engine import make_engine
from accerl.compress.lowrank import factorise
from accerl.compress.pruning.prune import prune
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy, count_macs
from accerl.networks.make import make_network
from accerl.spec import STUDENTS, CompressionSpec
from studies.benchmarks.publish import compressed_network
from studies.benchmarks.repeats import result_of, torch_threads
from studies.learning.played import ENVS, UNROLL, Played, play

SPARSITIES = (0.25, 0.5, 0.75)
CRITERIA = ("l1", "l2", "geometric-median")
CHECKPOINTS = (0, 100, 200, 500, 1000, 2000)
BATCHES = (128, 256)
BITS = (2, 3, 4, 5, 6)


def bench_students(
    path: Path,
    *,
    states: int = 20_000,
    compared: int = 1024,
    updates: Sequence[int] = CHECKPOINTS,
    batches: Sequence[int] = BATCHES,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure KL(policy || network) in nats on states of later steps, against a frozen policy.

    Args:
        path: a run's folder.
        states: to learn from.
        compared: to compare on.
        updates: after how many distillation updates students are compared.
        batches: states per update.
        seed: of the games and of random weights.

    Returns:
        `pruned`: copies before any distillation; `curves`: KL against updates by what a network
        starts from; `specs`: KL, bytes and multiply-accumulates of each compression, students
        after the last update.

    Raises:
        UserError: there is no such run, or its network is no chain of layers.
    """
    played = play(path, states, compared, seed)
    if len(played.ring) < ENVS * UNROLL or compared < 1:
        raise UserError(f"--states must be at least {ENVS * UNROLL:,}, got {states:,}")
    with torch_threads(1):
        pruned = [_pruned(played, *how) for how in _pruned_ways(played)]
        curves: list[dict[str, Any]] = []
        for spec in _distilled(played.policy):
            for start in ("random", "learner"):
                for batch in batches:
                    curves += _curve(played, spec, start, batch, updates, seed)
        specs = _specs(played, max(updates), batches[0], seed)
    return result_of(
        "students",
        pruned=pruned,
        curves=curves,
        specs=_marked(specs),
        policy=played.origin,
        states=len(played.ring),
        compared=compared,
        seed=seed,
    )


def _pruned_ways(played: Played) -> list[tuple[float, str, str, int]]:
    """Return sparsity, criterion, budget and fitted states (0: not compensated) of each copy."""
    counts = [0, *(count for count in (256, 1024, 4096) if count <= len(played.ring))]
    return [
        (sparsity, criterion, budget, count)
        for sparsity in SPARSITIES
        for criterion, budget in [*((name, "uniform") for name in CRITERIA), ("l1", "global")]
        for count in counts
    ]


def _pruned(
    played: Played, sparsity: float, criterion: str, budget: str, count: int
) -> dict[str, Any]:
    method = replace(
        played.config.prune_method, criterion=criterion, budget=budget, compensate=count > 0
    )
    generator = torch.Generator().manual_seed(0)
    obs = played.ring.draw(max(count, 1), generator).obs
    net = prune(played.policy, sparsity, method, obs=obs)
    return {
        "sparsity": sparsity,
        "criterion": criterion,
        "budget": budget,
        "fitted_states": count,
        "kl_mean": _kl(played, policy_infer(net)(played.compared)),
        "macs": count_macs(net),
    }


def _distilled(policy: Policy) -> list[CompressionSpec]:
    """Return the students of a policy, and the policy pruned by half."""
    size = sum(weight.numel() for weight in policy.parameters())
    found = []
    for student in STUDENTS[1:]:
        net = make_network(student, policy.observation, policy.num_actions)
        if sum(weight.numel() for weight in net.parameters()) < size:
            found.append(CompressionSpec(student=student))
    return [*found, CompressionSpec(sparsity=0.5)]


def _compressor(played: Played, seed: int, **settings: Any) -> Compressor:
    settings = {"distill_warmup_updates": 0, "distill_renew_every": 0} | settings
    config = replace(played.config, **settings)
    policy = played.policy
    compressor = Compressor(
        policy.observation,
        policy.num_actions,
        config,
        torch.Generator().manual_seed(seed),
        ring=played.ring,
    )
    newest = played.ring.draw(config.calibration_states, torch.Generator().manual_seed(seed))
    compressor.observe(newest.obs)
    return compressor


def _curve(
    played: Played,
    spec: CompressionSpec,
    start: str,
    batch: int,
    updates: Sequence[int],
    seed: int,
) -> list[dict[str, Any]]:
    """Return the KL of a student after so many updates; random start: slices are uncompensated."""
    compressor = _compressor(
        played,
        seed,
        distill_start=start,
        prune_compensate=start == "learner",
        distill_batch=batch,
        distill_updates=1,
    )
    rows, done = [], 0
    for count in updates:
        for _ in range(count - done):
            compressor.distill(played.policy, [spec])
        done = count
        artifact = compressor.build(spec, played.policy, count)
        rows.append(
            {
                "network": spec.label,
                "start": start,
                "batch": batch,
                "updates": count,
                "kl_mean": _engine_kl(played, artifact),
            }
        )
    return rows


def _specs(played: Played, updates: int, batch: int, seed: int) -> list[dict[str, Any]]:
    """Return KL and sizes of each compression; students and pruned networks are distilled."""
    settings: dict[str, Any] = {
        "distill_start": "learner",
        "prune_compensate": True,
        "distill_batch": batch,
        "distill_updates": updates,
    }
    plain = [
        CompressionSpec(),
        *(CompressionSpec(bits=bits) for bits in (16, 8)),
        CompressionSpec(rank=0.25, bits=8),
        *(CompressionSpec(sparsity=sparsity, bits=8) for sparsity in SPARSITIES),
        *(replace(spec, bits=8) for spec in _distilled(played.policy)[:-1]),
    ]
    rows = []
    for spec in plain:
        compressor = _compressor(played, seed, **settings)
        if updates:
            compressor.distill(played.policy, [spec])
        rows.append(_row(played, spec.label, spec, compressor.build(spec, played.policy, 0)))
    for bits in BITS:
        compressor = _compressor(played, seed, simulated_bits=bits)
        artifact = compressor.build(CompressionSpec(), played.policy, 0)
        row = _row(played, f"{bits} bits, simulated", CompressionSpec(), artifact)
        rows.append(row | {"weight_bytes": row["weight_bytes"] * bits // 32})
    return rows


def _row(played: Played, label: str, spec: CompressionSpec, artifact: Artifact) -> dict[str, Any]:
    net = compressed_network(spec, played.policy)
    thin = factorise(net, spec.rank) if spec.rank < 1.0 else net
    weights = sum(weight.numel() for weight in thin.parameters())
    return {
        "network": label,
        "kl_mean": _engine_kl(played, artifact),
        "weight_bytes": weights * spec.bits // 8,
        "macs": count_macs(thin),
    }


def _engine_kl(played: Played, artifact: Artifact) -> float:
    return _kl(played, make_engine(artifact).infer(played.compared)[0])


def _kl(played: Played, logits: np.ndarray) -> float:
    return float(kl_nats(policy_infer(played.policy)(played.compared), logits).mean())


def _marked(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of their KL, and whether nothing as close is smaller."""
    best = [id(row) for row in smallest(rows)]
    ordered = sorted(rows, key=lambda row: row["kl_mean"])
    return [row | {"smallest": id(row) in best} for row in ordered]


def smallest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the compressions with fewer bytes of weights than all that are as close."""
    return [
        row
        for row in rows
        if not any(
            other["kl_mean"] <= row["kl_mean"] and other["weight_bytes"] < row["weight_bytes"]
            for other in rows
        )
    ]
