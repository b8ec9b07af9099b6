"""Beyond the papers: the Advanced Indicator that ships with AcceRL, on the games of Figure 11."""

from __future__ import annotations

from typing import Any

from accerl.records import read_json
from accerl.spec import IDENTITY
from controller.indicator.strategy import AdvancedIndicator
from controller.shipped import SHIPPED
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.figures.fig11 import BOTH, GAMES
from studies.papers.verdict import MARGIN, EndsWithin, SecondsAtMost

LABEL = "Advanced Indicator"


PARAMS = read_json(SHIPPED)["params"]
DECIDING: dict[str, Any] = {"name": AdvancedIndicator.name, "params": PARAMS, "label": LABEL}

FIGURE = PaperFigure(
    name="controller",
    title="A learned controller",
    claim="The paper leaves its Advanced Indicator open. Here it is the one that shipped "
    "with the code that made the runs, trained on simulated runs of drawn games and machines; what "
    "KL and lag cost in its prior was set by hand on other runs of some of these games.",
    panels=tuple(
        Panel(
            game=game,
            runs=(
                PaperRun.acting(IDENTITY, "Original"),
                BOTH,
                PaperRun(label=LABEL, strategy=DECIDING),
            ),
        )
        for game in GAMES
    ),
    num_distillers=4,
    checks=(
        SecondsAtMost(
            claim="the same score takes fewer seconds than without compression",
            label=LABEL,
            machine=PAPER,
            at_most=1.0,
        ),
        EndsWithin(
            claim="it ends where Original ends", label=LABEL, machine=PAPER, at_least=-MARGIN
        ),
    ),
    shows_costs=True,
)
