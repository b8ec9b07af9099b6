"""What the processes of a run say to each other, one class a message.

Every process gets `Ready` first, and only then work. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from accerl.json_fields import JsonFields
from accerl.runtime.publishing.charges import Charge
from accerl.runtime.publishing.delivery import Delivery, Order, Shadow


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
    details: str | None = None
    """of an environment that failed: its traceback, see `GameError`; None: something else"""


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
class Act(Message):
    """To an actor that is timed: act with what is in the mailbox."""

    batch: int
    """states per inference"""


@dataclass(frozen=True)
class Timed(Message):
    """From an actor that is timed: microseconds per environment step, and of loading."""

    microseconds: dict[str, float]


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
class Distil(JsonFields, Message):
    """To a compressor or a distiller: distil these networks from now on, and no others."""

    charges: tuple[Charge, ...]


@dataclass(frozen=True)
class Distilled(Message):
    """From a compressor or a distiller: what it did since it last said so.

    It is about to read newer weights of the learner's, or waits for them.
    """

    updates: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Publish(JsonFields, Message):
    """To a compressor: publish the learner's weights."""

    states: Sequence[int]
    """index and number of the states that are lent, see `SampleRing`"""
    order: Order


@dataclass(frozen=True)
class Taken(Message):
    """From a compressor: the weights and states of an order are copied."""


@dataclass(frozen=True)
class Done(JsonFields, Message):
    """From a compressor: what became of the order."""

    delivery: Delivery


@dataclass(frozen=True)
class Shadowed(JsonFields, Message):
    """From a compressor, after `Done`: what became of the order's shadow."""

    shadow: Shadow


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
        *(Ready, Mistake, Fill, Filled, Act, Timed, Hello, AskState, State),
        *(Distil, Distilled, Publish, Taken, Done, Shadowed, Measure, Measured),
        *(Join, Joining, Learn, Leave),
    )
}
"""the kinds of messages by name: nothing else is read"""
