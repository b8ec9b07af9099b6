"""Whole pipelines by name, as `accerl bench pipeline` compares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from accerl.config import RunConfig
from accerl.precision import BF16, FP32
from accerl.presets import load_preset
from accerl.runtime.machine.cores import usable_cores
from accerl.spec import IDENTITY, CompressionSpec

INT8 = CompressionSpec(bits=8)
NET3_INT8 = CompressionSpec(student="net3", bits=8)
EAGER = CompressionSpec(graph="eager")


@dataclass(frozen=True)
class Pipeline:
    """One way to wire actors and learner, and what the actors act with."""

    config: RunConfig
    spec: CompressionSpec = IDENTITY
    learns: bool = True
    """otherwise the learner hands every slot back unused: actors run as if alone"""
    emulators: int = 0
    """above 0: so many processes step their environments at random, and nothing else happens"""

    def with_runtime(self, **changes: object) -> Pipeline:
        """Return a copy with other runtime settings."""
        return replace(self, config=self.config.with_runtime(**changes))

    def with_learner(self, **changes: object) -> Pipeline:
        """Return a copy with other learner settings."""
        return replace(self, config=self.config.with_learner(**changes))


def base_config(game: str, network: str) -> RunConfig:
    """Return the strongest configuration without compression, as measured by `wirings`.

    The learner uses every sample once, as in the paper: how often a recipe reuses samples says
    nothing about how fast they are collected.
    """
    config = replace(load_preset("pong"), game=game, network=network, seconds=3600.0)
    config = config.with_learner(
        unroll=20, minibatches=1, reuse=1, policy_loss="importance", proximal="update"
    )
    config = config.with_runtime(queue_rollouts=2, publish_every=4, interval_seconds=3600.0)
    return config.adapted()


def pipelines(game: str, network: str) -> dict[str, Pipeline]:
    """Return every configuration that the benchmark knows, by name."""
    strong = Pipeline(base_config(game, network))
    alone = replace(strong, learns=False)
    cores = usable_cores()
    # The paper's actors infer one state at a time, its learner updates on 160 samples in float32;
    # 16 of those updates are as many samples as 4 of ours, so both publish equally often.
    paper = strong.with_learner(unroll=5, precision="fp32").with_runtime(
        infer_batch=1, publish_every=16
    )
    named = {
        "paper": replace(paper, spec=EAGER),
        "fp32": strong,
        "int8": replace(strong, spec=INT8),
        "net3+int8": replace(strong, spec=NET3_INT8),
        "ray": replace(strong, spec=INT8).with_runtime(runtime="ray"),
        "env-only": replace(strong, emulators=cores),
        "actor-env-only": replace(strong, emulators=1),
        "actor-fp32": alone,
        "actor-int8": replace(alone, spec=INT8),
        "actor-net3+int8": replace(alone, spec=NET3_INT8),
    }
    if network == "net3":
        named = {name: item for name, item in named.items() if "net3" not in name}
    return named


RATIOS = (
    ("int8", "paper"),
    ("int8", "fp32"),
    ("net3+int8", "fp32"),
    ("ray", "int8"),
    ("fp32", "paper"),
    ("int8", "env-only"),
    ("actor-fp32", "actor-env-only"),
    ("actor-int8", "actor-env-only"),
    ("actor-net3+int8", "actor-env-only"),
)
"""speed of the first over the second; those whose both sides were measured are reported"""


def wirings(game: str, network: str) -> dict[str, Pipeline]:
    """Return variations of the INT8 pipeline, each of one thing, by what differs."""
    int8 = pipelines(game, network)["int8"]
    runtime: Callable[..., Pipeline] = int8.with_runtime
    learner: Callable[..., Pipeline] = int8.with_learner
    other = FP32 if int8.config.learner.precision == BF16 else BF16
    serial = runtime(runtime="serial", learner_threads=2, actor_threads=2, num_actors=1)
    serial = serial.with_learner(device="cpu")  # one process does everything, without a GPU
    found = {
        "int8": int8,
        "2 actors": runtime(num_actors=2, num_envs=16),
        "2 actors of 32": runtime(num_actors=2),
        "16 envs": runtime(num_envs=16),
        "64 envs": runtime(num_envs=64),
        "unroll 5": learner(unroll=5).with_runtime(publish_every=16),
        "unroll 40": learner(unroll=40).with_runtime(publish_every=2),
        "unroll 80": learner(unroll=80).with_runtime(publish_every=1),
        "minibatches 4": learner(minibatches=4),
        "learner threads 2": runtime(learner_threads=2),
        "actor threads 2": runtime(actor_threads=2),
        "publish every 1": runtime(publish_every=1),
        "publish every 16": runtime(publish_every=16),
        "act at once": runtime(patience_seconds=0.0),
        "no queue": runtime(queue_rollouts=0),
        "pinned": int8.with_runtime(pin_cores=True),
        "serial, 2 threads": serial,
        f"learner {other}": learner(precision=other),
    }
    return found
