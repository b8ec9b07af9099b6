"""Figure 6: from 8 to 16 bits when the largest KL exceeds 14 nats, on Road Runner."""

from __future__ import annotations

from accerl.spec import IDENTITY, CompressionSpec
from studies.learning.curve import LearningCurve
from studies.papers.figure import PAPER, Panel, PaperFigure, PaperRun
from studies.papers.verdict import MARGIN, EndsWithin
from studies.papers.within_runs import Happens, MovesTogether

INT8 = CompressionSpec(bits=8)
BF16 = CompressionSpec(bits=16)
THRESHOLD_NATS = 14.0
SWITCHES = PaperRun(
    label="8 to 16 bits above 14.0",
    strategy={
        "name": "kl-threshold",
        "params": {
            "aggressive": INT8.to_json(),
            "conservative": BF16.to_json(),
            "threshold_nats": THRESHOLD_NATS,
        },
        "label": "8 to 16 bits above 14.0",
    },
)


def passes_threshold(curve: LearningCurve) -> bool:
    """Whether the largest KL of a run does; what is not a number is taken for that, as rules do."""
    return any(not kl_nats <= THRESHOLD_NATS for kl_nats in curve.kl_max_nats)


FIGURE = PaperFigure(
    name="fig6",
    title="KL max decides between 8 and 16 bits",
    claim="On Road Runner the largest KL of INT8 actors and the reward move together; 16 bits once "
    "it passes 14.0 keep the final quality. (KL is live here, with staleness, as monitors see it; "
    "16 bits are bfloat16.)",
    panels=(
        Panel(
            game="road_runner",
            runs=(PaperRun.acting(IDENTITY, "Original"), PaperRun.acting(INT8, "INT8"), SWITCHES),
        ),
    ),
    checks=(
        Happens(
            claim="the largest KL of INT8 actors passes 14.0",
            label="INT8",
            machine=PAPER,
            what=f"the largest KL passes {THRESHOLD_NATS}",
            happens=passes_threshold,
            games=("road_runner",),
        ),
        Happens(
            claim="so does that of actors without compression: staleness alone does it",
            label="Original",
            machine=PAPER,
            what=f"the largest KL passes {THRESHOLD_NATS}",
            happens=passes_threshold,
            games=("road_runner",),
        ),
        MovesTogether(
            claim="the largest KL of INT8 actors and their reward move together",
            label="INT8",
            machine=PAPER,
        ),
        EndsWithin(
            claim="without the switch INT8 ends lower than fp32",
            label="INT8",
            machine=PAPER,
            at_most=-MARGIN,
        ),
        EndsWithin(
            claim="with the switch it ends where fp32 does",
            label=SWITCHES.label,
            machine=PAPER,
            at_least=-MARGIN,
            switched=True,
        ),
    ),
    bound_kl_max_nats=THRESHOLD_NATS,
    shows_switches=True,
)
