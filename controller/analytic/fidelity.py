"""How a drawn game is learned, and what compression does to it: constants, their prior, equations.

The learner has a skill x in (0, 1) that J is linear in, and gains per env step

    dx/dn = k x^a (1 - x)^b efficiency,
    efficiency = sum over specs of share exp(-c KL(spec)^h) / (1 + lag / lag_half).

KL(spec) is that of compression, in nats. It grows with skill, and for what is distilled it falls
with distillation and rises again while the policy moves:

    KL(spec, x, e) = K(spec) (g + (1 - g) x^p) (1 + e),
    de / d(update) = m (1 - e / E) - states e / S,

where K(spec) adds up what bits, rank, sparsity and student cost, e is how far a network is from as
close as it gets (E when it begins, and 0 for what is not distilled), and S are the states after
which all but 1/e of that is made up for. Live KL is that and staleness, s per update of lag.
The lag is what the machine's steady state has, but for what that is off by (`lag`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from accerl.compress.distillation.effort import STUDENT_SHARES
from accerl.errors import UserError, is_number
from accerl.spec import CompressionSpec
from controller.objective import GameReference


@dataclass(frozen=True, kw_only=True)
class GameFidelity:
    """The constants of one game, in the names of the module's equations.

    Raises:
        UserError: a number lies outside its range.
    """

    gain_per_step: float
    """k"""
    rise: float = 0.8
    """a"""
    saturation: float = 1.0
    """b"""
    initial_skill: float = 0.02
    """x before training, at which J is that of random play"""
    reference_skill: float = 0.9
    """x at which J is the game's reference"""
    cost: float = 1.0
    """c; 0: acting differently costs nothing"""
    cost_power: float = 0.7
    """h"""
    bits_kl: Mapping[int, float] = field(default_factory=lambda: {16: 1e-5, 8: 3e-3})
    """part of K, in nats"""
    rank_kl: float = 4e-3
    """the same of a quarter of the rank; others in proportion to what is left out"""
    pruned_kl: float = 0.05
    """the same of half of all channels; others in proportion to the square of the share"""
    student_kl: float = 0.1
    """the same of the smallest student of a family; others by their place"""
    kl_at_start: float = 0.1
    """g"""
    kl_growth: float = 0.7
    """p"""
    begins_at: float = 6.0
    """E"""
    distill_states: float = 1e5
    """S"""
    moves: float = 0.01
    """m"""
    stale_kl: float = 0.005
    """s, nats per learner update of lag"""
    lag_half: float = 40.0
    """policy lag, in learner updates, at which a sample teaches half as much"""
    episode_noise: float = 0.5
    """standard deviation of one episode's return, as a share of the reference range"""
    kl_noise: float = 0.3
    """of the logarithm of a measured KL"""
    seed_spread: float = 0.2
    """of the logarithm of how fast a seed learns"""
    luck_spread: float = 0.3
    """the same of one interval of a twentieth of the run"""
    lag_shared: float = 0.0
    """the same of 1 + lag in a run, over what its machine's steady state has"""
    lag_own: float = 0.0
    """the same of one spec in it"""
    num_actions: int = 6
    random_return: float = 0.0
    reference_return: float = 1.0

    def __post_init__(self) -> None:
        for name in ("gain_per_step", "saturation", "distill_states", "lag_half", "begins_at"):
            if not getattr(self, name) > 0.0:
                raise UserError(f"game: {name} must be positive")
        for name in _NOT_NEGATIVE:
            if not getattr(self, name) >= 0.0:
                raise UserError(f"game: {name} must not be negative")
        if not 0.0 < self.initial_skill < self.reference_skill < 1.0 or self.num_actions < 2:
            raise UserError(
                "game: 0 < initial_skill < reference_skill < 1, and num_actions is 2 or more"
            )

    @property
    def reference(self) -> GameReference:
        """The scale of this game's returns."""
        return GameReference(self.random_return, self.reference_return)

    def score(self, skill: float) -> float:
        """Return J at a skill."""
        share = (skill - self.initial_skill) / (self.reference_skill - self.initial_skill)
        return self.random_return + share * self.reference.span

    def quiet(self) -> GameFidelity:
        """Return the same game without chance: what a schedule is worth is then exact."""
        return replace(self, **dict.fromkeys(_CHANCE, 0.0))

    def full_kl(self, spec: CompressionSpec) -> float:
        """Return K(spec), nats."""
        kl = self.bits_kl.get(spec.bits, 0.0)
        kl += self.rank_kl * (1.0 - spec.rank) / 0.75
        kl += self.pruned_kl * (spec.sparsity / 0.5) ** 2
        return kl + self.student_kl * STUDENT_SHARES[min(round(spec.size_rank), 3)]

    def growth(self, skill: float) -> float:
        """Return the part of K that a skill shows."""
        return self.kl_at_start + (1.0 - self.kl_at_start) * skill**self.kl_growth

    def followed(self, excess: float, updates: float, states: float) -> float:
        """Return e after learner updates of which each allowed distilling on so many states."""
        rate = self.moves / self.begins_at + states / self.distill_states
        if rate <= 0.0:
            return excess
        settled = self.moves / rate
        return settled + (excess - settled) * math.exp(-rate * updates)


_NOT_NEGATIVE = ("rise", "cost", "cost_power", "rank_kl", "pruned_kl", "student_kl", "kl_growth")
_CHANCE = ("episode_noise", "kl_noise", "seed_spread", "luck_spread", "lag_shared", "lag_own")
_NOT_NEGATIVE += ("moves", "stale_kl", "kl_at_start", *_CHANCE)
REFERENCE_LAG = 5.0
"""policy lag, in learner updates, of the runs that games' lengths are of"""


@dataclass(frozen=True, kw_only=True)
class KindPrior:
    """What games of one kind are drawn from.

    A pair is a median and the standard deviation of the logarithm, unless its text says otherwise.
    """

    env_steps: tuple[float, ...]
    """smallest and largest length of a run without compression, evenly on a logarithmic scale"""
    free: float
    """share of games in which acting differently costs nothing"""
    failing: float
    """share of games in which students and pruned networks cannot follow at all"""
    cost: tuple[float, ...]
    """c where it is not 0"""
    kl_scale: tuple[float, ...]
    """what all parts of K are multiplied by"""
    int8_kl: tuple[float, ...]
    rank_kl: tuple[float, ...]
    pruned_kl: tuple[float, ...]
    student_kl: tuple[float, ...]
    distill_states: tuple[float, ...]
    moves: tuple[float, ...]
    episode_noise: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FidelityPrior:
    """What the constants of games are drawn from; refit it with what a study of room measures.

    Pairs of numbers are as in `KindPrior`; `range` in a text: evenly between the two.
    """

    kinds: tuple[KindPrior, ...] = ()
    """in the order of `KINDS`"""
    rise: tuple[float, ...] = (0.6, 0.95)
    """range"""
    saturation: tuple[float, ...] = (0.8, 1.4)
    """range"""
    initial_skill: tuple[float, ...] = (0.01, 0.05)
    """range"""
    reference_skill: tuple[float, ...] = (0.6, 0.95)
    """range"""
    cost_power: tuple[float, ...] = (0.5, 1.0)
    """range"""
    kl_at_start: tuple[float, ...] = (0.02, 0.3)
    """range"""
    kl_growth: tuple[float, ...] = (0.3, 1.5)
    """range"""
    begins_at: tuple[float, ...] = (5.0, 0.4)
    stale_kl: tuple[float, ...] = (0.004, 0.7)
    lag_half: tuple[float, ...] = (17.0, 0.5)
    kl_noise: tuple[float, ...] = (0.25, 0.3)
    seed_spread: tuple[float, ...] = (0.15, 0.4)
    luck_spread: tuple[float, ...] = (0.25, 0.4)
    lag_shared: float = 0.4
    """of all games, as is the next"""
    lag_own: float = 0.1
    failing_times: float = 15.0
    """how many times as much K of students and pruned networks is where they cannot follow"""
    failing_cost: float = 3.0
    """the least c there"""

    def __post_init__(self) -> None:
        if len(self.kinds) not in (0, len(KINDS)):
            raise UserError(f"prior of games: kinds must be those of {', '.join(KINDS)}")
        for owner in (self, *self.kinds):
            for item in fields(owner):
                value = getattr(owner, item.name)
                if item.name == "kinds":
                    continue
                is_pair = "tuple" in str(item.type)
                numbers = value if isinstance(value, tuple) else (value,)
                if len(numbers) != 1 + is_pair or not all(map(is_number, numbers)):
                    wanted = "two numbers" if is_pair else "a number"
                    raise UserError(f"prior of games: {item.name} must be {wanted}, got {value!r}")

    def kind(self, name: str) -> KindPrior:
        """Return the prior of a kind of games, a key of `KINDS`."""
        return (self.kinds or _KINDS)[KINDS.index(name)]

    def draw(
        self, rng: np.random.Generator, kind: str, num_actions: int
    ) -> tuple[GameFidelity, int]:
        """Return a game, and the env steps of its runs without compression.

        Args:
            rng: where the constants are drawn from.
            kind: a key of `KINDS`.
            num_actions: of the game.
        """
        own = self.kind(kind)

        def around(pair: tuple[float, ...]) -> float:
            return pair[0] * math.exp(pair[1] * _normal(rng))

        def between(pair: tuple[float, ...]) -> float:
            return float(rng.uniform(pair[0], pair[1]))

        low, high = own.env_steps
        env_steps = round(math.exp(rng.uniform(math.log(low), math.log(high))))
        luck = rng.random()
        failing = own.free <= luck < own.free + own.failing
        scale = around(own.kl_scale)
        worse = scale * (self.failing_times if failing else 1.0)
        cost = around(own.cost)
        random_return = float(rng.uniform(-20.0, 20.0))
        game = GameFidelity(
            gain_per_step=1.0,
            rise=between(self.rise),
            saturation=between(self.saturation),
            initial_skill=between(self.initial_skill),
            reference_skill=between(self.reference_skill),
            cost=0.0 if luck < own.free else max(cost, self.failing_cost if failing else 0.0),
            cost_power=between(self.cost_power),
            bits_kl={16: 1e-5, 8: scale * around(own.int8_kl)},
            rank_kl=scale * around(own.rank_kl),
            pruned_kl=worse * around(own.pruned_kl),
            student_kl=worse * around(own.student_kl),
            kl_at_start=between(self.kl_at_start),
            kl_growth=between(self.kl_growth),
            begins_at=around(self.begins_at),
            distill_states=around(own.distill_states),
            moves=around(own.moves),
            stale_kl=around(self.stale_kl),
            lag_half=around(self.lag_half),
            episode_noise=around(own.episode_noise),
            kl_noise=around(self.kl_noise),
            seed_spread=around(self.seed_spread),
            luck_spread=around(self.luck_spread),
            lag_shared=self.lag_shared,
            lag_own=self.lag_own,
            num_actions=num_actions,
            random_return=random_return,
            reference_return=random_return + 10.0 ** float(rng.uniform(0.0, 3.0)),
        )
        return learned_within(game, env_steps), env_steps


def learned_within(game: GameFidelity, env_steps: float) -> GameFidelity:
    """Return the game with a k that reaches the reference within so many uncompressed env steps."""
    low, high = math.log(game.initial_skill), math.log(game.reference_skill)
    logs = np.linspace(low, high, 401)
    skills = np.exp(logs)
    # dx = x d(log x); the trapezium rule on a logarithmic grid.
    slowness = skills ** (1.0 - game.rise) * (1.0 - skills) ** -game.saturation
    total = float(((slowness[1:] + slowness[:-1]) / 2.0 * np.diff(logs)).sum())
    return replace(game, gain_per_step=total * (1.0 + REFERENCE_LAG / game.lag_half) / env_steps)


def _normal(rng: np.random.Generator) -> float:
    """Return a normal number, cut off at 2.5."""
    return float(np.clip(rng.standard_normal(), -2.5, 2.5))


KINDS = ("easy", "minatar", "atari")
"""kinds of games: those that every spec learns, boards of ten by ten, and 84x84 pixels"""
_KINDS = (
    KindPrior(
        env_steps=(16e3, 60e3),
        free=0.8,
        failing=0.0,
        cost=(0.15, 0.8),
        kl_scale=(0.3, 0.5),
        int8_kl=(2e-3, 0.6),
        rank_kl=(4e-3, 0.6),
        pruned_kl=(0.05, 0.4),
        student_kl=(0.1, 0.4),
        distill_states=(4e3, 0.5),
        moves=(0.03, 0.5),
        episode_noise=(0.5, 0.4),
    ),
    # Breakout and Space Invaders on sixteen machines, 100,000 env steps: what is distilled needs
    # 0.8 to 1.1 times the env steps of INT8 to half of the reference (means by game and family).
    # Four updates instead of one leave 0.02 to 0.04 of a KL of 0.08 to 0.13: that is how fast their
    # policies move.
    KindPrior(
        env_steps=(200e3, 1e6),
        free=0.3,
        failing=0.05,
        cost=(0.2, 0.9),
        kl_scale=(0.5, 0.5),
        int8_kl=(3e-3, 0.6),
        rank_kl=(6e-3, 0.6),
        pruned_kl=(0.06, 0.4),
        student_kl=(0.12, 0.4),
        distill_states=(8e3, 0.5),
        moves=(0.1, 0.5),
        episode_noise=(0.6, 0.4),
    ),
    # Breakout and Pong, Net1 learns: KL of pruned 50% 0.04 and 0.09, of Net2 0.07 and 0.09, of
    # Net3 0.14 and 0.18, INT8 0.001 to 0.01, with 12 updates of 256 states a learner update.
    KindPrior(
        env_steps=(500e3, 2e6),
        free=0.15,
        failing=0.1,
        cost=(0.6, 0.9),
        kl_scale=(1.0, 0.4),
        int8_kl=(3e-3, 0.6),
        rank_kl=(6e-3, 0.6),
        pruned_kl=(0.05, 0.4),
        student_kl=(0.13, 0.4),
        distill_states=(100e3, 0.5),
        moves=(0.01, 0.5),
        episode_noise=(0.5, 0.4),
    ),
)
