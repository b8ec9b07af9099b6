"""Process runtime: actors, compressor and evaluator beside the learner, shared memory between."""

from __future__ import annotations

import os
from functools import partial
from multiprocessing.connection import wait
from time import perf_counter
from typing import Any

import torch

from accerl.compress.compressor import Compressor
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.learner.learner import Learner
from accerl.rollout import RolloutShape, Slab
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.machine.usage import CpuMeter, memory_by_name
from accerl.runtime.parts import Parts
from accerl.runtime.process.blocks import SharedBlocks, network_of
from accerl.runtime.process.messages import Fill, Filled, Measure, Measured, Message
from accerl.runtime.process.publishing import make_publishing
from accerl.runtime.process.ranks import learner_ranks
from accerl.runtime.process.roles import collect_rollouts, measure_returns
from accerl.runtime.process.supervise import Supervisor, Worker
from accerl.runtime.process.wire import PeerGoneError
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.run import IntervalReport, Snapshot
from accerl.runtime.safeguard import Safeguard
from accerl.runtime.slots import Slots
from accerl.runtime.wiring import Wiring
from accerl.seeds import Role, number, torch_generator
from accerl.spec import IDENTITY, Decision

PUBLISHING = ("compressor", "distiller")
"""roles that make what actors act with"""


class ProcessRun:
    """An `InnerRun` on the real clock.

    Every actor owns a few slots of the slab. It gets their numbers through a pipe, fills them in
    order and sends the numbers back; the learner returns a number when it has used the slot, so
    an actor that runs ahead waits by itself (back-pressure).

    Any process but this one may be killed at any moment: another takes its place, and what it
    held (slots, an order to publish, a measurement) is taken back or asked for again.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        supervisor: Supervisor | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.config = config
        self._parts = parts = parts or Parts()
        runtime = config.runtime
        torch.set_num_threads(runtime.learner_threads)
        keep_freed_memory()
        probe = make_envs(config.game, 1, config.env)
        generator = torch_generator(config.seed, Role.LEARNER)
        observation = config.inputs(probe.observation)
        policy = parts.make_policy(config, probe.observation, probe.num_actions, generator)
        self.learner = Learner(
            policy, config.learner, generator, corrector=parts.corrector, sparse_monitoring=True
        )
        self._safeguard = Safeguard(self.learner)
        drawn = torch_generator(config.seed, Role.COMPRESSOR)
        compressor = Compressor(
            observation, probe.num_actions, config.compression, drawn, parts.links
        )
        compressor.observe(probe.reset(number(config.seed, Role.FIRST_STATES)))
        probe.close()
        self.num_actions = policy.num_actions
        self.recorder = IntervalRecorder(policy.num_actions)
        self.now = 0.0
        self._began = 0.0  # perf_counter when the clock was last started
        self._supervisor = supervisor or Supervisor()
        self._cpu = CpuMeter()
        self._wiring = wiring = Wiring.of(runtime)
        self._slots = Slots(wiring.actors, wiring.slots_each(runtime.queue_rollouts))
        shape = RolloutShape(
            unroll=config.learner.unroll,
            num_envs=runtime.num_envs,
            num_actions=policy.num_actions,
            observation=observation,
        )
        self._slab = Slab(shape, len(self._slots))
        self._blocks = SharedBlocks.of(config, policy, shape)
        self._actors = [self._make_actor(index) for index in range(wiring.actors)]
        self._ranks = learner_ranks(config, wiring, self.learner, self._slab, self._supervisor)
        self._evaluator = self._make_evaluator() if runtime.eval_episodes else None
        self._learner_return: float | None = None  # what the evaluator has just measured
        self.publishing = make_publishing(
            config,
            parts.links,
            wiring,
            shape.samples,
            compressor,
            self.learner,
            self.recorder,
            self._blocks,
        )
        self._started = False
        self._acting = False  # whether actors have been given slots
        self._closed = False

    @property
    def orders(self) -> PublicationOrders:
        """What was asked for and published."""
        return self.publishing.orders

    @property
    def workers(self) -> list[Worker]:
        """Every process of this run but this one."""
        workers = [*self._actors, *self._ranks.workers, *self.publishing.workers]
        if self._evaluator is not None:
            workers.append(self._evaluator)
        return workers

    def _make_actor(self, index: int) -> Worker:
        def arguments(restarts: int) -> tuple[Any, ...]:
            runtime = self.config.runtime
            # A resumed run must not replay the episodes it began with, nor a restarted actor
            # those of the one that died.
            updates = self.learner.updates
            seed = number(self.config.seed, Role.ACTOR, index, restarts, updates)
            handles = (self._slab.handle(), self._blocks.mailbox.handle())
            acting = (runtime.actor_threads, runtime.infer_batch, runtime.patience_seconds)
            return *handles, self.config.game, self.config.env, *acting, seed

        return Worker("actor", index, collect_rollouts, arguments)

    def _make_evaluator(self) -> Worker:
        config = self.config
        network = network_of(config, self.learner.policy)
        game = (config.game, config.env, config.runtime.eval_episodes)
        arguments = (*network, *game, self._blocks.weights.handle())
        return Worker("evaluator", None, measure_returns, lambda _: arguments)

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`."""
        decision.check_students(self.config.network)
        self.orders.request(decision)

    def advance(self, seconds: float) -> IntervalReport:
        """See `InnerRun.advance`.

        Starting the processes is off the clock, publishing the first weights is on it. Between
        two calls (while J is measured or a checkpoint is written) the clock stands still, and
        actors can fill no more than the slots they have.

        Raises:
            UserError: processes keep dying, or one of them was asked for what cannot be.
        """
        if not self._started:
            self._start()
        self._cpu.forget({"learner": os.getpid()})
        self._began = perf_counter()
        deadline = self._began + seconds
        while self._blocks.mailbox.latest < 0:
            self._publish_first()
        if not self._acting:
            self._acting = True
            for actor in self._actors:
                self._lend(actor)
        while perf_counter() < deadline:
            self._parts.check_stop()
            self._turn(deadline)
        elapsed = perf_counter() - self._began
        self.now += elapsed
        self._began = 0.0
        self._cpu.note(self._pids())
        learner_return = self._measure()
        decision = self.orders.decision
        assert decision is not None
        return self.recorder.report(
            seconds=elapsed,
            total_seconds=self.now,
            learner_return=learner_return,
            decision=decision,
            switch_seconds=self.orders.take_switch_seconds(),
            events=(
                *self._supervisor.take_events(),
                *self._safeguard.take_events(),
                *self.orders.take_events(self.now),
            ),
            memory=memory_by_name(self._pids()),
            cpu_seconds=self._cpu.take(),
        )

    def _pids(self) -> dict[str, int]:
        return {"learner": os.getpid(), **{worker.name: worker.pid for worker in self.workers}}

    def _start(self) -> None:
        """Start all processes and wait until each is ready."""
        if self.orders.decision is None:
            self.orders.request(Decision.of(IDENTITY))
        if self.config.runtime.pin_cores:
            self._supervisor.pin(self.config.runtime.learner_threads)
        for worker in self.workers:
            self._supervisor.start(worker)
        while not all(worker.ready for worker in self.workers):
            self._receive(timeout_seconds=1.0)
        self._started = True
        self._cpu.forget(self._pids())
        self._cpu.take()

    def _publish_first(self) -> None:
        """Have the first weights published, or wait until they are."""
        self.publishing.publish()
        if self._blocks.mailbox.latest < 0:
            self._receive(timeout_seconds=1.0)

    def _turn(self, deadline: float) -> None:
        """Use one rollout, or wait for one until `deadline`."""
        before = perf_counter()
        self._receive(timeout_seconds=0.0 if self._slots.waiting else max(deadline - before, 0.0))
        self.recorder.add_seconds("wait", perf_counter() - before)
        waiting = self._slots.waiting
        if not waiting:
            return
        slot = self._slots.take()
        rollout = self._slab[slot]
        tag = self.orders.tag(rollout.publication, rollout.spec_index)
        lag = self.learner.updates - tag.version
        before = perf_counter()
        seconds = self.now + before - self._began
        stats = self._ranks.update(slot, partial(self._safeguard.update, rollout, seconds=seconds))
        self.recorder.add_seconds("learn", perf_counter() - before)
        if stats is not None:
            fill = min(waiting / max(self.config.runtime.queue_rollouts, 1), 1.0)
            self.recorder.add_rollout(rollout, tag.spec, stats, lag=lag, queue_fill=fill)
            self._blocks.states.add(
                rollout.obs[:-1], stats.logits.numpy(), self.learner.updates - 1
            )
            self._receive(timeout_seconds=0.0)  # whoever has finished meanwhile gets work now
            self.publishing.after_update(rollout)
        self._slots.done(slot)
        self._lend(self._actors[self._slots.owner(slot)])

    def _lend(self, actor: Worker) -> None:
        """Give an actor all slots that it may fill, unless its process is still starting."""
        assert actor.index is not None
        if self._acting and actor.ready:
            slots = self._slots.lend(actor.index)
            actor.send(Fill(slots, self.orders.last_ordered))

    def _receive(self, timeout_seconds: float) -> None:
        """Take what the processes have sent; replace those that died or hang."""
        pipes: dict[Any, Worker] = {worker.channel.pipe: worker for worker in self.workers}
        for pipe in wait(list(pipes), timeout_seconds):
            worker = pipes[pipe]
            try:
                message = worker.receive()
            except PeerGoneError:
                self._replace(worker)
            else:
                self._handle(worker, message)
        for worker in self.workers:
            if self._supervisor.hangs(worker):
                self._replace(worker)

    def _handle(self, worker: Worker, message: Message) -> None:
        if worker.role == "actor":
            assert worker.index is not None
            if isinstance(message, Filled):
                self._slots.filled(worker.index, message.slot)
            else:  # it is ready
                self._lend(worker)
        elif worker.role == "learner":
            self._ranks.handle(worker, message)
        elif worker.role in PUBLISHING:
            self.publishing.handle(worker, message)
        elif isinstance(message, Measured):
            self._learner_return = message.learner_return

    def _replace(self, worker: Worker) -> None:
        """Put a new process in the place of `worker`'s; take back what that one held."""
        # Now, while the dead can still be asked; the learner's own seconds may be off the clock.
        self._cpu.note({worker.name: worker.pid for worker in self.workers})
        seconds = self.now + (perf_counter() - self._began if self._began else 0.0)
        replace = partial(self._supervisor.replace, worker, seconds=seconds)
        if worker.role == "actor":
            assert worker.index is not None
            slots = self._slots.reclaim(worker.index)
            replace(recovered=f"{slots} of its slots reclaimed")
        elif worker.role == "learner":
            replace(recovered=self._ranks.died())
        elif worker.role in PUBLISHING:
            replace(recovered=self.publishing.died(worker))
        else:
            replace(recovered="its measurement is repeated")

    def _measure(self) -> float | None:
        """Return J, measured by the evaluator; None when turned off."""
        evaluator = self._evaluator
        if evaluator is None:
            return None
        while self.publishing.reading:
            self._receive(timeout_seconds=1.0)
        self._blocks.weights.put(self.learner.updates, self.learner.policy)
        self._learner_return = None
        asked = -1  # restarts of the evaluator that was asked
        while self._learner_return is None:
            if evaluator.ready and asked != evaluator.restarts:
                evaluator.send(Measure())
                asked = evaluator.restarts
            self._receive(timeout_seconds=1.0)
        return self._learner_return

    def snapshot(self) -> Snapshot:
        """Return learner, compressor and counters; episodes in progress are not part of it."""
        publishing = self.publishing
        publishing.ask_state()
        while not publishing.is_known:
            self._receive(timeout_seconds=1.0)
        learner = self.learner.state_dict()
        self._safeguard.keep(learner)
        return {
            "now": self.now,
            "learner": learner,
            "publishing": publishing.state_dict(),
            "recorder": self.recorder.state_dict(),
            "ring": self._blocks.states.state_dict(),
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Go on learning from `snapshot` with new episodes; only before the first `advance`."""
        if self._started:
            raise RuntimeError("a process run can only be restored before it advances")
        self.now = snapshot["now"]
        self.learner.load_state_dict(snapshot["learner"])
        self._safeguard.keep(snapshot["learner"])
        self.publishing.load_state_dict(snapshot["publishing"])
        self.recorder.load_state_dict(snapshot["recorder"])
        self._blocks.states.load_state_dict(snapshot["ring"])

    def close(self) -> None:
        """See `InnerRun.close`."""
        if self._closed:
            return
        self._closed = True
        self._ranks.dissolve()
        for worker in self.workers:
            worker.hang_up()  # all at once, so that they end side by side
        for worker in self.workers:
            worker.end()
        self._supervisor.unpin()
        self._blocks.close()
        self._slab.close()
        self.publishing.pool.close()
