"""A bundle in memory: read, checked, and made into what a run can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load as load_safetensors

from accerl.errors import UserError, require_choice
from accerl.monitor.strategy import Strategy
from accerl.records import read_json
from controller.actions import Actions
from controller.bundle.content import Content
from controller.bundle.files import (
    MANIFEST,
    SCHEDULE,
    WEIGHTS,
    Manifest,
    read_manifest,
    refuse_malformed,
)
from controller.bundle.meta import BundleMeta
from controller.bundle.schedule import POOLED, RULES, ReplayedSchedule, Schedule
from controller.shield import Shielded

MODES = ("policy", "schedule")


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What an intact bundle holds."""

    path: Path
    manifest: Manifest
    content: Content
    """the indicator, and what it chooses from"""
    meta: BundleMeta
    schedules: Mapping[str, Schedule]
    """open-loop, by instance, by game, and pooled"""

    def strategy(self, mode: str = "policy", game: str | None = None) -> Strategy:
        """Return what decides in a run; it never explores.

        Args:
            mode: "policy" reacts to features, under the shield that its results were obtained
                under, if there was one; "schedule" replays the open-loop schedule.
            game: whose schedule; None is the pooled one, or else the only one there is. A policy
                takes none.

        Raises:
            UserError: the bundle has no such mode or game.
        """
        require_choice("bundle: mode", mode, MODES)
        if mode == "policy":
            if game is not None:
                raise UserError(
                    f"bundle: game {game!r} names a schedule, and mode 'policy' replays none; "
                    "leave it out, or give mode='schedule'"
                )
            learned = self.content.strategy()
            nats = self.meta.shield_nats
            return learned if nats is None else Shielded(learned, nats)
        if game is None:
            game = self.schedule_for()
        if game not in self.schedules:
            raise self._lacking(game)
        return ReplayedSchedule(self.schedules[game])

    def schedule_for(self, *names: str) -> str:
        """Return the first of `names` that has a schedule, or else the pooled one's name.

        A bundle without a pooled one offers its only one.

        Raises:
            UserError: it has none of these, and not just one.
        """
        known = [name for name in (*names, POOLED) if name in self.schedules]
        if not known and len(self.schedules) != 1:
            raise self._lacking((*names, POOLED)[0])
        return (known or [*self.schedules])[0]

    def _lacking(self, name: str) -> UserError:
        there = ", ".join(self.schedules) or "none"
        if self.schedules:
            there += "; accerl.load_bundle(..., mode='schedule', game=...) replays one of them"
        return UserError(f"{self.path / SCHEDULE} has no schedule for {name!r}; it has: {there}")


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle and check it against its hashes and its schema.

    Raises:
        UserError: one line that names the file and what is wrong with it.
    """
    path = Path(path)
    manifest = read_manifest(path)
    with refuse_malformed(f"{path / MANIFEST} is not what its schema promises"):
        meta = BundleMeta.from_json(manifest.meta)
    with refuse_malformed(f"{path / WEIGHTS} holds no tensors"):
        tensors = load_safetensors((path / WEIGHTS).read_bytes())
    weights = {name: value.tolist() for name, value in tensors.items()}
    content = Content.read(path, manifest, weights)
    return Bundle(
        path=path,
        manifest=manifest,
        content=content,
        meta=meta,
        schedules=_read_schedules(path / SCHEDULE, content.actions),
    )


def _read_schedules(file: Path, actions: Actions) -> dict[str, Schedule]:
    """Return the schedules by name, all of which keep to what is chosen from."""
    data = read_json(file)
    with refuse_malformed(f"{file} does not hold schedules"):
        schedules = {name: Schedule.from_json(points) for name, points in data["games"].items()}
        rules = {key: data[key] for key in RULES}
    if rules != RULES:
        raise UserError(f"{file} has other heads, quantiles or combinations than this AcceRL")
    for name, schedule in schedules.items():
        with refuse_malformed(f"{file}, {name}"):
            schedule.check(actions)
    return schedules
