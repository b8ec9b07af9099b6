"""RemotePublishing: the compressor's process as the learner's process sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from time import perf_counter
from typing import Any

from accerl.acting.rollout import Rollout
from accerl.compress.compressor import Compressor
from accerl.compress.links import Link
from accerl.config import RunConfig
from accerl.learner.learner import Learner
from accerl.networks.graph_policy import count_macs
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.process.blocks import SharedBlocks, board_bytes, network_of
from accerl.runtime.process.board import Board
from accerl.runtime.process.distillers import DistillerPool, DistillerProcess
from accerl.runtime.process.messages import (
    AskState,
    Distil,
    Distilled,
    Done,
    Hello,
    Message,
    Publish,
    Ready,
    Shadowed,
    State,
    Taken,
)
from accerl.runtime.process.roles import compress_weights, distill_repeatedly
from accerl.runtime.process.shaped_pipe import ShapedPipe
from accerl.runtime.process.supervise import Worker
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.delivery import Order, Tag
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import sample_states
from accerl.runtime.wiring import Wiring


class RemotePublishing:
    """Has the compressor's process do the work; the learner copies its weights and goes on.

    One publication is under way at most. Whatever the learner would like to have published
    meanwhile waits for its next update: nothing queues, so what is published is never older than
    one publication. Students, their optimisers and the recorded states live in that process. This
    one keeps their last `state_dict`: a compressor that takes the place of one that was killed goes
    on from there, and loses what was distilled since. It is asked for at every snapshot, which does
    not wait for a publication that is under way, as the clock stands still: then the state comes
    after that one, and the snapshot holds the one before.
    """

    def __init__(
        self,
        orders: PublicationOrders,
        compressor: Compressor,
        worker: Worker,
        learner: Learner,
        recorder: IntervalRecorder,
        *,
        blocks: SharedBlocks,
        pool: DistillerPool,
    ) -> None:
        self.orders = orders
        self.worker = worker
        self.idle = False
        """whether it is ready and no order is under way, nor what comes after it"""
        self.reading = False
        """whether it may still be copying weights or states out of shared memory"""
        self.pool = pool
        self._config = compressor.config
        self._known = compressor.state_dict()
        self._known_update = 0
        self._worked = False  # whether the process may hold more than `_known`
        self._asked = False  # whether its state is on its way
        self._asks_next = False  # whether it is asked for its state once it is idle
        self._has_told = False  # whether it has ever said what it holds
        self._charges: tuple[Charge, ...] = ()  # what it was told to distil
        self._wants_weights = True  # whether it has read the learner's since they were last shown
        self._order: Order | None = None
        self._learner = learner
        self._recorder = recorder
        self._weights = blocks.weights
        self._samples = blocks.samples
        self._mailbox = blocks.mailbox
        self._found = -1  # number of the last publication that was looked for there

    def tag(self, publication: int, spec_index: int) -> Tag | None:
        """Return what acted in a rollout, see `PublicationOrders.tag`.

        Actors may be done with it before its delivery arrives; then the mailbox says what they
        found there, which need not be what was ordered.
        """
        if self._order is not None and publication == self._order.number:
            self._look()
        return self.orders.tag(publication, spec_index)

    def _look(self) -> None:
        """Note what the order that is under way has become, if actors can see it already."""
        number = -1 if self._order is None else self._order.number
        if self._found < number == self._mailbox.latest:
            self._found = number
            self.orders.found(self._mailbox.get())

    def after_update(self, rollout: Rollout) -> None:
        """Record states; show the weights to whoever wants them; publish if that is due."""
        in_use = self.orders.in_use
        self._samples.add(sample_states(rollout, self._config))
        if not self.reading:
            self.pool.after_update(in_use, self._put_weights)
        charges = self.pool.led.charges.left_to_compressor(in_use)
        if self.idle and self.orders.is_due(self._learner.updates):
            self._send()
        elif charges and self._wants_weights and not self.reading:
            self._put_weights()
        if charges != self._charges and self.worker.ready:
            self._charges, self._worked = charges, True
            self.worker.send(Distil(charges))

    def rest(self) -> None:
        """See `Publishing.rest`."""
        if self._config.distill_updates:
            return
        self.pool.rest()
        if self._charges and self.worker.ready:
            self._charges = ()
            self.worker.send(Distil(()))

    def publish(self) -> None:
        """Order a publication of the learner's weights, if the compressor has nothing to do."""
        if self.idle:
            self._send()

    def _send(self) -> None:
        before = perf_counter()
        self._put_weights()
        self._order = self.orders.order(self._learner.updates)
        self.idle, self.reading, self._worked = False, True, True
        self.worker.send(Publish(self._samples.lend(), self._order))
        self._recorder.add_seconds("publish", perf_counter() - before)

    def _put_weights(self) -> None:
        if self._weights.latest != self._learner.updates:
            self._weights.put(self._learner.updates, self._learner.policy)
        self._wants_weights = False

    def handle(self, worker: Worker, message: Message) -> None:
        """Take a message of the compressor's process, or of a distiller's."""
        if isinstance(message, Distilled):
            self._recorder.add_seconds("compress", message.seconds)
            self._recorder.add_distillation(message.updates, message.cpu_seconds)
        if worker is not self.worker:
            self.pool.handle(worker, message, self._known)
            return
        match message:
            case Hello():
                self.worker.send(State(self.pool.led.merged(self._known)))
            case Ready():
                self.idle, self._charges = True, ()
            case Taken():
                self._returned()
            case State(state):
                self._known, self._asked, self._has_told = state, False, True
                self._known_update = self._learner.updates
            case Distilled():
                self._wants_weights = True
            case Done(delivery):
                self.idle = delivery.order.shadow is None
                self._order = None
                self._recorder.add_seconds("publish", delivery.seconds)
                self.orders.book(delivery, self._recorder, by=self.worker.name)
            case Shadowed(shadow):
                self.idle = True
                self._recorder.add_seconds("compress", shadow.seconds)
                self.orders.book_shadow(shadow, self._recorder)
        if self.idle and self._asks_next:
            self._ask()

    def died(self, worker: Worker) -> str:
        """The compressor's process has ended, or a distiller's; return what was done about it."""
        if worker is not self.worker:
            return self.pool.died(worker)
        self.idle, self._worked, self._asked, self._asks_next = False, False, False, False
        self._wants_weights = True
        self._returned()
        if self._order is not None:
            self._look()
            self._order = None
            self.orders.lost()
        return f"with the students of update {self._known_update}"

    def _returned(self) -> None:
        self.reading = False
        self._samples.returned()

    @property
    def is_working(self) -> bool:
        """Whether an order is under way, or what comes after it, or its state was asked for."""
        return self.worker.ready and (not self.idle or self._asked)

    @property
    def following(self) -> dict[str, bool]:
        """Which distillers, by name, have been shown weights and not said that they took them."""
        return {each.worker.name: each.follows for each in self.pool.distillers}

    @property
    def is_known(self) -> bool:
        """Whether `state_dict` would be up to date."""
        return not self._asked and self.pool.led.is_known

    def ask_state(self) -> None:
        """Ask the processes for their state; the compressor later, if it is at a publication."""
        if self._worked and self.worker.ready and not self._asked:
            if self.idle or not self._has_told:
                self._ask()
            else:
                self._asks_next = True
        self.pool.ask_state()

    def _ask(self) -> None:
        self._asked, self._asks_next = True, False
        self.worker.send(AskState())

    @property
    def workers(self) -> list[Worker]:
        """The compressor's process and the distillers'."""
        return [self.worker, *self.pool.workers]

    def state_dict(self) -> dict[str, Any]:
        """Return orders, and the compressor's state as it was last known."""
        return {"orders": self.orders.state_dict(), "compressor": self.pool.led.merged(self._known)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`; only before the process starts."""
        self._known, self._known_update = state["compressor"], self._learner.updates
        self.pool.led.lead(entry["student"] for entry in self._known["students"])
        self.orders.load_state_dict(state["orders"])
        if self.orders.is_under_way:
            self.orders.lost()


def make_publishing(
    config: RunConfig,
    links: Sequence[Link],
    wiring: Wiring,
    samples: int,
    compressor: Compressor,
    learner: Learner,
    recorder: IntervalRecorder,
    blocks: SharedBlocks,
    clock: Callable[[], float],
    pipe: ShapedPipe | None,
) -> RemotePublishing:
    """Return the compressor's process and the distillers', not started yet.

    Args:
        config: of the run.
        links: of the user's own.
        wiring: how many distillers there are.
        samples: of a rollout.
        compressor: what the process begins with.
        learner: whose weights are compressed.
        recorder: of the run.
        blocks: the run's shared memory.
        clock: returns the run's seconds.
        pipe: that publications pass; None: they need not travel.
    """
    network, compression = network_of(config, learner.policy), config.compression
    device = learner.device.type  # students learn where the learner does
    shared = (blocks.weights.handle(), blocks.states.handle())
    with ExitStack() as stack:  # lets go of the boards if what comes after them fails
        size = board_bytes(learner.policy)
        boards = [stack.enter_context(closing(Board(size))) for _ in range(wiring.distillers)]
        board_handles = [board.handle() for board in boards]
        found = []
        for index, board in enumerate(boards):
            given = (*network, compression, device, *shared, board_handles, index)
            worker = Worker(
                "distiller", index, distill_repeatedly, lambda n, given=given: (*given, n)
            )
            found.append(DistillerProcess(worker, board))
        handles = (*shared, blocks.samples.handle(), blocks.mailbox.handle())
        passed = (None if pipe is None else pipe.handle(), wiring.actors)
        arguments = (*network, compression, device, links, *handles, board_handles, *passed)
        check_every = KLProbe.check_every(samples, count_macs(learner.policy))
        publishing = RemotePublishing(
            PublicationOrders(config.runtime.publish_every, check_every, clock),
            compressor,
            Worker("compressor", None, compress_weights, lambda _: arguments),
            learner,
            recorder,
            blocks=blocks,
            pool=DistillerPool(
                found, compression.distill_updates, follow_idle=not wiring.is_crowded
            ),
        )
        stack.pop_all()
    return publishing
