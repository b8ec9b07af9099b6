"""Figure 7: pruning milder when the reward gap exceeds 10 points, on Pong."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.verdict import MARGIN, EndsWithin, has_switched
from studies.papers.within_runs import Happens

HALF, FIFTH = CompressionSpec(sparsity=0.5), CompressionSpec(sparsity=0.2)
GAP, SHORT_GAP = 10.0, 2.5
EPISODES = 2
LABEL = "sparsity 0.5 to 0.2"


def _panel(game: str, gap: float) -> Panel:
    switches = PaperRun(
        label=LABEL,
        strategy={
            "name": "reward-gap",
            "params": {"aggressive": HALF.to_json(), "conservative": FIFTH.to_json(), "gap": gap},
            "label": f"{LABEL} at a gap of {gap:g}",
        },
        # The learner's own score is half of the gap.
        settings={"runtime.eval_episodes": EPISODES},
    )
    runs = (PaperRun.acting(IDENTITY, "Original"), PaperRun.acting(HALF), switches)
    return Panel(game=game, runs=runs)


FIGURE = PaperFigure(
    name="fig7",
    title="The reward gap decides how much is pruned",
    claim="On Pong actors that are pruned by 50% fall more than 10 points behind the learner; "
    "pruned by 20% from there on they keep the final quality. (In MinAtar's Breakout the gap is "
    f"{SHORT_GAP:g} points; the learner's score is that of {EPISODES} episodes an interval.)",
    panels=(_panel("pong", GAP),),
    # A quarter of the 10 points that are in reach there, as 10 points are of Pong's 42.
    short_panels=(_panel("minatar-breakout", SHORT_GAP),),
    shows_switches=True,
    checks=(
        Happens(
            claim="actors that are pruned by 50% fall so far behind that less is pruned",
            label=LABEL,
            machine=PAPER,
            what="less is pruned at some time",
            happens=has_switched,
        ),
        EndsWithin(
            claim="without the switch they end lower than fp32",
            label=HALF.label,
            machine=PAPER,
            at_most=-MARGIN,
        ),
        EndsWithin(
            claim="with the switch it ends where fp32 does",
            label=LABEL,
            machine=PAPER,
            at_least=-MARGIN,
            switched=True,
        ),
    ),
)
