"""Data-parallel learning: processes that learn beside the learner's, from shares of its rollouts.

The learner's process is rank 0 of a group and owns everything; the others hold copies of its
weights and optimiser, which they get when the group forms and keep equal by making equal steps.
When one of them ends, or does not answer, the group dissolves and the learner goes on alone, which
is slower and otherwise the same. When all are ready (again), the group forms anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from accerl.acting.rollout import Slab
from accerl.config import RunConfig
from accerl.correct import CorrectorChain
from accerl.learner.config import LearnerConfig
from accerl.learner.group import (
    TIMEOUT_SECONDS,
    GlooGroup,
    GroupBrokenError,
    LearnerGroup,
    find_store,
    open_store,
    translating_failures,
)
from accerl.learner.learner import Learner, UpdateStats
from accerl.networks.observation import ObservationSpec
from accerl.runtime.machine.memory import keep_freed_memory
from accerl.runtime.process.messages import Join, Joining, Learn, Leave, Message, Ready
from accerl.runtime.process.roles import empty_policy
from accerl.runtime.process.supervise import Supervisor, Worker
from accerl.runtime.process.wire import Channel, PeerGoneError
from accerl.runtime.wiring import Wiring


class LearnerRanks:
    """Ranks 1 and up of the learner's group as rank 0 sees them; there may be none.

    Their pipes carry slot numbers and, when the group forms, the learner's state.
    """

    def __init__(self, learner: Learner, workers: Sequence[Worker], supervisor: Supervisor) -> None:
        self.workers = list(workers)
        self.formed = False
        """whether they learn along"""
        self._learner = learner
        self._supervisor = supervisor

    def handle(self, worker: Worker, message: Message) -> None:
        """Take a message of one of them; when the last gets ready, the group forms."""
        if isinstance(message, Ready):
            self.dissolve(left=worker)
            if all(worker.ready for worker in self.workers):
                self._form()

    def update(self, slot: int, update: Callable[[], UpdateStats | None]) -> UpdateStats | None:
        """Have everybody learn from a slot; None if that failed: the rollout is spent.

        When it returns nobody reads the slot, but for ranks whose group is broken: what they make
        of it is thrown away. Then steps on some minibatches may have been taken, all of them whole.

        Args:
            slot: what to learn from.
            update: has the learner learn from it; None if that failed and its state was replaced.
        """
        if self.formed:
            self._send(Learn(slot))
        try:
            with translating_failures():
                stats = update()
        except GroupBrokenError:
            stats = None
        if stats is None:
            self.dissolve()
        elif self.formed:
            for worker in self.workers:
                self._supervisor.worked(worker)
        return stats

    def died(self) -> str:
        """One of their processes has ended; return what was done about it."""
        self.dissolve()
        return "the learner goes on alone until it is ready"

    def dissolve(self, left: Worker | None = None) -> None:
        """Let the learner go on alone; the others, but who has `left` already, get ready again."""
        if self.formed:
            self.formed = False
            self._learner.join(LearnerGroup())
            self._dismiss([worker for worker in self.workers if worker is not left])

    def _form(self) -> None:
        """Give all ranks the learner's state and form the group, if all answer."""
        size = 1 + len(self.workers)
        store = open_store(size)
        self._send(Join(store.port, size, self._learner.state_dict()))
        # Only now wait in the group's constructor, where nobody notices deaths.
        if not all(_answers(worker) for worker in self.workers):
            self._dismiss(self.workers)
            return
        try:
            group = GlooGroup(store, 0, size)
        except GroupBrokenError:
            self._dismiss(self.workers)
            return
        self._learner.join(group)
        self.formed = True

    def _dismiss(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.send(Leave())
            self._supervisor.await_ready(worker)

    def _send(self, message: Message) -> None:
        for worker in self.workers:
            worker.send(message)


def _answers(worker: Worker) -> bool:
    """Whether a process that was sent the state has taken it, and not died of it."""
    try:
        return worker.channel.pipe.poll(TIMEOUT_SECONDS) and isinstance(worker.receive(), Joining)
    except PeerGoneError:
        return False


def learner_ranks(
    config: RunConfig, wiring: Wiring, learner: Learner, slab: Slab, supervisor: Supervisor
) -> LearnerRanks:
    """Return the processes that learn beside `learner` from `slab`, which are not started yet."""
    policy, threads = learner.policy, config.runtime.learner_threads

    def rank(index: int) -> Worker:
        network = (config.network, policy.observation, policy.num_actions)
        arguments = (index, *network, config.learner, learner.corrector, slab.handle(), threads)
        return Worker("learner", index, learn_shares, lambda _: arguments)

    workers = [rank(index) for index in range(1, wiring.learners)]
    return LearnerRanks(learner, workers, supervisor)


def learn_shares(
    channel: Channel,
    rank: int,
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    config: LearnerConfig,
    corrector: CorrectorChain,
    slab_handle: dict[str, Any],
    threads: int,
) -> None:
    """Body of a rank's process: learn from this rank's share of one slot after the other.

    The messages, in order: this process is `Ready`; asked to `Join`, it takes the state and says
    that it is `Joining`; it is sent the slots to `Learn` from, until it is to `Leave`. Then, and
    when the group is broken or a loss is not finite, it is `Ready` again.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()
    policy = empty_policy(network, observation, num_actions)
    learner = Learner(policy, config, corrector=corrector, sparse_monitoring=True)
    slab = Slab(**slab_handle)
    try:
        while True:
            channel.send(Ready())
            while not isinstance(join := channel.receive(), Join):
                pass  # said to a group that this process has left already
            with suppress(GroupBrokenError, FloatingPointError), translating_failures():
                learner.load_state_dict(join.state)
                channel.send(Joining())
                learner.join(GlooGroup(find_store(join.port, join.size), rank, join.size))
                while isinstance(message := channel.receive(), Learn):
                    learner.update(slab[message.slot])
            learner.join(LearnerGroup())
    finally:
        slab.close()
