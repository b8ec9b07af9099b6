"""PolicyModule: weights that are trained here and travel to worker processes as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import nn

from accerl.errors import UserError, one_line


class PolicyModule(nn.Module):
    """What every trainable policy of the outer problem is.

    Args:
        hidden: width of its hidden layer.
        generator: of its initial weights.
    """

    owner: ClassVar[str]
    """of the policy, as errors name it"""

    def __init__(self, hidden: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.hidden = hidden

    def num_parameters(self) -> int:
        """Return the number of trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    def to_json(self) -> dict[str, Any]:
        """Return sizes and weights as plain numbers: what a worker process needs to act."""
        weights = {name: value.tolist() for name, value in self.state_dict().items()}
        return {"hidden": self.hidden, "weights": weights}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a policy written by `to_json`.

        Raises:
            UserError: a weight is missing, unknown or has the wrong shape.
        """
        try:
            policy = cls(int(data["hidden"]), generator=torch.Generator().manual_seed(0))
            weights = {name: torch.tensor(value) for name, value in data["weights"].items()}
            policy.load_state_dict(weights)
        except (KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"{cls.owner}: the weights do not fit: {one_line(error)}") from error
        return policy
