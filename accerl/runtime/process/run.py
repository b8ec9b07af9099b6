"""Process runtime: actors, compressor and evaluator beside the learner, shared memory between."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing.connection import wait
from time import process_time, thread_time
from typing import Any

from accerl.acting.rollout import Rollout, Slab
from accerl.config import RunConfig
from accerl.learner.learner import UpdateStats
from accerl.runtime.machine.memory import require_shared_memory
from accerl.runtime.parallel import PUBLISHING, ParallelRun
from accerl.runtime.parts import Parts
from accerl.runtime.process.blocks import SharedBlocks, check_mix, network_of, shared_bytes
from accerl.runtime.process.disturbances import Disturbances
from accerl.runtime.process.messages import (
    Distilled,
    Done,
    Fill,
    Filled,
    Measure,
    Measured,
    Message,
)
from accerl.runtime.process.publishing import RemotePublishing, make_publishing
from accerl.runtime.process.ranks import learner_ranks
from accerl.runtime.process.roles import collect_rollouts, measure_returns
from accerl.runtime.process.shaped_pipe import ShapedPipe, rollout_bytes
from accerl.runtime.process.supervise import Supervisor, Worker, start_tracker
from accerl.runtime.process.wire import PeerGoneError
from accerl.runtime.publishing.delivery import Tag
from accerl.runtime.run import Snapshot
from accerl.runtime.slots import SlotState
from accerl.runtime.stuck import Watch
from accerl.spec import Decision

WORK: dict[str, type[Message]] = {
    "actor": Filled,
    "compressor": Done,
    "distiller": Distilled,
    "evaluator": Measured,
}
"""what a process says, by its role, that has finished a piece of its work"""


class ProcessRun(ParallelRun[Worker]):
    """A run whose workers are processes of this machine.

    Every actor owns a few slots of the slab. It gets their numbers through a pipe, fills them in
    order and sends the numbers back.

    Any process but this one may be killed at any moment: another takes its place, and what it
    held (slots, an order to publish, a measurement) is taken back or asked for again.

    What `RunConfig.conditions` says is really done to the processes (`disturbances`). An actor that
    leaves is stopped; the rollout that it was filling is thrown away when it has joined again.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        supervisor: Supervisor | None = None,
        parts: Parts | None = None,
    ) -> None:
        super().__init__(config, supervisor=supervisor, parts=parts)
        policy, wiring = self.learner.policy, self._wiring
        self._parts.check_sendable(learners=wiring.learners)
        conditions = config.conditions
        wiring.process_names(conditions)
        actors = conditions.most_actors(wiring.actors)
        self._disturbances = Disturbances(conditions, wiring.actors)
        self._begun: dict[str, set[int]] = {}
        """slots, by actor, of what it had begun before it left"""
        need = shared_bytes(config, policy, self._shape, len(self._slots), wiring.distillers)
        require_shared_memory("what processes share", need, "compression.distill_states")
        self._pipe: ShapedPipe | None = None
        self._learner_return: float | None = None  # what the evaluator has just measured
        start_tracker()
        with ExitStack() as stack:  # lets go of the memory if what comes after it fails
            if conditions.has_link:
                down, up = conditions.down_bytes_per_second, conditions.up_bytes_per_second
                self._pipe = stack.enter_context(closing(ShapedPipe(down, up, actors)))
                if up:  # a rollout has not come before it has passed the link
                    seconds = actors * rollout_bytes(self._shape) / (up * conditions.least_share)
                    self._watch = Watch(link_seconds=4.0 * seconds)
            self._slab = stack.enter_context(closing(Slab(self._shape, len(self._slots))))
            self._blocks = stack.enter_context(
                closing(SharedBlocks.of(config, policy, self._shape))
            )
            self._actors = [self._make_actor(index) for index in range(actors)]
            self._ranks = learner_ranks(config, wiring, self.learner, self._slab, self._supervisor)
            self._evaluator = self._make_evaluator() if config.runtime.eval_episodes else None
            self._publishing = make_publishing(
                config,
                self._parts.links,
                wiring,
                self._shape.samples,
                self._compressor,
                self.learner,
                self.recorder,
                self._blocks,
                lambda: self._seconds,
                self._pipe,
            )
            stack.callback(self._publishing.pool.close)
            self._memory = stack.pop_all()

    @property
    def publishing(self) -> RemotePublishing:
        """The compressor and the distillers."""
        return self._publishing

    @property
    def workers(self) -> list[Worker]:
        """Every process of this run but this one."""
        workers = [*self._actors, *self._ranks.workers, *self.publishing.workers]
        if self._evaluator is not None:
            workers.append(self._evaluator)
        return workers

    def _make_actor(self, index: int) -> Worker:
        def arguments(restarts: int) -> tuple[Any, ...]:
            handles = (self._slab.handle(), self._blocks.mailbox.handle())
            game = (self.config.game, self.config.env)
            pipe = None if self._pipe is None else self._pipe.handle()
            return *handles, *game, *self._actor_settings(index, restarts), index, pipe

        return Worker("actor", index, collect_rollouts, arguments)

    def _make_evaluator(self) -> Worker:
        config = self.config
        network = network_of(config, self.learner.policy)
        game = (config.game, config.env, config.runtime.eval_episodes)
        arguments = (*network, *game, self._blocks.weights.handle())
        return Worker("evaluator", None, measure_returns, lambda _: arguments)

    @property
    def _is_published(self) -> bool:
        return self._blocks.mailbox.latest >= 0

    def _pids(self) -> dict[str, int]:
        return {"learner": os.getpid(), **{worker.name: worker.pid for worker in self.workers}}

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`.

        Raises:
            UserError: the mix is too large, or the learner's network cannot act with it.
        """
        check_mix(decision)
        super().apply(decision)

    def _start_workers(self) -> None:
        if self.config.runtime.pin_cores:
            self._supervisor.pin(self.config.runtime.learner_threads)
        for worker in self.workers:
            self._supervisor.start(worker)

    def _follow_conditions(self) -> float:
        measuring = self._evaluator
        on_the_clock = [worker for worker in self.workers if worker is not measuring]
        left, joined = self._disturbances.follow(self._seconds, on_the_clock)
        if self._pipe is not None:
            self._pipe.leave(self._disturbances.bandwidth)
        for actor in left:
            assert actor.index is not None
            self._slots.leave(actor.index)
            while actor.channel.poll():  # what it finished before it left counts
                self._receive_from(actor)
            self._watch.forget(actor.name)
            if self._pipe is None:  # the first that comes is the one that it was filling
                self._begun[actor.name] = set(self._slots.of(actor.index, SlotState.FILLING))
            else:  # what has been filled is on its way, and counts
                held = self._slots.of(actor.index, SlotState.FILLING)
                before = self._begun.get(actor.name, set()).intersection(held)
                self._begun[actor.name] = {*before, self._pipe.filled_by(actor.index)}
                self._pipe.forget(actor.index)
        for actor in joined:
            assert actor.index is not None
            self._slots.join(actor.index)
            if self._slots.of(actor.index, SlotState.FILLING):
                self._watch.rollouts.lent(actor.name)
            self._lend(actor)
        if left:
            self._lend_next(0)
        now = self._seconds
        return self._disturbances.next_change(now) - now

    def _rollout(self, slot: int) -> Rollout:
        return self._slab[slot]

    def _tag(self, slot: int, rollout: Rollout) -> Tag | None:
        return self.publishing.tag(rollout.publication, rollout.spec_index)

    def _learn(self, slot: int, rollout: Rollout, seconds: float) -> UpdateStats | None:
        # A GPU's passes backwards have a thread of their own; several of a processor's are one's.
        clock = thread_time if self.learner.device.type == "cpu" else process_time
        before = clock()
        stats = self._ranks.update(slot, partial(self._safeguard.update, rollout, seconds=seconds))
        self._disturbances.slow_learner(clock() - before)
        return stats

    def _learned(self, slot: int, rollout: Rollout, stats: UpdateStats) -> None:
        self._blocks.states.add(rollout.obs[:-1], stats.logits.numpy(), self.learner.updates - 1)

    def _may_act(self, actor: Worker) -> bool:
        return self._disturbances.is_present(actor)

    def _have_filled(self, actor: Worker, slots: Sequence[int]) -> None:
        self._watch.rollouts.lent(actor.name)
        actor.send(Fill(slots, self.orders.last_ordered))

    def _receive(self, timeout_seconds: float) -> None:
        pipes: dict[Any, Worker] = {worker.channel.pipe: worker for worker in self.workers}
        heard = wait(list(pipes), timeout_seconds)
        self._watch.look()
        for pipe in heard:
            self._receive_from(pipes[pipe])
        for worker in self.workers:
            if self._supervisor.hangs(worker):
                self._replace(worker)
            elif (stuck := self._watch.unfinished(worker.name)) and not worker.channel.poll():
                self._replace(worker, stuck=stuck)

    def _receive_from(self, worker: Worker) -> None:
        try:
            message = worker.receive()
        except PeerGoneError:
            self._replace(worker)
        else:
            self._handle(worker, message)

    def _handle(self, worker: Worker, message: Message) -> None:
        # A new distiller says at first that it has distilled nothing: that is no work.
        nothing = isinstance(message, Distilled) and not message.updates
        if isinstance(message, WORK.get(worker.role, ())) and not nothing:
            self._supervisor.worked(worker)
            if worker.role == "distiller":
                self._watch.distillations.filled(worker.name, has_more=False)
        if worker.role == "actor":
            assert worker.index is not None
            if isinstance(message, Filled) and self._began_before(worker, message.slot):
                # It has been away since: fill it anew.
                worker.send(Fill([message.slot], self.orders.last_ordered))
            elif isinstance(message, Filled):
                self._slots.filled(worker.index, message.slot)
                more = bool(self._slots.of(worker.index, SlotState.FILLING))
                self._watch.rollouts.filled(worker.name, has_more=more)
            else:  # it is ready
                self._lend(worker)
        elif worker.role == "learner":
            self._ranks.handle(worker, message)
        elif worker.role in PUBLISHING:
            self.publishing.handle(worker, message)
            self._watch_publishing()
        elif isinstance(message, Measured):
            self._watch.measurements.filled(worker.name, has_more=False)
            self._learner_return = message.learner_return

    def _began_before(self, worker: Worker, slot: int) -> bool:
        """Whether an actor that has filled a slot had begun with it before it left."""
        begun = self._begun.get(worker.name, set())
        if slot not in begun:
            return False
        begun.discard(slot)
        if self._pipe is None:  # the others it had not begun
            begun.clear()
        return True

    def _replace(self, worker: Worker, *, stuck: str = "") -> None:
        """Put a new process in the place of `worker`'s; take back what that one held."""
        # Now, while the dead can still be asked; the learner's own seconds may be off the clock.
        self._cpu.note({worker.name: worker.pid for worker in self.workers})
        replace = partial(self._supervisor.replace, worker, seconds=self._seconds)
        if worker.role == "actor":
            assert worker.index is not None
            slots = self._slots.reclaim(worker.index)
            self._begun.pop(worker.name, None)
            self._watch.forget(worker.name)
            if self._pipe is not None:
                self._pipe.forget(worker.index)
                self._pipe.fills(worker.index)
            replace(recovered=f"{slots} of its slots reclaimed", stuck=stuck)
            self._lend_next(worker.index)
        elif worker.role == "learner":
            replace(recovered=self._ranks.died())
        elif worker.role in PUBLISHING:
            self._watch.forget(worker.name)
            replace(recovered=self.publishing.died(worker), stuck=stuck)
        else:
            self._watch.forget(worker.name)
            replace(recovered="its measurement is repeated", stuck=stuck)

    def _measure(self) -> float | None:
        evaluator = self._evaluator
        if evaluator is None:
            return None
        while self.publishing.reading:
            self._wait_for_news()
        self._blocks.weights.put(self.learner.updates, self.learner.policy)
        self._learner_return = None
        asked = -1  # restarts of the evaluator that was asked
        while self._learner_return is None:
            if evaluator.ready and asked != evaluator.restarts:
                evaluator.send(Measure())
                self._watch.measurements.lent(evaluator.name)
                asked = evaluator.restarts
            self._wait_for_news()
        return self._learner_return

    def snapshot(self) -> Snapshot:
        """Return learner, compressor and counters; episodes in progress are not part of it."""
        return {**super().snapshot(), "ring": self._blocks.states.state_dict()}

    def restore(self, snapshot: Snapshot) -> None:
        """Go on learning from `snapshot` with new episodes; only before the first `advance`."""
        super().restore(snapshot)
        self._blocks.states.load_state_dict(snapshot["ring"])

    def close(self) -> None:
        """See `InnerRun.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            self._disturbances.close()
            self._ranks.dissolve()
            for worker in self.workers:
                worker.hang_up()  # all at once, so that they end side by side
            for worker in self.workers:
                worker.end()
        finally:  # also if Ctrl-C is pressed again meanwhile
            self._memory.close()
            self._supervisor.unpin()
