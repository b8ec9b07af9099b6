"""Reading comparison.json: what a comparison of strategies on one game came to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from analysis.records.read import read_record

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
    result = read_record(path, REQUIRED)
    empty = [name for name in ("seeds", "strategies") if not result[name]]
    if empty:
        raise UserError(f"{path} names no {' and no '.join(empty)}; run `accerl compare` again")
    try:
        labels = [row["label"] for row in result["strategies"]]
        lacking = [label for label in labels if label not in result["run_folders"]]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is incomplete or damaged: {error!r}") from error
    if lacking:
        raise UserError(f"{path} is incomplete or damaged: it has no run folder of {lacking[0]}")
    return result
