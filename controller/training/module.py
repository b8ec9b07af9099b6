"""PolicyModule: weights that are trained here and travel to worker processes as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from torch import nn


class PolicyModule(nn.Module):
    """What every trainable policy of the outer problem is."""

    def num_parameters(self) -> int:
        """Return the number of trained numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    def to_json(self) -> dict[str, Any]:
        """Return sizes and weights as plain numbers: what a worker process needs to act."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a policy written by `to_json`.

        Raises:
            UserError: a weight is missing, unknown or has the wrong shape.
        """
        raise NotImplementedError
