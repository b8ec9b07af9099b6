"""Charges: which network is distilled by which process, and how much of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from accerl.json_fields import JsonFields
from accerl.spec import CompressionSpec, StudentKey

PIECE_UPDATES = 4
"""distillation updates after which a process looks for news, and shows what it has made"""
MOST_IDLE = 8
"""networks that do not act and that one distiller keeps close, those that acted last"""


def most_sharers(distillers: int, updates: int) -> int:
    """Return how many distillers may share one network of which so many updates are allowed.

    K that split N updates change it by the mean of what each does in N / K: one that does all N
    stays closer to a learner that moves. (Were their changes added up, each having begun without
    the others', the student would now and then be thrown far off.)
    """
    return 1 if updates else distillers


@dataclass(frozen=True)
class Charge(JsonFields):
    """A network that a process is to distil."""

    spec: CompressionSpec
    leads: bool = True
    """whether the process begins the network; others take it over from there"""
    sharers: int = 1
    """processes that distil it at the moment"""
    updates: int = 0
    """this one's, per learner update at most; 0: no limit"""

    @property
    def key(self) -> StudentKey:
        """The network."""
        key = self.spec.student_key
        assert key is not None
        return key


class Charges:
    """Which distillers are in charge of which network; without distillers the compressor is.

    Every network has one fixed leader. Without a limit on updates, distillers that lead nothing in
    use help with the networks that are in use, as evenly as possible. With `follow_idle`, the
    distillers that are left keep close what they lead and does not act, up to `MOST_IDLE`, unless
    others need the cores.

    Args:
        distillers: how many there are.
        updates: `CompressionConfig.distill_updates`.
        follow_idle: whether networks that do not act are kept close.
    """

    def __init__(self, distillers: int, updates: int, *, follow_idle: bool = True) -> None:
        self._specs: list[dict[StudentKey, CompressionSpec]] = [{} for _ in range(distillers)]
        self._updates = updates
        self._follow_idle = follow_idle

    def assign(self, specs: Sequence[CompressionSpec]) -> None:
        """Have the least busy distiller lead each network that is new, if there are any."""
        for spec in specs if self._specs else ():
            key = spec.student_key
            if key is None:
                continue
            leader = next((own for own in self._specs if key in own), None)
            if leader is None:
                min(self._specs, key=len)[key] = spec
            else:  # behind those that have not acted since
                leader[key] = leader.pop(key)

    def keys(self, index: int) -> list[StudentKey]:
        """Return the networks that a distiller leads."""
        return list(self._specs[index])

    def work(self, index: int, acting: Sequence[CompressionSpec]) -> tuple[Charge, ...]:
        """Return what a distiller is to distil while those specs act."""
        used = {key: spec for spec in acting if (key := spec.student_key) is not None}
        sharers = self._sharers(list(used))
        found = [
            Charge(spec, own[0] == index, len(own), self._updates)
            for key, spec in used.items()
            if index in (own := sharers[key])
        ]
        if found or not self._follow_idle:
            return tuple(found)
        idle = list(self._specs[index].values())[-MOST_IDLE:]
        return tuple(Charge(spec, updates=self._updates) for spec in idle)

    def _sharers(self, keys: Sequence[StudentKey]) -> dict[StudentKey, list[int]]:
        """Return who distils each network that acts, the leader first."""
        sharers: dict[StudentKey, list[int]] = {
            key: [index for index, own in enumerate(self._specs) if key in own] for key in keys
        }
        busy = {index for own in sharers.values() for index in own}
        most = most_sharers(len(self._specs), self._updates)
        for index in range(len(self._specs)):
            open_to_help = [own for own in sharers.values() if 0 < len(own) < most]
            if index not in busy and open_to_help:
                min(open_to_help, key=len).append(index)
        return sharers

    def left_to_compressor(self, acting: Sequence[CompressionSpec]) -> tuple[Charge, ...]:
        """Return the networks that act and that the compressor must distil itself."""
        if self._specs:
            return ()
        # Two specs that differ in bits alone share their network.
        unique = {spec.student_key: spec for spec in acting if spec.student_key is not None}
        return tuple(Charge(spec, updates=self._updates) for spec in unique.values())

    def state_dict(self) -> list[list[dict[str, Any]]]:
        """Return who leads what."""
        return [[spec.to_json() for spec in own.values()] for own in self._specs]

    def load_state_dict(self, state: list[list[dict[str, Any]]]) -> None:
        """Go on from a state returned by `state_dict`."""
        specs = [[CompressionSpec.from_json(spec) for spec in own] for own in state]
        self._specs = [
            {key: spec for spec in own if (key := spec.student_key) is not None} for own in specs
        ]


class Pace:
    """What a process distils next: in pieces, and no more than is allowed per learner update.

    What a learner update allowed and was not used has lapsed with the next one, but for the
    fraction of an update that was due.
    """

    def __init__(self, due: Callable[[StudentKey, int], float]) -> None:
        """Ask `due` how many of the updates that are allowed a network needs."""
        self._due = due
        self._version = -1
        self._done: Counter[StudentKey] = Counter()
        self._budgets: dict[StudentKey, float] = {}  # updates, what was carried over included
        self._carried: dict[StudentKey, float] = {}

    def next(self, charges: Sequence[Charge], version: int) -> tuple[Charge, int] | None:
        """Return the charge that has had least, and the updates of its next piece.

        Args:
            charges: of the process.
            version: learner updates of the weights that it is about to follow.

        Returns:
            None if all had what is due to them.
        """
        left = [(charge, min(self.left(charge, version), PIECE_UPDATES)) for charge in charges]
        open_charges = [each for each in left if each[1] > 0]
        return min(open_charges, key=lambda each: self._done[each[0].key], default=None)

    def left(self, charge: Charge, version: int) -> int:
        """Return how many updates are due to a charge's network, or to its next piece."""
        if version != self._version:
            self._version = version
            self._carried = {
                key: max(budget - self._done[key], 0.0) % 1.0
                for key, budget in self._budgets.items()
            }
            self._budgets.clear()
            self._done.clear()
        if not charge.updates:
            return PIECE_UPDATES
        key = charge.key
        self._budgets[key] = self._carried.get(key, 0.0) + self._due(key, charge.updates)
        return int(self._budgets[key]) - self._done[key]

    def begun(self, version: int) -> bool:
        """Whether anything followed the learner's weights of that version."""
        return self._version == version and bool(self._done)

    def add(self, charge: Charge, updates: int) -> None:
        """Note updates of a network."""
        self._done[charge.key] += updates

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        counted = {"done": self._done, "budgets": self._budgets, "carried": self._carried}
        return {
            "version": self._version,
            **{
                name: [[list(key), updates] for key, updates in counts.items()]
                for name, counts in counted.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._version = state["version"]
        done, self._budgets, self._carried = (
            {StudentKey(*key): updates for key, updates in state[name]}
            for name in ("done", "budgets", "carried")
        )
        self._done = Counter(done)
