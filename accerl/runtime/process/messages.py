"""What the processes of a run say to each other, one class a message.

Every process gets `Ready` first, and only then work. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from accerl.runtime.publishing.delivery import Delivery, Order
from accerl.spec import CompressionSpec


@dataclass(frozen=True)
class Message:
    """A message; arrays in it are not copied before they are packed."""

    def to_json(self) -> dict[str, Any]:
        """Return the message as a tree whose leaves may be arrays and tensors."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a message written by `to_json`."""
        return cls(**data)


@dataclass(frozen=True)
class Ready(Message):
    """The sender is ready for work, at first or again."""


@dataclass(frozen=True)
class Mistake(Message):
    """The sender ends because of a mistake of the user's."""

    text: str


@dataclass(frozen=True)
class News(Message):
    """Something has happened that the receiver looks for itself."""


@dataclass(frozen=True)
class Fill(Message):
    """To an actor: fill these slots, in order."""

    slots: Sequence[int]
    publication: int
    """number of the last publication that was ordered, see `accerl.runtime.process.roles`"""


@dataclass(frozen=True)
class Filled(Message):
    """From an actor: this slot is full."""

    slot: int


@dataclass(frozen=True)
class Hello(Message):
    """From a compressor or a distiller: it needs a `State` to start from."""


@dataclass(frozen=True)
class AskState(Message):
    """To a compressor or a distiller: send your `State`."""


@dataclass(frozen=True)
class State(Message):
    """What a compressor or a distiller is, see `Compressor.state_dict`."""

    state: dict[str, Any]


@dataclass(frozen=True)
class Work(Message):
    """To a compressor or a distiller: distil, and publish what is ordered."""

    distill: tuple[CompressionSpec, ...]
    states: Sequence[int]
    """index and number of the states that are lent, see `SampleRing`"""
    order: Order | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the work as a JSON object."""
        order = None if self.order is None else self.order.to_json()
        return {
            "distill": [spec.to_json() for spec in self.distill],
            "states": self.states,
            "order": order,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Work:
        """Read work written by `to_json`."""
        order = None if data["order"] is None else Order.from_json(data["order"])
        return cls(tuple(map(CompressionSpec.from_json, data["distill"])), data["states"], order)


@dataclass(frozen=True)
class Taken(Message):
    """From a compressor or a distiller: weights and states are copied."""


@dataclass(frozen=True)
class Done(Message):
    """From a compressor or a distiller: its work is done."""

    distill_seconds: float
    delivery: Delivery | None = None
    """what became of the order"""

    def to_json(self) -> dict[str, Any]:
        """Return what was done as a JSON object."""
        delivery = None if self.delivery is None else self.delivery.to_json()
        return {"distill_seconds": self.distill_seconds, "delivery": delivery}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Done:
        """Read a message written by `to_json`."""
        delivery = None if data["delivery"] is None else Delivery.from_json(data["delivery"])
        return cls(data["distill_seconds"], delivery)


@dataclass(frozen=True)
class Measure(Message):
    """To the evaluator: measure J of the current weights."""


@dataclass(frozen=True)
class Measured(Message):
    """From the evaluator: J."""

    learner_return: float | None


@dataclass(frozen=True)
class Join(Message):
    """To a learner's rank: take this state and join the group."""

    port: int
    size: int
    state: dict[str, Any]
    """of the learner"""


@dataclass(frozen=True)
class Joining(Message):
    """From a learner's rank: it has the state, and joins."""


@dataclass(frozen=True)
class Learn(Message):
    """To a learner's rank: learn from your share of this slot."""

    slot: int


@dataclass(frozen=True)
class Leave(Message):
    """To a learner's rank: leave the group."""


MESSAGES: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        *(Ready, Mistake, News, Fill, Filled, Hello, AskState, State, Work, Taken, Done),
        *(Measure, Measured, Join, Joining, Learn, Leave),
    )
}
"""the kinds of messages by name: nothing else is read"""
