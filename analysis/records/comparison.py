"""Reading comparison.json: what a comparison of strategies on one game came to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import read_json

COMPARISON = "comparison.json"
REQUIRED = (
    *("game", "network", "clock", "profile", "seconds", "seeds", "baseline", "scores"),
    *("scores_given", "strategies", "run_folders"),
)
"""what it says at least"""


def load_comparison(folder: Path) -> Mapping[str, Any]:
    """Read a folder's comparison.json.

    Raises:
        UserError: it is missing, incomplete or damaged.
    """
    path = folder / COMPARISON
    result = read_json(path)
    if not isinstance(result, dict):
        raise UserError(f"{path} must hold a JSON object, found {type(result).__name__}")
    missing = [name for name in REQUIRED if name not in result]
    missing += [name for name in ("seeds", "strategies") if name in result and not result[name]]
    if missing:
        raise UserError(f"{path} is incomplete or damaged: it has no {', '.join(missing)}")
    return result
