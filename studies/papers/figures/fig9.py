"""Figure 9: actors that mix Net3 and Original by the mean KL, on Pong."""

from __future__ import annotations

from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.figures.fig8 import ORIGINAL, STUDENTS
from studies.papers.verdict import MARGIN, EndsWithin, SecondsAtMost

MIX = PaperRun(
    label="Net3 and Original by KL",
    strategy={"name": "linear-kl", "params": {}, "label": "Net3 and Original by KL"},
)

FIGURE = PaperFigure(
    name="fig9",
    title="A mix of Net3 and Original",
    claim="On Pong, where Net3 alone ends at 17.3, acting with Net3 in a share of the steps that "
    "falls linearly with the mean KL ends at 20.4.",
    panels=(
        Panel(
            game="pong",
            runs=(ORIGINAL, PaperRun.acting(STUDENTS["Net3"], "Net3"), MIX),
            env_steps=500_000,
        ),
    ),
    num_actors=8,
    num_distillers=4,
    checks=(
        EndsWithin(
            claim="the mix ends where Original ends",
            label=MIX.label,
            machine=PAPER,
            at_least=-MARGIN,
            switched=True,
        ),
        EndsWithin(
            claim="after Original's env steps the mix is higher than Net3 alone",
            label=MIX.label,
            over="Net3",
            machine=PAPER,
            at_least=0.0,
            up_to_baseline=True,
            switched=True,
        ),
        EndsWithin(
            claim="the mix ends higher than Net3 alone",
            label=MIX.label,
            over="Net3",
            machine=PAPER,
            at_least=0.0,
            switched=True,
        ),
        EndsWithin(
            claim="Net3 alone ends lower, with 8 actors too",
            label="Net3",
            machine=PAPER,
            at_most=-MARGIN,
        ),
        SecondsAtMost(
            claim="the mix reaches the score in fewer seconds than Original",
            label=MIX.label,
            machine=PAPER,
            at_most=1.0,
            is_scored_run=False,  # that had 12 actors
        ),
    ),
)
