"""Gymnasium's registry: an id's specification, nearest names, and how a package is installed."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from importlib import import_module
from typing import Any

from accerl.errors import UserError, one_line, raised_in

REGISTERED_BY = {"ALE/": "ale_py", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""packages whose import registers ids that begin like this"""
EXTRAS = {
    "box2d": "gymnasium[box2d]",
    "mujoco": "gymnasium[mujoco]",
    "phys2d": "gymnasium[jax]",
    "tabular": "gymnasium[jax]",
    "toy_text": "gymnasium[toy-text]",
}
"""what pip installs for a folder of gymnasium.envs"""


def bare_id(game: str) -> str:
    """Return an id without the module that registers it."""
    return game.rpartition(":")[2]


def find_spec(game: str) -> Any:
    """Return the `EnvSpec` of a game; ``module:Id`` imports the module first, None if unknown.

    Raises:
        UserError: the module, or the package that registers such ids, cannot be imported.
    """
    import gymnasium

    module = game.rpartition(":")[0]
    known = next((name for start, name in REGISTERED_BY.items() if game.startswith(start)), "")
    if package := module or known:
        try:
            import_module(package)
        except Exception as error:  # a user's own code may fail in any way
            where = "install it, or run in the folder that holds it" if module else _pip(package)
            if not isinstance(error, ImportError):
                where = f"mend it{raised_in(error)}"
            raise UserError(
                f"game {game!r}: importing {package!r} failed, {type(error).__name__}: "
                f"{one_line(error)}; {where}"
            ) from error
    return gymnasium.registry.get(bare_id(game))


def nearest(game: str, others: Collection[str]) -> list[str]:
    """Return at most three names that come nearest to `game`: of `others`, and registered ids.

    Those for ``module:Id`` are registered ids, and begin with the module too.
    """
    import gymnasium

    module, colon, bare = game.rpartition(":")

    # ale-py registers every game a dozen times; the namespace ALE has what counts today.
    registered = [
        name
        for name, spec in gymnasium.registry.items()
        if name.startswith("ALE/") or not str(spec.entry_point).startswith("ale_py")
    ]
    names = {name.lower(): name for name in (*registered, *(() if module else others))}
    close = difflib.get_close_matches(bare.lower(), list(names), n=3)
    return [f"{module}{colon}{names[name]}" for name in close]


def missing_package(game: str, spec: Any, error: Exception) -> UserError:
    """Return the refusal of a game that needs a package which is not installed."""
    entry = spec.entry_point or spec.vector_entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)
    parts = module.split(".")
    extra = EXTRAS.get(parts[2]) if parts[:2] == ["gymnasium", "envs"] else None
    package = extra or (getattr(error, "name", None) or "").partition(".")[0] or parts[0]
    needed = f"game {game!r} needs a package that is not installed ({one_line(error)})"
    return UserError(f"{needed}; {_pip(package)}")


def _pip(package: str) -> str:
    return f"run `pip install '{package}'`"
