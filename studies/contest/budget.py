"""What contests spend, on which seeds and instances, and among which specs they choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from accerl.spec import IDENTITY
from controller.actions import ActionSpace
from controller.env.instances import SPLITS

FP32 = {"name": "fixed", "params": {"spec": IDENTITY.to_json()}, "label": "fp32"}
TUNE_SEEDS, VALIDATE_SEEDS = SPLITS["train"].seeds, SPLITS["validation"].seeds
TEST_SEEDS = range(120, 140)
"""of the contest proper, opened by the second one; the split's own, 100 to 119, by the first"""
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
    """environment steps that fp32 takes within the horizon, by game: sets the horizon"""
    trained: tuple[Pair, ...]
    """instances that rules are tuned and controllers trained on"""
    held_out: tuple[Pair, ...] = ()
    """instances that only the test sees (and what is tuned for each instance by itself)"""
    actions: ActionSpace = ACTIONS
    entrants: tuple[str, ...]
    """what is tuned besides: static, and names of `strategies.SPACES_BY_NAME`"""
    variants: tuple[str, ...] = ()
    """of the controller's training, see `studies.contest.variants`"""
    reference_runs: int
    inner_runs: int
    """that every entrant may spend that is tuned or trained on all trained instances"""
    instance_runs: int
    """that every entrant may spend on each instance that is tuned for instances by themselves"""
    tune_seeds: int
    validate_seeds: int
    candidate_seeds: int | None = None
    """validation seeds on which candidates replace the incumbent controller; None: the same"""
    finalists: int
    """of a search for all instances, re-run on the validation seeds"""
    instance_finalists: int = 1
    """likewise of a search for one instance"""
    test_seeds: int
    is_short: bool = True
    """whether it is tested on `SHORT_TEST_SEEDS`"""
    other_seeds: int | None = None
    """test seeds of primary comparators that are no static specs or threshold rules; None: all"""
    exploratory_seeds: int
    """test seeds of entrants outside the primary comparisons"""
    pretrain_iterations: int
    demonstration_seeds: int = 0
    """tune seeds on which every spec is run on every trained instance, to demonstrate the best of
    each machine; 0: the threshold rule alone is demonstrated"""
    profile_repeats: int = 0
    """rounds in which this machine is measured, if a pair names it"""
    real_seconds: float = 0.0
    """of the runs on the real clock; 0: there are none"""
    real_games: tuple[str, ...] = ("pong",)
    real_seeds: int = 0
    """0: instead, the exported schedule is replayed once, beside fp32"""

    @property
    def test(self) -> list[int]:
        """The seeds of the test."""
        return list(SHORT_TEST_SEEDS if self.is_short else TEST_SEEDS)[: self.test_seeds]

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
    "entrants": ("static", "kl-threshold", "reward-gap"),
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
        profile_repeats=2,
        real_seconds=8.0,
    ),
    "default": Budget(
        **_QUICK,
        env_steps={"catch": 25_000, "cartpole": 48_000},
        reference_runs=3,
        inner_runs=56,
        instance_runs=0,
        tune_seeds=1,
        validate_seeds=2,
        finalists=2,
        test_seeds=6,
        exploratory_seeds=2,
        pretrain_iterations=8,
        demonstration_seeds=1,
        profile_repeats=3,
        real_seconds=20.0,
    ),
}
CONTEST = {
    "tiny": Budget(
        env_steps={"catch": 16_000, "cartpole": 30_000, "acrobot": 60_000},
        trained=(("catch", "paper-1080ti"), ("catch", "learner-bound")),
        held_out=(("cartpole", "slow-env"), ("acrobot", "edge")),
        actions=SMALL_ACTIONS,
        entrants=("static", "kl-threshold", "sw-ucb"),
        variants=("evolution",),
        reference_runs=2,
        inner_runs=40,
        instance_runs=2,
        tune_seeds=1,
        validate_seeds=1,
        finalists=1,
        test_seeds=2,
        exploratory_seeds=1,
        pretrain_iterations=1,
        demonstration_seeds=1,
    ),
    "default": Budget(
        env_steps={
            "catch": 30_000,
            "cartpole": 60_000,
            "acrobot": 100_000,
            "minatar-breakout": 40_000,
        },
        trained=tuple(
            (game, profile)
            for profile in ("paper-1080ti", "two-core", "slow-env", "learner-bound")
            for game in ("catch", "cartpole")
        ),
        held_out=(
            ("catch", "edge"),
            ("cartpole", "gpu-learner"),
            ("acrobot", "paper-1080ti"),
            ("acrobot", "learner-bound"),
            ("acrobot", "edge"),
            ("minatar-breakout", "two-core"),
        ),
        entrants=(
            "static",
            "kl-threshold",
            "reward-gap",
            "linear-kl",
            "three-stage",
            "sw-ucb",
            "thompson",
            "gp-bandit",
            "random",
        ),
        variants=("evolution",),
        reference_runs=20,
        inner_runs=384,
        instance_runs=12,
        instance_finalists=3,
        tune_seeds=2,
        validate_seeds=5,
        candidate_seeds=10,
        finalists=5,
        test_seeds=20,
        is_short=False,
        other_seeds=8,
        exploratory_seeds=1,
        pretrain_iterations=12,
        demonstration_seeds=2,
        real_seconds=20.0,
        real_games=("pong", "minatar-breakout"),
        real_seeds=3,
    ),
}
BUDGETS = {"quickstart": QUICKSTART, "contest": CONTEST}
"""by study, then by name"""
