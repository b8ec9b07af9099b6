"""Figures of what the policy looks at: which features matter, and what each does to the choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.figures.theme import SUBJECT_COLOUR, Figure, ramp

FEATURES_SHOWN = 6
HEADS = {"bits": "Bits", "sparsity": "Sparsity (removed)", "student": "Student"}


def feature_importance(features: Sequence[Mapping[str, Any]]) -> Figure:
    """How much the choices change when a feature is taken away, most important first."""
    table = [
        {"feature": feature["name"], "importance": float(feature["importance"])}
        for feature in by_importance(features)
    ]
    y: dict[str, Any] = {"field": "feature", "type": "nominal", "title": None}
    y |= {"sort": [row["feature"] for row in table], "axis": {"labelLimit": 260, "ticks": False}}
    x: dict[str, Any] = {"field": "importance", "type": "quantitative", "title": "Importance"}
    x["axis"] = {"tickCount": 5}
    return Figure(
        name="policy-importance",
        title="Which features the policy looks at",
        caption="Longer bars: the choices depend on this feature more.",
        spec={
            "width": 560,
            "height": {"step": 20},
            "mark": {"type": "bar", "color": SUBJECT_COLOUR, "height": {"band": 0.7}},
            "encoding": {"x": x, "y": y},
        },
        table=table,
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
        {
            "hconcat": [
                _panel(feature["name"], head, [_level(level) for level in levels[head]], first)
                for head, first in ((head, number == 0) for head in heads)
            ],
            "spacing": 18,
            "resolve": {"scale": {"color": "independent"}},
        }
        for number, feature in enumerate(features)
    ]
    return Figure(
        name="policy-effects",
        title="What each feature does to the choices",
        caption=(
            "One feature moves, the others stay at their usual values. Height: probability of "
            "each level; light is the harder compression. Most important features first."
        ),
        spec={"vconcat": rows, "spacing": 14, "resolve": {"scale": {"color": "independent"}}},
        table=table,
    )


def by_importance(features: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the features, the most important first."""
    return sorted(features, key=lambda feature: -float(feature["importance"]))


def _level(level: Any) -> str:
    return f"{level:g}" if isinstance(level, float) else str(level)


def _panel(feature: str, head: str, levels: Sequence[str], with_legend: bool) -> dict[str, Any]:
    legend = {"title": HEADS.get(head, head), "orient": "top", "columns": 4, "symbolType": "square"}
    colour = {
        "field": "level",
        "type": "nominal",
        "sort": list(levels),
        "scale": {"domain": list(levels), "range": ramp(len(levels))},
        "legend": legend if with_legend else None,
    }
    share: dict[str, Any] = {"field": "probability", "type": "quantitative", "stack": "zero"}
    share |= {"title": None, "scale": {"domain": [0, 1]}}
    share["axis"] = {"format": ".0%", "tickCount": 3, "grid": False}
    return {
        "width": 225,
        "height": 80,
        "transform": [
            {"filter": {"field": "feature", "equal": feature}},
            {"filter": {"field": "head", "equal": head}},
        ],
        "mark": {"type": "area", "line": False, "opacity": 1},
        "encoding": {
            "x": {"field": "value", "type": "quantitative", "title": feature}
            | {"axis": {"tickCount": 4, "grid": False}, "scale": {"nice": False, "zero": False}},
            "y": share,
            "color": colour,
            "order": {"field": "rank", "type": "quantitative"},
        },
    }
