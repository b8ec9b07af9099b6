"""Where a bundle's controller comes from and what it reached: what a reader needs to trust it."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import accerl
from accerl.errors import UserError
from controller.objective import TIERS, num_intervals

Row = TypeVar("Row")
PACKAGES = ("accerl", "analysis", "controller", "studies")
"""of which the code consists"""


@dataclass(frozen=True, kw_only=True)
class ProfileId:
    """A latency profile that charged the virtual clock."""

    hash: str
    name: str


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """A training instance: a game on a machine, with the seeds of its inner runs."""

    game: str
    profile: str | None = None
    """name of its latency profile; None: the tier has none"""
    seeds: tuple[int, ...]
    """of runs that it learned from"""
    validated: tuple[int, ...] = ()
    """of runs by which it was chosen, and its schedules were made"""
    horizon_seconds: float
    """length of an episode"""
    interval_seconds: float
    """length of one step"""
    first_interval_seconds: float = 0.0
    """length of the first step; 0: as long as the others"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", tuple(self.seeds))
        object.__setattr__(self, "validated", tuple(self.validated))

    @property
    def name(self) -> str:
        """What results and schedules call it."""
        return self.game if self.profile is None else f"{self.game}-{self.profile}"


HELD_OUT = "held out"
"""instance of results over those that were not trained on"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How the controller did beside another strategy, as a ratio with its 95% interval.

    Raises:
        UserError: a number is not finite, the interval is reversed, or there were no runs.
    """

    instance: str
    """name of the instance, "all" for every one together, or "held out" for those not trained on"""
    metric: str
    """such as seconds_to_target"""
    against: str
    """the other strategy"""
    ratio: float
    """the controller's value over the other's"""
    low: float | None
    high: float | None
    """bounds of the interval; None: too few runs for an interval"""
    n: int
    """pairs of runs"""

    def __post_init__(self) -> None:
        bounds = [value for value in (self.low, self.high) if value is not None]
        if not all(map(math.isfinite, (self.ratio, *bounds))) or len(bounds) == 1:
            raise UserError("bundle: a result needs a finite ratio and both bounds, or neither")
        if bounds != sorted(bounds) or self.n < 1:
            raise UserError("bundle: a result needs low <= high and at least one pair of runs")


@dataclass(frozen=True, kw_only=True)
class BundleMeta:
    """Where a controller comes from and what it reached.

    Raises:
        UserError: a length is not positive, or the tier does not exist.
    """

    interval_seconds: float
    """between two decisions; of several instances, the longest one's"""
    horizon_seconds: float
    """of an episode; of several instances, the longest one's"""
    tier: str
    """analytic, virtual or real: whose seconds these are"""
    profiles: tuple[ProfileId, ...] = ()
    instances: tuple[TrainedOn, ...] = ()
    inner_runs: int = 0
    """how many runs training cost"""
    shield_nats: float | None = None
    """threshold of the KL-max shield that its results were obtained under; None: there was none"""
    results: tuple[Result, ...] = ()
    first_interval_seconds: float = 0.0
    """until the second decision, of the longest instance; 0: as long as between the others"""
    contest: str | None = None
    """hash of the plan of the contest that the results are from"""
    ended_with: str | None = None
    """what its training ended with, such as the rule that it starts from; None: not recorded"""

    def __post_init__(self) -> None:
        for name in ("profiles", "instances", "results"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.tier not in TIERS:
            raise UserError(f"bundle: tier {self.tier!r}; allowed: {', '.join(TIERS)}")
        if not 0.0 < self.interval_seconds <= self.horizon_seconds:
            raise UserError("bundle: the interval must be positive and at most the horizon")
        if not 0.0 <= self.first_interval_seconds <= self.interval_seconds:
            raise UserError("bundle: the first interval must not exceed the others")
        if self.shield_nats is not None and not self.shield_nats >= 0.0:
            raise UserError("bundle: shield_nats must be at least 0, or null")

    @property
    def decisions(self) -> int:
        """How many decisions an episode has."""
        lengths = self.horizon_seconds, self.interval_seconds, self.first_interval_seconds
        return num_intervals(*lengths)

    @property
    def shield_in_words(self) -> str:
        """Whether a shield belongs to the controller, for people."""
        if self.shield_nats is None:
            return "none"
        return f"acts with the mildest spec after a largest KL above {self.shield_nats:g} nats"

    @property
    def games(self) -> tuple[str, ...]:
        """The games trained on, each once."""
        return tuple(dict.fromkeys(instance.game for instance in self.instances))

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BundleMeta:
        """Read what `to_json` wrote.

        Raises:
            UserError: a key is missing, unknown or of another type.
        """
        try:
            rows = {
                name: tuple(_read(kind, row, name) for row in data[name])
                for name, kind in _ROWS.items()
            }
            return _read(cls, {**data, **rows}, "meta")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"bundle: meta is incomplete or mistyped ({error!r})") from error


_ROWS = {"profiles": ProfileId, "instances": TrainedOn, "results": Result}


def _read(kind: type[Row], data: Mapping[str, Any], what: str) -> Row:
    """Return `kind` made of exactly its fields."""
    names = {item.name for item in fields(kind)}  # pyright: ignore[reportArgumentType]
    if set(data) != names:
        raise UserError(f"bundle: {what} has wrong or missing keys {sorted(names ^ set(data))}")
    wrong = [name for name, own in get_type_hints(kind).items() if not _is_of(own, data[name])]
    if wrong:
        raise UserError(f"bundle: {what} has values of another type: {', '.join(wrong)}")
    return kind(**data)


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value is of a field's type, as far as JSON has one."""
    if get_origin(kind) is UnionType:
        return any(_is_of(own, value) for own in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, list | tuple)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind)


def git_revision() -> str | None:
    """Return the git commit of the code that runs, "-dirty" added where files were changed.

    None without git, or where the code does not lie in a checkout of its own.
    """
    git = shutil.which("git")
    if git is None:
        return None
    folder = Path(accerl.__file__).parent
    # The second name fails where a package was installed inside another project's checkout.
    found = _git(git, folder, "rev-parse", "HEAD", "HEAD:./__init__.py")
    if found is None:
        return None
    changes = _git(git, folder, "status", "--porcelain", "--untracked-files=no")
    sources = [f"../{package}/*.py" for package in PACKAGES]  # new ones may be imported
    added = _git(git, folder, "ls-files", "--others", "--exclude-standard", "--", *sources)
    return found.split()[0] + ("-dirty" if changes or added else "")


def code_revision() -> str:
    """Return the version of this code: `git_revision`, where that is enough.

    Where files have been changed since, a digest of the sources is added to it; without git the
    digest takes its place.
    """
    revision = git_revision()
    if revision is not None and not revision.endswith("-dirty"):
        return revision
    digest, root = hashlib.sha256(), Path(accerl.__file__).parent.parent
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{revision or 'source'}-{digest.hexdigest()[:12]}"


def _git(git: str, folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints; None if it fails."""
    done = subprocess.run(
        [git, "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None
