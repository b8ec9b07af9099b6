"""Figure 10: actors with half of the channels pruned, on Pong."""

from __future__ import annotations

from accerl.spec import CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.figures.fig8 import ORIGINAL
from studies.papers.verdict import MARGIN, EndsWithin, SecondsAtMost

PRUNED = PaperRun.acting(CompressionSpec(sparsity=0.5), "pruned 50%")

FIGURE = PaperFigure(
    name="fig10",
    title="Half of the channels pruned",
    claim="On Pong actors at sparsity 0.5, with one distiller, converge alike and sooner.",
    panels=(Panel(game="pong", runs=(ORIGINAL, PRUNED)),),
    num_distillers=1,
    checks=(
        EndsWithin(
            claim="pruned actors converge alike",
            label="pruned 50%",
            machine=PAPER,
            at_least=-MARGIN,
        ),
        SecondsAtMost(
            claim="pruned actors reach the score in fewer seconds",
            label="pruned 50%",
            machine=PAPER,
            at_most=1.0,
        ),
    ),
)
