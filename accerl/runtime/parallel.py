"""ParallelRun: what runs share whose actors, compressor and evaluator work beside the learner."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.compress.compressor import Compressor
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.learner.learner import Learner, UpdateStats
from accerl.runtime.conditions import to_records
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.machine.usage import CpuMeter, memory_by_name
from accerl.runtime.parts import Parts, check_remade
from accerl.runtime.process.supervise import Supervised, Supervisor
from accerl.runtime.publishing.beside import Publishing
from accerl.runtime.publishing.delivery import Tag
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.run import IntervalReport, Snapshot
from accerl.runtime.safeguard import Safeguard
from accerl.runtime.slots import Slots
from accerl.runtime.stuck import Watch
from accerl.runtime.wiring import Wiring
from accerl.seeds import Role, number, torch_generator
from accerl.spec import IDENTITY, Decision

PUBLISHING = ("compressor", "distiller")
"""roles that make what actors act with"""
LOOK_SECONDS = 1.0
"""that the learner waits at most before it looks whether the run is to end, and who is stuck"""

W = TypeVar("W", bound=Supervised)
"""a process beside the learner's"""


class ParallelRun(ABC, Generic[W]):
    """An `InnerRun` on the real clock, whose learner works in this process and the rest beside it.

    Every actor owns a few slots and fills those that it is lent. The learner lends a slot again
    when it has used what was in it, so an actor that runs ahead waits by itself (back-pressure).

    A kind of run says how it starts, lends and receives, where a slot's rollout is found and what
    is done besides.
    """

    def __init__(
        self, config: RunConfig, *, supervisor: Supervisor | None, parts: Parts | None
    ) -> None:
        """Make the learner, and what the compressor begins with; start nothing."""
        self.config = config
        self._parts = parts = parts or Parts()
        runtime = config.runtime
        torch.set_num_threads(runtime.learner_threads)
        keep_freed_memory()
        with closing(make_envs(config.game, 1, config.env)) as probe:
            shown, actions = probe.observation, probe.num_actions
            first = probe.reset(number(config.seed, Role.FIRST_STATES))
        generator = torch_generator(config.seed, Role.LEARNER)
        observation = config.inputs(shown)
        policy = parts.make_policy(config, shown, actions, generator)
        check_remade(policy, config.network, torch_generator(config.seed, Role.LEARNER, 1))
        self.learner = Learner(
            policy, config.learner, generator, corrector=parts.corrector, sparse_monitoring=True
        )
        self._safeguard = Safeguard(self.learner, gradients=config.compression.needs_gradients)
        drawn = torch_generator(config.seed, Role.COMPRESSOR)
        self._compressor = Compressor(observation, actions, config.compression, drawn, parts.links)
        self._compressor.observe(first)
        self.num_actions = policy.num_actions
        self.recorder = IntervalRecorder(policy.num_actions)
        self.now = 0.0
        self._began = 0.0  # perf_counter when the clock was last started
        self._supervisor = supervisor or Supervisor()
        self._cpu = CpuMeter()
        on_gpu = self.learner.device.type != "cpu"
        self._wiring = wiring = Wiring.of(runtime, on_gpu=on_gpu)
        each = wiring.slots_each(runtime.queue_rollouts)
        most = config.conditions.most_actors(wiring.actors)
        self._slots = Slots(most, each, holds_back=runtime.hold_back, present=wiring.actors)
        self._shape = RolloutShape(
            unroll=config.learner.unroll,
            num_envs=runtime.num_envs,
            num_actions=policy.num_actions,
            observation=observation,
        )
        self._actors: list[W] = []  # made by the kind of run
        self._watch = Watch()
        self._started = False
        self._acting = False  # whether actors have been given slots
        self._closed = False

    def _watch_publishing(self) -> None:
        """Note who has something to finish, the compressor and distillers."""
        name, watch = self.publishing.worker.name, self._watch
        if self.publishing.is_working:
            watch.publications.lent(name)
        else:
            watch.publications.filled(name, has_more=False)
        for name, follows in self.publishing.following.items():
            (watch.distillations.lent if follows else watch.distillations.paused)(name)

    @property
    @abstractmethod
    def publishing(self) -> Publishing:
        """Whoever compresses."""

    @property
    def orders(self) -> PublicationOrders:
        """What was asked for and published."""
        return self.publishing.orders

    @property
    @abstractmethod
    def workers(self) -> Sequence[Supervised]:
        """Everything of this run that has a process of its own."""

    @property
    @abstractmethod
    def _is_published(self) -> bool:
        """Whether there is anything to act with."""

    @abstractmethod
    def _start_workers(self) -> None:
        """Start all workers; each gets ready by itself."""

    @abstractmethod
    def _have_filled(self, actor: W, slots: Sequence[int]) -> None:
        """Have an actor fill these slots, in order."""

    def _may_act(self, actor: W) -> bool:
        """Whether an actor is to act now."""
        return True

    def _lend(self, actor: W) -> None:
        """Have an actor fill all slots that it may fill, unless it is still starting."""
        assert actor.index is not None
        if self._acting and actor.ready and self._may_act(actor):
            slots = self._slots.lend(actor.index)
            if slots:
                self._have_filled(actor, slots)

    def _actor_settings(self, index: int, restarts: int) -> tuple[Any, ...]:
        """Return how an actor acts, and its seed.

        A resumed run must not replay the episodes it began with, nor a restarted actor those of
        the one that died.
        """
        runtime, updates = self.config.runtime, self.learner.updates
        seed = number(self.config.seed, Role.ACTOR, index, restarts, updates)
        return runtime.actor_threads, runtime.infer_batch, runtime.patience_seconds, seed

    @abstractmethod
    def _receive(self, timeout_seconds: float) -> None:
        """Take what the workers have sent; replace those that died or hang."""

    @abstractmethod
    def _rollout(self, slot: int) -> Rollout:
        """Return what is in a slot."""

    def _tag(self, slot: int, rollout: Rollout) -> Tag | None:
        """Return what acted in a slot's rollout; None where that was too long ago to be known."""
        return self.orders.tag(rollout.publication, rollout.spec_index)

    @abstractmethod
    def _learn(self, slot: int, rollout: Rollout, seconds: float) -> UpdateStats | None:
        """Improve the learner with a slot's rollout at that time; None if that failed."""

    @abstractmethod
    def _learned(self, slot: int, rollout: Rollout, stats: UpdateStats) -> None:
        """Show what students learn from: the rollout, and the learner's logits."""

    def _done(self, slot: int) -> None:
        """The learner needs a slot no more: lend it again, or another in its place."""
        self._lend_next(self._slots.owner(slot))

    def _lend_next(self, owner: int) -> None:
        """Lend what has become free, to its owner or whoever's turn it is."""
        for index in self._slots.next_after(owner):
            self._lend(self._actors[index])

    @abstractmethod
    def _measure(self) -> float | None:
        """Return J, measured by the evaluator; None when turned off."""

    @abstractmethod
    def _pids(self) -> dict[str, int]:
        """Return the processes on this machine by name, the learner's first."""

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`."""
        decision.check_students(self.config.network)
        self.orders.request(decision)

    def advance(self, seconds: float) -> IntervalReport:
        """See `InnerRun.advance`.

        Starting the workers is off the clock, publishing the first weights is on it. Between two
        calls (while J is measured or a checkpoint is written) the clock stands still: actors can
        fill no more than the slots they have, and nobody distils without a limit. A publication
        that is being made is made, and links carry what they have taken.

        Raises:
            UserError: workers keep dying, or one of them was asked for what cannot be.
        """
        if not self._started:
            self._start()
        self._safeguard.take()  # also where nobody takes snapshots
        self._cpu.forget({"learner": os.getpid()})
        self._began = perf_counter()
        noted, deadline = self._began, self._began + seconds
        while not self._is_published:
            self._publish_first()
        if not self._acting:
            self._acting = True
            self._follow_conditions()
            for actor in self._actors:
                self._lend(actor)
        while perf_counter() < deadline:
            self._parts.check_stop()
            self._turn(min(deadline, perf_counter() + self._follow_conditions()))
            if perf_counter() > noted + LOOK_SECONDS:  # a fork that dies can no longer be asked
                self._cpu.note(self._pids())
                noted = perf_counter()
        elapsed = perf_counter() - self._began
        self.now += elapsed
        self._began = 0.0
        self._cpu.note(self._pids())
        self.publishing.rest()
        self._watch_publishing()  # who was told to rest has nothing to finish
        learner_return = self._measure()
        decision = self.orders.decision
        assert decision is not None
        return self.recorder.report(
            seconds=elapsed,
            total_seconds=self.now,
            learner_return=learner_return,
            decision=decision,
            switch_seconds=self.orders.end_interval(),
            events=(
                *self._supervisor.take_events(),
                *self._safeguard.take_events(),
                *self.orders.take_events(self.now),
            ),
            conditions=to_records(self.config.conditions.under_way(self.now - elapsed, self.now)),
            memory=memory_by_name(self._pids()),
            cpu_seconds=self._cpu.take(),
        )

    def _follow_conditions(self) -> float:
        """Do what happens to the machine now; return in how many seconds something next changes."""
        return math.inf

    @property
    def _seconds(self) -> float:
        """The run's clock now."""
        return self.now + (perf_counter() - self._began if self._began else 0.0)

    def _start(self) -> None:
        """Start all workers and wait until each is ready."""
        if self.orders.decision is None:
            self.orders.request(Decision.of(IDENTITY))
        self._start_workers()
        while not all(worker.ready for worker in self.workers):
            self._wait_for_news()
        self._started = True
        self._cpu.forget(self._pids())
        self._cpu.take()

    def _publish_first(self) -> None:
        """Have the first weights published, or wait until they are."""
        self.publishing.publish()
        self._watch_publishing()
        if not self._is_published:
            self._wait_for_news()

    def _wait_for_news(self) -> None:
        """Wait for what workers have to say, for a second at most; end if the run is to."""
        self._parts.check_stop()
        self._receive(timeout_seconds=LOOK_SECONDS)

    def _turn(self, deadline: float) -> None:
        """Use one rollout, or wait for one until `deadline`, but not for long."""
        before = perf_counter()
        waited = not self._slots.waiting
        patience = min(max(deadline - before, 0.0), LOOK_SECONDS)
        self._receive(timeout_seconds=patience if waited else 0.0)
        if waited:
            self.recorder.add_seconds("wait", perf_counter() - before)
        if not self._slots.waiting:
            return
        slot = self._slots.take(waited=waited)
        behind = self._slots.waiting
        before = perf_counter()
        rollout = self._rollout(slot)
        if (tag := self._tag(slot, rollout)) is None:
            self._slots.done(slot)
            self._done(slot)
            return
        lag = self.learner.updates - tag.version
        stats = self._learn(slot, rollout, self.now + perf_counter() - self._began)
        if stats is not None:
            fill = min(behind / max(self.config.runtime.queue_rollouts, 1), 1.0)
            self.recorder.add_rollout(rollout, tag.spec, stats, lag=lag, queue_fill=fill)
            self._learned(slot, rollout, stats)
        self.recorder.add_seconds("learn", perf_counter() - before)
        if stats is not None:
            self._receive(timeout_seconds=0.0)  # whoever has finished meanwhile gets work now
            self.publishing.after_update(rollout)
            self._watch_publishing()
        self._slots.done(slot)
        self._done(slot)

    def _know_publishing(self) -> dict[str, Any]:
        """Return the state of who compresses, when it is known."""
        self.publishing.ask_state()
        self._watch_publishing()
        while not self.publishing.is_known:
            self._wait_for_news()
        return self.publishing.state_dict()

    def snapshot(self) -> Snapshot:
        """Return learner, compressor and counters; episodes in progress are not part of it."""
        publishing = self._know_publishing()
        learner = self._safeguard.take()
        return {
            "now": self.now,
            "learner": learner,
            "publishing": publishing,
            "recorder": self.recorder.state_dict(),
            "set_back_at": self._safeguard.set_back_at,
        }

    def restore(self, snapshot: Snapshot) -> None:
        """Go on learning from `snapshot` with new episodes; only before the first `advance`."""
        if self._started:
            raise RuntimeError("a run on the real clock can only be restored before it advances")
        self.now = snapshot["now"]
        self.learner.load_state_dict(snapshot["learner"])
        self._safeguard.set_back_at = snapshot["set_back_at"]
        self.publishing.load_state_dict(snapshot["publishing"])
        self.recorder.load_state_dict(snapshot["recorder"])

    @abstractmethod
    def close(self) -> None:
        """See `InnerRun.close`."""
