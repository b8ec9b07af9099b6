"""What a run directory holds for those who come after: its configuration and its learner."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from accerl.checkpoint import has_checkpoint, load_checkpoint, remove_checkpoint
from accerl.config import RunConfig
from accerl.errors import UserError, is_number
from accerl.records import (
    CONFIG,
    METRICS,
    SUMMARY,
    RunWriter,
    is_draft,
    locked,
    make_out_dir,
    not_a_run,
    read_json,
    read_metrics,
    try_lock,
)
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.settings import RECORDED

CHECKPOINT = "checkpoint"
PROFILE = "profile.json"
MACHINE = "machine.json"
"""the latency profile that a strategy knows of, on the real clock"""
TRACEBACK = "environment-traceback.txt"
LOCK = "run.lock"
"""in a run directory: held by the process that writes it"""
_OF_A_RUN = {CONFIG, METRICS, CHECKPOINT, PROFILE, MACHINE, TRACEBACK, LOCK}


def read_config(path: Path) -> RunConfig:
    """Return the configuration that a run directory was started with.

    Raises:
        UserError: it is none, or of another version of AcceRL.
    """
    if not (path / CONFIG).is_file():
        raise UserError(not_a_run(path, CONFIG))
    data = read_json(path / CONFIG)
    if not isinstance(data, dict):
        raise UserError(f"{path / CONFIG} holds no configuration; was it edited?")
    return RunConfig.from_json({key: value for key, value in data.items() if key not in RECORDED})


def resumed(config: RunConfig, path: Path, seconds: float | None) -> RunConfig:
    """Return the configuration of a run that is to go on, as long and from what it was at first.

    Args:
        config: what it would be without its folder.
        path: its folder.
        seconds: how long it is to be now; None: as it was, and up to the score that it was.
    """
    if not (path / CONFIG).is_file():
        return config  # who resumes it says what is wrong
    recorded = read_config(path)
    # What its learner began with is in its checkpoint.
    config = replace(config, start=config.start or recorded.start)
    if seconds is None:
        until = recorded.until_score if config.until_score is None else config.until_score
        config = replace(config, seconds=recorded.seconds, until_score=until)
    return config


def as_measured(config: RunConfig, path: Path, given: Collection[str] = ()) -> RunConfig:
    """Return a configuration with what was measured of its game when the run in `path` began.

    Measured again it may come out otherwise: its pixels, and the unit of its rewards, in which the
    values of that run's learner count.

    Args:
        config: of a run that goes on with that one, or begins with its learner.
        path: its folder.
        given: names of settings that are not to change, ``section.name``.
    """
    if not (path / CONFIG).is_file():
        return config  # who reads its checkpoint says what is wrong
    other = read_config(path)
    if (other.game, other.env) != (config.game, config.env):
        return config
    config = replace(config, pixel_centre=other.pixel_centre, pixel_unit=other.pixel_unit)
    if "learner.reward_scale" in given or other.learner.reward_clip != config.learner.reward_clip:
        return config
    return config.with_learner(reward_scale=other.learner.reward_scale)


def seconds_finished(config: RunConfig, path: Path) -> float | None:
    """Return how long a run took that is to last no longer; None: it goes on.

    Raises:
        UserError: it took longer than it is to last.
    """
    if not (path / SUMMARY).is_file():  # it was interrupted
        reports = [*read_metrics(path)] if holds_run(path) else []
        if reports and reports[-1].total_seconds - reports[-1].seconds >= config.seconds:
            raise _has_run(path, reports[-1].total_seconds)
        return None
    done = _summary(path).get("seconds")
    if done is None or done < config.seconds:
        return None
    if config.seconds < read_config(path).seconds:
        raise _has_run(path, done)
    return done


def _has_run(path: Path, seconds: float) -> UserError:
    return UserError(f"{path} has run for {seconds:g} s already; give more --seconds")


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = read_json(path / SUMMARY)
    except UserError as error:
        raise UserError(f"{error} Delete it: --resume writes it anew") from error
    if not (isinstance(summary, dict) and is_number(summary.get("seconds", 0.0))):
        raise UserError(f"{path / SUMMARY} holds no summary; delete it: --resume writes it anew")
    return summary


def holds_run(path: Path) -> bool:
    """Whether a folder holds intervals of a run; one that ended before its first holds nothing."""
    metrics = path / METRICS
    return metrics.is_file() and metrics.stat().st_size > 0


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep a run directory to oneself meanwhile; the kernel lets go of it when a process dies.

    Raises:
        UserError: another process, or another run of this one, writes there.
    """
    taken = f"a run is being written to {path}; give this one another folder, or wait"
    with locked(make_out_dir(path) / LOCK, taken):
        try:
            yield
        finally:
            (path / LOCK).unlink(missing_ok=True)


def _is_held(path: Path) -> bool:
    try:
        with (path / LOCK).open() as file:
            return not try_lock(file, shared=True)
    except FileNotFoundError:  # a run that ends removes it
        return False


def is_free(path: Path) -> bool:
    """Whether a new run may be written there: it takes the place of nothing that anybody needs.

    That is nothing at all, or what a run left that ended before its first interval.
    """
    if not path.is_dir():
        return not path.exists()
    if _is_held(path):
        return False
    found = {item.name for item in path.iterdir() if not is_draft(item)}
    begun = bool(found & {METRICS, LOCK}) and not holds_run(path) and found <= _OF_A_RUN
    return not found or begun


def check_free(path: Path, advice: str = "give another --out") -> None:
    """Refuse a folder that is not free for a new run.

    Raises:
        UserError: with what it holds, and `advice`.
    """
    if holds_run(path) and not has_checkpoint(path / CHECKPOINT) and not _is_held(path):
        raise UserError(f"{path} holds a run that cannot go on; delete it, or give another folder")
    if holds_run(path) or (path.is_dir() and _is_held(path)):
        raise UserError(f"{path} already holds a run; {advice}")
    if not is_free(path):
        raise UserError(f"{path} holds other things than a run; give a new folder")


def open_records(path: Path, config: Mapping[str, Any], *, resume: bool) -> RunWriter:
    """Return what writes a run directory; a new run has nothing of one that was there before."""
    if not resume:
        remove_checkpoint(path / CHECKPOINT)
    return RunWriter(path, config, resume=resume)


def recorded_machine(out: Path | None) -> LatencyProfile | None:
    """Return what the strategy of the run in `out` knew of its machine; None: nothing says that.

    What was known when a run on the real clock began still counts when it goes on.
    """
    path = None if out is None else out / MACHINE
    return load_profile(str(path)) if path is not None and path.is_file() else None


def saved_run(path: Path) -> dict[str, Any]:
    """Return the last snapshot of the run in `path`.

    Raises:
        UserError: there is no such run or checkpoint, or it is damaged.
    """
    read_config(path)
    if not has_checkpoint(path / CHECKPOINT):
        raise UserError(f"{path} holds no checkpoint yet; let its run finish an interval first")
    return load_checkpoint(path / CHECKPOINT)["run"]


def starting_learner(config: RunConfig) -> dict[str, Any]:
    """Return the learner that a run with `config` starts from, as another run has left it.

    Raises:
        UserError: there is none, or it learned another game or network, or saw other pixels.
    """
    path = Path(config.start)
    other = read_config(path)
    names = ("game", "env", "network", "pixel_centre", "pixel_unit")
    for name in names:
        theirs, ours = getattr(other, name), getattr(config, name)
        if theirs != ours:
            raise UserError(f"--start {path}: its {name} is {theirs!r}, this run's is {ours!r}")
    theirs, ours = other.learner.sparse, config.learner.sparse
    if (theirs is None) != (ours is None):
        raise UserError(f"--start {path}: one of the two learns sparse layers and the other not")
    for name in ("sparsity", "density", "block"):  # masks keep what they were drawn with
        if getattr(theirs, name, None) != getattr(ours, name, None):
            raise UserError(
                f"--start {path}: its learner.sparse.{name} is {getattr(theirs, name)!r}, this "
                f"run's is {getattr(ours, name)!r}"
            )
    return saved_run(path)["learner"]
