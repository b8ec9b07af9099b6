"""Safeguard: a learner that diverges is set back to its last good weights, once."""

from __future__ import annotations

import sys
from typing import Any

from accerl.acting.rollout import Rollout
from accerl.errors import UserError
from accerl.learner.learner import Learner, UpdateStats
from accerl.runtime.events import RunEvent


class Safeguard:
    """Updates the learner; after a NaN or infinity, goes on from the last state it was shown.

    Weights that are NaN or infinite are never published: either the step that would have made them
    so is not taken, or what it has made is refused (see `Learner.update`). But the steps before it
    led there, and their momentum would again.

    Args:
        learner: of the run.
        gradients: whether a state holds the gradients of the last update, see `Learner.state_dict`.
    """

    def __init__(self, learner: Learner, *, gradients: bool = False) -> None:
        self._learner, self._gradients = learner, gradients
        self._good: dict[str, Any] | None = None
        self.set_back_at: int | None = None
        """the update at which that happened"""
        self._events: list[RunEvent] = []

    def take(self) -> dict[str, Any]:
        """Remember the learner as it is now to go back to; return its `state_dict`."""
        self._good = self._learner.state_dict(gradients=self._gradients)
        return self._good

    def update(self, rollout: Rollout, *, seconds: float) -> UpdateStats | None:
        """Update the learner; None if that failed and it was set back: the rollout is spent.

        Args:
            rollout: what to learn from.
            seconds: the run's clock, for the event.

        Raises:
            UserError: it has been set back before.
            FloatingPointError: there is no state to go back to.
        """
        learner = self._learner
        try:
            return learner.update(rollout)
        except FloatingPointError as error:
            if self.set_back_at is not None:
                raise UserError(
                    f"{error} (it had been set back once, at update {self.set_back_at}); begin "
                    "another run with its learner and a lower rate (--start RUN --set "
                    "learner.learning_rate=...): learning_rate is "
                    f"{learner.config.learning_rate:g}, max_grad_norm "
                    f"{learner.config.max_grad_norm:g}, precision {learner.config.precision}"
                ) from error
            if self._good is None:
                raise
            self._set_back(error, seconds)
            return None

    def _set_back(self, error: FloatingPointError, seconds: float) -> None:
        assert self._good is not None
        learner = self._learner
        updates, good = learner.updates, self._good["updates"]
        learner.load_state_dict(self._good)
        learner.updates = updates  # versions count on: what actors act with is not from the future
        self.set_back_at = updates
        action = f"set back to the weights of update {good}; a second time would end the run"
        print(f"{error}; {action}", file=sys.stderr)
        self._events.append(
            RunEvent(role="learner", seconds=seconds, cause=str(error), action=action)
        )

    def take_events(self) -> tuple[RunEvent, ...]:
        """Return the events since the last call."""
        events, self._events = tuple(self._events), []
        return events
