"""A bundle in memory: read, checked, migrated, and made into what a run can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.monitor.features import FEATURE_NAMES
from accerl.monitor.strategy import Strategy
from controller.actions import HEADS, ActionSpace
from controller.bundle.files import (
    MANIFEST,
    SCHEDULE,
    SCHEMA_VERSION,
    WEIGHTS,
    Contents,
    feature_names,
    read_contents,
)
from controller.bundle.meta import BundleMeta
from controller.bundle.migrate import action_table, migrate
from controller.bundle.schedule import MEDOID, MODE, POOLED, QUANTILES, ReplayedSchedule, Schedule
from controller.policy.policy import ControllerPolicy, LearnedStrategy
from controller.policy.shield import Shielded

MODES = ("policy", "schedule")
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RuntimeError)
"""what reading JSON or tensors of another form than expected raises"""


@dataclass(frozen=True)
class Bundle:
    """What an intact bundle holds, in the form of this version of AcceRL."""

    path: Path
    manifest: Mapping[str, Any]
    """bundle.json, migrated"""
    policy: ControllerPolicy
    actions: ActionSpace
    meta: BundleMeta
    schedules: Mapping[str, Schedule]
    """open-loop, by instance, by game, and pooled"""
    combination: str
    """how the schedules' combinations were formed: `MEDOID` or `MODE`"""
    graph_features: int
    """how many features its ONNX graph reads: fewer than the policy, where that was migrated"""
    written_as: int
    """schema version of the files"""

    @property
    def migrated_from(self) -> int | None:
        """The schema version that it was migrated from; None: it is of this one."""
        return None if self.written_as == SCHEMA_VERSION else self.written_as

    def strategy(self, mode: str = "policy", game: str | None = None) -> Strategy:
        """Return what decides in a run; it never explores.

        Args:
            mode: "policy" reacts to features, under the shield that its results were obtained
                under, if there was one; "schedule" replays the open-loop schedule.
            game: whose schedule; None is the pooled one, or else the only one there is.

        Raises:
            UserError: the bundle has no such mode or game.
        """
        if mode == "policy":
            dwell = self.meta.min_dwell_intervals
            learned = LearnedStrategy(self.policy, self.actions, min_dwell_intervals=dwell)
            nats = self.meta.shield_nats
            return learned if nats is None else Shielded(learned, nats)
        if mode != "schedule":
            raise UserError(f"bundle: mode {mode!r} does not exist; allowed: {', '.join(MODES)}")
        if game is None:
            game = self.schedule_for()
        if game not in self.schedules:
            raise UserError(
                f"{self.path / SCHEDULE} has no schedule for {game!r}; "
                f"it has: {', '.join(self.schedules) or 'none'}"
            )
        return ReplayedSchedule(self.schedules[game])

    def schedule_for(self, *names: str) -> str:
        """Return the first of `names` that has a schedule, or else the pooled one's name.

        A bundle without a pooled one offers its first.
        """
        known = [name for name in (*names, POOLED) if name in self.schedules]
        return (known or [*self.schedules, POOLED])[0]


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle of this or an earlier schema version.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    path = Path(path)
    written = read_contents(path)
    try:
        contents = migrate(written)
        manifest = contents.manifest
        actions = ActionSpace.from_json(manifest["actions"])
    except (UserError, *MALFORMED) as error:
        raise UserError(
            f"{path / MANIFEST} is not what its schema promises: {_reason(error)}"
        ) from error
    policy = _policy(path / WEIGHTS, contents, actions)
    if manifest["action_table"] != action_table(actions):
        raise UserError(f"{path / MANIFEST}: the action table does not list its actions")
    schedules, combination = _schedules(path / SCHEDULE, contents.schedule, actions)
    return Bundle(
        path=path,
        manifest=manifest,
        policy=policy,
        actions=actions,
        meta=BundleMeta.from_json(manifest["meta"]),
        schedules=schedules,
        combination=combination,
        graph_features=len(feature_names(written.manifest)),
        written_as=written.manifest["schema_version"],
    )


def _policy(file: Path, contents: Contents, actions: ActionSpace) -> ControllerPolicy:
    """Return the controller: what bundle.json says about its form, and its tensors."""
    weights = {name: value.tolist() for name, value in contents.weights.items()}
    try:
        policy = ControllerPolicy.from_json({**contents.manifest["policy"], "weights": weights})
        LearnedStrategy(policy, actions)  # raises where heads and action space do not fit
    except (UserError, *MALFORMED) as error:
        raise UserError(f"{file} does not hold this controller: {_reason(error)}") from error
    if policy.normaliser.mean.numel() != len(FEATURE_NAMES):
        raise UserError(
            f"{file} does not hold this controller: it reads {policy.normaliser.mean.numel()} "
            f"features, {MANIFEST} lists {len(FEATURE_NAMES)}"
        )
    return policy


def _schedules(file: Path, data: Any, actions: ActionSpace) -> tuple[dict[str, Schedule], str]:
    """Return the schedules by name, and how their combinations were formed."""
    try:
        told = {key: data[key] for key in ("heads", "quantiles", "combination")}
        schedules = {game: Schedule.from_json(points) for game, points in data["games"].items()}
    except (UserError, *MALFORMED) as error:
        raise UserError(f"{file} does not hold schedules: {_reason(error)}") from error
    if (
        told["heads"] != list(HEADS)
        or told["quantiles"] != list(QUANTILES)
        or told["combination"] not in (MEDOID, MODE)
    ):
        raise UserError(f"{file} tells other heads, quantiles or combinations than this AcceRL")
    for name, schedule in schedules.items():
        try:
            schedule.check(actions)
        except (UserError, *MALFORMED) as error:
            raise UserError(f"{file}, {name}: {_reason(error)}") from error
    return schedules, told["combination"]


def _reason(error: Exception) -> str:
    """Return an error in one line."""
    return str(error) if isinstance(error, UserError) else " ".join(repr(error).split())
