"""Figure 11: distillation and INT8 together, on four games."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.verdict import MARGIN, EndsWithin, SecondsAtMost

GAMES = ("pong", "breakout", "space_invaders", "road_runner")
BOTH = PaperRun.acting(CompressionSpec(student="net2", bits=8), "Net2 INT8")

FIGURE = PaperFigure(
    name="fig11",
    title="Distillation and INT8 together",
    claim="A student in INT8 learns as well as Original per env step, and faster in seconds. The "
    "paper's text does not say which student, nor which games: here the student is Net2.",
    panels=tuple(
        Panel(game=game, runs=(PaperRun.acting(IDENTITY, "Original"), BOTH)) for game in GAMES
    ),
    num_distillers=4,
    checks=(
        SecondsAtMost(
            claim="the same score takes at most 1.1 times the env steps",
            label=BOTH.label,
            machine=PAPER,
            at_most=1.1,
            by="env_steps",
        ),
        SecondsAtMost(
            claim="the same score takes fewer seconds",
            label=BOTH.label,
            machine=PAPER,
            at_most=1.0,
        ),
        SecondsAtMost(
            claim="it takes fewer processor seconds to the same score",
            label=BOTH.label,
            machine=PAPER,
            at_most=1.0,
            by="core_seconds",
        ),
        EndsWithin(
            claim="it ends where Original ends", label=BOTH.label, machine=PAPER, at_least=-MARGIN
        ),
    ),
    shows_costs=True,
)
