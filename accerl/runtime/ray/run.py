"""Ray runtime: actors, compressor and evaluator on the nodes of a cluster, the learner here."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import torch

from accerl.acting.rollout import Rollout
from accerl.config import RunConfig
from accerl.errors import GameError, UserError
from accerl.learner.learner import UpdateStats
from accerl.networks.graph_policy import count_macs
from accerl.runtime.parallel import PUBLISHING, ParallelRun
from accerl.runtime.parts import Parts
from accerl.runtime.process.messages import Distilled
from accerl.runtime.process.supervise import Supervisor
from accerl.runtime.publishing.delivery import Tag
from accerl.runtime.publishing.orders import PublicationOrders
from accerl.runtime.publishing.probe import KLProbe
from accerl.runtime.ray.cluster import described, full_store_errors, wrong_version
from accerl.runtime.ray.packing import unpack
from accerl.runtime.ray.placement import WITH_CPUS, RayCluster
from accerl.runtime.ray.publishing import RayPublishing
from accerl.runtime.ray.roles import Collected, EvaluatorActor, RolloutActor, Started
from accerl.runtime.ray.worker import Call, RayWorker
from accerl.runtime.run import IntervalReport, Snapshot
from accerl.weights import weight_arrays

WORK = ("collect", "distil", "measure", "work")
"""methods that finish a piece of work"""


UNKNOWN = ""
"""stands for the node of who died before it said where it is"""


class RayRun(ParallelRun[RayWorker]):
    """A run whose workers are Ray actors, on this machine or on many.

    A slot that is lent to an actor is a call whose answer, a rollout, comes through the object
    store; without free slots there are no calls, and the actor waits. Rollouts of the learner's
    node are read where they were written. A publication is put into the object store once; each
    node fetches it once.

    Any actor or node but the learner's may die at any moment, as in the process runtime.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        supervisor: Supervisor | None = None,
        parts: Parts | None = None,
    ) -> None:
        super().__init__(config, supervisor=supervisor, parts=parts)
        _let_torch_read_only()
        with ExitStack() as stack:  # lets go of the cluster if what comes after it fails
            cluster = RayCluster(config, self._shape, len(self._slots))
            self._cluster = stack.enter_context(closing(cluster))
            publish_every = config.runtime.publish_every
            check_every = KLProbe.check_every(self._shape.samples, count_macs(self.learner.policy))
            self._publishing = RayPublishing(
                self._cluster,
                PublicationOrders(publish_every, check_every, lambda: self._seconds),
                config,
                self._parts.links,
                self._shape,
                self._compressor,
                self.learner,
                self.recorder,
            )
            self._actors = [self._make_actor(index) for index in range(self._wiring.actors)]
            self._evaluator = self._make_evaluator() if config.runtime.eval_episodes else None
            stack.pop_all()
        self._rollouts: dict[int, tuple[Any, Collected]] = {}  # by slot
        self._learner_return: float | None = None
        self._dead_nodes: set[str] = set()

    @property
    def publishing(self) -> RayPublishing:
        """The compressor and the distillers."""
        return self._publishing

    @property
    def workers(self) -> list[RayWorker]:
        """Every Ray actor of this run."""
        workers = [*self._actors, *self.publishing.workers]
        return workers if self._evaluator is None else [*workers, self._evaluator]

    def _make_actor(self, index: int) -> RayWorker:
        def arguments(restarts: int) -> tuple[Any, ...]:
            game = (self.config.game, self.config.env, self._shape)
            return *game, *self._actor_settings(index, restarts), self._cluster.home

        return RayWorker(self._cluster, "actor", index, RolloutActor, arguments)

    def _make_evaluator(self) -> RayWorker:
        config, policy = self.config, self.learner.policy
        network = (config.network, policy.observation, policy.num_actions)
        given = (*network, config.game, config.env, config.runtime.eval_episodes)
        return RayWorker(self._cluster, "evaluator", None, EvaluatorActor, lambda _: given)

    @property
    def _is_published(self) -> bool:
        return self.publishing.is_published

    def _pids(self) -> dict[str, int]:
        here = self._workers_here()
        return {"learner": os.getpid(), **here, **self._cluster.processes(here.values())}

    def _workers_here(self) -> dict[str, int]:
        """Return the processes of workers on this machine by name."""
        return {
            worker.name: worker.started.pid
            for worker in self.workers
            if worker.started is not None and worker.started.node == self._cluster.node
        }

    def advance(self, seconds: float) -> IntervalReport:
        """See `ParallelRun.advance`; a full object store ends the run."""
        with full_store_errors(self._cluster.ray):
            return super().advance(seconds)

    def snapshot(self) -> Snapshot:
        """See `ParallelRun.snapshot`."""
        with full_store_errors(self._cluster.ray):
            return super().snapshot()

    def _start_workers(self) -> None:
        for worker in self.workers:
            self._supervisor.start(worker)

    def _rollout(self, slot: int) -> Rollout:
        return unpack(self._rollouts[slot][1].arrays, self._shape.observation)

    def _tag(self, slot: int, rollout: Rollout) -> Tag | None:
        # Actors may be done with what was published before the learner hears what it was, which
        # need not be what was ordered; and its delivery never comes if the compressor dies.
        booked, acted = super()._tag(slot, rollout), self._rollouts[slot][1].acted
        return acted if booked is not None and booked.spec != acted.spec else booked

    def _learn(self, slot: int, rollout: Rollout, seconds: float) -> UpdateStats | None:
        return self._safeguard.update(rollout, seconds=seconds)

    def _learned(self, slot: int, rollout: Rollout, stats: UpdateStats) -> None:
        self.publishing.see(self._rollouts[slot][0], stats.logits.numpy())

    def _done(self, slot: int) -> None:
        del self._rollouts[slot]
        super()._done(slot)

    def _have_filled(self, actor: RayWorker, slots: Sequence[int]) -> None:
        self._watch.rollouts.lent(actor.name)
        for slot in slots:
            actor.call("collect", self.orders.last_ordered, slot=slot)

    def _receive(self, timeout_seconds: float) -> None:
        asked = {worker.calls[0].ref: worker for worker in self.workers if worker.calls}
        heard = self._cluster.ready([*asked], timeout_seconds) if asked else ()
        self._watch.look()
        for ref in heard:
            worker = asked[ref]
            if not worker.calls or worker.calls[0].ref != ref:
                continue  # it was replaced meanwhile
            call = worker.calls[0]
            try:
                answer = self._cluster.ray.get(ref)
            except self._cluster.ray.exceptions.ActorUnavailableError:
                self._reach(worker)
            except self._cluster.ray.exceptions.RayError as error:
                self._replace(worker, error)
            else:
                worker.calls.popleft()
                self._handle(worker, call, answer)
        for worker in self.workers:
            if self._supervisor.hangs(worker):
                if worker.role in WITH_CPUS and not self._cluster.has_room():
                    self._supervisor.await_ready(worker)  # it waits for a node to join
                else:
                    self._replace(worker)
            elif (stuck := self._watch.unfinished(worker.name)) and not self._has_answered(worker):
                self._replace(worker, stuck=stuck)

    def _has_answered(self, worker: RayWorker) -> bool:
        """Whether the answer to the call that it was asked first is here, or an error."""
        return bool(worker.calls and self._cluster.ready([worker.calls[0].ref], 0.0))

    def _reach(self, worker: RayWorker) -> None:
        """Ask an actor that cannot be reached whether it is there; if not, Ray will say so."""
        self._take_back(worker)
        worker.calls.clear()
        self._supervisor.await_ready(worker)
        worker.call("reach")

    def _handle(self, worker: RayWorker, call: Call, answer: Any) -> None:
        if isinstance(answer, Started):
            self._is_ready(worker, answer)
            return
        if call.method in WORK and not _only_waited(answer):
            self._supervisor.worked(worker)
            if worker.role == "distiller":
                self._watch.distillations.filled(worker.name, has_more=False)
        if worker.role == "actor":
            assert worker.index is not None
            self._slots.filled(worker.index, call.slot)
            self._watch.rollouts.filled(worker.name, has_more=bool(worker.calls))
            self._rollouts[call.slot] = (call.ref, answer)
        elif worker.role in PUBLISHING:
            self.publishing.handle(worker, call, answer)
            self._watch_publishing()
        else:
            self._watch.measurements.filled(worker.name, has_more=False)
            self._learner_return = answer

    def _is_ready(self, worker: RayWorker, started: Started) -> None:
        import accerl

        if started.version != accerl.__version__:
            raise wrong_version(started.node, f"AcceRL {started.version}")
        worker.started, worker.ready = started, True
        self._dead_nodes.discard(UNKNOWN)
        if worker.role in ("actor", "compressor"):
            ready = [actor for actor in self._actors if actor.ready]
            self.publishing.hear({f"{w.name}.{w.restarts}": w.handle for w in ready})
        if worker.role == "actor":
            self._lend(worker)
        elif worker.role in PUBLISHING:
            self.publishing.ready(worker)
            self._watch_publishing()

    def _replace(
        self, worker: RayWorker, error: Exception | None = None, *, stuck: str = ""
    ) -> None:
        """Put a new Ray actor in the place of `worker`'s; take back what that one held."""
        cause = getattr(error, "cause", None)
        if isinstance(cause, GameError):
            raise GameError(f"{worker.name}: {cause}", cause.details) from error
        if isinstance(cause, UserError):
            raise cause
        found, counts = "", True
        if error is not None:
            found, node_died = described(self._cluster.ray, error)
            if cause is not None:
                print(str(error), file=sys.stderr)  # its traceback
            if node_died:
                node = worker.started.node if worker.started else UNKNOWN
                counts = node not in self._dead_nodes
                self._dead_nodes.add(node)
        self._cpu.note(self._workers_here())  # the learner's own seconds may be off the clock
        self._supervisor.replace(
            worker,
            seconds=self._seconds,
            recovered=self._take_back(worker),
            found=found,
            stuck=stuck,
            counts=counts,
        )
        if worker.role == "actor":
            assert worker.index is not None
            self._lend_next(worker.index)

    def _take_back(self, worker: RayWorker) -> str:
        """Take back what a worker held; return that in words."""
        self._watch.forget(worker.name)
        if worker.role == "actor":
            assert worker.index is not None
            return f"{self._slots.reclaim(worker.index)} of its slots reclaimed"
        if worker.role in PUBLISHING:
            return self.publishing.died(worker)
        return "its measurement is repeated"

    def _measure(self) -> float | None:
        evaluator = self._evaluator
        if evaluator is None:
            return None
        self._learner_return = None
        while self._learner_return is None:
            if evaluator.ready and not evaluator.calls:
                evaluator.call("measure", weight_arrays(self.learner.policy))
                self._watch.measurements.lent(evaluator.name)
            self._wait_for_news()
        return self._learner_return

    def close(self) -> None:
        """See `InnerRun.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            for worker in self.workers:
                worker.end()
        finally:  # also if Ctrl-C is pressed again meanwhile
            self._rollouts.clear()
            self._cluster.close()


def _let_torch_read_only() -> None:
    """Have torch say now, unheard, what it says once: that arrays of an object store are read-only.

    Nothing writes to a rollout.
    """
    array = np.zeros(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


def _only_waited(answer: Any) -> bool:
    """Return whether an answer is that of a distiller that waits for weights."""
    return isinstance(answer, Distilled) and not answer.updates
