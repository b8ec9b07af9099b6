"""run_training(): one inner run from start to end, driven by a strategy and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accerl.checkpoint import save_checkpoint
from accerl.config import RunConfig, learns_on_gpu
from accerl.correct import name_of as corrector_name
from accerl.errors import GameError, UserError
from accerl.monitor.indicators import Indicator
from accerl.monitor.strategy import (
    Strategy,
    bind,
    check_needs,
    check_students,
    check_times,
    decide,
    declares,
    events_of,
    explanation_of,
    reset,
    tell_rejected,
)
from accerl.records import RunWriter, disk_errors, fingerprint, versions
from accerl.runtime.latency.games import as_wired, times_of_game, times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile, save_profile, this_machine
from accerl.runtime.machine.threads import own_threads
from accerl.runtime.parts import Parts, named_indicators, with_named
from accerl.runtime.process.run import ProcessRun
from accerl.runtime.ray.run import RayRun
from accerl.runtime.run import IntervalReport
from accerl.runtime.serial.clock import RealClock, VirtualClock
from accerl.runtime.serial.run import SerialRun
from accerl.training.episode import Episode
from accerl.training.resume import check_resumable, go_on, run_identity
from accerl.training.run_folder import (
    CHECKPOINT,
    MACHINE,
    PROFILE,
    TRACEBACK,
    check_free,
    held,
    open_records,
    recorded_machine,
    starting_learner,
)
from accerl.training.score import Score
from accerl.training.summary import summarise

CHECKPOINT_EVERY = 6  # intervals
OnInterval = Callable[[IntervalReport], None]


@dataclass(frozen=True)
class RunResult:
    """What a finished run leaves in memory; the run directory holds the same."""

    summary: dict[str, Any]
    """summary.json"""
    reports: list[IntervalReport]

    @property
    def best_return(self) -> float | None:
        """The best J, else the best mean of 20 episodes (of all, if fewer ended); None: neither."""
        return self.summary["best_return"]


def make_run(
    config: RunConfig, profile: LatencyProfile | None = None, parts: Parts | None = None
) -> SerialRun | ProcessRun | RayRun:
    """Return the inner run that `config` describes, with the learner of `config.start` if named.

    Args:
        config: what to run.
        profile: latencies of the virtual clock; None loads the one that `config` names.
        parts: objects of the caller's own; None: all is as `config` says.

    Raises:
        UserError: it cannot be built, or there is no such learner to start with.
    """
    learner = starting_learner(config) if config.start else None
    config, parts = config.adapted(), with_named(config, parts)
    if config.runtime.runtime == "process":
        run = ProcessRun(config, parts=parts)
    elif config.runtime.runtime == "ray":
        run = RayRun(config, parts=parts)
    elif config.runtime.clock == "real":
        run = SerialRun(config, RealClock(), parts=parts)
    else:
        profile = profile or load_profile(config.runtime.profile)
        clock = VirtualClock(times_of_run(profile, config), config.runtime.infer_batch)
        run = SerialRun(config, clock, parts=parts)
    if learner is not None:
        try:
            run.learner.load_state_dict(learner)
        except BaseException:
            run.close()  # it may hold shared memory, or a cluster
            raise
    return run


def _charging(config: RunConfig, profile: LatencyProfile | None) -> LatencyProfile | None:
    """Return the profile that charges a run's clock, `profile` if it is given; None: it is real."""
    if config.runtime.clock == "real":
        return None
    return load_profile(config.runtime.profile) if profile is None else profile


def _as_corrected(config: RunConfig, parts: Parts | None) -> RunConfig:
    """Return a configuration that names what really corrects, for the records."""
    if parts is None or parts.corrector is None:
        return config
    given = config.learner
    name = corrector_name(parts.corrector, rho=given.clip_rho, c=given.clip_c)
    return config.with_learner(corrector=name)


def _keep(profile: LatencyProfile, file: Path) -> None:
    """Write down the times that a run was charged, or knew.

    Raises:
        UserError: the disk refuses them.
    """
    with disk_errors(file):
        save_profile(profile, file)


def run_training(
    config: RunConfig,
    strategy: Strategy,
    *,
    strategy_name: str | None = None,
    strategy_params: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    profile: LatencyProfile | None = None,
    times: LatencyProfile | None = None,
    parts: Parts | None = None,
    indicators: Sequence[Indicator] = (),
    on_interval: OnInterval | None = None,
) -> RunResult:
    """Run `config` under `strategy` for `config.seconds` of its clock, or until a score is reached.

    `profile` charges a virtual clock (None: the one that `config` names); `times` are what the
    strategy knows of the machine where the clock is real (None: what was measured on it, or else
    on one like it). `parts` take the place of what `config` names. The strategy finds the values of
    `indicators`, made new for this run, in `Features.raw` by their names, beside those of
    `Monitor`; records call it `strategy_name` (None: what it calls itself), with `strategy_params`
    if it says none. The run begins with the learner of the run in `config.start`, if that is named.
    With `out`, the run directory is written as it goes, and a checkpoint after the first and then
    every `CHECKPOINT_EVERY` intervals, at the end, and when it is interrupted.

    Raises:
        UserError: the strategy could never act; `out` cannot be written, is taken, or not resumed.
        GameError: an environment raised, or returned NaN; with `out`, there is a checkpoint.
    """
    config = _as_corrected(config, parts)
    profile, out = _charging(config, profile), None if out is None else Path(out)
    times = (recorded_machine(out) if resume else None) or times
    check_startable(config, strategy, parts, indicators, profile or times)
    if profile is not None:
        check_times(strategy, times_of_run(profile, config), config)
    identity = run_identity(config, strategy, strategy_name, profile, parts, strategy_params)
    if resume:
        check_resumable(config, out, identity)
    elif out is not None:
        check_free(out, "pass resume=True to go on with it, or give another out")
    recorded = {**config.to_json(), **identity}
    reports: list[IntervalReport] = []

    def note(report: IntervalReport) -> None:
        reports.append(report)
        if on_interval is not None:
            on_interval(report)

    with ExitStack() as stack:
        stack.enter_context(own_threads())
        writer = None
        if out is not None:
            stack.enter_context(held(out))
            writer = stack.enter_context(closing(open_records(out, recorded, resume=resume)))
            if profile is not None:
                _keep(profile, out / PROFILE)
        # A resumed run goes on with the learner of its checkpoint.
        begun = replace(config, start="") if resume else config
        run = stack.enter_context(closing(make_run(begun, profile, parts)))
        episode = Episode(
            run,
            horizon_seconds=config.seconds,
            interval_seconds=config.runtime.interval_seconds,
            first_interval_seconds=config.runtime.first_interval_seconds,
            indicators=(*indicators, *named_indicators(config)),
        )
        if out is not None and profile is None and hasattr(strategy, "bind"):
            _keep(times or load_profile(this_machine()), out / MACHINE)
        reset(strategy)
        score = Score(goal=config.until_score)
        if writer is None:
            for report in _drive(episode, strategy, score):
                note(report)
        else:
            if resume:
                reports += go_on(episode, strategy, score, writer)
            _drive_recorded(episode, strategy, score, writer, note)
        summary = {**summarise(recorded, reports), **_made_with(strategy, profile)}
        if writer is not None:
            writer.finish(summary)
    return RunResult(summary, reports)


def _made_with(strategy: Strategy, profile: LatencyProfile | None) -> dict[str, Any]:
    """Return what a summary says besides what the run reached."""
    return {
        "profile": None if profile is None else {"name": profile.name, "hash": profile.hash},
        "strategy_events": events_of(strategy),
        "versions": versions(),
        "fingerprint": fingerprint(),
    }


def known_times(config: RunConfig, profile: LatencyProfile | None) -> LatencyProfile | None:
    """Return what a strategy may know of the machine's times before the run; None: nothing.

    Args:
        config: of the run.
        profile: what charges its virtual clock, or was just measured; None: what is known of here.
    """
    times = as_wired(times_of_game(profile or load_profile(this_machine()), config), config)
    # Where only one of both has a GPU that learns, they have nothing in common.
    alike = config.runtime.clock == "virtual" or times.on_gpu == learns_on_gpu(config)
    return times.for_network(config.network) if alike and times.knows(config.network) else None


def check_startable(
    config: RunConfig,
    strategy: Strategy,
    parts: Parts | None = None,
    indicators: Sequence[Indicator] = (),
    times: LatencyProfile | None = None,
) -> None:
    """Refuse, before anything is written, what would fail or never act once the run is on.

    The strategy knows the run afterwards, and of its machine `times`: the profile that charges its
    virtual clock, or what is known (None: now) where the clock is real.

    Raises:
        UserError: what it is.
    """
    with_named(config, parts)  # refuses what it cannot make
    indicators = (*indicators, *named_indicators(config))
    for each in (strategy, *indicators):
        if isinstance(each, type):
            raise UserError(f"{each.__name__} is a class: pass an object, {each.__name__}(...)")
    if not hasattr(strategy, "decide"):
        raise UserError(f"{strategy!r} is no strategy; accerl.train takes specs and names too")
    check_needs(strategy, config.runtime.eval_episodes, indicators)
    config.conditions.check(config.seconds)  # a run that is resumed may have become longer
    if hasattr(strategy, "bind"):  # it leaves out by itself what cannot act; others read no times
        bind(strategy, config.adapted(), known_times(config, times))
    else:
        check_students(strategy, config)


def _drive(episode: Episode, strategy: Strategy, score: Score) -> Iterator[IntervalReport]:
    """Run to the end of `episode`, or until a score is reached; yield every interval's report."""
    while not (episode.finished or score.is_reached):
        decision = decide(strategy, episode.features)
        why = explanation_of(strategy)
        _, report = episode.step(decision)
        tell_rejected(strategy, report.events)
        if declares(strategy, "events"):
            events = {"strategy_events": float(len(events_of(strategy)))}  # so far
            report = replace(report, indicators={**report.indicators, **events})
        score.update(report)
        yield replace(report, explanation=why) if why else report


def _drive_recorded(
    episode: Episode, strategy: Strategy, score: Score, writer: RunWriter, note: OnInterval
) -> None:
    """Run to the end, recording; whatever interrupts it leaves a checkpoint to resume from.

    An interruption in mid-interval goes back to the end of the last one, so that a resumed
    serial run equals an uninterrupted one bit by bit, if its game can be saved (`Run.snapshot`).
    """
    checkpoint = writer.path / CHECKPOINT
    state = episode.snapshot()
    try:
        for report in _drive(episode, strategy, score):
            writer.append(report)
            state = episode.snapshot()
            note(report)
            if episode.intervals == 1 or episode.intervals % CHECKPOINT_EVERY == 0:
                writer.sync()
                save_checkpoint(checkpoint, state)
    except GameError as error:
        said = f"{error}; {_ended(writer.path, error)}"
        raise GameError(said, error.details, saved=True) from error
    finally:
        writer.sync()
        save_checkpoint(checkpoint, state)


def _ended(path: Path, error: GameError) -> str:
    """Write an environment's traceback into the run's folder; say where, and how to go on."""
    resume = "--resume goes on from the checkpoint"
    if not error.details:
        return resume
    written = error.details.encode(errors="backslashreplace")  # a file's name may be no text
    try:
        (path / TRACEBACK).write_bytes(written)
    except OSError as failed:  # a full disk, say, must not hide why the run ended
        return f"its traceback cannot be written ({failed.strerror}); {resume}"
    return f"its traceback is in {path / TRACEBACK}; {resume}"
