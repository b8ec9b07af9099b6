"""Figure 8: three students of Original on Pong, with four distillers."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.verdict import MARGIN, EndsWithin, SecondsAtMost

STUDENTS = {f"Net{n}": CompressionSpec(student=f"net{n}") for n in (1, 2, 3)}
ORIGINAL = PaperRun.acting(IDENTITY, "Original")

FIGURE = PaperFigure(
    name="fig8",
    title="Students of three sizes",
    claim="On Pong distillation shortens the training, and a network that is too small ends lower: "
    "Net3 at 17.3, Original at 20.5. (That the smaller student is sooner, and that Net1 and Net2 "
    "end where Original does, the text does not say.)",
    panels=(
        Panel(
            game="pong",
            runs=(ORIGINAL, *(PaperRun.acting(spec, name) for name, spec in STUDENTS.items())),
            env_steps=1_000_000,
            score=18.0,
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
                claim=f"{name} ends where Original ends",
                label=name,
                machine=PAPER,
                at_least=-MARGIN,
            )
            for name in ("Net1", "Net2")
        ),
        EndsWithin(claim="Net3 alone ends lower", label="Net3", machine=PAPER, at_most=-MARGIN),
    ),
)
