"""Figures of what the policy looks at: which features matter, and what each does to the choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis.figures.parts import make_figure, marks, only, rows_axis, values_of
from analysis.figures.theme import SUBJECT_COLOUR, Figure, ramp

FEATURES_SHOWN = 6
HEADS = {"bits": "Bits", "sparsity": "Sparsity (removed)", "student": "Student"}


def feature_importance(features: Sequence[Mapping[str, Any]]) -> Figure:
    """How much the choices change when a feature is taken away, most important first."""
    table = [
        {"feature": feature["name"], "importance": float(feature["importance"])}
        for feature in by_importance(features)
    ]
    bars = marks().mark_bar(color=SUBJECT_COLOUR, height={"band": 0.7})
    bars = bars.encode(
        x=alt.X("importance:Q").title("Importance").axis(tickCount=5),
        y=rows_axis("feature", values_of(table, "feature"), labelLimit=260),
    )
    return make_figure(
        "policy-importance",
        "Which features the policy looks at",
        "Longer bars: the choices depend on this feature more.",
        bars.properties(width=560, height=alt.Step(20)),
        table,
    )


def policy_effects(effects: Mapping[str, Any]) -> Figure:
    """Probabilities of every level as one feature moves, a row a feature, a column a head."""
    features = by_importance(effects["features"])[:FEATURES_SHOWN]
    levels = effects["levels"]
    table = [
        {"feature": feature["name"], "head": head, "value": float(value)}
        | {"level": _level(level), "rank": rank, "probability": round(float(share), 5)}
        for feature in features
        for head, shares in feature["heads"].items()
        for value, row in zip(feature["values"], shares, strict=True)
        for rank, (level, share) in enumerate(zip(levels[head], row, strict=True))
    ]
    heads = [head for head in levels if any(row["head"] == head for row in table)]
    rows = [
        alt.hconcat(
            *(
                _panel(feature["name"], head, [_level(level) for level in levels[head]], not place)
                for head in heads
            ),
            spacing=18,
        ).resolve_scale(color="independent")
        for place, feature in enumerate(features)
    ]
    return make_figure(
        "policy-effects",
        "What each feature does to the choices",
        "One feature moves, the others stay at their usual values. Height: probability of "
        "each level; light is the harder compression. Most important features first.",
        alt.vconcat(*rows, spacing=14, data=marks().data).resolve_scale(color="independent"),
        table,
    )


def by_importance(features: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the features, the most important first."""
    return sorted(features, key=lambda feature: -float(feature["importance"]))


def _level(level: Any) -> str:
    return f"{level:g}" if isinstance(level, float) else str(level)


def _panel(feature: str, head: str, levels: Sequence[str], with_legend: bool) -> alt.Chart:
    legend = alt.Legend(title=HEADS[head], columns=4, symbolType="square")
    colour = alt.Color("level:N", sort=list(levels))
    colour = colour.scale(domain=list(levels), range=ramp(len(levels)))
    x = alt.X("value:Q").title(feature).axis(tickCount=4, grid=False)
    share = alt.Y("probability:Q", stack="zero").title(None).scale(domain=[0, 1])
    rows = marks("feature", feature).transform_filter(only("head", head))
    areas = rows.mark_area(line=False, opacity=1).encode(
        x=x.scale(nice=False, zero=False),
        y=share.axis(format=".0%", tickCount=3, grid=False),
        color=colour.legend(legend if with_legend else None),
        order="rank:Q",
    )
    return areas.properties(width=225, height=80)
