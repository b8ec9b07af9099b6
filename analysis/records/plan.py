"""What study.json fixes before the test runs: games on machines, strategies, what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accerl.errors import UserError, did_you_mean

STUDY = "study.json"
GROUPS = ("trained", "new machine", "new game", "new game and machine")
"""what a controller may have met in training, from everything to nothing"""


@dataclass(frozen=True, kw_only=True)
class Game:
    """One instance: a game on a machine, and what its curves are measured against.

    Raises:
        UserError: the horizon is not positive, or a return does not lie above random play.
    """

    name: str
    """of the instance; folders and figures use it"""
    horizon_seconds: float
    interval_seconds: float
    random_return: float
    reference_return: float
    target_return: float
    game: str
    """the game alone"""
    profile: str
    """the latency profile that charges its seconds"""
    limit: str
    """what limits this machine: actors, learner, emulator or network"""
    group: str
    """one of GROUPS"""
    fp32_returns: tuple[float, ...]
    """final returns of the fp32 runs whose median the target is derived from"""
    first_interval_seconds: float = 0.0
    """0: as long as the others"""
    changing: bool = False
    """whether the machine's conditions change during its runs"""

    def __post_init__(self) -> None:
        if not self.horizon_seconds > 0.0:
            raise UserError(f"{STUDY}: {self.name}: horizon_seconds must be positive")
        if not self.reference_return > self.random_return:
            raise UserError(
                f"{STUDY}: {self.name}: reference_return ({self.reference_return:g}) must lie "
                f"above random_return ({self.random_return:g})"
            )
        if not self.target_return > self.random_return:
            raise UserError(
                f"{STUDY}: {self.name}: target_return ({self.target_return:g}) must lie above "
                f"random_return ({self.random_return:g}); a random policy would reach it at once"
            )

    def cluster(self, seed: int) -> tuple[str, int]:
        """Return what pairs of this seed share with those on other machines of the same game.

        Equal game and seed are equal first weights, episodes and evaluations.
        """
        return self.game, seed


@dataclass(frozen=True, kw_only=True)
class StrategyInfo:
    """One strategy of a study."""

    name: str
    label: str
    kind: str
    """controller, static, threshold, bandit, evolution, random, replay, fp32, ablation or rival"""
    scope: str | None
    """Either "one for all" instances or "per instance", by how its parameters were chosen"""
    tuned_params: Mapping[str, Any]
    inner_runs: int
    """inner runs spent on tuning or training it, and on choosing what to enter"""
    validation_runs: int
    """those of them that chose among what tuning or training proposed"""
    runs_per_instance: int | None
    """inner runs on each instance, if it was tuned for each by itself"""
    cpu_seconds: float
    """processor seconds spent on tuning or meta-training it"""
    test_seeds: tuple[int, ...]
    """seeds of its test runs"""
    score: float | None
    """mean over the validation seeds, by which its parameters were chosen"""
    searches: tuple[str, ...] = ()
    """names that its rows of tuning.jsonl begin with, where it was tuned on each instance"""


def read_games(info: Mapping[str, Any]) -> dict[str, Game]:
    """Return the games of study.json; keys that the analysis does not know are left alone."""
    types = {name: field.type for name, field in Game.__dataclass_fields__.items()}
    planned = info["plan"].get("instances", ())
    changing = {item["name"] for item in planned if item.get("events")}
    games = {}
    for name, item in info["games"].items():
        values: dict[str, Any] = {"name": name}
        given = {"first_interval_seconds": 0.0, **item}
        values |= {key: float(given[key]) for key, kind in types.items() if kind == "float"}
        values |= {key: item[key] for key in ("game", "profile", "limit", "group")}
        games[name] = Game(
            **values, fp32_returns=tuple(item["fp32_returns"]), changing=name in changing
        )
    return games


def read_strategies(info: Mapping[str, Any]) -> tuple[StrategyInfo, ...]:
    """Return the strategies of study.json."""
    fields = StrategyInfo.__dataclass_fields__
    return tuple(
        StrategyInfo(
            **{key: item[key] for key in fields if key not in ("test_seeds", "searches")},
            test_seeds=tuple(item["test_seeds"]),
            searches=tuple(item.get("searches", ())),
        )
        for item in info["strategies"]
    )


def read_primary(info: Mapping[str, Any], subject: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies that the plan compares the subject with.

    Raises:
        UserError: a name is not one of the study's strategies.
    """
    for name in info["primary_against"]:
        if name not in names or name == subject:
            others = [other for other in names if other != subject]
            raise UserError(f"{STUDY}: primary_against: {name!r}; {did_you_mean(name, others)}")
    return tuple(info["primary_against"])
