"""The compressor's and the distillers' processes of a serial run, as servers on its clock.

A piece of work is done when it begins, with weights and states as they are then, and what it made
is shown when its seconds have passed. The rules are those of the process runtime: one publication
at a time, begun after an update; who distils goes on to the next piece at once, as long as the
learner's last update allows one. What has not followed the newest weights at all does so for one
piece before it is published, unless it rests; the other pieces come after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from accerl.acting.rollout import Rollout
from accerl.compress.compressor import Compressor
from accerl.compress.distillation.sharing import Shown, StudentShares
from accerl.json_fields import JsonFields
from accerl.learner.learner import Learner
from accerl.runtime.interval import IntervalRecorder
from accerl.runtime.publishing.charges import Charge, Charges, Pace
from accerl.runtime.publishing.delivery import Delivery, Order, Shadow
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.publishing.work import Attempt, make_publication, sample_states, try_shadow
from accerl.runtime.serial.clock import Clock
from accerl.runtime.serial.servers import Servers
from accerl.runtime.wiring import Wiring
from accerl.weights import Publication, publication_from_state, publication_state

COMPRESSOR = "compressor"
LEARNER = "learner"


def distiller_name(index: int) -> str:
    """Return the name of a distiller's server."""
    return f"distiller-{index}"


@dataclass
class _Job(JsonFields):
    """What the compressor is doing; what it made waits here until it is shown."""

    distill_seconds: float = 0.0
    """core-seconds of keeping students close"""
    publish_seconds: float = 0.0
    """core-seconds, of warming students up too, unless the GPU does that"""
    warmup_seconds: float = 0.0
    """what the GPU takes for warming students up and comparing them"""
    stage: str = "compress"
    """what is under way: on_gpu, compress or send"""
    send_seconds: float = 0.0
    delivery: Delivery | None = None
    """what becomes of the order; None: it distils"""
    publication: Publication | None = None
    """None if it would act as what acts already"""
    shadow: Shadow | None = None
    """what it compares; `publish_seconds` and `warmup_seconds` are of that then"""
    published_seconds: float = 0.0
    """what publishing has taken on the clock, so far"""

    def to_json(self) -> dict[str, Any]:
        """Return the job as a tree for a snapshot."""
        return {**super().to_json(), "publication": publication_state(self.publication)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> _Job:
        """Read a job written by `to_json`."""
        publication = publication_from_state(data["publication"])
        return super().from_json({**data, "publication": publication})


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
        self._on_gpu = wiring.on_gpu
        self._probe = KLProbe()
        self._learner = learner
        self._recorder = recorder
        self._clock = clock
        self._servers = servers
        self._job: _Job | None = None
        self._next: _Job | None = None  # of a shadow, which comes when the publication was sent
        self._distillers = list(distillers)
        self._shares = [StudentShares(each, index) for index, each in enumerate(distillers)]
        self._charges = Charges(
            len(distillers),
            compressor.config.distill_updates,
            follow_idle=not wiring.is_crowded,
        )
        self._paces = [Pace(each.pool.updates_due) for each in distillers]
        self._pace = Pace(compressor.pool.updates_due)  # the compressor's own
        self._making: list[list[dict[str, Any]]] = [[] for _ in distillers]
        self._shown = Shown(len(distillers))
        self._news = False  # whether the compressor has not seen all that is shown

    def observe(self, rollout: Rollout) -> None:
        """Record states of a rollout that the learner has used."""
        states = sample_states(rollout, self.compressor.config)
        for compressor in (self.compressor, *self._distillers):
            compressor.observe(states)

    def has_work(self) -> bool:
        """Whether somebody needs the learner's weights as they are now."""
        in_use, indices = self.orders.in_use, range(len(self._distillers))
        self._charges.assign(in_use)
        own = self._charges.left_to_compressor(in_use)
        due = self._job is None and self.orders.is_due(self._learner.updates)
        return due or bool(own) or any(self._charges.work(index, in_use) for index in indices)

    def begin(self) -> None:
        """Give work to everybody who has nothing to do: the learner has made an update."""
        self._distill_on()
        if self._job is not None:
            return
        updates = self._learner.updates
        due = self.orders.is_due(updates)
        if not due or (self.server != LEARNER and not self._pace.begun(updates)):
            self._compress(publish=False)
        if due and self._job is None:
            self._compress(publish=True)

    def _distill_on(self) -> None:
        """Have all distillers go on that have nothing to do."""
        for index in range(len(self._distillers)):
            if self._servers.is_idle(distiller_name(index)):
                self._distill(index)

    def _distill(self, index: int) -> None:
        """Do a distiller's next piece, if there is one."""
        pace, learner = self._paces[index], self._learner
        charges = self._charges.work(index, self.orders.in_use)
        piece = pace.next(charges, learner.updates)
        if piece is None:
            return
        (charge, updates), compressor = piece, self._distillers[index]
        before = perf_counter()
        done = self._shares[index].train(
            charge.spec,
            learner.policy,
            updates,
            learner.updates,
            leads=charge.leads,
            sharers=charge.sharers,
            shown=self._shown.besides(index),
        )
        pace.add(charge, updates)  # if it came to nothing, too: others have their turn
        if done:
            self._making[index] = self._shares[index].entries([charge.key])
            seconds = self._charged(compressor, charge, done, perf_counter() - before)
            self._servers.work(distiller_name(index), seconds, on_gpu=self._on_gpu)

    def _charged(
        self, compressor: Compressor, charge: Charge, updates: int, measured: float
    ) -> float:
        """Return the core-seconds that the clock charges for updates of a student."""
        states = updates * compressor.states_per_update
        seconds = self._clock.distill(charge.spec, states, measured)
        self._recorder.add_distillation(updates, seconds)
        return seconds

    def _compress(self, *, publish: bool) -> None:
        """Have the compressor publish, or distil its next piece if there is one."""
        orders, learner = self.orders, self._learner
        own, job = self._charges.left_to_compressor(orders.in_use), _Job()
        if self.server == LEARNER:  # which goes on learning when all of it is done
            for charge in own:
                if (left := self._pace.left(charge, learner.updates)) > 0:
                    job.distill_seconds += self._follow(charge, left)
        elif not publish:
            piece = self._pace.next(own, learner.updates)
            job.distill_seconds = 0.0 if piece is None else self._follow(*piece)
        if publish:
            self._publish(job, orders.order(learner.updates))
        elif not job.distill_seconds:
            return
        self._begin_job(job)

    def _begin_job(self, job: _Job) -> None:
        self._job = job
        self._begin_stage(job, "on_gpu" if self._on_gpu else "compress")

    def _begin_stage(self, job: _Job, stage: str) -> None:
        """Have the compressor do what a stage of the job takes, or the next one's if nothing."""
        job.stage = stage
        if stage == "on_gpu":
            seconds = job.distill_seconds + job.warmup_seconds
            if seconds or not job.publish_seconds:
                self._servers.work(self.server, seconds, on_gpu=True)
                return
            job.stage = "compress"
        own = 0.0 if self._on_gpu else job.distill_seconds
        self._servers.work(self.server, own + job.publish_seconds)

    def _follow(self, charge: Charge, updates: int) -> float:
        """Do updates of a student that the compressor distils; return what is charged."""
        before, learner = perf_counter(), self._learner
        done = self.compressor.distill(learner.policy, [charge.spec], learner.updates, updates)
        self._pace.add(charge, updates)
        if not done:  # it has too few states, or the network is refused
            return 0.0
        return self._charged(self.compressor, charge, done, perf_counter() - before)

    def _publish(self, job: _Job, order: Order) -> None:
        policy = self._learner.policy
        self._take_students()
        made = make_publication(self.compressor, self._probe, policy, order, self.current)
        for part in made.parts:
            self._charge_part(job, part)
        for artifact in () if made.publication is None else made.publication.artifacts:
            job.send_seconds += self._clock.send(artifact.spec)
        job.delivery, job.publication = made.delivery, made.publication
        if not self._recorder.times_itself:
            # What it took here would make the snapshots of equal runs differ.
            split = replace(made.delivery.split, cpu_seconds=0.0)
            job.delivery = replace(made.delivery, split=split, seconds=0.0)
        if order.shadow is not None:
            shadow, attempt = try_shadow(self.compressor, policy, order)
            if not self._recorder.times_itself:
                shadow = replace(shadow, seconds=0.0)
            self._next = _Job(shadow=shadow)
            self._charge_part(self._next, attempt)

    def _take_students(self) -> None:
        """Have the compressor act with what the distillers show."""
        if self._news:
            self.compressor.take_students(self._shown.students())
            self._news = False

    def _charge_part(self, job: _Job, part: Attempt) -> None:
        """Add what the clock charges for making a part, and for comparing it."""
        publish, warmup, measured, warmup_states = 0.0, 0.0, part.seconds, part.warmup_states
        for spec in part.built:
            warmed, published = self._clock.publish(spec, warmup_states, measured)
            if self._on_gpu:
                warmup, publish = warmup + warmed, publish + published
            else:
                publish += warmed + published
            measured, warmup_states = 0.0, 0
        compared = part.verdict.states
        seconds = self._clock.compare(part.asked, compared) if compared else 0.0
        if self._on_gpu:
            warmup += seconds
        else:
            publish += seconds
        job.publish_seconds += publish
        job.warmup_seconds += warmup

    def finished(self, server: str, seconds: float) -> bool:
        """A server has ended its work, after so many seconds.

        Returns:
            whether actors that waited for a publication can go on.
        """
        if server != self.server:
            self._recorder.add_seconds("compress", seconds)
            index = int(server.rpartition("-")[2])
            self._shown.put(index, self._making[index])
            self._making[index], self._news = [], True
            self._distill_on()
            return False
        job = self._job
        assert job is not None
        if job.stage == "send":
            self._recorder.add_seconds("publish", seconds)
            job.published_seconds += seconds
        elif self._compressed(job, seconds):
            return False
        self._job = None
        delivered = self._deliver(job)
        follows, self._next = self._next, None
        if follows is not None:
            self._begin_job(follows)
        elif self.server != LEARNER and self._charges.left_to_compressor(self.orders.in_use):
            due = self.orders.is_due(self._learner.updates)
            self._compress(publish=due and job.delivery is None)
        return delivered

    def _compressed(self, job: _Job, seconds: float) -> bool:
        """A stage of computing has ended; begin the next one, and return whether there is one."""
        on_gpu = job.stage == "on_gpu"
        distilled = job.distill_seconds if on_gpu or not self._on_gpu else 0.0
        published = job.warmup_seconds if on_gpu else job.publish_seconds
        charged = distilled + published
        slower = seconds / charged if charged else 1.0
        self._recorder.add_seconds("compress", slower * distilled)
        phase = "publish" if job.shadow is None else "compress"
        self._recorder.add_seconds(phase, slower * published)
        job.published_seconds += slower * published
        if on_gpu and job.publish_seconds:
            self._begin_stage(job, "compress")
        elif job.send_seconds:
            job.stage = "send"
            self._servers.send(self.server, job.send_seconds)
        else:
            return False
        return True

    def _deliver(self, job: _Job) -> bool:
        if job.shadow is not None:
            self.orders.book_shadow(job.shadow, self._recorder)
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
            "next": None if self._next is None else self._next.to_json(),
            "distillers": [compressor.state_dict() for compressor in self._distillers],
            "charges": self._charges.state_dict(),
            "shares": [shares.state_dict() for shares in self._shares],
            "paces": [pace.state_dict() for pace in (self._pace, *self._paces)],
            "making": list(self._making),
            "shown": self._shown.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.orders.load_state_dict(state["orders"])
        self.compressor.load_state_dict(state["compressor"])
        self._probe.load_state_dict(state["probe"])
        self.current = publication_from_state(state["current"])
        self.settled = state["settled"]
        jobs = (state["job"], state["next"])
        self._job, self._next = (None if job is None else _Job.from_json(job) for job in jobs)
        for compressor, own in zip(self._distillers, state["distillers"], strict=True):
            compressor.load_state_dict(own)
        self._charges.load_state_dict(state["charges"])
        for shares, own in zip(self._shares, state["shares"], strict=True):
            shares.load_state_dict(own)
        for pace, own in zip((self._pace, *self._paces), state["paces"], strict=True):
            pace.load_state_dict(own)
        self._making = list(state["making"])
        self._shown.load_state_dict(state["shown"])
        self._news = True
