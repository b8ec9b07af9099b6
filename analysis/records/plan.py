"""What study.json fixes before the test runs: games on machines, contestants, what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accerl.errors import UserError, did_you_mean

STUDY = "study.json"
GROUPS = ("trained", "new machine", "new game", "new game and machine")
"""what a controller may have met in training, from everything to nothing"""
KINDS = ("fp32", "static")
"""of strategies, told from their names where study.json does not tell"""


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
    game: str = ""
    """the game alone; empty where study.json does not tell"""
    profile: str = ""
    """the latency profile that charges its seconds"""
    limit: str = ""
    """what limits this machine: actors, learner, emulator or network"""
    group: str = ""
    """one of GROUPS, or empty"""
    fp32_returns: tuple[float, ...] = ()
    """final returns of the fp32 runs that the target is the median of"""

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

    @property
    def reference_range(self) -> float:
        """Reference return minus random return: the unit of normalised returns."""
        return self.reference_return - self.random_return

    def cluster(self, seed: int) -> tuple[str, int]:
        """Return what pairs of this seed share with those on other machines of the same game.

        Equal game and seed are equal first weights, episodes and evaluations: one throw of dice.
        """
        return self.game or self.name, seed


@dataclass(frozen=True, kw_only=True)
class StrategyInfo:
    """One contestant of a study."""

    name: str
    label: str
    tuned_params: Mapping[str, Any]
    inner_runs: int
    """inner runs spent on tuning or meta-training it"""
    kind: str = ""
    """controller, static, threshold, bandit, evolution, random, replay, fp32, ablation, schedule"""
    scope: str | None = None
    """Either "one for all" instances or "per instance", by how its parameters were chosen"""
    cpu_seconds: float | None = None
    """processor seconds spent on tuning or meta-training it"""
    test_seeds: tuple[int, ...] | None = None
    """seeds of its test runs; None, also where none are told: all that the study has"""
    validation_runs: int = 0
    """inner runs on top of these, that chose among what tuning or training proposed"""
    score: float | None = None
    """mean over the validation seeds, by which its parameters were chosen"""


def read_games(info: Mapping[str, Any]) -> dict[str, Game]:
    """Return the games of study.json; keys that the analysis does not know are left alone."""
    types = {name: field.type for name, field in Game.__dataclass_fields__.items()}
    games = {}
    for name, item in info["games"].items():
        told: dict[str, Any] = {"name": name}
        told |= {key: float(item[key]) for key, kind in types.items() if kind == "float"}
        told |= {key: str(item.get(key) or "") for key in ("game", "profile", "limit", "group")}
        told["fp32_returns"] = tuple(float(value) for value in item.get("fp32_returns") or ())
        games[name] = Game(**told)
    return games


def read_strategies(info: Mapping[str, Any]) -> tuple[StrategyInfo, ...]:
    """Return the contestants of study.json."""
    return tuple(
        StrategyInfo(
            name=item["name"],
            label=item.get("label", item["name"]),
            tuned_params=item.get("tuned_params") or {},
            inner_runs=int(item.get("inner_runs", 0)),
            kind=str(item.get("kind") or next((k for k in KINDS if k in item["name"]), "")),
            scope=item.get("scope"),
            cpu_seconds=None if item.get("cpu_seconds") is None else float(item["cpu_seconds"]),
            validation_runs=int(item.get("validation_runs") or 0),
            score=None if item.get("score") is None else float(item["score"]),
            test_seeds=tuple(int(seed) for seed in item.get("test_seeds") or ()) or None,
        )
        for item in info["strategies"]
    )


def read_primary(info: Mapping[str, Any], subject: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the strategies of the primary family: all but the subject, if none are named.

    Raises:
        UserError: a name is not one of the study's strategies.
    """
    planned = info.get("primary_against")
    if planned is None:
        return tuple(name for name in names if name != subject)
    for name in planned:
        if name not in names or name == subject:
            others = [other for other in names if other != subject]
            raise UserError(f"{STUDY}: primary_against: {name!r}; {did_you_mean(name, others)}")
    return tuple(planned)
