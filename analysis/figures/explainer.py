"""The decision explainer: what one run acted with, and what its strategy believed of every spec.

Panels share the run's seconds: events, what acted, rate, efficiency, KL, preference, and J.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from accerl.spec import IDENTITY
from analysis.comparison.decisions import (
    LEAST_KL_NATS,
    beliefs,
    chosen_beliefs,
    explained,
    label_seconds,
    observed_rates,
    spec_order,
)
from analysis.figures.conditions import event_bands
from analysis.figures.parts import COUNT_AXIS, PLAIN_NUMBERS, make_figure, marks
from analysis.figures.strips import normalised, stacked
from analysis.figures.theme import BASELINE_COLOUR, COLOURS, DASHES, INK, Figure
from analysis.records.load import RunRecord

WIDTH = 800
LETTER = 5.8
"""px that a letter of 11 px takes, about"""
FAR = 10.0
MARGIN = 1.2
LEAST_TICKS, MOST_TICKS = 3, 5
"""of a logarithmic axis"""
BELIEFS: Mapping[str, tuple[str, int]] = {
    "rate": ("Env steps per second: predicted for each spec, and observed (dots)", 125),
    "efficiency": ("Efficiency: what an env step is worth, over one without compression", 90),
    "kl": ("KL of compression (nats): believed, and measured (dots)", 80),
    "preference": ("Preference: the softmax of the scores", 80),
}
"""panels by column: title, and height in px"""


def run_explainers(labelled: Mapping[str, RunRecord]) -> dict[str, Figure]:
    """Return the explainers of those runs whose records explain decisions, by label."""
    shown = {label: run for label, run in labelled.items() if explained(run)}
    return {
        label: decision_explainer(run, label * (len(shown) > 1), f"-{place}" * (place > 1))
        for place, (label, run) in enumerate(shown.items(), start=1)
    }


def decision_explainer(run: RunRecord, what: str = "", suffix: str = "") -> Figure:
    """Draw why a run's strategy decided as it did.

    Args:
        run: whose records hold explanations, see `explained`.
        what: names the run in the title, where there are several.
        suffix: ends the figure's name, where there are several.
    """
    table = explainer_table(run)
    x, order = _time(run), spec_order(run)
    bare = x.axis(labels=False, ticks=False, grid=False)
    parts: list[Any] = []
    if lanes := [row["lane"] for row in table if row["kind"] == "event"]:
        parts.append(_events(bare, max(lanes) + 1))
    parts.append(_acted(bare, order))
    columns = [column for column in BELIEFS if _has(table, column)]
    has_returns = _has(table, "return")
    last = x.title("Seconds").axis(**COUNT_AXIS)
    for column in columns:
        is_last = column == columns[-1] and not has_returns
        scale = _belief_scale(table, column)
        parts.append(_belief(last if is_last else bare, column, order, scale))
    if has_returns:
        parts.append(_returns(last))
    chart = alt.vconcat(*parts, spacing=12, data=marks().data)
    return make_figure(
        f"decision-explainer{suffix}",
        f"Decision explainer{f': {what}' if what else ''}",
        "A line is what the strategy believed of a spec when it decided; it is thick while that "
        "spec was chosen. Bands are one standard deviation. Grey spans are events, which no "
        "strategy is told. A black dot is the mean over a sixteenth of the run or more.",
        chart.resolve_scale(color="shared", strokeDash="shared"),
        table,
    )


def explainer_table(run: RunRecord) -> list[dict[str, Any]]:
    """Return the rows behind the figure; `kind` says what a row is.

    event {begins, ends, event, lane}, acted {begins, ends, spec, low, high}, name {begins, spec},
    belief {begins, spec, rate, efficiency, kl, preference, ..._low, ..._high}, chosen (the same,
    and `stretch`), observed {begins, rate}, measured {begins, spec, kl}, return {begins, return}.
    """
    order = spec_order(run)
    shares = {
        (report.total_seconds - report.seconds, report.total_seconds): normalised(found)
        for report in run.reports
        if sum((found := label_seconds(report)).values()) > 0.0
    }
    acted = _merged(stacked(shares, order))
    kinds = {
        "event": _lanes(event_bands(run), run.reports[-1].total_seconds),
        "acted": acted,
        "name": _names(acted, run.reports[-1].total_seconds),
        "belief": beliefs(run),
        "chosen": chosen_beliefs(run),
        "observed": observed_rates(run.reports),
        "measured": _measured(run),
        "return": _learner_returns(run),
    }
    return [{"kind": kind, **row} for kind, rows in kinds.items() for row in rows]


def _lanes(bands: Sequence[Mapping[str, Any]], end: float) -> Iterator[dict[str, Any]]:
    """Put events into as few lanes as keep their words apart."""
    free: list[float] = []
    for band in sorted(bands, key=lambda band: band["begins"]):
        words = end * LETTER * (len(band["event"]) + 2) / WIDTH
        begins = min(band["begins"], end - words)  # where the words do
        lane = next((n for n, until in enumerate(free) if until <= begins), len(free))
        free[lane : lane + 1] = [max(band["ends"], begins + words)]
        yield {**band, "lane": lane, "words": begins}


def _merged(rectangles: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rectangles with those made one that follow each other and differ in time alone."""
    found: list[dict[str, Any]] = []
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rectangles:
        place = (row["spec"], row["low"], row["high"])
        if place in latest and latest[place]["ends"] == row["start"]:
            latest[place]["ends"] = row["end"]
            continue
        spec, low, high = place
        latest[place] = {"begins": row["start"], "ends": row["end"], "spec": spec}
        latest[place] |= {"low": low, "high": high}
        found.append(latest[place])
    return found


def _names(acted: Sequence[Mapping[str, Any]], end: float) -> Iterator[dict[str, Any]]:
    """Name every stretch that one spec acted in and that has room for its name."""
    for row in acted:
        room = (row["ends"] - row["begins"]) / end * WIDTH
        if row["high"] - row["low"] == 1.0 and room > LETTER * (len(row["spec"]) + 2):
            yield {"begins": (row["begins"] + row["ends"]) / 2.0, "spec": row["spec"]}


def _measured(run: RunRecord) -> Iterator[dict[str, Any]]:
    for report in run.reports:
        for spec, kl in report.compression_kl_nats.items():
            if kl > LEAST_KL_NATS:
                yield {"begins": report.total_seconds, "spec": spec.label, "kl": kl}


def _learner_returns(run: RunRecord) -> Iterator[dict[str, float]]:
    for report in run.reports:
        if report.learner_return is not None:
            yield {"begins": report.total_seconds, "return": report.learner_return}


def _has(table: Sequence[Mapping[str, Any]], column: str) -> bool:
    return any(row.get(column) is not None for row in table)


def _time(run: RunRecord) -> alt.X:
    scale = alt.Scale(domain=[0, run.reports[-1].total_seconds], nice=False)
    return alt.X("begins:Q").scale(scale).title(None)


def _looks(order: Sequence[str]) -> tuple[alt.Color, alt.StrokeDash]:
    """Return colour and dash pattern by spec: no compression is grey, the rest in order."""
    others = [label for label in order if label != IDENTITY.label]
    hues = {label: COLOURS[n % len(COLOURS)] for n, label in enumerate(others)}
    hues[IDENTITY.label] = BASELINE_COLOUR
    colour = alt.Color("spec:N").scale(domain=list(order), range=[hues[each] for each in order])
    legend = alt.Legend(columns=4, symbolType="stroke")
    dashes = [DASHES[n % len(DASHES)] for n in range(len(order))]
    dash = alt.StrokeDash("spec:N").scale(domain=list(order), range=dashes)
    return colour.legend(legend), dash.legend(legend)


def _span() -> alt.Chart:
    return marks("kind", "event").mark_rect(color=INK, opacity=0.08)


def _events(x: alt.X, lanes: int) -> Any:
    lane = alt.Y("lane:O").axis(None).scale(domain=list(range(lanes)), padding=0.1)
    band = marks("kind", "event").mark_rect(color=INK, opacity=0.16)
    words = marks("kind", "event").mark_text(align="left", dx=4, color=INK, fontSize=11)
    return alt.layer(
        band.encode(x=x, x2="ends:Q", y=lane),
        words.encode(x="words:Q", y=lane, text="event:N"),
    ).properties(width=WIDTH, height=17 * lanes, title=_title("What happened to the machine"))


def _acted(x: alt.X, order: Sequence[str]) -> Any:
    colour, _ = _looks(order)
    y = alt.Y("low:Q").axis(None).scale(domain=[0, 1])
    strip = marks("kind", "acted").mark_rect().encode(x=x, x2="ends:Q", y=y, y2="high:Q")
    names = marks("kind", "name").mark_text(color="white", fontSize=11, fontWeight="bold")
    return alt.layer(
        strip.encode(color=colour),
        names.encode(x="begins:Q", y=alt.datum(0.5), text="spec:N"),
    ).properties(width=WIDTH, height=22, title=_title("What acted"))


def _belief_scale(table: Sequence[Mapping[str, Any]], column: str) -> dict[str, Any]:
    """Return the scale of a panel, logarithmic where the ends of a linear one would hide the rest.

    That is so where what was observed is `FAR` times what was believed, or the other way round.
    """
    if column == "preference":
        return {"domain": [0, 1], "nice": False}
    values = [row[column] for row in table if (row.get(column) or 0.0) > 0.0]
    if column == "kl" or (column == "rate" and max(values) > FAR * min(values)):
        domain = [min(values) / MARGIN, max(values) * MARGIN]
        return {"type": "log", "domain": domain, "clamp": True, "nice": False}
    return {"zero": False, "nice": False}


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers between two, few but at least `LEAST_TICKS` where there are so many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        found = [tick for tick in ticks if low <= tick <= high]
        if len(found) >= LEAST_TICKS:
            break
    middle = float(f"{math.sqrt(low * high):.2g}")
    return found[:: math.ceil(len(found) / MOST_TICKS) or 1] or [middle]


def _belief(x: alt.X, column: str, order: Sequence[str], scale: Mapping[str, Any]) -> Any:
    title, height = BELIEFS[column]
    title += ", logarithmic" if scale.get("type") == "log" else ""
    colour, dash = _looks(order)
    axis: dict[str, Any] = {"tickCount": 4, "minExtent": 48, **PLAIN_NUMBERS}
    if scale.get("type") == "log":
        axis["values"] = _round_numbers(*scale["domain"])
    y = alt.Y(f"{column}:Q").title(None).scale(**scale).axis(**axis)
    layers = [_span().encode(x=x, x2="ends:Q")]
    step: Any = {"interpolate": "step-after"}
    held = marks("kind", "belief").transform_filter(alt.FieldValidPredicate(column, valid=True))
    if column in ("rate", "efficiency"):
        band = held.mark_area(opacity=0.1, **step).encode(x=x, color=colour)
        layers.append(band.encode(y=alt.Y(f"{column}_low:Q").title(None), y2=f"{column}_high:Q"))
    lines = held.mark_line(strokeWidth=1.4, **step)
    layers.append(lines.encode(x=x, y=y, color=colour, strokeDash=dash))
    acting = marks("kind", "chosen").transform_filter(alt.FieldValidPredicate(column, valid=True))
    acting = acting.mark_line(strokeWidth=4, strokeCap="butt")
    layers.append(acting.encode(x=x, y=y, color=colour, detail="stretch:N"))
    if column == "rate":
        dots = marks("kind", "observed").mark_point(filled=True, size=26, color=INK, opacity=1)
        layers.append(dots.encode(x=x, y=y))
    if column == "kl":
        dots = marks("kind", "measured").mark_point(filled=True, size=26, opacity=1)
        layers.append(dots.encode(x=x, y=y, color=colour))
    return alt.layer(*layers).properties(width=WIDTH, height=height, title=_title(title))


def _returns(x: alt.X) -> Any:
    y = alt.Y("return:Q").title(None).scale(zero=False, nice=False)
    y = y.axis(tickCount=4, minExtent=48, **PLAIN_NUMBERS)
    line = marks("kind", "return").mark_line(strokeWidth=1.9, color=INK)
    dots = marks("kind", "return").mark_point(filled=True, size=18, color=INK, opacity=1)
    layers = [_span().encode(x=x, x2="ends:Q"), line.encode(x=x, y=y), dots.encode(x=x, y=y)]
    title = _title("J: return of the learner")
    return alt.layer(*layers).properties(width=WIDTH, height=80, title=title)


def _title(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, fontSize=12, offset=4, frame="group")
