"""All figures by name, and what a budget makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from studies.papers.figure import PaperFigure
from studies.papers.figures import (
    controller,
    fig1,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    fig12,
    table6,
)

FIGURES: Mapping[str, PaperFigure] = {
    module.FIGURE.name: module.FIGURE
    for module in (fig1, fig5, fig6, fig7, fig8, fig9, fig10, fig11, fig12, table6, controller)
}
BUDGETS = ("tiny", "default")
TINY_GAME, TINY_ENV_STEPS = "catch", 16_000
"""what every game becomes where a figure is only to show that it works"""
ENV_STEPS_PER_CORE_SECOND = {"original": 550.0, "net1": 1000.0}
"""that a core plays and learns on Atari, by the learner's network; small games are much faster"""


def at_budget(figure: PaperFigure, budget: str) -> PaperFigure:
    """Return a figure with the games and lengths of a budget."""
    if budget == "default":
        return figure
    panels = (
        replace(panel, game=TINY_GAME, env_steps=TINY_ENV_STEPS, seeds=2) for panel in figure.panels
    )
    by_labels = {tuple(run.label for run in panel.runs): panel for panel in panels}
    return replace(figure, panels=tuple(by_labels.values()))
