"""What a module's forward can depend on besides the values of its weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from torch import Tensor, nn

_OWN = set(vars(nn.Module()))  # what any module has


def structure(module: nn.Module) -> Hashable:
    """Return all that a module's forward can depend on besides the values of its weights."""
    modules = tuple(
        (name, type(part), tuple(_settings(part))) for name, part in module.named_modules()
    )
    tensors = (*module.named_parameters(), *module.named_buffers())
    return modules, tuple((name, tuple(one.shape), one.dtype) for name, one in tensors)


def _settings(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what a module remembers besides its parts and weights."""
    for name, value in sorted(vars(module).items()):
        if name in _OWN:
            continue
        if isinstance(value, Tensor):
            yield name, value.detach().cpu().numpy().tobytes()
        elif callable(value):
            yield name, value  # itself: functions may share a name
        else:
            plain = type(value).__repr__ is not object.__repr__
            yield name, repr(value) if plain else type(value)
