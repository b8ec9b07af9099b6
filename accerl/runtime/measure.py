"""Measures this machine's latency profile, as the process runtime really runs.

An actor's process acts while this one learns, so that each is timed beside the other: they share
caches and memory, and both are slower than alone. What the compressor does is timed while the
actor acts.
"""

from __future__ import annotations

import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from accerl.actor import Actor
from accerl.compress.artifact import Artifact
from accerl.compress.compressor import Compressor
from accerl.config import RunConfig
from accerl.envs import Envs, make_envs
from accerl.learner import Learner
from accerl.networks import PolicyNet, make_policy
from accerl.presets import load_preset
from accerl.records import fingerprint
from accerl.rollout import Rollout, RolloutShape
from accerl.runtime.latency import LatencyProfile, SpecLatency
from accerl.runtime.profiles import standard_specs
from accerl.spec import IDENTITY, STUDENTS, CompressionSpec
from accerl.weights import Publication, WeightVector

BATCHES = (1, 16, 32)
BACKGROUND = -1
"""number of what the actor acts with until it is asked"""
STEPS = 4
"""environment steps in one measurement of acting"""
OnProgress = Callable[[str, int, int], None]
"""called with what is being measured, how many measurements are done, and of how many"""


def measure_profile(
    name: str = "measured",
    *,
    config: RunConfig | None = None,
    specs: Sequence[CompressionSpec] | None = None,
    batches: Sequence[int] = BATCHES,
    networks: Sequence[str] = STUDENTS,
    repeats: int = 5,
    on_progress: OnProgress | None = None,
) -> LatencyProfile:
    """Return this machine's profile: medians over `repeats` interleaved rounds.

    Args:
        name: what to call it.
        config: whose game and learner are timed; None: ALE Pong with a learner that computes in
            bfloat16 where the CPU does, else in float32.
        specs: what to time acting with; None: `standard_specs`.
        batches: states per inference call.
        networks: learners to time; the first is the one that teaches and is compressed.
        repeats: rounds.
        on_progress: is told how far it is.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ExitStack() as stack:
            measuring = _Measuring(
                config or _pong(), networks, on_progress or _quiet, stack, repeats
            )
            return measuring.profile(name, list(specs or standard_specs()), batches)
    finally:
        torch.set_num_threads(threads)


def _pong() -> RunConfig:
    config = load_preset("pong")
    precision = "bf16" if "avx512_bf16" in fingerprint()["features"] else "fp32"
    return config.with_learner(precision=precision)


def _quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""


class _Measuring:
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
        self.spread: dict[str, float] = {}
        self._on_progress = on_progress
        self._actor = _Acting(config, beside=self.machine["cores"] > 1)
        stack.callback(self._actor.close)
        envs = make_envs(config.game, config.runtime.num_envs)
        stack.callback(envs.close)
        self._inputs = config.inputs(envs.observation)
        self._num_actions = envs.num_actions
        self._states = _play(envs)
        shape = RolloutShape(
            unroll=config.learner.unroll,
            # One minibatch: short updates, so that the actor's word is heard soon.
            num_envs=config.runtime.num_envs // config.learner.minibatches,
            num_actions=envs.num_actions,
            observation=envs.observation,
        )
        self._rollout = Rollout.allocate(shape)
        self._rollout.obs[:] = self._states[: shape.num_envs]
        self._policies = {network: self._policy(network) for network in networks}
        self._policy_net = self._policies[networks[0]]
        learner_config = replace(config.learner, minibatches=1)
        self._learners = {
            network: Learner(policy, learner_config, torch.Generator())
            for network, policy in self._policies.items()
        }
        once = replace(learner_config, reuse=1, proximal="update")
        self._beside = Learner(self._policy(networks[0]), once, torch.Generator())
        compression = replace(config.compression, distill_warmup_updates=1)
        self._compressor = Compressor(
            self._inputs, envs.num_actions, compression, torch.Generator().manual_seed(0)
        )
        self._compressor.observe(self._states)

    def _policy(self, network: str) -> PolicyNet:
        generator = torch.Generator().manual_seed(0)
        return make_policy(network, self._inputs, self._num_actions, generator)

    def profile(
        self, name: str, specs: list[CompressionSpec], batches: Sequence[int]
    ) -> LatencyProfile:
        """Measure everything."""
        total = 1 + len(self._learners) + len(specs) * (1 + self.repeats)
        identity = self._compressor.build(IDENTITY, self._policy_net, 0)
        self._actor.load(BACKGROUND, identity)
        copy_bytes, copy_seconds = self._time_copy()
        self._on_progress("copying weights", 1, total)
        learners = {}
        for index, network in enumerate(self._learners):
            learners[network] = self._time_learner(network)
            self._on_progress(f"learner update {network}", 2 + index, total)
        distill_us: dict[tuple[str, float], float] = {}
        publish_ms = []
        for index, spec in enumerate(specs):
            key = (spec.student, spec.sparsity)
            if key not in distill_us:
                distill_us[key] = self._time_distilling(spec)
            artifact, milliseconds = self._time_publishing(spec)
            publish_ms.append(milliseconds)
            self._actor.load(index, artifact)
            self._on_progress(f"publish {spec.label}", 2 + len(learners) + index, total)
        acted = self._time_acting(specs, batches, total)
        us_per_sample = {network: seconds * 1e6 for network, seconds in learners.items()}
        rows = tuple(
            SpecLatency(
                spec=spec,
                infer_us={batch: acted.median(index, f"infer {batch}") for batch in batches},
                publish_ms=publish_ms[index],
                distill_us=distill_us[spec.student, spec.sparsity],
                load_ms=acted.median(index, "load") * 1e-3,
                size_bytes=self._actor.sizes[index],
            )
            for index, spec in enumerate(specs)
        )
        main, *others = us_per_sample
        return LatencyProfile(
            name=name,
            source=f"measured: {self.config.game}, {self.config.runtime.num_envs} environments, "
            f"actor and learner side by side on one thread each, {self.config.learner.precision} "
            f"learner, medians of {self.repeats} rounds",
            env_step_us=acted.all("env"),
            write_us=acted.all("write"),
            learner_us_per_sample=us_per_sample[main],
            specs=rows,
            small_learner_us={network: us_per_sample[network] for network in others},
            num_actors=max(1, self.machine["cores"] - 1),
            cores=self.machine["cores"],
            copy_bytes_per_second=copy_bytes / copy_seconds,
            game=self.config.game,
            network=main,
            spread={**self.spread, **acted.spreads()},
            fingerprint=self.machine,
        )

    def _time_copy(self) -> tuple[int, float]:
        """Return bytes of the learner's weights and seconds to copy them for the compressor."""
        numbers = sum(tensor.numel() for tensor in self._policy_net.state_dict().values())
        vector = WeightVector(numbers)
        try:
            version = iter(range(1000))
            seconds = self._seconds(
                "copy", lambda: vector.put(next(version), self._policy_net), 2 * self.repeats
            )
        finally:
            vector.close()
        return 4 * numbers, seconds

    def _time_learner(self, network: str) -> float:
        """Return seconds per sample of one learner pass, in the minibatches of the preset."""
        learner = self._learners[network]
        learner.update(self._rollout)
        seconds = self._seconds(
            f"learner {network}", lambda: learner.update(self._rollout), 3 * self.repeats
        )
        return seconds / (self._rollout.action.size * learner.config.reuse)

    def _time_distilling(self, spec: CompressionSpec) -> float:
        """Return microseconds per state of one distillation update."""
        # Pruned copies of Original are distilled too; the identity stands for a full-size student.
        trained = CompressionSpec(student=spec.student, sparsity=spec.sparsity or 1e-9)
        self._compressor.distill(self._policy_net, [trained])  # creates it
        compression = self._compressor.config
        states = min(compression.distill_batch, len(self._compressor.states))
        seconds = self._seconds(
            "distill", lambda: self._compressor.distill(self._policy_net, [trained]), 2
        )
        return seconds / (states * compression.distill_updates) * 1e6

    def _time_publishing(self, spec: CompressionSpec) -> tuple[Artifact, float]:
        """Return what a publication of `spec` sends, and milliseconds to make it."""
        built = [self._compressor.build(spec, self._policy_net, 0)]  # the first checks it too

        def publish() -> None:
            built[0] = self._compressor.build(spec, self._policy_net, 0)

        seconds = self._seconds("publish", publish, 3)
        return built[0], seconds * 1e3

    def _time_acting(
        self, specs: list[CompressionSpec], batches: Sequence[int], total: int
    ) -> _Acted:
        """Have the actor act with every spec and batch in turn, while this process learns."""
        acted = _Acted()
        for round_ in range(self.repeats):
            for index, spec in enumerate(specs):
                for batch in batches:
                    self._actor.ask(index, batch)
                    while not self._actor.answered():
                        self._beside.update(self._rollout)
                    acted.add(index, batch, self._actor.answer())
                done = total - len(specs) * (self.repeats - round_) + index + 1
                self._on_progress(f"inference {spec.label}", done, total)
        return acted

    def _seconds(self, operation: str, call: Callable[[], Any], repeats: int) -> float:
        """Return the median seconds of `call`, and note its spread."""
        times = []
        for _ in range(repeats):
            before = perf_counter()
            call()
            times.append(perf_counter() - before)
        self.spread[operation] = max(self.spread.get(operation, 0.0), _relative_spread(times))
        return median(times)


def _play(envs: Envs) -> np.ndarray:
    """Act at random; return states [128, *shape]."""
    rng = np.random.default_rng(0)
    obs = envs.reset(0)
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < 128:
        for _ in range(15):
            obs = envs.step(rng.integers(envs.num_actions, size=envs.num_envs)).obs
        kept.append(obs.copy())
    return np.concatenate(kept)[:128]


def _relative_spread(times: Sequence[float]) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = np.percentile(times, (25, 50, 75))
    return float((high - low) / middle)


class _Acted:
    """Microseconds per environment and step that the actor reported."""

    def __init__(self) -> None:
        self._times: defaultdict[tuple[int, str], list[float]] = defaultdict(list)

    def add(self, index: int, batch: int, times: dict[str, float]) -> None:
        for name, value in times.items():
            self._times[index, f"infer {batch}" if name == "infer" else name].append(value)

    def median(self, index: int, name: str) -> float:
        return median(self._times[index, name])

    def all(self, name: str) -> float:
        return median(
            value for key, times in self._times.items() if key[1] == name for value in times
        )

    def spreads(self) -> dict[str, float]:
        """Return the middle one of the specs' spreads, by operation."""
        found = defaultdict(list)
        for (_, name), times in self._times.items():
            found[name].append(_relative_spread(times))
        return {name: median(spreads) for name, spreads in found.items()}


class _Acting:
    """The actor's process as the learner's sees it."""

    def __init__(self, config: RunConfig, *, beside: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, config.game, config.runtime.num_envs, beside)
        self._process = context.Process(target=act, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._beside = beside
        self.sizes: dict[int, int] = {}
        """bytes of what was loaded, by number"""

    def load(self, index: int, artifact: Artifact) -> None:
        """Send it an artifact, to be asked for by number."""
        self.sizes[index] = len(artifact.payload)
        self._pipe.send((index, Publication(index, [artifact], [1.0]).to_bytes()))

    def ask(self, index: int, batch: int) -> None:
        """Have it act with an artifact, so many states per inference."""
        self._pipe.send((index, batch))

    def answered(self) -> bool:
        """Whether it has answered; on a single core this waits for it."""
        return self._pipe.poll(None if not self._beside else 0.0)

    def answer(self) -> dict[str, float]:
        """Return microseconds per step and environment, and of loading."""
        return self._pipe.recv()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.terminate()


def act(pipe: Connection, game: str, num_envs: int, beside: bool) -> None:
    """Body of the actor's process: act as it is asked, and between questions too if `beside`."""
    envs = make_envs(game, num_envs)
    shape = RolloutShape(
        unroll=STEPS,
        num_envs=num_envs,
        num_actions=envs.num_actions,
        observation=envs.observation,
    )
    rollout = Rollout.allocate(shape)
    publications: dict[int, Publication] = {}
    actors: dict[int, Actor] = {}  # by states per inference; they share the environments
    acting: Actor | None = None
    torch.set_num_threads(1)
    try:
        while True:
            while acting is not None and beside and not pipe.poll():
                acting.collect(rollout)
            number, asked = pipe.recv()
            if isinstance(asked, bytes):
                publications[number] = Publication.from_bytes(asked)
                if acting is None:
                    acting = Actor(envs, 0)
                    acting.load(publications[number])
                continue
            if asked not in actors:
                actors[asked] = Actor(envs, 0, infer_batch=asked)
            acting = actors[asked]
            before = perf_counter()
            acting.load(publications[number])
            load_seconds = perf_counter() - before
            acting.collect(rollout)  # the first calls of an engine are slower
            acting.collect(rollout)
            env, infer, write = map(float, rollout.header[2:5] / rollout.action.size * 1e6)
            pipe.send({"env": env, "infer": infer, "write": write, "load": load_seconds * 1e6})
    except EOFError:
        return
    finally:
        envs.close()
