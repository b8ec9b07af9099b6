"""The learner's side of measuring a latency profile, and what it asks of the actor's process.

What the compressor does is timed while the actor acts. Where a GPU learns, it distils too, and its
times are these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count, cycle
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.compress.artifact import Artifact
from accerl.compress.compressor import Compressor
from accerl.config import RunConfig, actors_beside
from accerl.envs import make_envs
from accerl.errors import UserError
from accerl.learner.learner import Learner
from accerl.networks.graph_policy import Policy, count_bytes
from accerl.networks.make import make_network
from accerl.records import fingerprint
from accerl.runtime.latency.measure_acting import Acted, Acting, play_at_random, relative_spread
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.row import SpecLatency
from accerl.runtime.machine.cores import LearnersCores, usable_cores
from accerl.runtime.publishing.charges import PIECE_UPDATES
from accerl.spec import IDENTITY, CompressionSpec, StudentKey
from accerl.weights import Mailbox, Publication, WeightVector, count_weights

BACKGROUND = CompressionSpec(bits=8)
"""what the actor acts with while this process times its own work, if its network can"""
PUBLICATIONS = 3
"""of each spec that are timed"""
MAILBOX_SLACK_BYTES = 1_000_000
OnProgress = Callable[[str, int, int], None]
"""called with what is being measured, how many measurements are done, and of how many"""


class Measuring:
    """The learner's side of one measurement, and the actor's process beside it."""

    def __init__(
        self,
        config: RunConfig,
        networks: Sequence[str],
        on_progress: OnProgress,
        stack: ExitStack,
        repeats: int,
    ) -> None:
        self.config = config
        self.repeats = repeats
        self.machine = fingerprint()
        self.cores = usable_cores()  # a container may have fewer than its machine
        self.spread: dict[str, float] = {}
        self._on_progress = on_progress
        envs = make_envs(config.game, config.runtime.num_envs, config.env)
        stack.callback(envs.close)
        self._inputs = config.inputs(envs.observation)
        self._num_actions = envs.num_actions
        self._states = play_at_random(envs, config.compression.distill_batch)
        shape = RolloutShape.of(envs, config.learner.unroll)
        self._rollout = self._filled(shape)
        # One minibatch each: short updates, so that the actor's word is heard soon. Several, as a
        # run has: what is always the same stays in the processor's caches.
        small = replace(shape, num_envs=shape.num_envs // config.learner.minibatches)
        several = (2 + config.runtime.queue_rollouts) * config.learner.minibatches
        self._small_rollouts = cycle([self._filled(small) for _ in range(several)])
        self._learners = {
            network: Learner(self._policy(network), config.learner, torch.Generator())
            for network in networks
        }
        # The compressor's copy, on the processor wherever the learner is.
        self._policy_net = self._policy(networks[0])
        once = replace(config.learner, minibatches=1, reuse=1, proximal="update")
        self._beside = Learner(self._policy(networks[0]), once, torch.Generator())
        numbers = count_weights(self._policy_net)
        self._vector = WeightVector(numbers)
        stack.callback(self._vector.close)
        self._mailbox = Mailbox(count_bytes(self._policy_net) + MAILBOX_SLACK_BYTES)
        stack.callback(self._mailbox.close)
        self._versions = count()
        self._main = networks[0]
        self._gpu_core = 1.0  # share of a core that the first learner takes
        cores = LearnersCores(1) if config.runtime.pin_cores else None
        if cores is not None:
            stack.callback(cores.release)
        beside = self.cores > 1
        self._actor = Acting(config, self._mailbox, beside=beside, cores=cores)
        stack.callback(self._actor.close)
        compression = replace(
            config.compression, distill_warmup_updates=1, calibration_states=len(self._states)
        )
        device = self._beside.device.type
        drawn = torch.Generator().manual_seed(0)
        self._compressor = Compressor(
            self._inputs, envs.num_actions, compression, drawn, device=device
        )
        self._compressor.observe(self._states)

    def _filled(self, shape: RolloutShape) -> Rollout:
        rollout = Rollout.allocate(shape)
        rollout.obs[:] = self._states[np.arange(shape.num_envs) % len(self._states)]
        return rollout

    def _policy(self, network: str) -> Policy:
        generator = torch.Generator().manual_seed(0)
        return make_network(network, self._inputs, self._num_actions, generator)

    def profile(
        self, name: str, specs: list[CompressionSpec], batches: Sequence[int]
    ) -> LatencyProfile:
        """Measure everything."""
        total = 1 + len(self._learners) + len(specs) * (1 + self.repeats)
        self._show(self._background())
        self._actor.ask(self.config.runtime.infer_batch or self.config.runtime.num_envs)
        self._actor.answer()
        copy_seconds = self._seconds("copy", self._copy, 2 * self.repeats)
        self._on_progress("copying weights", 1, total)
        learners = {}
        for index, network in enumerate(self._learners):
            learners[network] = self._time_learner(network)
            self._on_progress(f"learner update {network}", 2 + index, total)
        distill_us: dict[StudentKey | None, float] = {}
        publish_ms = []
        artifacts = []
        for index, spec in enumerate(specs):
            try:
                if spec.student_key not in distill_us:
                    distill_us[spec.student_key] = self._time_distilling(spec)
                artifact, milliseconds = self._time_publishing(spec)
            except UserError:
                if spec == IDENTITY:
                    raise
                continue  # no run with this network can act with it either
            publish_ms.append(milliseconds)
            artifacts.append(artifact)
            self._on_progress(f"publish {spec.label}", 2 + len(learners) + index, total)
        specs = [artifact.spec for artifact in artifacts]
        acted = self._time_acting(artifacts, batches, total)
        us_per_sample = {network: seconds * 1e6 for network, seconds in learners.items()}
        rows = tuple(
            SpecLatency(
                spec=spec,
                infer_us={batch: acted.median(index, f"infer {batch}") for batch in batches},
                publish_ms=publish_ms[index],
                distill_us=distill_us[spec.student_key],
                load_ms=acted.median(index, "load") * 1e-3,
                size_bytes=len(artifacts[index].payload),
            )
            for index, spec in enumerate(specs)
        )
        main, *others = us_per_sample
        return LatencyProfile(
            name=name,
            source=f"measured: {self.config.game}, {self.config.runtime.num_envs} environments, "
            f"actor and learner side by side on one thread each, {self._learner_said}, "
            f"medians of {self.repeats} interleaved rounds of acting, of a few calls of the rest",
            env_step_us=acted.all("env"),
            write_us=acted.all("write"),
            learner_us_per_sample=us_per_sample[main],
            specs=rows,
            small_learner_us={network: us_per_sample[network] for network in others},
            num_actors=actors_beside(0 if self._on_gpu else 1, self.cores),
            cores=self.cores,
            learner="gpu" if self._on_gpu else "cpu",
            gpu_core=self._gpu_core,
            copy_bytes_per_second=4 * self._vector.size / copy_seconds,
            game=self.config.game,
            network=main,
            observation=self._inputs.shape,
            spread={**self.spread, **acted.spreads()},
            fingerprint=self.machine,
        )

    @property
    def _on_gpu(self) -> bool:
        return self._beside.device.type != "cpu"

    @property
    def _learner_said(self) -> str:
        """What learns, in words."""
        name = f"{self.config.learner.precision} learner"
        return f"{name} on {torch.cuda.get_device_name()}" if self._on_gpu else name

    def _background(self) -> Artifact:
        """Return what the actor acts with while this process times its own work."""
        try:
            return self._compressor.build(BACKGROUND, self._policy_net, 0)
        except UserError:  # a network that cannot be rounded
            return self._compressor.build(IDENTITY, self._policy_net, 0)

    def _copy(self) -> None:
        self._vector.put(next(self._versions), self._learners[self._main].policy)

    def _show(self, artifact: Artifact) -> None:
        self._mailbox.put(Publication(next(self._versions), [artifact], [1.0]))

    def _time_learner(self, network: str) -> float:
        """Return seconds per sample of one learner pass, as the configuration has it."""
        learner = self._learners[network]
        learner.update(self._rollout)
        # A few updates are over in a tenth of a second, and a hiccup of the machine lasts as long.
        before, computed = perf_counter(), process_time()
        seconds = self._seconds(
            f"learner {network}", lambda: learner.update(self._rollout), 5 * self.repeats
        )
        if self._on_gpu and network == self._main:
            taken = (process_time() - computed) / (perf_counter() - before)
            self._gpu_core = min(taken, 1.0)
        return seconds / (self._rollout.action.size * learner.config.reuse)

    def _time_distilling(self, spec: CompressionSpec) -> float:
        """Return microseconds per state of one distillation update."""
        # Pruned copies of Original are distilled too; the identity stands for a full-size student.
        trained = CompressionSpec(student=spec.student, sparsity=spec.sparsity or 1e-9)
        if not self._compressor.distill(self._policy_net, [trained]):  # which creates it
            return math.ulp(0.0)  # it cannot be made; no time may be 0
        states = min(self._compressor.config.distill_batch, len(self._compressor.states))
        distill = partial(self._compressor.distill, self._policy_net, [trained], 0, PIECE_UPDATES)
        seconds = self._seconds("distill", distill, 5)
        return seconds / (states * PIECE_UPDATES) * 1e6

    def _time_publishing(self, spec: CompressionSpec) -> tuple[Artifact, float]:
        """Return what a publication of `spec` sends, and milliseconds to make and send it.

        As the compressor does: take the learner's weights, compress, put it into the mailbox.
        """
        taken = self._policy(self._main)
        self._copy()
        self._vector.load_into(taken)
        artifact = self._compressor.build(spec, taken, 0)  # the first checks it too
        times = []
        for version in range(1, PUBLICATIONS + 1):
            self._beside.update(next(self._small_rollouts))
            self._vector.put(next(self._versions), self._beside.policy)
            before = perf_counter()
            self._vector.load_into(taken)
            artifact = self._compressor.build(spec, taken, version)
            self._show(artifact)
            times.append(perf_counter() - before)
        return artifact, self._median("publish", times) * 1e3

    def _time_acting(self, artifacts: list[Artifact], batches: Sequence[int], total: int) -> Acted:
        """Have the actor act with every artifact and batch in turn, while this process learns."""
        acted = Acted()
        for round_ in range(self.repeats):
            for index, artifact in enumerate(artifacts):
                for batch in batches:
                    self._show(artifact)
                    self._actor.ask(batch)
                    while not self._actor.answered():
                        self._beside.update(next(self._small_rollouts))
                    acted.add(index, batch, self._actor.answer())
                done = total - len(artifacts) * (self.repeats - round_) + index + 1
                self._on_progress(f"inference {artifact.spec.label}", done, total)
        return acted

    def _seconds(self, operation: str, call: Callable[[], Any], repeats: int) -> float:
        """Return the median seconds of `call`, and note its spread."""
        times = []
        for _ in range(repeats):
            before = perf_counter()
            call()
            times.append(perf_counter() - before)
        return self._median(operation, times)

    def _median(self, operation: str, times: Sequence[float]) -> float:
        """Return the median, and note the largest spread of an operation."""
        self.spread[operation] = max(self.spread.get(operation, 0.0), relative_spread(times))
        return median(times)
