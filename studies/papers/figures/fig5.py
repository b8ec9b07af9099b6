"""Figure 5: the stages of a run, read off its cumulative reward."""

from __future__ import annotations

from accerl.spec import IDENTITY
from studies.papers.figure import Panel, PaperFigure, PaperRun

FIGURE = PaperFigure(
    name="fig5",
    title="Stages of a run",
    claim="Runs explore, then improve, then converge, and their cumulative reward shows it (Pong, "
    "Road Runner). The paper leaves open how to tell the stages apart; the marks are those of "
    "StageIndicator.",
    panels=tuple(
        Panel(game=game, runs=(PaperRun.acting(IDENTITY, "Original"),))
        for game in ("pong", "road_runner")
    ),
    shows_stages=True,
)
