"""Why a run decided so: what its records say that was believed of every spec, and what was seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from accerl.errors import UserError
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, by_label
from analysis.records.load import RunRecord

ENOUGH_UPDATES, LEAST_SHARE = 4, 1 / 16
"""of the learner, and of the run, that an observed rate is over at least: env steps are counted
when their rollouts arrive, often many at once"""
LEAST_KL_NATS = 1.1e-5
"""a strategy believes no less of a spec that computes what the learner computes"""
NUMBERS = {
    *("env_steps_per_second", "rate_doubt", "efficiency", "efficiency_doubt", "kl_nats", "score"),
    *("preference", "chosen"),
}
"""what is drawn and tabled of a candidate"""


def label_seconds(report: IntervalReport) -> Mapping[str, float]:
    """Return the actor seconds of an interval by spec label."""
    if any(report.spec_seconds.values()):
        return by_label(report.spec_seconds)
    # An interval in which no rollout began: what was asked for is the best account there is.
    asked, waiting = report.decision.mix, report.waiting_kl_nats
    return {spec.label: share * report.seconds for spec, share in asked if spec not in waiting}


def explained(run: RunRecord) -> list[IntervalReport]:
    """Return the intervals of a run whose decision its strategy has explained with `NUMBERS`.

    A strategy of your own may explain itself with other numbers, or by candidates that are no
    specs. Those stay in metrics.jsonl and are not drawn.
    """
    return [
        report
        for report in run.reports
        if report.explanation
        and all(
            _is_spec(label) and row.keys() >= NUMBERS for label, row in report.explanation.items()
        )
    ]


@cache
def _is_spec(label: str) -> bool:
    """Return whether a label is that of a spec or, as ` + ` says, of a mix."""
    try:
        return " + " in label or CompressionSpec.from_label(label).label == label
    except UserError:
        return False


def chosen_label(report: IntervalReport) -> str:
    """Return the label of the candidate that was chosen in an interval that is `explained`.

    Empty: the record does not say.
    """
    return next((label for label, row in report.explanation.items() if row["chosen"]), "")


def spec_order(run: RunRecord) -> list[str]:
    """Return the labels of what was considered or acted, least compressed first, mixes last."""
    labels = {label for report in explained(run) for label in report.explanation}
    for report in run.reports:
        labels |= {spec.label for spec in (*report.spec_seconds, *report.decision.specs)}
    single = [CompressionSpec.from_label(label) for label in labels if " + " not in label]
    single.sort(key=lambda spec: spec.mildness)
    return [spec.label for spec in single] + sorted(label for label in labels if " + " in label)


def _values(row: Mapping[str, float], compresses: bool) -> dict[str, float | None]:
    """Return what is believed of one candidate: means, and one standard deviation either side."""
    values: dict[str, float | None] = {"preference": row["preference"]}
    names = (("rate", "env_steps_per_second", "rate"), ("efficiency", "efficiency", "efficiency"))
    for name, key, doubt in names:
        spread = math.exp(row[f"{doubt}_doubt"])
        values |= {name: row[key], f"{name}_low": row[key] / spread}
        values[f"{name}_high"] = row[key] * spread
    return values | {"kl": row["kl_nats"] if compresses else None}


def _compressing(run: RunRecord) -> set[str]:
    """Return the candidates that were ever believed to differ from the learner."""
    rows = [item for report in explained(run) for item in report.explanation.items()]
    return {label for label, row in rows if row["kl_nats"] > LEAST_KL_NATS}


def beliefs(run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield what was believed of every candidate at each decision, and once more at the end.

    Rows are {begins, spec, rate, efficiency, kl, preference}, of rate and efficiency also ..._low
    and ..._high; `kl` is None where nothing is compressed.
    """
    found, compressing = explained(run), _compressing(run)
    moments = [(report.total_seconds - report.seconds, report) for report in found]
    for begins, report in (*moments, (found[-1].total_seconds, found[-1])):
        for label, row in report.explanation.items():
            yield {"begins": begins, "spec": label, **_values(row, label in compressing)}


def chosen_beliefs(run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield the beliefs of what was chosen, at the beginning and end of every interval.

    Rows are those of `beliefs` with `stretch`: the number of the choice, 0, 1, 2, ...
    """
    stretch, last, compressing = -1, "", _compressing(run)
    for report in explained(run):
        label = chosen_label(report)
        if label:
            stretch, last = stretch + (label != last), label
            values = _values(report.explanation[label], label in compressing)
            row = {"spec": label, "stretch": stretch, **values}
            yield {"begins": report.total_seconds - report.seconds, **row}
            yield {"begins": report.total_seconds, **row}


def observed_rates(reports: Sequence[IntervalReport]) -> Iterator[dict[str, float]]:
    """Yield env steps per second over intervals of one spec under the same conditions.

    `begins` is the middle of the intervals that a rate is over. What is too short for
    `ENOUGH_UPDATES` and `LEAST_SHARE` when something else begins is left out.
    """
    least = LEAST_SHARE * reports[-1].total_seconds
    steps = updates = seconds = 0.0
    last: Any = None
    for report in reports:
        acted = label_seconds(report)
        met = (max(acted, key=lambda label: acted[label], default=""), _words(report))
        if met != last:
            steps = updates = seconds = 0.0
        last = met
        steps += report.env_steps
        updates += report.learner_updates
        seconds += report.seconds
        if updates >= ENOUGH_UPDATES and seconds >= least:
            yield {"begins": report.total_seconds - seconds / 2.0, "rate": steps / seconds}
            steps = updates = seconds = 0.0


def _words(report: IntervalReport) -> list[str]:
    return [event["words"] for event in report.conditions]
