"""What a module's forward can depend on besides the values of its weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_OWN = set(vars(nn.Module()))  # what any module has


def structure(module: nn.Module) -> Hashable:
    """Return all that a module's forward can depend on besides the values of its weights."""
    modules = tuple(
        (name, type(part), tuple(_settings(part))) for name, part in module.named_modules()
    )
    tensors = (*module.named_parameters(), *module.named_buffers())
    return modules, tuple((name, tuple(one.shape), one.dtype) for name, one in tensors)


def _settings(module: nn.Module) -> Iterator[tuple[str, Hashable]]:
    """Yield what a module remembers besides its parts and weights, and what else it calls."""
    for name, value in sorted(vars(module).items()):
        if name not in _OWN:
            yield name, _known(value, ())
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        if hooks := getattr(module, name):
            yield name, tuple(map(_hook, hooks.values()))


def _hook(hook: Callable[..., Any]) -> Hashable:
    """Return what a hook and its copies have in common."""
    function = hook.__func__ if isinstance(hook, MethodType) else hook
    return function if isinstance(function, FunctionType) else type(function)


def _is_of_torch(value: Any) -> bool:
    """Whether something is one of torch's or NumPy's own functions, of which copies are itself."""
    home = type(value).__module__.partition(".")[0]
    return callable(value) and isinstance(value, Hashable) and home in ("torch", "numpy")


def _known(value: Any, within: tuple[Any, ...]) -> Hashable:
    """Return what tells a value from others: what is in it, as far as that can be seen.

    Args:
        value: any object.
        within: the containers and objects that it lies in.
    """
    if any(value is outer for outer in within):
        return type(value)
    inner = (*within, value)
    if isinstance(value, Tensor):
        numbers = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)  # of any type
        return tuple(value.shape), value.dtype, numbers.numpy().tobytes()
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, nn.Module):  # no part of what it lies in: its weights are constants there
        return type(value), _known(vars(value), inner)
    if isinstance(value, MethodType):
        return value.__func__, _known(value.__self__, inner)
    if isinstance(value, partial):
        return partial, _known((value.func, value.args, value.keywords), inner)
    if isinstance(value, FunctionType | BuiltinFunctionType | type) or _is_of_torch(value):
        return value  # itself: functions may share a name
    if isinstance(value, Mapping):
        items = ((repr(key), _known(each, inner)) for key, each in value.items())
        return type(value), tuple(items)
    if isinstance(value, list | tuple):
        return type(value), tuple(_known(each, inner) for each in value)
    if hasattr(value, "__dict__"):
        return type(value), _known(vars(value), inner)
    plain = type(value).__repr__ is not object.__repr__
    return repr(value) if plain else type(value)
