"""An optimiser's moments as a tree of tensors with string keys, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the moments of an optimiser as a tree with string keys (JSON has no others).

    They are copies on the CPU: who reads them may see no GPU.
    """
    return {
        str(index): {name: copied_to_cpu(value) for name, value in moments.items()}
        for index, moments in optimiser.state_dict()["state"].items()
    }


def copied_to_cpu(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU that shares nothing with `tensor`, without gradient."""
    return tensor.detach().to("cpu", copy=True)


def load_optimiser_state(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Put back what `optimiser_state` returned."""
    data = optimiser.state_dict()
    data["state"] = {
        int(index): {name: value.clone() for name, value in moments.items()}
        for index, moments in state.items()
    }
    optimiser.load_state_dict(data)
