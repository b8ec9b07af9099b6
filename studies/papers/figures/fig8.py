"""Figure 8: three students of Original on Pong, with four distillers."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.verdict import EndsWithin, SecondsAtMost

STUDENTS = {f"Net{n}": CompressionSpec(student=f"net{n}") for n in (1, 2, 3)}
ORIGINAL = PaperRun.acting(IDENTITY, "Original")

FIGURE = PaperFigure(
    name="fig8",
    title="Students of three sizes",
    claim="On Pong students shorten the training, the smaller the more; Net1 and Net2 end where "
    "Original ends (20.5) and Net3 ends lower (17.3).",
    panels=(
        Panel(
            game="pong",
            runs=(ORIGINAL, *(PaperRun.acting(spec, name) for name, spec in STUDENTS.items())),
            env_steps=1_000_000,
        ),
    ),
    num_distillers=4,
    checks=(
        *(
            SecondsAtMost(
                claim=f"{name} reaches the score in fewer seconds",
                label=name,
                machine=PAPER,
                at_most=1.0,
            )
            for name in STUDENTS
        ),
        *(
            SecondsAtMost(
                claim=f"{smaller} reaches it in fewer seconds than {larger}",
                label=smaller,
                over=larger,
                machine=PAPER,
                at_most=1.0,
            )
            for larger, smaller in (("Net1", "Net2"), ("Net2", "Net3"))
        ),
        *(
            EndsWithin(
                claim=f"{name} ends where Original ends", label=name, machine=PAPER, at_least=-0.1
            )
            for name in ("Net1", "Net2")
        ),
        EndsWithin(claim="Net3 alone ends lower", label="Net3", machine=PAPER, at_most=-0.05),
    ),
)
