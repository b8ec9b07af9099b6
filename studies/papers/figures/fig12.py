"""Figure 12: INT8 actors against fp32 actors on twelve games."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.figures import fig11
from studies.papers.targets import HARDLY_LEARNED
from studies.papers.verdict import MARGIN, EndsWithin, SecondsAtMost

OTHERS = (
    "alien", "amidar", "bank_heist", "beam_rider", "hero", "name_this_game", "riverraid",
    "seaquest",
)  # fmt: skip
INT8 = PaperRun.acting(CompressionSpec(bits=8), "INT8")

FIGURE = PaperFigure(
    name="fig12",
    title="INT8 on many games",
    claim="INT8 actors converge alike per env step, and save about 29.8% to 40.3% of the training "
    "time.",
    panels=tuple(
        Panel(game=game, runs=(PaperRun.acting(IDENTITY, "Original"), INT8), seeds=seeds)
        for games, seeds in ((fig11.GAMES, 2), (OTHERS, 1))
        for game in games
    ),
    checks=(
        SecondsAtMost(
            claim="INT8 costs at most 1.1 times the env steps to the same score",
            label=INT8.label,
            machine=PAPER,
            at_most=1.1,
            by="env_steps",
        ),
        SecondsAtMost(
            claim="INT8 saves 29.8% of the seconds, the least that is claimed, in the mean",
            label=INT8.label,
            machine=PAPER,
            at_most=0.702,
        ),
        SecondsAtMost(
            claim="INT8 saves 29.8% of the seconds in the mean of the games that fp32 learns",
            label=INT8.label,
            machine=PAPER,
            at_most=0.702,
            left_out=HARDLY_LEARNED,
        ),
        SecondsAtMost(
            claim="INT8 takes fewer seconds to the same score",
            label=INT8.label,
            machine=PAPER,
            at_most=1.0,
        ),
        SecondsAtMost(
            claim="ActorQ: INT8 trains at least 1.5 times as fast",
            label=INT8.label,
            machine=PAPER,
            at_most=0.667,
        ),
        SecondsAtMost(
            claim="INT8 takes fewer processor seconds to the same score",
            label=INT8.label,
            machine=PAPER,
            at_most=1.0,
            by="core_seconds",
        ),
        SecondsAtMost(
            claim="ActorQ: INT8 saves carbon at least 1.9 times, here in processor seconds",
            label=INT8.label,
            machine=PAPER,
            at_most=0.526,
            by="core_seconds",
        ),
        EndsWithin(
            claim="INT8 ends where fp32 ends, in the mean",
            label=INT8.label,
            machine=PAPER,
            at_least=-MARGIN,
        ),
        EndsWithin(
            claim="INT8 ends where fp32 ends, in the games that fp32 learns",
            label=INT8.label,
            machine=PAPER,
            at_least=-MARGIN,
            left_out=HARDLY_LEARNED,
        ),
    ),
    shows_costs=True,
)
