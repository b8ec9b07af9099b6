"""The compressor's and the distillers' processes of a serial run, as servers on its clock.

A piece of work is done when it begins, with weights and states as they are then, and what it made
is shown when its seconds have passed. The rules are those of the process runtime (`publishing`,
`distilling`): one piece of work at a time, and what is wanted meanwhile waits for the next update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from accerl.compress.compressor import Compressor
from accerl.learner.learner import Learner
from accerl.rollout import Rollout
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.process.distillers import Charges
from accerl.runtime.publishing.orders import Order
from accerl.runtime.publishing.probe import KLSplit
from accerl.runtime.publishing.publisher import (
    Built,
    Publisher,
    build_publication,
    distill_students,
    sample_states,
    students_kl_nats,
)
from accerl.runtime.serial.clock import Clock, Wiring
from accerl.runtime.serial.servers import Servers
from accerl.spec import CompressionSpec, Decision, StudentKey, by_label, by_spec
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
    number: int | None = None
    """of the publication that it makes; None: it only distils"""
    decision: list[dict[str, Any]] | None = None
    delivered: dict[str, Any] | None = None
    publication: Publication | None = None
    """None if it would act as what acts already"""
    sending: bool = False
    published_seconds: float = 0.0
    """what publishing has taken on the clock, so far"""


class ModelledPublishing:
    """Publications and students, made on the servers of a run.

    Args:
        publisher: the ledger, and the compressor that does the work.
        learner: whose weights are compressed.
        recorder: is told what was published and what it took.
        clock: says what it takes.
        servers: the run's.
        wiring: which processes there are.
        distillers: one compressor for each of `wiring.distillers`, which only distils.
    """

    def __init__(
        self,
        publisher: Publisher,
        learner: Learner,
        recorder: IntervalRecorder,
        clock: Clock,
        servers: Servers,
        wiring: Wiring,
        distillers: Sequence[Compressor],
    ) -> None:
        self.publisher = publisher
        self.current: Publication | None = None
        """what actors find"""
        self.settled = -1
        """number of the newest publication that nobody need wait for, see `SharedBlock.settled`"""
        self.server = COMPRESSOR if wiring.compressor else LEARNER
        """whose seconds compressing takes"""
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
        states = sample_states(rollout, self.publisher.compressor.config)
        for compressor in (self.publisher.compressor, *self._distillers):
            compressor.observe(states)

    def _students(self) -> list[CompressionSpec]:
        """Return the specs in effect whose network the compressor must distil."""
        if self._distillers:
            return []
        return [spec for spec in self.publisher.acting if spec.student_key is not None]

    def _idle_distillers(self) -> list[int]:
        acting = self.publisher.acting
        return [
            index
            for index in range(len(self._distillers))
            if self._servers.is_idle(distiller_name(index)) and self._charges.work(index, acting)
        ]

    def _compressor_has_work(self) -> bool:
        due = self.publisher.is_due(self._learner.updates)
        return self._job is None and (due or bool(self._students()))

    def has_work(self) -> bool:
        """Whether somebody who has nothing to do needs the learner's weights as they are now."""
        self._charges.assign(self.publisher.acting)
        return self._compressor_has_work() or bool(self._idle_distillers())

    def begin(self) -> None:
        """Give work to everybody who has nothing to do."""
        for index in self._idle_distillers():
            self._distill(index)
        if self._compressor_has_work():
            self._compress()

    def _distill(self, index: int) -> None:
        compressor = self._distillers[index]
        chosen = self._charges.work(index, self.publisher.acting)
        done = distill_students(compressor, self._learner.policy, chosen)
        self._making[index] = [_copied(entry) for entry in compressor.students(chosen)]
        self._servers.work(distiller_name(index), self._seconds(done))

    def _seconds(self, distilled: Sequence[tuple[CompressionSpec, int]]) -> float:
        return sum(self._clock.distill(spec, states, 0.0) for spec, states in distilled)

    def _compress(self) -> None:
        publisher, policy = self.publisher, self._learner.policy
        due = publisher.is_due(self._learner.updates)
        before = perf_counter()
        distilled = distill_students(publisher.compressor, policy, self._students())
        measured = (perf_counter() - before) / max(len(distilled), 1)
        seconds = sum(self._clock.distill(spec, states, measured) for spec, states in distilled)
        job = _Job(distill_seconds=seconds)
        if due:
            self._publish(job, publisher.order(self._learner.updates))
        self._job = job
        self._servers.work(self.server, job.distill_seconds + job.publish_seconds)

    def _publish(self, job: _Job, order: Order) -> None:
        publisher, policy = self.publisher, self._learner.policy
        built = build_publication(publisher.compressor, policy, order, self.current)
        for part in built.parts:
            warmup, rest = self._clock.publish(part.artifact.spec, part.warmup_states, part.seconds)
            job.publish_seconds += warmup + rest
            job.send_seconds += 0.0 if built.unchanged else self._clock.send(part.artifact.spec)
        job.number, job.decision = order.number, order.decision.to_json()
        job.delivered = {
            "acted": built.acted,
            "rejected": built.rejected,
            "size_bytes": built.size_bytes,
            "student_kl_nats": by_label(
                students_kl_nats(publisher.compressor, policy, order.decision.specs)
            ),
            "split": self._split(built).to_json(),
        }
        job.publication = None if built.unchanged else built.publication

    def _split(self, built: Built) -> KLSplit:
        split = self.publisher.split(self._learner.policy, built)
        # What measuring took here would make the snapshots of equal runs differ.
        return split if self._recorder.times_itself else replace(split, cpu_seconds=0.0)

    def finished(self, server: str, seconds: float) -> bool:
        """A server has ended its work, after so many seconds.

        Returns:
            whether actors that waited for a publication can go on.
        """
        if server != self.server:
            index = int(server.rpartition("-")[2])
            made, self._making[index] = self._making[index], []
            shown = {
                StudentKey(*entry["student"]): entry for entry in [*self._boards[index], *made]
            }
            self._boards[index] = list(shown.values())
            self.publisher.compressor.take_students(made)
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

    def _deliver(self, job: _Job) -> bool:
        if job.number is None or job.delivered is None or job.decision is None:
            return False
        delivered, new = job.delivered, job.publication
        if new is None:
            self.publisher.unchanged(job.number)
        else:
            self.current = new
            self.publisher.delivered(job.number, delivered["acted"], delivered["rejected"])
        self._recorder.add_publication(
            new is None,
            delivered["size_bytes"],
            by_spec(delivered["student_kl_nats"]),
            KLSplit.from_json(delivered["split"]),
        )
        self.publisher.charge(job.published_seconds, Decision.from_json(job.decision))
        self.settled = job.number
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly, work that is under way included."""
        job = self._job
        return {
            "current": publication_state(self.current),
            "settled": self.settled,
            "job": None
            if job is None
            else {**vars(job), "publication": publication_state(job.publication)},
            "distillers": [compressor.state_dict() for compressor in self._distillers],
            "charges": self._charges.state_dict(),
            "making": [[_copied(entry) for entry in made] for made in self._making],
            "boards": [[_copied(entry) for entry in board] for board in self._boards],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`, after the publisher has done so."""
        self.current = publication_from_state(state["current"])
        self.settled = state["settled"]
        job = state["job"]
        self._job = None
        if job is not None:
            publication = publication_from_state(job["publication"])
            self._job = _Job(**{**job, "publication": publication})
        for compressor, own in zip(self._distillers, state["distillers"], strict=True):
            compressor.load_state_dict(own)
        self._charges.load_state_dict(state["charges"])
        self._making = [[_copied(entry) for entry in made] for made in state["making"]]
        self._boards = [[_copied(entry) for entry in board] for board in state["boards"]]
        for board in self._boards:
            self.publisher.compressor.take_students(board)


def _copied(student: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of `Compressor.students` that further distilling does not change."""
    weights = {name: value.detach().clone() for name, value in student["weights"].items()}
    return {**student, "weights": weights}
