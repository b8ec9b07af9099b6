"""What files of runs and studies say at least, for `require_shape`."""

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
META_TRAINING = [{"iteration": int, "game": str, "gain": _NUMBER, "spread": _NUMBER}]
PROFILE = {
    **{"env_step_us": float, "learner_us_per_sample": float, "num_actors": int, "cores": int},
    **{"down_bytes_per_second": float, "up_bytes_per_second": float},
    "specs": [{"spec": dict, "infer_us": {str: float}}],
}
SUMMARY = {
    **{"seconds": float, "env_steps": int, "env_steps_per_second": _NUMBER},
    **{"final_return": _NUMBER, "best_return": _NUMBER},
    **{"spec_seconds": {str: float}, "phases": {str: float}},
}
"""of a run"""
_GAIN = {**_ESTIMATE, "pairs": int}
_SPEC_GAINS = {str: _NUMBER}
ROOM = {
    "gate": {"reason": str},
    "room": {
        **{"naive": float, "parts_pairs": int, "choices": {str: _ESTIMATE}, "speed": _ESTIMATE},
        **{"fidelity": _ESTIMATE, "instances": int, **_GAIN},
    },
    "groups": [{"name": str, "speed": _ESTIMATE, "fidelity": _ESTIMATE, "instances": int, **_GAIN}],
    "means": [
        {
            **{"game": str, "machine": str, "group": str, "label": str, "seeds": int},
            **{"over_best": float, "censored": float, "final_return": float},
            **{"seconds_to_target": float, "env_steps_to_target": _NUMBER},
        }
    ],
    "families": [
        {
            **{"family": str, "instances": int, "missed": float, "filled": float},
            **{"seconds": _SPEC_GAINS, "env_steps": _SPEC_GAINS, "final": _SPEC_GAINS},
        }
    ],
    "unseen": [
        {"name": str, "filled": float, "over_single": _ESTIMATE, "over_elsewhere": _ESTIMATE}
    ],
    "games": [
        {
            **{"game": str, "random_return": float, "reference_return": float},
            "noise_share": _NUMBER,
        }
    ],
    "targets": [{"target": float, "reached": _NUMBER, **_ESTIMATE}],
    "chosen": {"one for all": str},
    "strategies": [
        {
            **{"name": str, "label": str, "pairs": int, "acted": {str: float}, "params": dict},
            **{"inner_runs": int, "sets": int, "tuned_on": list},
            "slower": [{"instance": str, "ratio": float}],
            "by": [{"by": str, "name": str, "pairs": int}],
            **dict.fromkeys(
                ("over_single", "over_elsewhere", "over_virtual", "over_uncompressed"), _ESTIMATE
            ),
        }
    ],
    "decomposition": [_ESTIMATE],
    "stopped": [{"label": str, "instance": str, "seeds_saved": int}],
    **{"core_hours": float, "plan_hash": str, "command": str, "finished": bool},
}
"""of a study of room"""
ROOM_PLAN = {
    **{"question": str, "rules": {str: str}, "specs_left_out": {str: [str]}},
    "instances": [{"name": str, "group": str, "horizon_seconds": float, "events": [{"kind": str}]}],
}
EVENTS = {
    **{"game": str, "network": str, "actors": int, "spec": dict, "seeds": [int]},
    **{"error_median": _NUMBER, "error_max": _NUMBER},
    "rows": [
        {
            **{"event": str, "window": str, "begins": float},
            **{"real": _NUMBER, "virtual": _NUMBER, "ratio": _NUMBER},
        }
    ],
}
"""of a comparison of the clocks under events"""
