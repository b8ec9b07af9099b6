"""The compressor's and the distillers' processes of a serial run, as servers on its clock.

A piece of work is done when it begins, with weights and states as they are then, and what it made
is shown when its seconds have passed. The rules are those of the process runtime: one piece of
work at a time, and what is wanted meanwhile waits for the next update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from accerl.compress.compressor import Compressor
from accerl.learner.learner import Learner
from accerl.rollout import Rollout
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.charges import Charges
from accerl.runtime.publishing.delivery import Delivery, Order
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import (
    MadePart,
    distill_students,
    make_publication,
    sample_states,
)
from accerl.runtime.serial.clock import Clock
from accerl.runtime.serial.servers import Servers
from accerl.runtime.wiring import Wiring
from accerl.spec import CompressionSpec, StudentKey
from accerl.weights import Publication, publication_from_state, publication_state

COMPRESSOR = "compressor"
LEARNER = "learner"


def distiller_name(index: int) -> str:
    """Return the name of a distiller's server."""
    return f"distiller-{index}"


@dataclass
class _Job:
    """What the compressor is doing; what it made waits here until it is shown."""

    distill_seconds: float
    """core-seconds of keeping students close"""
    publish_seconds: float = 0.0
    """core-seconds, of warming students up too"""
    send_seconds: float = 0.0
    delivery: Delivery | None = None
    """what becomes of the order; None: it only distils"""
    publication: Publication | None = None
    """None if it would act as what acts already"""
    sending: bool = False
    published_seconds: float = 0.0
    """what publishing has taken on the clock, so far"""

    def to_json(self) -> dict[str, Any]:
        """Return the job as a tree for a snapshot."""
        delivery = None if self.delivery is None else self.delivery.to_json()
        publication = publication_state(self.publication)
        return {**vars(self), "delivery": delivery, "publication": publication}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> _Job:
        """Read a job written by `to_json`."""
        delivery = None if data["delivery"] is None else Delivery.from_json(data["delivery"])
        publication = publication_from_state(data["publication"])
        return cls(**{**data, "delivery": delivery, "publication": publication})


class ModelledPublishing:
    """Publications and students, made on the servers of a run.

    Args:
        orders: of the run.
        compressor: does the work.
        distillers: one compressor for each of `wiring.distillers`, which only distils.
        learner: whose weights are compressed.
        recorder: books what was published and what it took.
        clock: says what it takes.
        servers: the run's.
        wiring: which processes there are.
    """

    def __init__(
        self,
        orders: PublicationOrders,
        compressor: Compressor,
        distillers: Sequence[Compressor],
        learner: Learner,
        recorder: IntervalRecorder,
        clock: Clock,
        servers: Servers,
        wiring: Wiring,
    ) -> None:
        self.orders = orders
        self.compressor = compressor
        self.current: Publication | None = None
        """what actors find"""
        self.settled = -1
        """number of the newest publication that nobody need wait for, see `SharedBlock.settled`"""
        self.server = COMPRESSOR if wiring.compressor else LEARNER
        """whose seconds compressing takes"""
        self._probe = KLProbe()
        self._learner = learner
        self._recorder = recorder
        self._clock = clock
        self._servers = servers
        self._job: _Job | None = None
        self._distillers = list(distillers)
        self._charges = Charges(len(self._distillers))
        self._making: list[list[dict[str, Any]]] = [[] for _ in self._distillers]
        self._boards: list[list[dict[str, Any]]] = [[] for _ in self._distillers]

    def observe(self, rollout: Rollout) -> None:
        """Record states of a rollout that the learner has used."""
        states = sample_states(rollout, self.compressor.config)
        for compressor in (self.compressor, *self._distillers):
            compressor.observe(states)

    def _idle_distillers(self) -> list[int]:
        acting = self.orders.acting
        return [
            index
            for index in range(len(self._distillers))
            if self._servers.is_idle(distiller_name(index)) and self._charges.work(index, acting)
        ]

    def _compressor_has_work(self) -> bool:
        due = self.orders.is_due(self._learner.updates)
        own = self._charges.left_to_compressor(self.orders.acting)
        return self._job is None and (due or bool(own))

    def has_work(self) -> bool:
        """Whether somebody who has nothing to do needs the learner's weights as they are now."""
        self._charges.assign(self.orders.acting)
        return self._compressor_has_work() or bool(self._idle_distillers())

    def begin(self) -> None:
        """Give work to everybody who has nothing to do."""
        for index in self._idle_distillers():
            self._distill(index)
        if self._compressor_has_work():
            self._compress()

    def _distill(self, index: int) -> None:
        compressor = self._distillers[index]
        chosen = self._charges.work(index, self.orders.acting)
        seconds = self._distill_seconds(compressor, chosen)
        self._making[index] = _copied(compressor.students(chosen))
        self._servers.work(distiller_name(index), seconds)

    def _distill_seconds(self, compressor: Compressor, specs: Sequence[CompressionSpec]) -> float:
        """Distil, and return what the clock charges for it."""
        before = perf_counter()
        learner = self._learner
        done = distill_students(compressor, learner.policy, specs, learner.updates)
        measured = (perf_counter() - before) / max(len(done), 1)
        return sum(self._clock.distill(spec, states, measured) for spec, states in done)

    def _compress(self) -> None:
        orders, updates = self.orders, self._learner.updates
        due = orders.is_due(updates)
        own = self._charges.left_to_compressor(orders.acting)
        job = _Job(self._distill_seconds(self.compressor, own))
        if due:
            self._publish(job, orders.order(updates))
        self._job = job
        self._servers.work(self.server, job.distill_seconds + job.publish_seconds)

    def _publish(self, job: _Job, order: Order) -> None:
        policy = self._learner.policy
        made = make_publication(self.compressor, self._probe, policy, order, self.current)
        for part in made.parts:
            job.publish_seconds += self._part_seconds(part)
        for artifact in () if made.publication is None else made.publication.artifacts:
            job.send_seconds += self._clock.send(artifact.spec)
        job.delivery, job.publication = made.delivery, made.publication
        if not self._recorder.times_itself:
            # What it took here would make the snapshots of equal runs differ.
            split = replace(made.delivery.split, cpu_seconds=0.0)
            job.delivery = replace(made.delivery, split=split, seconds=0.0)

    def _part_seconds(self, part: MadePart) -> float:
        """Return what the clock charges for making a part.

        Comparing what is to be admitted costs as much as distilling on these states: no profile
        says what passes forward alone take, which is less.
        """
        seconds, measured, warmup_states = 0.0, part.seconds, part.warmup_states
        for spec in part.built:
            seconds += sum(self._clock.publish(spec, warmup_states, measured))
            measured, warmup_states = 0.0, 0
        compared = part.verdict.states
        return seconds + (self._clock.distill(part.asked, compared, 0.0) if compared else 0.0)

    def finished(self, server: str, seconds: float) -> bool:
        """A server has ended its work, after so many seconds.

        Returns:
            whether actors that waited for a publication can go on.
        """
        if server != self.server:
            self._show_students(int(server.rpartition("-")[2]))
            self._recorder.add_seconds("compress", seconds)
            return False
        job = self._job
        assert job is not None
        if not job.sending:
            charged = job.distill_seconds + job.publish_seconds
            slower = seconds / charged if charged else 1.0
            self._recorder.add_seconds("compress", slower * job.distill_seconds)
            self._recorder.add_seconds("publish", slower * job.publish_seconds)
            job.published_seconds = slower * job.publish_seconds
            if job.send_seconds:
                job.sending = True
                self._servers.pause(self.server, job.send_seconds)
                return False
        else:
            self._recorder.add_seconds("publish", seconds)
            job.published_seconds += seconds
        self._job = None
        return self._deliver(job)

    def _show_students(self, index: int) -> None:
        made, self._making[index] = self._making[index], []
        entries = [*self._boards[index], *made]
        shown = {StudentKey(*entry["student"]): entry for entry in entries}
        self._boards[index] = list(shown.values())
        self.compressor.take_students(made)

    def _deliver(self, job: _Job) -> bool:
        if job.delivery is None:
            return False
        self.current = job.publication or self.current
        self.orders.book(replace(job.delivery, seconds=job.published_seconds), self._recorder)
        self.settled = job.delivery.order.number
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly, work that is under way included."""
        return {
            "orders": self.orders.state_dict(),
            "compressor": self.compressor.state_dict(),
            "probe": self._probe.state_dict(),
            "current": publication_state(self.current),
            "settled": self.settled,
            "job": None if self._job is None else self._job.to_json(),
            "distillers": [compressor.state_dict() for compressor in self._distillers],
            "charges": self._charges.state_dict(),
            "making": [_copied(made) for made in self._making],
            "boards": [_copied(board) for board in self._boards],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.orders.load_state_dict(state["orders"])
        self.compressor.load_state_dict(state["compressor"])
        self._probe.load_state_dict(state["probe"])
        self.current = publication_from_state(state["current"])
        self.settled = state["settled"]
        self._job = None if state["job"] is None else _Job.from_json(state["job"])
        for compressor, own in zip(self._distillers, state["distillers"], strict=True):
            compressor.load_state_dict(own)
        self._charges.load_state_dict(state["charges"])
        self._making = [_copied(made) for made in state["making"]]
        self._boards = [_copied(board) for board in state["boards"]]
        for board in self._boards:
            self.compressor.take_students(board)


def _copied(students: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return entries of `Compressor.students` that further distilling does not change."""
    return [
        {**entry, "weights": {n: w.detach().clone() for n, w in entry["weights"].items()}}
        for entry in students
    ]
