"""All figures by name, and what a budget makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from studies.learning.job import LearningJob, settings_keeping_pace
from studies.papers.figure import Check, Panel, PaperFigure
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
from studies.papers.verdict import EndsWithin, SecondsAtMost
from studies.papers.within_runs import Happens

FIGURES: Mapping[str, PaperFigure] = {
    module.FIGURE.name: module.FIGURE
    for module in (fig1, fig5, fig6, fig7, fig8, fig9, fig10, fig11, fig12, table6, controller)
}
BUDGETS = ("tiny", "short", "default")
TINY_GAME, TINY_ENV_STEPS = "catch", 16_000
"""what every game becomes where a figure is only to show that it works"""
STAND_INS: Mapping[str, str] = {
    "pong": "minatar-breakout",  # a bat and a ball too
    "breakout": "minatar-breakout",
    "road_runner": "minatar-freeway",
    "space_invaders": "minatar-space-invaders",
    "amidar": "minatar-asterix",  # collect, and be chased
}
"""MinAtar's games in place of Atari's: a run takes a minute, and the game is learned in it"""
ATARI_STEPS_PER_CORE_SECOND = 450.0
"""that a core plays and learns"""
MINATAR_STEPS_PER_CORE_SECOND = 7_000.0
"""in bfloat16; in float32 it is two thirds of that"""
SHORT_ENV_STEPS, SHORT_SEEDS, ONE_GAME_SEEDS = 500_000, 3, 5
"""more seeds where one game alone must carry a claim"""
AGREEING_SEEDS = 6
"""and so many where it is one of what happens in most runs, see `Happens`"""
FASTER: Mapping[str, str] = {"learner.precision": "auto", "compression.distill_precision": "auto"}
"""settings of short runs: bfloat16 where that is faster"""


def at_budget(figure: PaperFigure, budget: str) -> PaperFigure:
    """Return a figure with the games and lengths of a budget.

    tiny plays Catch, to show that everything works. short makes all claims testable within hours:
    MinAtar's games stand in for those of Atari that they resemble, and the rest is left out.
    """
    if budget == "default":
        return figure
    if budget == "tiny":
        panels = tuple(
            replace(panel, game=TINY_GAME, env_steps=TINY_ENV_STEPS, seeds=2, score=None)
            for panel in figure.panels
        )
    else:
        panels = figure.short_panels or tuple(
            replace(panel, game=STAND_INS[panel.game], score=None)
            for panel in figure.panels
            if panel.game in STAND_INS
        )
    distinct = {(panel.game, *(run.label for run in panel.runs)): panel for panel in panels}
    panels = tuple(distinct.values())
    checks = _apart(figure.checks, panels)
    if budget == "short":
        alone = AGREEING_SEEDS if any(isinstance(each, Happens) for each in checks) else None
        seeds = SHORT_SEEDS if len(panels) > 1 else alone or ONE_GAME_SEEDS
        panels = tuple(_short(panel, seeds) for panel in panels)
    return replace(figure, panels=panels, checks=checks)


def _apart(checks: Sequence[Check], panels: Sequence[Panel]) -> tuple[Check, ...]:
    """Return the checks that games which are there can answer, each once.

    One that leaves out games of which none is there leaves out nothing, and may be another then.
    """
    games = {panel.game for panel in panels}
    found: list[Check] = []
    questions: set[SecondsAtMost | EndsWithin] = set()
    for check in checks:
        named = getattr(check, "games", ())
        if named and not games.intersection(named):
            continue
        if isinstance(check, SecondsAtMost | EndsWithin):
            if not games.intersection(check.left_out):
                check = replace(check, left_out=())
            question = replace(check, claim="")
            if question in questions:
                continue
            questions.add(question)
        found.append(check)
    return tuple(found)


def _short(panel: Panel, seeds: int) -> Panel:
    settings = {**FASTER, **settings_keeping_pace(panel.game)}
    runs = tuple(replace(run, settings={**run.settings, **settings}) for run in panel.runs)
    return replace(panel, runs=runs, env_steps=SHORT_ENV_STEPS, seeds=seeds)


def core_seconds(job: LearningJob) -> float:
    """Return what a run will take, by its game."""
    if job.game == TINY_GAME:
        return 0.0
    is_small = job.game in STAND_INS.values()
    pace = MINATAR_STEPS_PER_CORE_SECOND if is_small else ATARI_STEPS_PER_CORE_SECOND
    return job.predicted_env_steps / pace
