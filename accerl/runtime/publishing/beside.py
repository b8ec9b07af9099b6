"""Publishing: a compressor and distillers, as the learner beside them sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from accerl.acting.rollout import Rollout
from accerl.runtime.process.supervise import Supervised
from accerl.runtime.publishing.orders import PublicationOrders


class Publishing(Protocol):
    """Whoever compresses, as the learner's process sees it."""

    @property
    def orders(self) -> PublicationOrders:
        """What was asked for and published."""
        ...

    @property
    def is_known(self) -> bool:
        """Whether `state_dict` would be up to date."""
        ...

    @property
    def worker(self) -> Supervised:
        """The compressor."""
        ...

    @property
    def is_working(self) -> bool:
        """Whether the compressor has been asked for something that it has not finished."""
        ...

    @property
    def following(self) -> Mapping[str, bool]:
        """Which distillers, by name, have been shown weights and not said that they took them."""
        ...

    def after_update(self, rollout: Rollout) -> None:
        """Record states; if the compressor has nothing to do, give it what there is."""
        ...

    def rest(self) -> None:
        """Have nobody distil without a limit until the learner's next update.

        For while the run's clock stands still: what is limited ends by itself.
        """
        ...

    def publish(self) -> None:
        """Order a publication of the learner's weights, if the compressor has nothing to do."""
        ...

    def ask_state(self) -> None:
        """Ask for what `state_dict` is to return."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return orders, and the compressor's state as it was last known."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`; only before anything starts."""
        ...
