"""Serial runtime: the parallel pipeline as a discrete-event model in one deterministic process.

Everything is real (environments, engines, learner, compressor, distillers); only the clock is
modelled. Each process of the asynchronous pipeline is a server (`servers`): NA actors, ND
distillers, the compressor and the learner, which share the cores of the machine. What a server
does is computed with the weights that it has when it begins, and seen by the others when its
seconds have passed, so the policy lag comes from the schedule, and learning feels it. Slots,
patience and publishing follow the rules of the process runtime.

What `RunConfig.conditions` says happens to the machine at that very moment of the clock. An actor
that leaves loses the rollout in progress; it begins that slot again, with the newest weights, when
it joins. Those with the highest numbers leave first.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from functools import partial
from time import perf_counter
from typing import Any

import torch

from accerl.acting.actor import Actor
from accerl.acting.evaluate import Evaluator
from accerl.acting.rollout import ACTING_SECONDS, CORE_SECONDS, Rollout, RolloutShape
from accerl.compress.compressor import FIRST_STATES, Compressor
from accerl.compress.distillation.state_ring import StateRing, kept_states
from accerl.config import RunConfig
from accerl.learner.learner import Learner
from accerl.networks.graph_policy import count_macs
from accerl.runtime.conditions import ACTORS, to_records
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.machine.usage import CpuMeter, memory_by_name
from accerl.runtime.parts import Parts
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.run import IntervalReport, Snapshot
from accerl.runtime.safeguard import Safeguard
from accerl.runtime.serial.actors import Lent, ModelledActor, actor_name
from accerl.runtime.serial.clock import ActSeconds, Clock, RealClock
from accerl.runtime.serial.modelled import LEARNER, ModelledPublishing
from accerl.runtime.serial.servers import Servers
from accerl.runtime.serial.uplinks import Uplinks
from accerl.runtime.slots import Slots
from accerl.runtime.wiring import UPLINK
from accerl.seeds import Role, torch_generator
from accerl.spec import IDENTITY, Decision


class SerialRun:
    """An `InnerRun` in this process, bit-identical for equal (config, seed) on a virtual clock."""

    def __init__(self, config: RunConfig, clock: Clock, *, parts: Parts | None = None) -> None:
        self.config = config
        self.clock = clock
        with ExitStack() as stack:  # closes the environments if what comes after them fails
            self._set_up(parts or Parts(), stack)
            self._held = stack.pop_all()

    def _set_up(self, parts: Parts, stack: ExitStack) -> None:
        config, clock, runtime = self.config, self.clock, self.config.runtime
        # Sums depend on how they are split: another number of threads is another run.
        torch.set_num_threads(runtime.learner_threads)
        keep_freed_memory()
        wiring = clock.wiring(runtime)
        names = wiring.process_names(config.conditions)  # before there is anything to close
        generator = torch_generator(config.seed, Role.LEARNER)
        most = config.conditions.most_actors(wiring.actors)
        make_actor = partial(ModelledActor.of, config)
        self._actors = [stack.enter_context(closing(make_actor(i))) for i in range(most)]
        envs = self.actors[0].envs
        observation = config.inputs(envs.observation)
        policy = parts.make_policy(config, envs.observation, envs.num_actions, generator)
        # A virtual clock does not see what measuring costs, and has few updates in an interval.
        self._measures = real = isinstance(clock, RealClock)
        self.learner = Learner(
            policy, config.learner, generator, corrector=parts.corrector, sparse_monitoring=real
        )
        self._safeguard = Safeguard(self.learner, gradients=config.compression.needs_gradients)
        samples = config.learner.unroll * runtime.num_envs
        kept = kept_states(observation, config.compression.distill_states, samples)
        self._ring = StateRing(observation, envs.num_actions, kept)

        def make_compressor(generator: torch.Generator) -> Compressor:
            shape = observation, envs.num_actions
            compressor = Compressor(*shape, config.compression, generator, parts.links, self._ring)
            compressor.observe(self.actors[0].obs[:FIRST_STATES])
            return compressor

        compressor = make_compressor(torch_generator(config.seed, Role.COMPRESSOR))
        check_every = KLProbe.check_every(samples, count_macs(policy))
        self.orders = PublicationOrders(runtime.publish_every, check_every, lambda: self.now)
        evaluator = Evaluator(config.game, runtime.eval_episodes, config.env)
        self.evaluator = stack.enter_context(closing(evaluator))
        self.num_actions = envs.num_actions
        self.recorder = IntervalRecorder(envs.num_actions, times_itself=real)
        self.servers = Servers(names, wiring.cores, config.conditions, wiring.gpu_core)
        self._wiring = wiring
        self._uplinks = Uplinks(self.servers, wiring.hosts)
        self._own_actors = wiring.actors
        self._present = len(self._actors)  # how many act; set when the run starts
        self.publishing = ModelledPublishing(
            self.orders,
            compressor,
            [
                make_compressor(torch_generator(config.seed, Role.DISTILLER, index))
                for index in range(wiring.distillers)
            ],
            self.learner,
            self.recorder,
            clock,
            self.servers,
            wiring,
        )
        self.shape = RolloutShape.of(envs, config.learner.unroll)
        each = wiring.slots_each(runtime.queue_rollouts)
        self._slots = Slots(
            len(self._actors), each, holds_back=runtime.hold_back, present=self._own_actors
        )
        self._rollouts = [Rollout.allocate(self.shape) for _ in range(len(self._slots))]
        self._task = ""  # what the learner is doing: learn, copy or compress
        self._slot: int | None = None  # what it learns from
        self._learned = False  # whether that went well
        self._fill = 0.0  # how full the queue was when it was taken
        self._idle_since = 0.0
        self._started = False
        # A virtual clock's reports are equal on every machine; what this one uses is not.
        self._pids = {"learner": os.getpid()} if real else {}
        self._cpu = CpuMeter()

    @property
    def actors(self) -> list[Actor]:
        """The actors; on the profile's machine several processes may stand behind each."""
        return [modelled.actor for modelled in self._actors]

    @property
    def now(self) -> float:
        """Seconds of its clock."""
        return self.servers.now

    def apply(self, decision: Decision) -> None:
        """See `InnerRun.apply`."""
        decision.check_students(self.config.network)
        self.orders.request(decision)

    def advance(self, seconds: float) -> IntervalReport:
        """See `InnerRun.advance`."""
        self._cpu.forget(self._pids)
        if not self._started:
            self._start()
        self._safeguard.take()  # also where nobody takes snapshots
        end = self.now + seconds
        while self.now < end:
            self._advance(min(end, self.config.conditions.next_change(self.now, ACTORS)))
            self._come_and_go()
        if self.servers.is_idle(LEARNER):
            self.recorder.add_seconds("wait", end - self._idle_since)
            self._idle_since = end
        self._cpu.note(self._pids)
        decision = self.orders.decision
        assert decision is not None
        used = self._cpu.take() if self._measures else self.servers.take_processor_seconds()
        return self.recorder.report(
            seconds=seconds,
            total_seconds=end,
            conditions=to_records(self.config.conditions.under_way(end - seconds, end)),
            learner_return=self.evaluator.measure(self.learner.policy),
            decision=decision,
            switch_seconds=self.orders.end_interval(),
            events=(*self._safeguard.take_events(), *self.orders.take_events(end)),
            memory=memory_by_name(self._pids),
            cpu_seconds=used,
        )

    def _advance(self, end: float) -> None:
        """Run until that time of the clock."""
        while (event := self.servers.advance(end)) is not None:
            server, took = event
            if server.startswith("actor"):
                self._actor_finished(int(server.rpartition("-")[2]), took)
            elif server.startswith(UPLINK):
                slot = self._uplinks.sent(server)
                self._slots.filled(self._slots.owner(slot), slot)
            elif server == LEARNER:
                self._learner_finished(took)
            elif self.publishing.finished(server, took):
                self._delivered()
            self._learn()

    def _come_and_go(self) -> None:
        """Have actors leave or join if their number is another now."""
        wanted = self.config.conditions.at(self.now).actors or self._own_actors
        before, self._present = self._present, wanted
        for index in range(wanted, before):
            self._slots.leave(index)
            modelled = self._actors[index]
            self.servers.stop(actor_name(index))
            if modelled.filling is not None:
                modelled.inbox.insert(0, Lent([modelled.filling], -1))
                modelled.filling = None
        for index in range(before, wanted):
            self._slots.join(index)
            self._act(index)
        if self._slots.holds_back and self.publishing.current is not None:
            self._lend_next(0)  # what those held who left

    def _start(self) -> None:
        """Have the first weights published; only then can actors begin."""
        if self.orders.decision is None:
            self.orders.request(Decision.of(IDENTITY))
        self._started = True
        self._come_and_go()
        self._copy()

    def _copy(self) -> None:
        """Have the learner copy its weights for whoever compresses."""
        self._task = "copy"
        self.servers.work(LEARNER, self.clock.copy())

    def _learn(self) -> None:
        """Have the learner use the rollout that has waited longest, if both are there."""
        if not (self._slots.waiting and self.servers.is_idle(LEARNER)):
            return
        self.recorder.add_seconds("wait", self.now - self._idle_since)
        self._slot = self._slots.take(waited=self.now > self._idle_since)
        self._fill = min(self._slots.waiting / max(self.config.runtime.queue_rollouts, 1), 1.0)
        samples = self.shape.samples * self.config.learner.reuse
        before = perf_counter()
        if self._measures:  # a real clock charges what it took
            self._update(self._slot)
        seconds = self.clock.learn(samples, perf_counter() - before)
        self._task = "learn"
        self.servers.work(LEARNER, seconds, on_gpu=self._wiring.on_gpu)

    def _update(self, slot: int) -> None:
        """Update the learner.

        On a virtual clock that is computed when its seconds have passed, so that J at the end of
        an interval knows nothing of an update that is under way; nobody else reads the weights.
        """
        rollout = self._rollouts[slot]
        self._learned = False
        if (tag := self.orders.tag(rollout.publication, rollout.spec_index)) is None:
            return
        lag = self.learner.updates - tag.version
        stats = self._safeguard.update(rollout, seconds=self.now)
        self._learned = stats is not None
        if stats is not None:
            self.recorder.add_rollout(rollout, tag.spec, stats, lag=lag, queue_fill=self._fill)
            self.publishing.observe(rollout)
            self._ring.add(rollout.obs[:-1], stats.logits.numpy(), self.learner.updates - 1)

    def _learner_finished(self, seconds: float) -> None:
        """The learner learns, copies its weights if somebody needs them, and lends the slot."""
        task = self._task
        if task == "learn" and not self._measures and self._slot is not None:
            self._update(self._slot)
        if task == "compress":
            if self.publishing.finished(LEARNER, seconds):
                self._delivered()
        else:
            self.recorder.add_seconds("publish" if task == "copy" else "learn", seconds)
        if task == "learn" and self._learned and self.publishing.has_work():
            self._copy()
            return
        if task == "copy":
            self._task = "compress"
            self.publishing.begin()
        if self.servers.is_idle(LEARNER):
            self._idle_since = self.now
            if self._slot is not None:
                self._slots.done(self._slot)
                owner, self._slot = self._slots.owner(self._slot), None
                self._lend_next(owner)

    def _delivered(self) -> None:
        """A publication is there, or not needed: who waited for it goes on, at first everybody."""
        for index, modelled in enumerate(self._actors):
            if modelled.actor.publication_number < 0 and not modelled.inbox:
                self._lend(index)
                continue
            waits = modelled.inbox and modelled.filling is None
            if waits and self.publishing.settled >= modelled.inbox[0].publication:
                self.servers.stop(actor_name(index))
                self._act(index)

    def _lend_next(self, owner: int) -> None:
        """Lend what has become free, to its owner or whoever's turn it is."""
        for index in self._slots.next_after(owner):
            self._lend(index)

    def _lend(self, index: int) -> None:
        """Lend an actor the slots that it may fill, and name what is about to be published."""
        slots = self._slots.lend(index)
        if slots:
            self._actors[index].inbox.append(Lent(slots, self.orders.last_ordered))
            self._act(index)

    def _act(self, index: int) -> None:
        """Fill the next slot if there is one, or wait for weights on their way."""
        modelled, server = self._actors[index], actor_name(index)
        present = index < self._present
        if not (present and modelled.inbox and self.servers.is_idle(server)):
            return
        lent = modelled.inbox[0]
        patience = self.config.runtime.patience_seconds
        if self.publishing.settled < lent.publication and not lent.waited and patience:
            lent.waited = True
            self.servers.pause(server, patience)
            return
        slot = lent.slots.pop(0)
        if not lent.slots:
            modelled.inbox.pop(0)
        load_seconds = self._load_newest(modelled.actor)
        rollout = self._rollouts[slot]
        modelled.actor.collect(rollout)
        tag = self.orders.tag(rollout.publication, rollout.spec_index)
        assert tag is not None  # it has just been loaded
        steps, envs = rollout.action.shape
        measured = ActSeconds(*map(float, rollout.header[ACTING_SECONDS]))
        rollout.header[ACTING_SECONDS] = charged = self.clock.act(tag.spec, steps, envs, measured)
        if not self._measures:
            rollout.header[CORE_SECONDS] = sum(charged)
        modelled.filling, modelled.charged = slot, load_seconds + sum(charged)
        self.servers.work(server, modelled.charged, cores=self._wiring.group_cores)

    def _load_newest(self, actor: Actor) -> float:
        """Have an actor act with the newest publication; return the seconds to be charged."""
        newest = self.publishing.current
        assert newest is not None
        if actor.publication_number == newest.number:
            return 0.0
        before = perf_counter()
        actor.load(newest)
        each = (perf_counter() - before) / len(newest.artifacts)
        return sum(self.clock.load(artifact.spec, each) for artifact in newest.artifacts)

    def _actor_finished(self, index: int, seconds: float) -> None:
        """An actor has filled its slot, or its patience has ended."""
        modelled = self._actors[index]
        if modelled.filling is not None:
            # It took longer than it was charged if it had to share its core.
            slower = seconds / modelled.charged if modelled.charged else 1.0
            self._rollouts[modelled.filling].header[ACTING_SECONDS] *= slower
            if self._wiring.hosts:
                seconds = self.clock.upload(self.shape.samples)
                self._uplinks.send(index, modelled.filling, seconds)
            else:
                self._slots.filled(index, modelled.filling)
            modelled.filling = None
        self._act(index)

    @property
    def _stateful(self) -> dict[str, Any]:
        """What keeps a state of its own, besides learner, actors and rollouts."""
        own = {"servers": self.servers, "publishing": self.publishing, "recorder": self.recorder}
        return {**own, "ring": self._ring, "slots": self._slots, "uplinks": self._uplinks}

    def snapshot(self) -> Snapshot:
        """See `InnerRun.snapshot`."""
        learner = self._safeguard.take()
        return {
            "started": self._started,
            "present": self._present,
            "learner": learner,
            "task": self._task,
            "slot": self._slot,
            "learned": self._learned,
            "fill": self._fill,
            "set_back_at": self._safeguard.set_back_at,
            "idle_since": self._idle_since,
            "actors": [modelled.state_dict() for modelled in self._actors],
            **{name: part.state_dict() for name, part in self._stateful.items()},
            "rollouts": [rollout.copy().state_dict() for rollout in self._rollouts],
        }

    def restore(self, snapshot: Snapshot) -> None:
        """See `InnerRun.restore`."""
        self._started, self._present = snapshot["started"], snapshot["present"]
        self.learner.load_state_dict(snapshot["learner"])
        self._task, self._slot = snapshot["task"], snapshot["slot"]
        self._learned, self._fill = snapshot["learned"], snapshot["fill"]
        self._safeguard.set_back_at = snapshot["set_back_at"]
        self._idle_since = snapshot["idle_since"]
        for name, part in self._stateful.items():
            part.load_state_dict(snapshot[name])
        for modelled, state in zip(self._actors, snapshot["actors"], strict=True):
            modelled.load_state_dict(state)
        for rollout, state in zip(self._rollouts, snapshot["rollouts"], strict=True):
            for name, array in rollout.state_dict().items():
                array[:] = state[name]

    def close(self) -> None:
        """See `InnerRun.close`."""
        self._held.close()  # all of it, whatever one raises
