"""Figure 7: pruning milder when the reward gap exceeds 10 points, on Pong."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.verdict import EndsWithin

HALF, FIFTH = CompressionSpec(sparsity=0.5), CompressionSpec(sparsity=0.2)
SWITCHES = PaperRun(
    label="sparsity 0.5 to 0.2 at a gap of 10",
    strategy={
        "name": "reward-gap",
        "params": {"aggressive": HALF.to_json(), "conservative": FIFTH.to_json(), "gap": 10.0},
        "label": "sparsity 0.5 to 0.2 at a gap of 10",
    },
    paced_by=HALF,
    # The learner's own score is half of the gap.
    settings={"runtime.eval_episodes": 2},
)

FIGURE = PaperFigure(
    name="fig7",
    title="The reward gap decides how much is pruned",
    claim="On Pong actors that are pruned by 50% fall more than 10 points behind the learner; "
    "pruned by 20% from there on they catch up.",
    panels=(Panel(game="pong", runs=(PaperRun.acting(IDENTITY, "Original"), SWITCHES)),),
    checks=(
        EndsWithin(
            claim="with the switch it ends where fp32 does",
            label=SWITCHES.label,
            machine=PAPER,
            at_least=-0.1,
        ),
    ),
)
