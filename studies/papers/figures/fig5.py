"""Figure 5: the stages of a run, read off its cumulative reward."""

from __future__ import annotations

from accerl.spec import IDENTITY
from studies.learning.curve import LearningCurve
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.within_runs import Happens


def passes_stages_in_order(curve: LearningCurve) -> bool:
    """Whether the detector's stages only ever go up, and to the last."""
    stages = [stage for stage in curve.stages if stage is not None]
    return stages == sorted(stages) and {*stages} == {0, 1, 2}


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
    checks=(
        Happens(
            claim="the three stages come one after the other, and the cumulative reward shows it",
            label="Original",
            machine=PAPER,
            what="the stage detector finds all three, and goes back from none",
            happens=passes_stages_in_order,
        ),
    ),
)
