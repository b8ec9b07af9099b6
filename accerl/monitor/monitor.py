"""Monitor: turns every interval's report into the features that a strategy decides on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.indicators import (
    CorrectionIndicator,
    DecisionIndicator,
    EntropyIndicator,
    Indicator,
    MachineIndicator,
    ReturnIndicator,
    SlopeIndicator,
    SlowdownIndicator,
)
from accerl.monitor.kl import KLIndicator, ShadowIndicator
from accerl.monitor.pace import PaceIndicator
from accerl.monitor.stage import StageIndicator
from accerl.own_code import own_errors
from accerl.runtime.run import IntervalReport

_AT_START = {
    "kl_mean_nats": 0.0,
    "kl_var": 0.0,
    "kl_max_nats": 0.0,
    "queue_fill": 0.0,
    "policy_lag": 0.0,
    "learner_idle": 0.0,
    "env_steps_per_second": 0.0,
    "return_level": 0.0,
    "return_trend": 0.0,
    "speed_ratio": 1.0,
    "bits_level": 0.0,
    "sparsity": 0.0,
    "student_level": 0.0,
    "intervals_since_switch": 0.0,
    "episodes": 0.0,
    "stage": 0.0,
}
"""What is known before anything was measured; everything else is NaN."""


def names_of(indicator: Indicator) -> Sequence[str]:
    """Return what an indicator calls its numbers.

    Raises:
        UserError: it does not say.
    """
    names = getattr(indicator, "names", None)
    if isinstance(names, Sequence) and not isinstance(names, str):
        return names
    raise UserError(
        f"indicator {type(indicator).__name__}: `names` lists what its `update` returns, such as "
        f'("deaths",); got {names!r}'
    )


class Monitor:
    """The indicators of one run, its own and the user's, and the features made of them.

    Args:
        num_actions: actions of the game: the scale of entropy.
        horizon_seconds: length of the run on its clock.
        indicators: the user's own; their values join the others in `Features.raw`, where
            strategies find them by name. The vector stays what it is.

    Raises:
        UserError: an indicator's name is taken.
    """

    def __init__(
        self, num_actions: int, horizon_seconds: float, indicators: Sequence[Indicator] = ()
    ) -> None:
        self.num_actions = num_actions
        self.horizon_seconds = horizon_seconds
        self.indicators: tuple[Indicator, ...] = (
            KLIndicator(),
            ShadowIndicator(),
            EntropyIndicator(num_actions),
            ReturnIndicator(),
            SlopeIndicator(horizon_seconds),
            StageIndicator(),
            CorrectionIndicator(),
            MachineIndicator(),
            SlowdownIndicator(),
            PaceIndicator(),
            DecisionIndicator(),
            *indicators,
        )
        taken = set(self._clock(0.0, 0, 0))
        for indicator in self.indicators:
            for name in names_of(indicator):
                if name in taken:
                    raise UserError(
                        f"indicator {type(indicator).__name__}: {name!r} is the name of another "
                        "indicator; choose another name"
                    )
                taken.add(name)

    def _clock(self, seconds: float, env_steps: int, updates: int) -> dict[str, float]:
        return {
            "seconds": seconds,
            "horizon_seconds": self.horizon_seconds,
            "time_fraction": seconds / self.horizon_seconds,
            "env_steps": float(env_steps),
            "learner_updates": float(updates),
        }

    def start(self) -> Features:
        """Return the features before the first interval: next to nothing is known."""
        raw = self._clock(0.0, 0, 0)
        for indicator in self.indicators:
            raw |= {name: _AT_START.get(name, math.nan) for name in indicator.names}
        raw |= {"entropy_nats": math.log(self.num_actions), "entropy_fraction": 1.0}
        return Features.of(raw)

    def known(self, features: Features) -> dict[str, float]:
        """Return what the indicators know, by name: finite numbers, without the clock's."""
        names = [name for indicator in self.indicators for name in indicator.names]
        return {name: features.raw[name] for name in names if math.isfinite(features.raw[name])}

    def update(self, report: IntervalReport) -> Features:
        """Return the features after `report`.

        Raises:
            UserError: an indicator of the user's own raised, or did not return a number for each
                of its names.
        """
        raw = self._clock(
            report.total_seconds, report.total_env_steps, report.total_learner_updates
        )
        for indicator in self.indicators:
            with own_errors("indicator", indicator):
                values = indicator.update(report, raw)
            _check(values, indicator)
            # As records hold them: True, say, is a number here, and none there.
            raw |= {name: float(value) for name, value in values.items()}
        return Features.of(raw)


def _check(values: object, indicator: Indicator) -> None:
    """Refuse what is no number for each name of an indicator.

    Raises:
        UserError: it names the indicator.
    """
    who, names = f"indicator {type(indicator).__name__}", sorted(indicator.names)
    if not isinstance(values, Mapping):
        raise UserError(f"{who} is to return numbers of {names}, it returned {values!r}")
    if set(values) != set(names):
        raise UserError(f"{who} is to return {names}, it returned {sorted(map(str, values))}")
    for name, value in values.items():
        if not isinstance(value, Real):
            raise UserError(f"{who}: {name!r} is {value!r}, and a number is needed; NaN is unknown")
