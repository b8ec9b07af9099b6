"""What the study of ablations runs: the indicator that ships, and the same without a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from controller.env.instances import Instance
from controller.env.machines import NUMBERS
from controller.indicator.strategy import AdvancedIndicator
from controller.shield import Shielded
from controller.shipped import shipped_indicator
from studies.contest.budget import CONTEST, FP32, NOT_SET_ON, Budget, Pair, held_out_pairs
from studies.contest.plan import planned_instances
from studies.contest.variants import VARIANTS
from studies.jobs.meta_training import first_indicator

WHOLE, UNCOMPRESSED = "indicator", "fp32"
LEFT_OUT = ("untrained", "no_predictions", "no_kl", "no_changes")
"""of `studies.contest.variants`; a recurrent network would have to be trained, as contests do"""
QUESTION = (
    "How many times the seconds to target does the indicator that ships take without one of its "
    "parts, on games and machines that it was not trained on?"
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """An entrant: the whole indicator, the indicator without one part, or no compression."""

    name: str
    label: str
    what: str
    strategy: Mapping[str, Any]
    """its description, see `studies.jobs.inner.build_strategy`"""


def _of(contest: Budget, held_out: tuple[Pair, ...], *, seeds: int, opened: int) -> Budget:
    """Return a contest's budget in which nothing is tuned or trained."""
    games = dict.fromkeys(game for game, _ in held_out)
    return replace(
        contest,
        env_steps={game: contest.env_steps[game] for game in games},
        trained=(),
        held_out=held_out,
        entrants=(),
        variants=(),
        rivals=(),
        inner_runs=0,
        instance_runs=0,
        pretrain_iterations=0,
        real_seconds=0.0,
        is_short=True,
        test_seeds=seeds,
        opened_seeds=opened,
    )


# A contest was tested on these machines; it was ended before it came to these seeds.
_DRAWN = held_out_pairs(NOT_SET_ON, NUMBERS["test"][15])
BUDGETS = {
    "tiny": _of(CONTEST["tiny"], (("acrobot", "edge-9000"),), seeds=2, opened=0),
    "short": _of(CONTEST["short"], _DRAWN, seeds=4, opened=36),
    "default": _of(CONTEST["default"], _DRAWN, seeds=7, opened=36),
}


def find_parts(seed: int) -> list[Part]:
    """Return the indicator that ships, the same without each part, and no compression.

    Args:
        seed: of what training starts from.
    """
    shipped = shipped_indicator()
    found = [_part(WHOLE, "Advanced Indicator that ships", "all of it", shipped.to_json())]
    for name in LEFT_OUT:
        variant = VARIANTS[name]
        own = shipped_indicator(**variant.settings)
        if not variant.trained:
            assert isinstance(own.strategy, AdvancedIndicator)
            own = Shielded(first_indicator(own.strategy.settings, seed))
        found.append(_part(name, variant.label, variant.what, own.to_json()))
    what = "all actors act with the learner's own policy"
    return [*found, _part(UNCOMPRESSED, "no compression", what, FP32)]


def _part(name: str, label: str, what: str, strategy: Mapping[str, Any]) -> Part:
    return Part(name=name, label=label, what=what, strategy={**strategy, "label": name})


def make_plan(
    budget: Budget, instances: Sequence[Instance], parts: Sequence[Part], *, seed: int
) -> dict[str, Any]:
    """Return the plan as JSON; equal plans have equal hashes."""
    return {
        "question": QUESTION,
        "instances": planned_instances(instances),
        "budget": asdict(budget) | {"actions": budget.actions.to_json()},
        "parts": [
            {"name": part.name, "what": part.what, "strategy": dict(part.strategy)}
            for part in parts
        ],
        "seeds": budget.test,
        "seed": seed,
    }
