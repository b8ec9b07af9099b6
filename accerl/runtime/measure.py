"""Measures this machine's latency profile: real emulator, engines, learner and compressor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from accerl.compress.artifact import Artifact
from accerl.compress.compressor import Compressor
from accerl.compress.config import CompressionConfig
from accerl.compress.engine import make_engine
from accerl.envs import AtariEnvs
from accerl.learner import Learner
from accerl.networks import PolicyNet, make_policy
from accerl.presets import load_preset
from accerl.records import fingerprint
from accerl.rollout import Rollout, RolloutShape
from accerl.runtime.latency import LatencyProfile, SpecLatency
from accerl.runtime.profiles import standard_specs
from accerl.spec import STUDENTS, CompressionSpec

BATCHES = (1, 16, 32)
NUM_ENVS = 32
GAME = "pong"
OnProgress = Callable[[str, int, int], None]
"""called with what is being measured, how many measurements are done, and of how many"""


def measure_profile(
    name: str = "measured",
    *,
    specs: list[CompressionSpec] | None = None,
    repeats: int = 5,
    on_progress: OnProgress | None = None,
) -> LatencyProfile:
    """Return this machine's profile: medians over `repeats` interleaved rounds.

    Everything runs on one thread, as one actor beside one learner does on two cores. Times are
    those of ALE Pong and the networks of Table 6; the learner runs in bfloat16 where the CPU
    computes it, else in float32.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measure(name, specs or standard_specs(), repeats, on_progress or _quiet)
    finally:
        torch.set_num_threads(threads)


def _quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""


def _measure(
    name: str, specs: list[CompressionSpec], repeats: int, on_progress: OnProgress
) -> LatencyProfile:
    total = len(specs) + repeats * len(specs) + 1 + len(STUDENTS)
    envs = AtariEnvs(GAME, NUM_ENVS)
    states, env_us = _play(envs)
    on_progress("env step", 1, total)
    learners = {
        network: make_policy(
            network, envs.observation, envs.num_actions, torch.Generator().manual_seed(0)
        )
        for network in STUDENTS
    }
    policy = learners["original"]
    machine = fingerprint()
    precision = "bf16" if "avx512_bf16" in machine["features"] else "fp32"
    learner_us = {}
    for index, (network, net) in enumerate(learners.items()):
        learner_us[network] = _time_learner(net, states, precision)
        on_progress(f"learner update {network}", 2 + index, total)
    compressor = Compressor(
        envs.observation,
        envs.num_actions,
        CompressionConfig(distill_warmup_updates=1),
        torch.Generator().manual_seed(0),
    )
    compressor.observe(states)
    built: list[tuple[Artifact, float, float]] = []
    for index, spec in enumerate(specs):
        built.append(_time_build(compressor, policy, spec))
        on_progress(f"publish {spec.label}", total - (repeats + 1) * len(specs) + index + 1, total)
    infer = _time_inference([artifact for artifact, _, _ in built], states, repeats, on_progress)
    envs.close()
    rows = tuple(
        SpecLatency(
            spec=spec, infer_us=infer[index], publish_ms=publish * 1e3, distill_us=distill * 1e6
        )
        for index, (spec, (_, publish, distill)) in enumerate(zip(specs, built, strict=True))
    )
    return LatencyProfile(
        name=name,
        source=f"measured here: ALE {GAME}, {NUM_ENVS} environments, one thread, "
        f"{precision} learner, median of {repeats} rounds",
        env_step_us=env_us,
        learner_us_per_sample=learner_us.pop("original"),
        specs=rows,
        small_learner_us=learner_us,
        num_actors=max(1, machine["cores"] - 1),
        fingerprint=machine,
    )


def _play(envs: AtariEnvs) -> tuple[np.ndarray, float]:
    """Act at random; return states [128, *shape] and microseconds per environment step."""
    rng = np.random.default_rng(0)
    envs.reset(0)
    kept: list[np.ndarray] = []
    times: list[float] = []
    for step in range(60):
        actions = rng.integers(envs.num_actions, size=envs.num_envs)
        before = perf_counter()
        obs = envs.step(actions).obs
        times.append(perf_counter() - before)
        if step % 15 == 14:
            kept.append(obs)
    return np.concatenate(kept), median(times) / envs.num_envs * 1e6


def _time_learner(policy: PolicyNet, states: np.ndarray, precision: str) -> float:
    """Return microseconds per sample of one learner pass, in the minibatches of Pong's preset."""
    config = replace(load_preset(GAME).learner, precision=precision)
    shape = RolloutShape(
        unroll=config.unroll,
        num_envs=NUM_ENVS,
        num_actions=policy.num_actions,
        observation=policy.observation,
    )
    rollout = Rollout.allocate(shape)
    rollout.obs[:] = states[:NUM_ENVS]
    copy = PolicyNet(policy.arch, policy.observation, policy.num_actions)
    copy.load_state_dict(policy.state_dict())
    learner = Learner(copy, config)
    seconds = _median_seconds(lambda: learner.update(rollout), repeats=5, warmup=1)
    return seconds / (shape.samples * config.reuse) * 1e6


def _time_build(
    compressor: Compressor, policy: PolicyNet, spec: CompressionSpec
) -> tuple[Artifact, float, float]:
    """Return the artifact of `spec`, seconds to publish it, and to distil it per state."""
    compressor.build(spec, policy, 0)  # the first build of a student also creates it

    def publish() -> Any:
        artifact = compressor.build(spec, policy, 0)
        return make_engine(artifact)

    publish_seconds = _median_seconds(publish, repeats=3, warmup=0)
    # Pruned copies of Original are distilled too; the identity stands for a full-size student.
    trained = CompressionSpec(student=spec.student, sparsity=spec.sparsity or 1e-9)
    count = compressor.config.distill_batch * compressor.config.distill_updates
    distill_seconds = _median_seconds(
        lambda: compressor.distill(policy, [trained]), repeats=1, warmup=0
    )
    return compressor.build(spec, policy, 0), publish_seconds, distill_seconds / count


def _time_inference(
    artifacts: list[Artifact], states: np.ndarray, repeats: int, on_progress: OnProgress
) -> list[dict[int, float]]:
    """Return median microseconds per state by batch; rounds are interleaved over artifacts."""
    engines = [make_engine(artifact) for artifact in artifacts]
    seen: list[dict[int, list[float]]] = [{batch: [] for batch in BATCHES} for _ in engines]
    for round_ in range(repeats):
        for index, engine in enumerate(engines):
            for batch in BATCHES:
                obs = np.ascontiguousarray(states[:batch])
                calls = max(3, 32 // batch)
                engine.infer(obs)
                before = perf_counter()
                for _ in range(calls):
                    engine.infer(obs)
                seen[index][batch].append((perf_counter() - before) / calls / batch * 1e6)
            done = 1 + len(STUDENTS) + len(engines) * (round_ + 1) + index + 1
            total = 1 + len(STUDENTS) + len(engines) * (repeats + 1)
            on_progress(f"inference {engine.spec.label}", done, total)
    return [{batch: median(times) for batch, times in row.items()} for row in seen]


def _median_seconds(call: Callable[[], Any], *, repeats: int, warmup: int) -> float:
    for _ in range(warmup):
        call()
    times = []
    for _ in range(repeats):
        before = perf_counter()
        call()
        times.append(perf_counter() - before)
    return median(times)
