"""Process runtime: one process per actor, the learner in this one, shared memory between them."""

from __future__ import annotations

import sys
from collections import deque
from multiprocessing.connection import wait
from time import perf_counter
from typing import Any

import torch

from accerl.compress.compressor import Compressor
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.evaluate import Evaluator
from accerl.learner import Learner
from accerl.networks import make_policy
from accerl.rollout import RolloutShape, Slab
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.memory import keep_freed_memory
from accerl.runtime.publisher import Publisher
from accerl.runtime.run import IntervalReport, Snapshot
from accerl.runtime.supervise import ActorProcess
from accerl.spec import IDENTITY, Decision
from accerl.weights import Mailbox

_MAX_SPECS = 2  # specs in one decision: the paper mixes two networks


class ProcessRun:
    """An `InnerRun` on the real clock.

    Every actor owns a few slots of the slab. It gets their numbers through a pipe, fills them in
    order and sends the numbers back; the learner returns a number when it has used the slot, so
    an actor that runs ahead waits by itself (back-pressure).
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        runtime = config.runtime
        torch.set_num_threads(runtime.learner_threads)
        keep_freed_memory()
        probe = make_envs(config.game, 1)
        generator = torch.Generator().manual_seed(config.seed)
        observation = config.inputs(probe.observation)
        policy = make_policy(config.network, observation, probe.num_actions, generator)
        self.learner = Learner(policy, config.learner)
        compressor = Compressor(observation, probe.num_actions, config.compression, generator)
        compressor.observe(probe.reset(config.seed))
        probe.close()
        self.publisher = Publisher(compressor, runtime.publish_every)
        self.recorder = IntervalRecorder(policy.num_actions)
        self.evaluator = Evaluator(config.game, runtime.eval_episodes)
        self.now = 0.0
        self._ready: deque[tuple[ActorProcess, int]] = deque()
        # One slot being filled and one being learned from, besides those that may wait.
        each = 2 + -(-runtime.queue_rollouts // runtime.num_actors)
        shape = RolloutShape(
            unroll=config.learner.unroll,
            num_envs=runtime.num_envs,
            num_actions=policy.num_actions,
            observation=policy.observation,
        )
        self._slab = Slab(shape, each * runtime.num_actors)
        parameters = sum(tensor.numel() for tensor in policy.state_dict().values())
        self._mailbox = Mailbox(_MAX_SPECS * (4 * parameters + 65_536))
        self._slots_each = each
        self._actors: list[ActorProcess] = []
        self._started = False
        self._closed = False

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`."""
        decision.check_students(self.config.network)
        self.publisher.request(decision)

    def advance(self, seconds: float) -> IntervalReport:
        """See `InnerRun.advance`.

        Starting the processes is off the clock, publishing the first weights is on it. Between
        two calls (while J is measured or a checkpoint is written) the clock stands still, and
        actors can fill no more than the slots they have.
        """
        if not self._started:
            self._start()
        before = perf_counter()
        if self._mailbox.latest < 0:
            self._publish()
            for actor in self._actors:
                actor.send_free(actor.slots)
        while perf_counter() - before < seconds:
            self._turn(deadline=before + seconds)
        elapsed = perf_counter() - before
        self.now += elapsed
        decision = self.publisher.decision
        assert decision is not None
        return self.recorder.report(
            seconds=elapsed,
            total_seconds=self.now,
            learner_return=self.evaluator.measure(self.learner.policy),
            decision=decision,
            switch_seconds=self.publisher.take_switch_seconds(),
        )

    def _start(self) -> None:
        """Start the actors and wait until each is ready."""
        runtime = self.config.runtime
        arguments = (
            self._slab.handle(),
            self._mailbox.handle(),
            self.config.game,
            runtime.actor_threads,
        )
        each = self._slots_each
        # A resumed run must not replay the episodes it began with.
        seed = 1000 * self.config.seed + 10 * self.learner.updates
        for index in range(runtime.num_actors):
            slots = list(range(index * each, (index + 1) * each))
            self._actors.append(ActorProcess(index, slots, arguments, seed + index))
        while not all(actor.ready for actor in self._actors):
            self._receive(timeout_seconds=1.0)
        if self.publisher.decision is None:
            self.publisher.request(Decision.of(IDENTITY))
        self._started = True

    def _turn(self, deadline: float) -> None:
        """Use one rollout, or wait for one until `deadline`."""
        before = perf_counter()
        self._receive(timeout_seconds=0.0 if self._ready else max(deadline - before, 0.0))
        self.recorder.add_seconds("wait", perf_counter() - before)
        if not self._ready:
            return
        waiting = len(self._ready)
        actor, slot = self._ready.popleft()
        rollout = self._slab[slot]
        tag = self.publisher.tag(rollout.publication, rollout.spec_index)
        lag = self.learner.updates - tag.version
        before = perf_counter()
        stats = self.learner.update(rollout)
        self.recorder.add_seconds("learn", perf_counter() - before)
        fill = min(waiting / self.config.runtime.queue_rollouts, 1.0)
        self.recorder.add_rollout(rollout, tag.spec, stats, lag=lag, queue_fill=fill)
        self.publisher.observe(rollout)
        if actor.ready:  # a replacement gets its slots when it is
            self._give_back(actor, slot)
        before = perf_counter()
        if self.publisher.distill(self.learner.policy):
            self.recorder.add_seconds("compress", perf_counter() - before)
        if self.publisher.is_due(self.learner.updates):
            self._publish()

    def _give_back(self, actor: ActorProcess, slot: int) -> None:
        try:
            actor.send_free([slot])
        except (BrokenPipeError, ConnectionResetError):
            self._replace(actor)

    def _receive(self, timeout_seconds: float) -> None:
        """Take what actors have sent; replace those that died."""
        pipes: dict[Any, ActorProcess] = {actor.pipe: actor for actor in self._actors}
        for pipe in wait(list(pipes), timeout_seconds):
            actor = pipes[pipe]
            try:
                slot = actor.receive()
            except (EOFError, ConnectionResetError):
                self._replace(actor)
                continue
            if slot is not None:
                self._ready.append((actor, slot))
            elif self._started:  # a replacement is ready
                waiting = {ready for _, ready in self._ready}
                actor.send_free([slot for slot in actor.slots if slot not in waiting])

    def _replace(self, actor: ActorProcess) -> None:
        exit_code = actor.restart()
        print(
            f"actor {actor.index} died (exit code {exit_code}); started it again", file=sys.stderr
        )

    def _publish(self) -> None:
        before = perf_counter()
        built = self.publisher.build(self.learner.policy, self.learner.updates)
        self._mailbox.put(built.publication)
        seconds = perf_counter() - before
        self.recorder.add_seconds("publish", seconds)
        self.publisher.charge(seconds)

    def snapshot(self) -> Snapshot:
        """Return learner, compressor and counters; episodes in progress are not part of it."""
        return {
            "now": self.now,
            "learner": self.learner.state_dict(),
            "publisher": self.publisher.state_dict(),
            "recorder": self.recorder.state_dict(),
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Go on learning from `snapshot` with new episodes; only before the first `advance`."""
        if self._started:
            raise RuntimeError("a process run can only be restored before it advances")
        self.now = snapshot["now"]
        self.learner.load_state_dict(snapshot["learner"])
        self.publisher.load_state_dict(snapshot["publisher"])
        self.recorder.load_state_dict(snapshot["recorder"])

    def close(self) -> None:
        """See `InnerRun.close`."""
        if self._closed:
            return
        self._closed = True
        for actor in self._actors:
            actor.pipe.close()  # all at once, so that they end side by side
        for actor in self._actors:
            actor.end()
        self._ready.clear()
        self._mailbox.close()
        self._slab.close()
        self.evaluator.close()
