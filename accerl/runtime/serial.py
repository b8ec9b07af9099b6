"""Serial runtime: the parallel pipeline as a discrete-event model in one deterministic process.

Everything is real (environments, engines, learner, compressor); only the clock is modelled. Two
kinds of server work side by side: `num_actors` actors, each on a core of its own, and one learner
that also compresses and distils. They are coupled by a rollout queue of limited length, and
actors change weights only between rollouts, like in the process runtime. (There, each of several
actors has a queue of its own; here they share one.)
"""

from __future__ import annotations

import math
import os
from time import perf_counter
from typing import Any

import torch

from accerl.actor import Actor
from accerl.compress.compressor import Compressor
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.evaluate import Evaluator
from accerl.learner import Learner
from accerl.networks import count_macs
from accerl.rollout import Rollout, RolloutShape
from accerl.runtime.clock import ActSeconds, Clock, RealClock
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.memory import keep_freed_memory
from accerl.runtime.parts import Parts
from accerl.runtime.probe import KLProbe
from accerl.runtime.publisher import Publisher
from accerl.runtime.run import IntervalReport, Snapshot
from accerl.runtime.safeguard import Safeguard
from accerl.runtime.usage import CpuMeter, memory_by_name
from accerl.spec import IDENTITY, Decision
from accerl.weights import Publication, publication_from_state, publication_state


class SerialRun:
    """An `InnerRun` in this process, bit-identical for equal (config, seed) on a virtual clock."""

    def __init__(
        self,
        config: RunConfig,
        clock: Clock,
        *,
        num_actors: int | None = None,
        parts: Parts | None = None,
    ) -> None:
        parts = parts or Parts()
        self.config = config
        self.clock = clock
        # Sums depend on how they are split: another number of threads is another run.
        torch.set_num_threads(config.runtime.learner_threads)
        keep_freed_memory()
        count = num_actors or config.runtime.num_actors
        generator = torch.Generator().manual_seed(config.seed)
        self.actors = [
            Actor(
                make_envs(config.game, config.runtime.num_envs),
                1000 * config.seed + index,
                threads=config.runtime.actor_threads,
                infer_batch=config.runtime.infer_batch,
            )
            for index in range(count)
        ]
        envs = self.actors[0].envs
        observation = config.inputs(envs.observation)
        policy = parts.make_policy(config, envs.observation, envs.num_actions, generator)
        # A virtual clock does not see what measuring costs, and has few updates in an interval.
        real = isinstance(clock, RealClock)
        self.learner = Learner(
            policy, config.learner, generator, corrector=parts.corrector, thrifty=real
        )
        self._safeguard = Safeguard(self.learner)
        compressor = Compressor(
            observation, envs.num_actions, config.compression, generator, parts.links
        )
        compressor.observe(self.actors[0].obs)
        samples = config.learner.unroll * config.runtime.num_envs
        check_every = KLProbe.check_every(samples, count_macs(policy) if real else math.inf)
        self.publisher = Publisher(compressor, config.runtime.publish_every, check_every)
        self.evaluator = Evaluator(config.game, config.runtime.eval_episodes)
        self.recorder = IntervalRecorder(envs.num_actions, times_itself=real)
        self.shape = RolloutShape(
            unroll=config.learner.unroll,
            num_envs=envs.num_envs,
            num_actions=envs.num_actions,
            observation=envs.observation,
        )
        slots = count + config.runtime.queue_rollouts + 1
        self._slots = [Rollout.allocate(self.shape) for _ in range(slots)]
        self._free = list(range(slots))
        self._queue: list[int] = []
        self._holding = [-1] * count  # slot each actor fills or waits with
        self._ready_at = [math.inf] * count  # when its rollout is finished; inf: waiting
        self._waiting: list[int] = []  # actors whose rollout found the queue full
        self._learner_done_at = math.inf  # inf: idle
        self._idle_since = 0.0
        self._published: Publication | None = None
        self._next_publication: Publication | None = None
        self._started = False
        # A virtual clock's reports are equal on every machine; what this one uses is not.
        self._pids = {"learner": os.getpid()} if real else {}
        self._cpu = CpuMeter()
        self.now = 0.0

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`."""
        decision.check_students(self.config.network)
        self.publisher.request(decision)

    def advance(self, seconds: float) -> IntervalReport:
        """See `InnerRun.advance`."""
        self._cpu.forget(self._pids)
        if not self._started:
            self._start()
        end = self.now + seconds
        while True:
            time, actor = self._next_event()
            if time > end:
                break
            self.now = max(self.now, time)
            if actor is None:
                self._finish_learning()
            else:
                self._finish_rollout(actor)
            self._start_learning()
        if self._learner_done_at == math.inf:
            self.recorder.add_seconds("wait", end - self._idle_since)
            self._idle_since = end
        self.now = end
        self._cpu.note(self._pids)
        decision = self.publisher.decision
        assert decision is not None
        return self.recorder.report(
            seconds=seconds,
            total_seconds=end,
            learner_return=self.evaluator.measure(self.learner.policy),
            decision=decision,
            switch_seconds=self.publisher.take_switch_seconds(),
            events=(*self._safeguard.take_events(), *self.publisher.take_events(end)),
            memory=memory_by_name(self._pids),
            cpu_seconds=self._cpu.take(),
        )

    def _start(self) -> None:
        """Publish the first weights; only then can actors begin."""
        if self.publisher.decision is None:
            self.publisher.request(Decision.of(IDENTITY))
        self._started = True
        seconds = self._compress()
        self._learner_done_at = self.now + seconds

    def _next_event(self) -> tuple[float, int | None]:
        """Return when the next server finishes, and which actor it is (None: the learner)."""
        time, actor = self._learner_done_at, None
        for index, ready_at in enumerate(self._ready_at):
            if ready_at < time:
                time, actor = ready_at, index
        return time, actor

    def _finish_rollout(self, actor: int) -> None:
        self._ready_at[actor] = math.inf
        if self._learner_done_at == math.inf or self._has_room():
            self._hand_over(actor)
        else:
            self._waiting.append(actor)

    def _has_room(self) -> bool:
        return len(self._queue) < self.config.runtime.queue_rollouts

    def _hand_over(self, actor: int) -> None:
        self._queue.append(self._holding[actor])
        self._start_rollout(actor)

    def _start_rollout(self, actor: int) -> None:
        """Collect a rollout now; on the clock it is ready when its seconds have passed."""
        publication = self._published
        assert publication is not None
        if self.actors[actor].publication_number != publication.number:
            self.actors[actor].load(publication)
        slot = self._free.pop()
        rollout = self._slots[slot]
        self.actors[actor].collect(rollout)
        spec = publication.artifacts[rollout.spec_index].spec
        measured = ActSeconds(rollout.header[2:5])
        steps, envs = rollout.action.shape
        env, infer, write = self.clock.act(spec, steps, envs, measured)
        rollout.header[2:5] = (env, infer, write)
        self._holding[actor] = slot
        self._ready_at[actor] = self.now + env + infer + write

    def _start_learning(self) -> None:
        """Take the oldest rollout if the learner is idle, and let a waiting actor go on."""
        if self._learner_done_at != math.inf:
            return
        if self._waiting and not self._queue:  # there is no queue: queue_rollouts is 0
            self._hand_over(self._waiting.pop(0))
        if not self._queue:
            return
        self.recorder.add_seconds("wait", self.now - self._idle_since)
        slot = self._queue.pop(0)
        fill = (len(self._queue) + 1) / max(self.config.runtime.queue_rollouts, 1)
        rollout = self._slots[slot]
        tag = self.publisher.tag(rollout.publication, rollout.spec_index)
        lag = self.learner.updates - tag.version
        before = perf_counter()
        stats = self._safeguard.update(rollout, seconds=self.now)
        samples = self.shape.samples * self.config.learner.reuse
        seconds = self.clock.learn(samples, perf_counter() - before)
        self.recorder.add_seconds("learn", seconds)
        if stats is not None:
            self.recorder.add_rollout(rollout, tag.spec, stats, lag=lag, queue_fill=fill)
            self.publisher.observe(rollout)
            seconds += self._distill()
        self._free.append(slot)
        if self.publisher.is_due(self.learner.updates):
            seconds += self._compress()
        self._learner_done_at = self.now + seconds
        if self._waiting and self._has_room():
            self._hand_over(self._waiting.pop(0))

    def _finish_learning(self) -> None:
        """The learner's busy period is over: what it published becomes visible to actors."""
        self._learner_done_at = math.inf
        self._idle_since = self.now
        if self._next_publication is not None:
            first = self._published is None
            self._published, self._next_publication = self._next_publication, None
            if first:
                for actor in range(len(self.actors)):
                    self._start_rollout(actor)

    def _distill(self) -> float:
        """Keep the students in use close to the learner; return the seconds charged."""
        before = perf_counter()
        distilled = self.publisher.distill(self.learner.policy)
        measured = (perf_counter() - before) / max(len(distilled), 1)
        seconds = sum(self.clock.distill(spec, states, measured) for spec, states in distilled)
        self.recorder.add_seconds("compress", seconds)
        return seconds

    def _compress(self) -> float:
        """Build the next publication; return the seconds charged."""
        current = self._next_publication or self._published
        built = self.publisher.build(self.learner.policy, self.learner.updates, current)
        seconds = 0.0
        for part in built.parts:
            warmup, rest = self.clock.publish(part.artifact.spec, part.warmup_states, part.seconds)
            self.recorder.add_seconds("compress", warmup)
            self.recorder.add_seconds("publish", rest)
            seconds += warmup + rest
        self.publisher.charge(seconds)
        kl_nats = self.publisher.students_kl_nats(self.learner.policy)
        split = self.publisher.split(self.learner.policy, built)
        self.recorder.add_publication(built.unchanged, built.size_bytes, kl_nats, split)
        if not built.unchanged:
            self._next_publication = built.publication
        return seconds

    def snapshot(self) -> Snapshot:
        """See `InnerRun.snapshot`."""
        learner = self.learner.state_dict()
        self._safeguard.keep(learner)
        return {
            "now": self.now,
            "started": self._started,
            "learner": learner,
            "publisher": self.publisher.state_dict(),
            "probe": self.publisher.probe.state_dict(),
            "recorder": self.recorder.state_dict(),
            "actors": [actor.state_dict() for actor in self.actors],
            "slots": [slot.copy().state_dict() for slot in self._slots],
            "free": list(self._free),
            "queue": list(self._queue),
            "holding": list(self._holding),
            "waiting": list(self._waiting),
            "ready_at": [_finite(time) for time in self._ready_at],
            "learner_done_at": _finite(self._learner_done_at),
            "idle_since": self._idle_since,
            "published": publication_state(self._published),
            "next_publication": publication_state(self._next_publication),
        }

    def restore(self, snapshot: Snapshot) -> None:
        """See `InnerRun.restore`."""
        self.now = snapshot["now"]
        self._started = snapshot["started"]
        self.learner.load_state_dict(snapshot["learner"])
        self._safeguard.keep(snapshot["learner"])
        self.publisher.load_state_dict(snapshot["publisher"])
        if "probe" in snapshot:  # checkpoints once had none
            self.publisher.probe.load_state_dict(snapshot["probe"])
        self.recorder.load_state_dict(snapshot["recorder"])
        for actor, state in zip(self.actors, snapshot["actors"], strict=True):
            actor.load_state_dict(state)
        for slot, state in zip(self._slots, snapshot["slots"], strict=True):
            for name, array in slot.state_dict().items():
                array[:] = state[name]
        self._free = list(snapshot["free"])
        self._queue = list(snapshot["queue"])
        self._holding = list(snapshot["holding"])
        self._waiting = list(snapshot["waiting"])
        self._ready_at = [_infinite(time) for time in snapshot["ready_at"]]
        self._learner_done_at = _infinite(snapshot["learner_done_at"])
        self._idle_since = snapshot["idle_since"]
        self._published = publication_from_state(snapshot["published"])
        self._next_publication = publication_from_state(snapshot["next_publication"])

    def close(self) -> None:
        """See `InnerRun.close`."""
        for actor in self.actors:
            actor.envs.close()
        self.evaluator.close()


def _finite(time: float) -> float | None:
    """JSON has no infinity."""
    return None if math.isinf(time) else time


def _infinite(time: Any) -> float:
    return math.inf if time is None else float(time)
