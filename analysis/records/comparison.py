"""Reading comparison.json: what a comparison of strategies on one game came to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from analysis.records.read import read_record, require_shape

COMPARISON = "comparison.json"
_RATIO = ([float], None)
SHAPE = {
    **{"game": str, "network": str, "clock": str, "profile": (str, None), "seconds": float},
    **{"seeds": [int], "baseline": str, "scores": [float], "scores_given": bool},
    "run_folders": {str: str},
    "strategies": [
        {
            **{"label": str, "seeds": int, "acted": {str: float}, "learner_cut_off": int},
            **{"env_steps_per_second": float, "compression_kl_nats": (float, None)},
            **{"learner_score": (float, None), "last_score": (float, None)},
            **{"core_seconds": (float, None), "distill_cores": (float, None)},
            "speed": {"ratio": (float, None), "interval": _RATIO},
            "learner_score_gain": {"difference": (float, None), "interval": _RATIO},
            "curves": [{"seconds": [float], "env_steps": [float], "scores": [(float, None)]}],
            "to_score": [
                {
                    **{"score": float, "reached": int, "pairs": int, "bound": str},
                    **{"seconds": (float, None), "env_steps": (float, None)},
                    **{"seconds_ratio": (float, None), "env_steps_ratio": (float, None)},
                    **{"seconds_interval": _RATIO, "env_steps_interval": _RATIO},
                }
            ],
        }
    ],
}
"""what it says at least"""


def load_comparison(folder: Path) -> Mapping[str, Any]:
    """Read a folder's comparison.json.

    Raises:
        UserError: it is missing, incomplete or damaged.
    """
    path = folder / COMPARISON
    result = read_record(path)
    require_shape(result, SHAPE, str(path))
    empty = [name for name in ("seeds", "strategies") if not result[name]]
    if empty:
        raise UserError(f"{path} names no {' and no '.join(empty)}; run `accerl compare` again")
    for row in result["strategies"]:
        label, timed = row["label"], [found["score"] for found in row["to_score"]]
        if label not in result["run_folders"]:
            raise UserError(f"{path} is incomplete or damaged: it has no run folder of {label}")
        for found in (row["speed"], row["learner_score_gain"], *row["to_score"]):
            for name, bounds in found.items():
                if name.endswith("interval") and bounds is not None and len(bounds) != 2:
                    raise UserError(f"{path} is damaged: {label}: {name} needs two bounds")
        if timed != result["scores"]:
            raise UserError(f"{path} is damaged: {label} is timed to {timed}, not to its scores")
    return result
