"""The state of a controller's training, and how it is saved and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from accerl.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from accerl.errors import UserError, one_line
from controller.training.module import PolicyModule

P = TypeVar("P", bound=PolicyModule)


class Trainer(ABC, Generic[P]):
    """Owns policy, iteration number and the statistics so far.

    Steps are plain: an optimiser such as Adam makes each of the same length, also where what was
    played says nothing, and so walks at random for as long as it is given. Saved after every
    iteration, a training that was killed goes on bit by bit as if it had not been, provided that
    what it is given depends on the iteration alone.

    Args:
        policy: trained in place.
        learning_rate: a step goes so far along what `_step` is given.
        settings: how it trains, as JSON; a checkpoint with other settings is refused.
    """

    def __init__(
        self,
        policy: P,
        learning_rate: float,
        settings: dict[str, Any],
    ) -> None:
        self.policy = policy
        self.learning_rate = learning_rate
        self.settings = settings
        self.history: list[dict[str, float]] = []
        """one row of statistics per iteration"""

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        return len(self.history)

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state, as a tree for `save_checkpoint`."""
        return {
            "settings": self.settings,
            "policy": dict(self.policy.state_dict()),
            "history": self.history,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Become the training that `snapshot` was taken from.

        Raises:
            UserError: it was another training: other settings, or another policy.
        """
        if snapshot["settings"] != self.settings:
            mine, theirs = self.settings, snapshot["settings"]
            names = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
            raise UserError(
                f"checkpoint: it is of a training with other settings ({', '.join(names)}); "
                "give the same ones to go on with it, or another place for the checkpoint"
            )
        try:
            self.policy.load_state_dict(snapshot["policy"])
        except RuntimeError as error:
            raise UserError(f"checkpoint: it is of another policy: {one_line(error)}") from error
        self.history = list(snapshot["history"])

    @abstractmethod
    def proposal(self) -> Any:
        """Return what the next iteration plays."""

    @abstractmethod
    def improve(self, played: Any) -> dict[str, float]:
        """Learn from what was played; append a row to `history` and return it."""

    def _step(self, up: np.ndarray) -> None:
        """Climb along a direction [weights]."""
        parameters = list(self.policy.parameters())
        moves = torch.from_numpy(self.learning_rate * up).float()
        with torch.no_grad():
            vector_to_parameters(parameters_to_vector(parameters) + moves, parameters)

    def train(
        self, play: Callable[[Any, int], Any], iterations: int, checkpoint: Path | None = None
    ) -> list[dict[str, float]]:
        """Alternate playing and improving; return one row of statistics per iteration.

        Args:
            play: (`proposal`, iteration) -> what `improve` takes. It must depend on its arguments
                alone if a resumed training is to equal an uninterrupted one.
            iterations: how many, those of a resumed training included.
            checkpoint: folder to save everything in after every iteration, and to resume from.

        Raises:
            UserError: what was played is not usable, or the checkpoint is of another training or of
                a longer one.
        """
        if checkpoint is not None:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
        if checkpoint is not None and has_checkpoint(checkpoint):
            self.restore(load_checkpoint(checkpoint))
        if self.iteration > iterations:
            raise UserError(
                f"what was trained is {self.iteration} iterations long, more than {iterations}; "
                "ask for at least as many, or delete it to begin anew"
            )
        while self.iteration < iterations:
            self.improve(play(self.proposal(), self.iteration))
            if checkpoint is not None:
                save_checkpoint(checkpoint, self.snapshot())
        return self.history
