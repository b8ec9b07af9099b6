"""Run and study directories -> typed records; every view of the results starts here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.records import CONFIG, METRICS, SUMMARY, read_metrics
from accerl.runtime.run import IntervalReport
from accerl.training.summary import require_whole, summarise
from analysis.records import shapes
from analysis.records.plan import (
    GROUPS,
    STUDY,
    Game,
    StrategyInfo,
    read_games,
    read_primary,
    read_strategies,
)
from analysis.records.read import (
    read_list,
    read_optional,
    read_record,
    read_rows,
    require_shape,
    shaped,
)

BASELINE_HINT = "fp32"
SHAPE = {
    **{"name": str, "subject": str, "seed": int, "budget": str, "tier": str},
    **{"games": {str: dict}, "strategies": [dict], "test_seeds": [int]},
    "plan": {
        "budget": {"inner_runs": int},
        "seeds": {"test": [int]},
        "primary": dict.fromkeys(("metric", "contrast", "correction"), str)
        | {"groups": [str], "against": [str]},
    },
    **{"plan_hash": str, "primary_against": [str], "primary_groups": [str]},
    "accounting": {
        **{"accepted": str, "processes": int, "inner_runs": int},
        **{"meta_wall_seconds": float, "meta_cpu_seconds": float},
    },
    **{"wall_seconds": {str: float}, "commands": [str], "notes": [str]},
    **{"fingerprint": dict, "versions": dict},
}
"""what study.json says at least"""
EVENTS = "bench-events.json"
"""a comparison of the clocks under events, which may lie beside a study of room"""
ROOM, PLAN = "room.json", "plan.json"
"""the records of a study of room"""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run directory in memory."""

    path: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    """summary.json, or `summarise` of what a run that never finished has recorded"""
    reports: tuple[IntervalReport, ...]
    finished: bool
    """summary.json was there"""

    @property
    def env(self) -> str:
        """Name of the environment."""
        return str(self.summary.get("env", "unknown"))

    @property
    def strategy(self) -> str:
        """Name of the strategy that chose the compression."""
        return str(self.summary.get("strategy", "unknown"))

    @property
    def network(self) -> str:
        """The learner's network."""
        return str(self.config.get("network", "original"))

    @property
    def seed(self) -> int:
        """Seed of the run; -1 when it is not recorded."""
        return int(self.summary.get("seed", -1))

    @property
    def clock(self) -> str:
        """What the seconds are, such as ``serial, virtual``: other seconds must not be mixed in."""
        return f"{self.summary.get('runtime', 'unknown')}, {self.summary.get('tier', 'unknown')}"


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """One study directory in memory."""

    path: Path
    info: Mapping[str, Any]
    """study.json as it is"""
    games: Mapping[str, Game]
    strategies: tuple[StrategyInfo, ...]
    test_seeds: tuple[int, ...]
    runs: Mapping[tuple[str, str, int], RunRecord]
    """finished test runs by (strategy, game, seed)"""
    profiles: Mapping[str, Mapping[str, Any]]
    """latency profiles by machine; those that the runs on the real clock measured come last"""
    tuning: tuple[Mapping[str, Any], ...]
    meta_training: tuple[Mapping[str, Any], ...]
    bundle: Mapping[str, Any]
    replays: Mapping[str, RunRecord]
    """real-clock runs by folder name, such as schedule and fp32"""
    oracle_gap: tuple[Mapping[str, Any], ...]
    """rows of oracle-gap.json: what the best schedules gain over the best static spec"""
    variants: tuple[Mapping[str, Any], ...]
    """every way of training a controller"""
    checks: tuple[Mapping[str, Any], ...]
    """every candidate of meta-training, its gain over the best before it on validation"""
    real: Mapping[str, Any]
    """runs on the real clock beside what the virtual clock predicts"""
    warnings: tuple[str, ...]
    """what is missing or cut short, one sentence each"""

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.info["name"]

    @property
    def tier(self) -> str:
        """Which clock the test runs' seconds come from."""
        return self.info["tier"]

    @property
    def labels(self) -> dict[str, str]:
        """Strategy name -> label for people."""
        return {item.name: item.label for item in self.strategies}

    @property
    def subject(self) -> str:
        """The strategy that the study is about."""
        return self.info["subject"]

    @property
    def names(self) -> list[str]:
        """Names of all strategies."""
        return [item.name for item in self.strategies]

    @property
    def primary_against(self) -> tuple[str, ...]:
        """The comparators that the plan names; all others are exploratory."""
        return read_primary(self.info, self.subject, self.names)

    @property
    def planned(self) -> list[str]:
        """The subject, fp32 and the comparators that the plan names, in the study's order."""
        wanted = {self.subject, *self.primary_against, *self.of_kind("fp32")}
        return [name for name in self.names if name in wanted]

    @property
    def exploratory(self) -> list[str]:
        """The subject and the strategies that the plan does not name; none if it names all."""
        planned = self.planned
        others = [name for name in self.names if name not in planned]
        return [name for name in self.names if name in {*others, self.subject}] if others else []

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Names of the games by how much of them the controller met in training."""
        known = [game.group for game in self.games.values()]
        return {
            group: tuple(game.name for game in self.games.values() if game.group == group)
            for group in GROUPS
            if group in known
        }

    @property
    def primary_games(self) -> tuple[str, ...]:
        """Names of the games that contrasts are over: those in the groups that the plan names."""
        planned = self.info["primary_groups"]
        return tuple(name for group in planned for name in self.groups.get(group, ()))

    @property
    def machines(self) -> str:
        """The latency profiles that charge the seconds, for people."""
        return ", ".join(dict.fromkeys(game.profile for game in self.games.values()))

    def shares_policy(self, name: str) -> bool:
        """Return whether a strategy has the same network as the subject, by their hashes."""
        hashes = {item.name: item.tuned_params.get("policy_hash") for item in self.strategies}
        own = hashes.get(self.subject)
        return own is not None and name != self.subject and hashes.get(name) == own

    def clusters(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
        """Return what makes rows with `env` and `seed` independent: one game and seed is one."""
        return [self.games[row["env"]].cluster(row["seed"]) for row in rows]

    def of_kind(self, kind: str) -> list[str]:
        """Return the names of the strategies of a kind, those chosen per instance first."""
        found = [item for item in self.strategies if item.kind == kind]
        return [item.name for item in sorted(found, key=lambda item: item.scope != "per instance")]


def machine_warning(what: str, runs: Sequence[RunRecord]) -> str | None:
    """Return a sentence if real-clock seconds of different machines would be mixed, else None."""
    machines = {
        str(found.get("id", found) if isinstance(found, Mapping) else found)
        for run in runs
        if run.summary.get("tier") not in ("virtual", "analytic")
        and (found := run.summary.get("fingerprint"))
    }
    if len(machines) < 2:
        return None
    return f"{what} were timed on {len(machines)} different machines: seconds cannot be compared"


def is_study(path: Path) -> bool:
    """Return whether a folder is a study directory."""
    return (path / STUDY).is_file()


def is_room(path: Path) -> bool:
    """Return whether a folder holds the result of a study of room."""
    return (path / ROOM).is_file()


def load_room(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Read the result and the plan of a study of room.

    Raises:
        UserError: a file is missing, incomplete or damaged.
    """
    plan, result = read_record(path / PLAN), read_record(path / ROOM)
    require_shape(result, shapes.ROOM, str(path / ROOM))
    require_shape(plan, {"plan": shapes.ROOM_PLAN}, str(path / PLAN))
    return result, plan["plan"]


def load_events(path: Path) -> Mapping[str, Any] | None:
    """Read the comparison of the clocks that lies in a folder; None: there is none.

    Raises:
        UserError: it is damaged.
    """
    return shaped(path / EVENTS, read_optional, shapes.EVENTS) or None


def load_run(path: Path) -> RunRecord:
    """Read a run directory; a run that never finished is read as far as it got.

    Raises:
        UserError: it is not a run directory, is empty, or a file in it is damaged.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"{path} is not a folder; give a run directory (with {METRICS} in it)")
    reports = tuple(read_metrics(path))
    if not reports:
        raise UserError(
            f"{path} has nothing to show, as its run ended before its first interval was over; "
            "leave it out"
        )
    config = read_record(path / CONFIG)
    finished = (path / SUMMARY).is_file()
    summary = read_record(path / SUMMARY) if finished else summarise(config, reports)
    require_shape(summary, shapes.SUMMARY, str(path / SUMMARY))
    require_whole(path, summary, reports)
    return RunRecord(path=path, config=config, summary=summary, reports=reports, finished=finished)


def load_study(path: Path) -> StudyRecord:
    """Read a study directory; what is missing among its test runs becomes a warning.

    Raises:
        UserError: study.json is missing or incomplete, or a file is damaged, or no test run is
            there.
    """
    path = Path(path)
    if not is_study(path):
        missing = f"holds no finished contest (no {STUDY})" if path.is_dir() else "does not exist"
        raise UserError(
            f"{path} {missing}; give the --out of `accerl study run contest` or quickstart, which "
            "goes on when it is started again"
        )
    info = read_record(path / STUDY)
    require_shape(info, SHAPE, str(path / STUDY))
    try:
        games, strategies = read_games(info), read_strategies(info)
        test_seeds = tuple(int(seed) for seed in info["test_seeds"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path / STUDY} is incomplete or damaged: {error!r}") from error
    if not (games and strategies and test_seeds):
        raise UserError(f"{path / STUDY} names no games, no strategies or no test seeds")
    runs, warnings = _load_test_runs(path, games, strategies)
    planned = info["plan"]["seeds"]["test"]
    if len(test_seeds) < len(planned):
        warnings.insert(0, f"ended early: {len(test_seeds)} of {len(planned)} planned test seeds")
    if not runs:
        raise UserError(f"{path / 'runs'} holds no finished test run; run the study first")
    replays = _load_replays(path / "replay")
    for what, group in (("The test runs", runs), ("The replay runs", replays)):
        warning = machine_warning(what, list(group.values()))
        warnings += [warning] if warning else []
    return StudyRecord(
        path=path,
        info=info,
        games=games,
        strategies=strategies,
        test_seeds=test_seeds,
        runs=runs,
        profiles=_read_profiles(path),
        tuning=shaped(path / "tuning.jsonl", read_rows, shapes.TUNING),
        meta_training=shaped(path / "meta_training.jsonl", read_rows, shapes.META_TRAINING),
        bundle=read_optional(path / "bundle" / "bundle.json"),
        replays=replays,
        oracle_gap=_oracle_gap(path / "oracle-gap.json"),
        variants=shaped(path / "variants.json", read_list, shapes.VARIANTS),
        checks=shaped(path / "checks.json", read_list, shapes.CHECKS),
        real=shaped(path / "real.json", read_optional, shapes.REAL),
        warnings=tuple(warnings),
    )


def _oracle_gap(path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the rows of a study of the oracle gap, if it lies there."""
    rows = shaped(path, read_optional, shapes.ORACLE_GAP).get("rows", ())
    for row in rows:
        best = row["statics"].get(row["best_static"], ())
        if len(best) != len(row["oracle"]["values"]):
            raise UserError(f"{path} is damaged: {row['game']} has another number of seeds of each")
    return tuple(rows)


def _read_profiles(path: Path) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {
        item.stem: _profile(item) for item in sorted((path / "profiles").glob("*.json"))
    }
    for item in sorted((path / "real").glob("profile-*.json")):
        found[f"this machine, {item.stem.removeprefix('profile-')}"] = _profile(item)
    return found


def _profile(path: Path) -> Mapping[str, Any]:
    found = read_record(path)
    require_shape(found, shapes.PROFILE, str(path))
    return found


def _load_test_runs(
    path: Path,
    games: Mapping[str, Game],
    strategies: tuple[StrategyInfo, ...],
) -> tuple[dict[tuple[str, str, int], RunRecord], list[str]]:
    runs: dict[tuple[str, str, int], RunRecord] = {}
    warnings: list[str] = []
    for strategy in strategies:
        for game in games.values():
            for seed in strategy.test_seeds:
                folder = path / "runs" / strategy.name / game.name / f"seed-{seed}"
                what = f"{strategy.label} on {game.name}, seed {seed}"
                if not _has_rows(folder):
                    warnings.append(f"{what}: no test run; this pair is left out of every contrast")
                    continue
                run = load_run(folder)
                if not run.finished:
                    warnings.append(f"{what}: the run never finished and is left out")
                    continue
                if all(item.learner_return is None for item in run.reports):
                    warnings.append(f"{what}: the learner was never evaluated; left out")
                    continue
                ended = run.reports[-1].total_seconds
                if ended < game.horizon_seconds - game.interval_seconds:
                    warnings.append(
                        f"{what}: ended at {ended:.4g} s of {game.horizon_seconds:.4g} s; its last "
                        f"return is held to the horizon"
                    )
                runs[strategy.name, game.name, seed] = run
    return runs, warnings


def _has_rows(folder: Path) -> bool:
    """Return whether a run has rows, or should have: one killed in its first interval has none."""
    if not (folder / METRICS).is_file():
        return False
    return (folder / SUMMARY).is_file() or any(True for _ in read_metrics(folder))


def _load_replays(path: Path) -> dict[str, RunRecord]:
    if not path.is_dir():
        return {}
    folders = sorted(item for item in path.iterdir() if _has_rows(item))
    # The comparison run comes last, so that tables and figures read "indicator, fp32".
    folders.sort(key=lambda item: item.name.startswith(BASELINE_HINT))
    return {folder.name: load_run(folder) for folder in folders}
