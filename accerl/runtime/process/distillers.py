"""Distillers: processes that only distil, beside the one that compresses (ND in the paper).

Each distils the students and pruned networks that it is in charge of, over and over, from the
learner's weights and the recorded states in shared memory, and puts what they have become on its
board. The compressor reads the boards when it publishes; nobody waits for anybody. Students that
rest are kept close to the learner while none of a distiller's acts: they need no warm-up when they
act again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from accerl.networks.observation import ObservationSpec
from accerl.runtime.process.samples import SampleRing
from accerl.runtime.process.supervise import Worker
from accerl.runtime.process.wire import Channel, pack, unpack
from accerl.spec import CompressionSpec, StudentKey
from accerl.weights import SharedBlock, WeightVector

if TYPE_CHECKING:
    from accerl.compress.config import CompressionConfig

Body = Callable[..., None]


class Board:
    """Where a distiller puts its students, numbered by how often it did."""

    def __init__(self, capacity_bytes: int, name: str | None = None) -> None:
        self._block = SharedBlock(capacity_bytes, 2, name)
        self._read = -1

    def handle(self) -> dict[str, Any]:
        """Return what another process needs for `Board(**handle)`."""
        return {"capacity_bytes": self._block.capacity_bytes, "name": self._block.name}

    def put(self, students: list[dict[str, Any]]) -> None:
        """Show `students`, as `Compressor.students` returns them."""
        data = np.frombuffer(pack(students), np.uint8)
        self._block.write(self._block.latest + 1, [data])

    def news(self) -> list[dict[str, Any]]:
        """Return what was put since the last call, if anything was."""
        if self._block.latest == self._read:
            return []
        self._read, students = self._block.read(lambda data: unpack(data.tobytes()))
        return students

    def close(self) -> None:
        """See `SharedBlock.close`."""
        self._block.close()


class Distiller:
    """One distilling process as the learner's process sees it."""

    def __init__(self, worker: Worker, samples: SampleRing, board: Board) -> None:
        self.worker = worker
        self.samples = samples
        self.board = board
        self.idle = False
        self.fresh = True
        """whether what is known of its state is what it holds"""


class Charges:
    """Which distiller is in charge of which network."""

    def __init__(self, distillers: int) -> None:
        self._specs: list[dict[StudentKey, CompressionSpec]] = [{} for _ in range(distillers)]

    def assign(self, specs: Sequence[CompressionSpec]) -> None:
        """Put the least busy distiller in charge of each network that is new, if there are any."""
        for spec in specs if self._specs else ():
            key = spec.student_key
            if key is not None and not any(key in own for own in self._specs):
                min(self._specs, key=len)[key] = spec

    def keys(self, index: int) -> list[StudentKey]:
        """Return the networks of a distiller."""
        return list(self._specs[index])

    def work(self, index: int, acting: Sequence[CompressionSpec]) -> list[CompressionSpec]:
        """Return what a distiller is to distil now: those of its networks that act, else all."""
        used = {spec.student_key for spec in acting}
        own = self._specs[index]
        return [spec for key, spec in own.items() if key in used] or list(own.values())

    def state_dict(self) -> list[list[dict[str, Any]]]:
        """Return who is in charge of what."""
        return [[spec.to_json() for spec in own.values()] for own in self._specs]

    def load_state_dict(self, state: list[list[dict[str, Any]]]) -> None:
        """Go on from a state returned by `state_dict`."""
        specs = [[CompressionSpec.from_json(spec) for spec in own] for own in state]
        self._specs = [
            {key: spec for spec in own if (key := spec.student_key) is not None} for own in specs
        ]


class DistillerPool:
    """All distilling processes of a run, and which student is whose.

    Like the compressor's, their state is asked for at snapshots only: one that is killed goes on
    from the last of them.
    """

    def __init__(self, distillers: Sequence[Distiller]) -> None:
        self.distillers = list(distillers)
        self.charges = Charges(len(distillers))
        self.known: dict[StudentKey, Any] = {}
        """entries of the compressor's `state_dict`, by network"""
        self._policy_arch: Any = None

    @property
    def workers(self) -> list[Worker]:
        """Their processes."""
        return [distiller.worker for distiller in self.distillers]

    @property
    def is_known(self) -> bool:
        """Whether `known` is up to date."""
        return all(distiller.fresh for distiller in self.distillers)

    def after_update(
        self, states: np.ndarray, acting: Sequence[CompressionSpec], put_weights: Callable[[], None]
    ) -> None:
        """Give work to every distiller that is idle.

        Args:
            states: recorded states [N, *shape] of the last rollout.
            acting: the specs in effect.
            put_weights: makes the learner's weights current; called if anybody gets work.
        """
        self.charges.assign(acting)
        given = False
        for index, distiller in enumerate(self.distillers):
            distiller.samples.add(states)
            chosen = self.charges.work(index, acting)
            if not (distiller.idle and chosen):
                continue
            if not given:
                put_weights()
                given = True
            distiller.idle, distiller.fresh = False, False
            distiller.worker.send(
                {"distill": [spec.to_json() for spec in chosen], "states": distiller.samples.lend()}
            )

    def handle(self, worker: Worker, message: dict[str, Any], known: dict[str, Any]) -> float:
        """Take a message of a distiller; return the seconds that it says it distilled.

        Args:
            worker: who sent it.
            message: what it sent.
            known: the compressor's `state_dict`, from which a new process starts.
        """
        distiller = self._of(worker)
        if "hello" in message:
            worker.send({"state": self.merged(known)})
        elif "taken" in message:
            distiller.samples.returned()
        elif "state" in message:
            entries = message["state"]["distillers"]
            found = {StudentKey(*entry["student"]): entry for entry in entries}
            own = self.charges.keys(self.distillers.index(distiller))
            self.known |= {key: found[key] for key in own if key in found}
            self._policy_arch = message["state"]["policy_arch"]
            distiller.fresh = True
        else:  # it is ready, or done
            distiller.idle = True
        return float(message.get("done", 0.0))

    def died(self, worker: Worker) -> str:
        """Its process has ended; return what was done about it."""
        distiller = self._of(worker)
        distiller.idle, distiller.fresh = False, True
        distiller.samples.returned()
        own = self.charges.keys(self.distillers.index(distiller))
        return f"its {len(own)} students go on from the last checkpoint"

    def ask_state(self) -> None:
        """Ask all whose state is not known; they answer when their work is done."""
        for distiller in self.distillers:
            if not distiller.fresh:
                distiller.worker.send({"state": None})

    def merged(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the compressor's `state_dict` with what distillers know better."""
        entries = {StudentKey(*entry["student"]): entry for entry in state["distillers"]}
        arch = state["policy_arch"] or self._policy_arch
        return {**state, "policy_arch": arch, "distillers": list((entries | self.known).values())}

    def close(self) -> None:
        """Let go of the shared memory."""
        for distiller in self.distillers:
            distiller.samples.close()
            distiller.board.close()

    def _of(self, worker: Worker) -> Distiller:
        return next(each for each in self.distillers if each.worker is worker)


def distill_students(
    channel: Channel,
    network: str,
    observation: ObservationSpec,
    num_actions: int,
    config: CompressionConfig,
    weights_handle: dict[str, Any],
    samples_handle: dict[str, Any],
    board_handle: dict[str, Any],
) -> None:
    """Body of a distiller's process: take weights and states, distil, show the students.

    The messages, in order: this process says `hello` and receives the compressor's `state`; it is
    `ready`; for each work it says `taken` when it has copied the states, and then `done` with the
    seconds that it took; asked for its `state`, it sends it.
    """
    from accerl.runtime.process.workers import policy_and_compressor

    policy, compressor = policy_and_compressor(network, observation, num_actions, config)
    weights, samples = WeightVector(**weights_handle), SampleRing(**samples_handle)
    board = Board(**board_handle)
    try:
        channel.send({"hello": True})
        compressor.load_state_dict(channel.receive()["state"])
        channel.send({"ready": True})
        while True:
            message = channel.receive()
            if "distill" not in message:
                channel.send({"state": compressor.state_dict()})
                continue
            before = perf_counter()
            weights.load_into(policy)
            compressor.observe(samples.lent(*message["states"]))
            channel.send({"taken": True})
            specs = [CompressionSpec.from_json(spec) for spec in message["distill"]]
            compressor.distill(policy, specs)
            board.put(compressor.students(specs))
            channel.send({"done": perf_counter() - before})
    finally:
        board.close()
        samples.close()
        weights.close()
