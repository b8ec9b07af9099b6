"""What the files beside a study.json say at least, for `require_shape`."""

from __future__ import annotations

_NUMBER = (float, None)
_ESTIMATE = {"ratio": _NUMBER, "low": _NUMBER, "high": _NUMBER}
_SCHEDULE = {**_ESTIMATE, "values": [float]}
ORACLE_GAP = {
    "rows": [
        {
            **{"game": str, "profile": str, "seeds": [int], "horizon_seconds": float},
            **{"statics": {str: [float]}, "best_static": str},
            **dict.fromkeys(("fp32", "two_phase", "oracle", "placebo"), _SCHEDULE),
        }
    ]
}
VARIANTS = [{**_ESTIMATE, "name": str, "what": (str, None), "ratio": float, "note": str}]
CHECKS = [{"variant": str, "candidate": str, "gain": _NUMBER, "accepted": bool}]
REAL = {
    "rows": [
        {
            **{"game": str, "strategy": str, "seed": int, "env_steps_per_second": float},
            **{"predicted_env_steps_per_second": float, "final_return": _NUMBER},
            **{"spec_seconds": {str: float}, "cpu_seconds": _NUMBER, "publication_bytes": _NUMBER},
        }
    ]
}
TUNING = [{"strategy": str, "score": _NUMBER}]
