"""What contests spend, on which seeds and instances, and among which specs they choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from accerl.runtime.latency.families import FAMILIES, machine_name
from accerl.spec import IDENTITY
from controller.actions import ActionSpace
from controller.env.instances import SPLITS
from controller.env.machines import NUMBERS
from studies.contest.variants import VARIANTS

FP32 = {"name": "fixed", "params": {"spec": IDENTITY.to_json()}, "label": "fp32"}
TUNE_SEEDS, VALIDATE_SEEDS = SPLITS["train"].seeds, SPLITS["validation"].seeds
TEST_SEEDS = range(2_000, 2_040)
"""of the contest proper, opened by it alone"""
SHORT_TEST_SEEDS = SPLITS["test"].seeds
"""of short studies, so that `TEST_SEEDS` are opened by the contest proper alone"""
REFERENCE_SEEDS = range(200, 220)
"""of the fp32 runs that set the scale and the target; nothing is tuned, chosen or tested on them"""
ACTIONS = ActionSpace(bits=(32, 8), sparsities=(0.0, 0.5), students=("original", "net1", "net3"))
SMALL_ACTIONS = ActionSpace(bits=(32, 8), sparsities=(0.0, 0.5), students=("original", "net3"))
MEASURED = "measured"
"""the machine that the study runs on, measured at its beginning"""

Pair = tuple[str, str]
"""game and latency profile"""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a contest spends."""

    env_steps: Mapping[str, int]
    """by game, that fp32 should make within the horizon; this sets the horizon. Publications are
    left out of the prediction, so that on slow links fp32 makes fewer, or none"""
    trained: tuple[Pair, ...]
    """instances that rules are tuned and controllers trained on"""
    held_out: tuple[Pair, ...] = ()
    """instances that only the test sees (and what is tuned for each instance by itself)"""
    actions: ActionSpace = ACTIONS
    intervals: int = 12
    """measurements of J and decisions of a run"""
    first_share: float = 1.0
    """length of the first interval over that of the others: what not knowing the machine costs"""
    changing: bool = False
    """whether conditions change on every other instance, trained or held out"""
    target_share: float = 1.0
    """of the way from random play to what uncompressed training reaches, where the target lies"""
    precision: str | None = None
    """of learners and of distilling; None: the preset's; clocks are charged the same"""
    keeps_pace: bool = False
    """whether students are distilled as often as Atari's, see `instances.keeping_pace`"""
    entrants: tuple[str, ...]
    """what is tuned: static, and names of `tuning.SPACES_BY_NAME`"""
    variants: tuple[str, ...] = ()
    """of the controller's training, see `studies.contest.variants`"""
    rivals: tuple[str, ...] = ()
    """trained by packages that are optional, see `studies.contest.rivals`"""
    reference_runs: int
    inner_runs: int
    """that every entrant may spend that is tuned or trained on all trained instances"""
    instance_runs: int
    """that each search may spend on each instance, of what is tuned for instances by themselves;
    validation comes on top"""
    tune_seeds: int
    validate_seeds: int
    finalists: int
    """of a search for all instances, re-run on the validation seeds"""
    instance_finalists: int = 1
    """likewise of a search for one instance"""
    test_seeds: int
    opened_seeds: int = 0
    """test seeds that earlier contests have opened: this one begins after them"""
    is_short: bool = True
    """whether it is tested on `SHORT_TEST_SEEDS`"""
    other_seeds: int | None = None
    """test seeds of rivals and of primary comparators but the closest ones; None: all"""
    exploratory_seeds: int
    """test seeds of entrants outside the primary comparisons"""
    pretrain_iterations: int
    """on tier 0, which costs no inner run"""
    pretrain_instances: int = 8
    """drawn for each of them; 8 episodes on each"""
    profile_repeats: int = 0
    """rounds in which this machine is measured, if a pair names it"""
    real_seconds: float = 0.0
    """of the runs on the real clock; 0: there are none"""
    real_games: tuple[str, ...] = ("pong",)
    real_seeds: int = 0
    """0: instead, the exported bundle decides in one run, beside fp32"""

    @property
    def test(self) -> list[int]:
        """The seeds of the test."""
        seeds = list(SHORT_TEST_SEEDS if self.is_short else TEST_SEEDS)
        return seeds[self.opened_seeds :][: self.test_seeds]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every instance, the trained ones first."""
        return self.trained + self.held_out

    def on(self, profile: str) -> Budget:
        """Return the same with every trained game on one machine, and nothing held out.

        It is no contest proper, and leaves `TEST_SEEDS` closed.
        """
        games = dict.fromkeys(game for game, _ in self.trained)
        steps = {game: self.env_steps[game] for game in games}
        pairs = tuple((game, profile) for game in games)
        return replace(self, env_steps=steps, trained=pairs, held_out=(), is_short=True)


_QUICK = {
    "trained": tuple(
        (game, profile) for profile in (MEASURED, "paper-1080ti") for game in ("catch", "cartpole")
    ),
    "actions": SMALL_ACTIONS,
    "changing": True,
    "first_share": 0.1,
    "entrants": ("static", "kl-threshold"),
}
QUICKSTART = {
    "tiny": Budget(
        **_QUICK,
        env_steps={"catch": 16_000, "cartpole": 30_000},
        reference_runs=1,
        inner_runs=20,
        instance_runs=0,
        tune_seeds=1,
        validate_seeds=1,
        finalists=1,
        test_seeds=1,
        exploratory_seeds=1,
        pretrain_iterations=2,
        pretrain_instances=2,
        profile_repeats=2,
        real_seconds=8.0,
    ),
    "default": Budget(
        **_QUICK,
        env_steps={"catch": 25_000, "cartpole": 48_000},
        reference_runs=3,
        inner_runs=40,
        instance_runs=0,
        tune_seeds=1,
        validate_seeds=2,
        finalists=2,
        test_seeds=6,
        exploratory_seeds=2,
        pretrain_iterations=6,
        pretrain_instances=6,
        profile_repeats=2,
        real_seconds=12.0,
    ),
}


def _machines(first: int, count: int) -> list[tuple[str, ...]]:
    """Return so many machines of every family, those that stand side by side together."""
    return [
        tuple(machine_name(family, number) for family in FAMILIES)
        for number in range(first, first + count)
    ]


def held_out_pairs(games: tuple[str, ...], first: int) -> tuple[Pair, ...]:
    """Return three machines of each family, on which games take turns."""
    return tuple(
        (games[(row + column) % len(games)], machine)
        for row, machines in enumerate(_machines(first, 3))
        for column, machine in enumerate(machines)
    )


def _trained(games: tuple[str, ...]) -> tuple[Pair, ...]:
    """Return every game on a machine of each family, others for every game."""
    rows = _machines(NUMBERS["train"][0], len(games))
    return tuple((game, machine) for game, row in zip(games, rows, strict=True) for machine in row)


NOT_SET_ON = ("acrobot", "minatar-freeway", "LunarLander-v3")
"""games that fp32 learns within these lengths and that the controller's prior was not set on; in
MinAtar's others, Asterix and Seaquest, it plays at random for longer"""
_DRAWN = {
    "intervals": 40,
    "first_share": 0.1,
    "changing": True,
    "target_share": 0.9,
    "precision": "auto",
    "keeps_pace": True,
}
"""of contests on drawn machines"""
_SMALL = {
    "env_steps": {
        "catch": 30_000,
        "cartpole": 60_000,
        "acrobot": 100_000,
        "minatar-freeway": 100_000,
        "LunarLander-v3": 100_000,
    },
    "trained": _trained(("catch", "cartpole")),
    "reference_runs": 5,
    "inner_runs": 120,
    "tune_seeds": 2,
    "validate_seeds": 2,
    "finalists": 3,
    "pretrain_iterations": 60,
}
"""of contests of one night or less"""
_LONGER = {
    "reference_runs": 15,
    "inner_runs": 432,
    "tune_seeds": 3,
    "validate_seeds": 3,
    "pretrain_iterations": 120,
}
"""searches that try some thirty sets of parameters, in place of seven"""
_RIVALS = {
    "entrants": (
        "static",
        "kl-threshold",
        "reward-gap",
        "three-stage",
        "advise-kl-cap",
        "sw-ucb",
        "thompson",
        "gp-bandit",
    ),
    "rivals": ("ppo",),
}
"""of contests that all take part in"""
CONTEST = {
    "tiny": Budget(
        env_steps={"catch": 16_000, "minatar-freeway": 16_000, "acrobot": 60_000},
        trained=(("catch", "laptop-0002"), ("catch", "server-0001")),
        held_out=(("minatar-freeway", "laptop-9000"), ("acrobot", "edge-9000")),
        actions=SMALL_ACTIONS,
        changing=True,
        first_share=0.1,
        entrants=("static", "kl-threshold", "advise-kl-cap", "sw-ucb"),
        variants=("evolution", "untrained"),
        reference_runs=2,
        inner_runs=24,
        instance_runs=2,
        tune_seeds=1,
        validate_seeds=1,
        finalists=1,
        test_seeds=2,
        exploratory_seeds=1,
        pretrain_iterations=1,
        pretrain_instances=2,
    ),
    "short": Budget(
        **_DRAWN,
        **{**_SMALL, **_LONGER},
        # Earlier contests have opened machines and seeds before these; others have the rest.
        held_out=held_out_pairs(NOT_SET_ON, NUMBERS["test"][27]),
        entrants=("static", "kl-threshold", "advise-kl-cap"),
        variants=("untrained",),
        instance_runs=0,
        test_seeds=6,
        opened_seeds=57,
        other_seeds=4,
        exploratory_seeds=1,
    ),
    "medium": Budget(
        **_DRAWN,
        **{**_SMALL, **_LONGER},
        **_RIVALS,
        variants=("evolution", "untrained", "recurrent"),
        instance_runs=0,
        held_out=held_out_pairs(NOT_SET_ON, NUMBERS["test"][24]),
        test_seeds=8,
        opened_seeds=49,
        other_seeds=4,
        exploratory_seeds=2,
    ),
    "default": Budget(
        **_DRAWN,
        **_RIVALS,
        variants=tuple(VARIANTS),
        instance_runs=48,
        env_steps={
            "catch": 30_000,
            "cartpole": 60_000,
            "minatar-breakout": 200_000,
            "acrobot": 100_000,
            "minatar-freeway": 200_000,
            "LunarLander-v3": 200_000,
        },
        trained=_trained(("catch", "cartpole", "minatar-breakout")),
        held_out=held_out_pairs(NOT_SET_ON, NUMBERS["test"][18]),
        reference_runs=20,
        inner_runs=288,
        instance_finalists=3,
        tune_seeds=2,
        validate_seeds=3,
        finalists=3,
        test_seeds=28,  # for intervals narrower than 5%, see `bars.SPREAD`
        is_short=False,
        other_seeds=8,
        exploratory_seeds=4,
        pretrain_iterations=120,
        real_seconds=600.0,
        real_games=("pong", "breakout"),
        real_seeds=3,
    ),
}
BUDGETS = {"quickstart": QUICKSTART, "contest": CONTEST}
"""by study, then by name"""
