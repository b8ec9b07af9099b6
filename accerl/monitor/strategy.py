"""Strategy: whatever turns features into a decision."""

from __future__ import annotations

from typing import Protocol

from accerl.monitor.features import Features
from accerl.spec import Decision


class Strategy(Protocol):
    """A hand-set rule, a bandit, the learned controller or a replayed schedule."""

    def reset(self) -> None:
        """Forget everything of the last run; called before the first decision of a run."""
        ...

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval."""
        ...
