"""How far what acts, waits or is only looked at is from the learner, in nats (paper, eq. 5)."""

from __future__ import annotations

import math

from accerl.monitor.indicators import Raw, last_known
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec

_REMEMBERED = ("compression_kl_nats", "staleness_kl_nats", "argmax_agreement")
"""what keeps its last value where an interval measures nothing"""


class KLIndicator:
    """How far what acts is from the learner, in nats: the paper's main indicator (eq. 5).

    The total (mean, variance, max) is KL(learner || actor) over every state of every rollout, from
    the logits that the engines produced; `kl_is_new` is 0 where the interval measured none of them,
    and these are the last ones. Two things make it up, which are measured apart on sampled states:
    compression (the learner against what was published of the same weights) and staleness (the
    learner against its own weights one publication earlier). While what was decided waits to be
    admitted, `waiting_kl_nats` is the KL of its main spec; NaN where that does not wait, or is not
    known yet. `waits` is 1 where it waits, known or not. `mix_kl_nats` is the total over what the
    first spec of a decision acted; NaN where that acted nothing. `compression_kl_is_new` is 1 where
    the interval measured anything that acted, 0 where `compression_kl_nats` is what was known
    before, of whatever acted then.
    """

    names = (
        "kl_mean_nats",
        "kl_var",
        "kl_max_nats",
        "kl_is_new",
        "mix_kl_nats",
        "waiting_kl_nats",
        "waits",
        "compression_kl_is_new",
        *_REMEMBERED,
    )

    def __init__(self) -> None:
        self._known: dict[str, float] = dict.fromkeys(_REMEMBERED, math.nan)
        self._by_spec: dict[CompressionSpec, float] = {}

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        self._by_spec.update(report.compression_kl_nats)
        # While something waits to be admitted, another acts than what was decided.
        waits = report.waiting_kl_nats
        acted = tuple(report.spec_seconds.items()) if waits else report.decision.mix
        mix = [(self._by_spec.get(spec), share) for spec, share in acted]
        shares = [(kl_nats, share) for kl_nats, share in mix if kl_nats is not None]
        # Exact sums: a resumed run reads them in another order.
        total = math.fsum(share for _, share in shares)
        is_new = any(spec in report.compression_kl_nats for spec, _ in acted)
        compression = math.fsum(kl * share for kl, share in shares) / total if shares else None
        known = last_known(
            self._known,
            {
                "compression_kl_nats": compression,
                "staleness_kl_nats": report.staleness_kl_nats,
                "argmax_agreement": report.losses.get("argmax_agreement"),
            },
        )
        waiting = waits.get(report.decision.main)
        first = report.decision.specs[0]
        return {
            "kl_mean_nats": report.kl_mean_nats,
            "kl_var": report.kl_var,
            "kl_max_nats": report.kl_max_nats,
            "kl_is_new": float(bool(report.acted_kl_nats)),
            "mix_kl_nats": report.acted_kl_nats.get(first, math.nan),
            "waiting_kl_nats": math.nan if waiting is None else waiting,
            "waits": float(report.decision.main in waits),
            "compression_kl_is_new": float(is_new),
            **known,
        }


class ShadowIndicator:
    """KL(learner || the decision's shadow), in nats, on recorded states; it does not act.

    NaN where it was not measured in the interval: a strategy knows what it asked for, and when.
    """

    names = ("shadow_kl_nats",)

    def update(self, report: IntervalReport, raw: Raw) -> Raw:
        """See `Indicator.update`."""
        shadow = report.decision.shadow
        kl_nats = None if shadow is None else report.shadow_kl_nats.get(shadow)
        return {"shadow_kl_nats": math.nan if kl_nats is None else kl_nats}
