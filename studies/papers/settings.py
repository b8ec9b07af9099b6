"""How runs are set, beside the paper: what its Table 5 and section 3 say, and what runs have."""

from __future__ import annotations

from accerl.config import RunConfig
from accerl.families import PIXELS
from accerl.learner.config import LearnerConfig
from accerl.runtime.publishing.charges import most_sharers
from studies.papers.plan import AGREEING_SEEDS, FIGURES, ONE_GAME_SEEDS, SHORT_SEEDS, at_budget

EXAMPLE = "fig8"
"""whose first game stands for all"""
DERIVED = (
    "On the paper's machine the times of environments, of the learner, of the four networks and of "
    "Original in INT8 are published. Derived from them are those of students in INT8 (half), 16 "
    "bits, pruned networks, distilling and publications: Net2 in INT8 is 6.3 times as fast as "
    "Original there, where the paper's actors are 2.0 to 4.13 times as fast."
)
SCORES = (
    "*The score* of a game is a fixed one: 80% of the way that actors without compression went in "
    "half a million env steps of seed 0 (MinAtar: seeds 0 to 2), rounded; Figure 8's on Pong is "
    "18. Figures that begin with these seeds are held against what was seen with them."
)


def settings_table() -> list[str]:
    """Return how runs differ from the paper's, as lines of Markdown."""
    big, small = (_example(budget) for budget in ("default", "short"))
    lines = [
        "",
        "## How runs are set",
        "",
        f"| setting | paper | here, {big.game} | here, {small.game} (`--budget short`) |",
        "|---|---|---|---|",
    ]
    fewest = min(panel.seeds for panel in FIGURES["fig12"].panels)
    seeds = f"{FIGURES[EXAMPLE].panels[0].seeds} (eight games of Figure 12: {fewest})"
    few = f"{SHORT_SEEDS}; of one game alone {ONE_GAME_SEEDS}, or {AGREEING_SEEDS} (Figure 7)"
    annealed = f"{_annealing(big.learner)} (most other games: {_annealing(PIXELS.learner)})"
    columns = (
        [*_values(big), annealed, seeds],
        [*_values(small), _annealing(small.learner), few],
    )
    rows = zip(_published(), *columns, strict=True)
    lines += [f"| {name} | {paper} | {ours} | {theirs} |" for (name, paper), ours, theirs in rows]
    return [*lines, "", DERIVED, "", SCORES]


def _example(budget: str) -> RunConfig:
    return next(iter(at_budget(FIGURES[EXAMPLE], budget).jobs().values())).config()


def _published() -> list[tuple[str, str]]:
    return [
        ("n-steps", "5"),
        ("samples of a batch", "160"),
        ("passes over them, minibatches", "not printed"),
        ("learning rate", "0.0003"),
        ("discount", "0.99"),
        ("lambda", "none (equation 2)"),
        ("entropy, value cost", "0.02, 0.25"),
        ("loss", "Actor-Critic"),
        ("corrector", "V-trace and importance (equation 4); V-trace named for Figures 10 and 12"),
        ("V(s_t)", "the compressed policy network's (text of equation 2)"),
        ("environments", "one of each actor"),
        ("learner's precision", "fp32"),
        ("value loss of distilling", "1, halved (equation 1)"),
        ("students act", "not printed"),
        ("distillers that work on a student", "4, or 1 (Figure 10)"),
        ("16 bits", "fp16"),
        ("annealing of learning rate and entropy cost", "not printed"),
        ("seeds", "3"),
    ]


def _annealing(learner: LearnerConfig) -> str:
    if not learner.anneal_updates:
        return "none"
    return f"to {learner.anneal_to:.0%} of them in {learner.anneal_updates:,} updates"


def _values(config: RunConfig) -> list[str]:
    learner, distil, envs = config.learner, config.compression, config.runtime.num_envs
    admitted = "at once"
    if distil.admit_kl_nats:
        admitted = f"once their KL is below {distil.admit_kl_nats:g} nats"
    precise = "bfloat16 where that is faster on the machine"
    distillers = most_sharers(FIGURES[EXAMPLE].num_distillers, distil.distill_updates)
    return [
        str(learner.unroll),
        f"{learner.unroll * envs:,}",
        f"{learner.reuse}, {learner.minibatches} each",
        f"{learner.learning_rate:g}",
        f"{learner.discount:g}",
        f"{learner.lam:g}",
        f"{learner.entropy_cost:g}, {learner.value_cost:g}",
        f"{learner.policy_loss}{', normalised advantages' * learner.normalise_advantages}",
        f"`{learner.corrector}`",
        "the learner's",
        f"{envs}, which the actors that fill a batch share",
        precise if learner.precision == "auto" else learner.precision,
        f"{distil.distill_value_cost:g}",
        admitted,
        str(distillers),
        "bfloat16",
    ]
