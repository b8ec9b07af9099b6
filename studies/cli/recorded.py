"""One run as commands make it: checked beforehand, shown meanwhile, summed up afterwards."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from accerl.config import RunConfig
from accerl.monitor.strategy import Strategy
from accerl.precision import note_on_precision
from accerl.records import SUMMARY, make_out_dir, read_json, write_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.machine.energy import EnergyMeter
from accerl.runtime.run import IntervalReport
from accerl.runtime.wiring import Wiring
from accerl.training.resume import check_resumable, run_identity
from accerl.training.run import run_training
from accerl.training.run_folder import holds_run, is_free, recorded_machine
from accerl.training.score import SCORED_EPISODES
from accerl.training.summary import note_on_actors
from analysis.formats import counted, rounded
from studies.progress import bar, say
from studies.run_checks import check_run, say_what_is_assumed
from studies.strategies import clock_profile

UNASKED = 0.05
"""share of the seconds up to which nothing is said of what acts before a decision is published"""
SHOWN = 3
"""specs that are named at most"""


def run_recorded(
    config: RunConfig,
    strategy: Strategy,
    strategy_name: str,
    out: Path,
    *,
    resume: bool = False,
    meter: EnergyMeter | None = None,
    strategy_params: Mapping[str, Any] | None = None,
    again: str = "add --out {out} --resume to go on from there",
) -> dict[str, Any]:
    """Train with a progress bar, print what came of it, return the summary.

    With a meter, the summary has its `energy_estimate`.

    Args:
        config: of the run.
        strategy: that decides in it.
        strategy_name: as records call it.
        out: run directory.
        resume: go on with the run in `out`.
        meter: of the machine's energy.
        strategy_params: that it was given, for records of one that does not say them itself.
        again: what to do after Ctrl-C with a run that has intervals; {out} is its folder.
    """
    profile = clock_profile(config)
    decided = config.adapted()
    known = recorded_machine(out) if resume else None
    check_run(config, strategy, profile, begins=not resume, times=known)
    if resume:
        identity = run_identity(config, strategy, strategy_name, profile, params=strategy_params)
        check_resumable(config, out, identity)
    before = read_json(out / SUMMARY) if resume and (out / SUMMARY).is_file() else {}
    make_out_dir(out)
    say_what_is_assumed(config, profile)
    if (note := note_on_precision(config.learner.precision, decided.learner.device)) is not None:
        say(note)
    named = config.game if config.preset == config.game else f"{config.preset}: {config.game}"
    say(
        f"{named}, seed {config.seed}, {config.runtime.runtime} runtime, "
        f"{_clock(config, profile)}, {config.seconds:g} s, strategy {strategy_name}"
    )
    past_seconds = 0.0
    with bar("training", config.seconds) as advance, meter or nullcontext():

        def on_interval(report: IntervalReport) -> None:
            nonlocal past_seconds
            # By the run's own count: a resumed one does not begin at 0.
            begins = report.total_seconds - report.seconds
            if past_seconds == 0.0 < begins:
                say(f"  going on with {out} from {begins:g} s")
                advance(begins, replayed=True)
                past_seconds = begins
            passed, past_seconds = report.total_seconds - past_seconds, report.total_seconds
            advance(passed, _interval_note(report))

        try:
            result = run_training(
                config,
                strategy,
                strategy_name=strategy_name,
                strategy_params=strategy_params,
                out=out,
                resume=resume,
                profile=profile,
                on_interval=on_interval,
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(_left_by(out, again)) from interrupt
    summary = _with_energy(result.summary, before, meter)
    if summary != result.summary:
        write_json(out / SUMMARY, summary)
    measured = config.runtime.eval_episodes > 0
    if config.until_score is not None and summary["seconds"] < config.seconds:
        say(f"a score of {config.until_score:g} was reached: it ended before its seconds were over")
    _print_summary(summary, result.reports, out, len(config.conditions.events), measured=measured)
    if profile is None:
        note = note_on_actors(summary, Wiring.of(decided.runtime).actors)
        if note is not None:
            say(note)
    return summary


def _clock(config: RunConfig, profile: LatencyProfile | None) -> str:
    """Return whose seconds a run's are."""
    if profile is None:
        return f"{config.runtime.clock} clock"
    return f"virtual clock of {profile.name} ({counted(profile.num_actors, 'actor')})"


def _with_energy(
    summary: dict[str, Any], before: Mapping[str, Any], meter: EnergyMeter | None
) -> dict[str, Any]:
    """Return a run's summary with its energy, if that was estimated.

    Args:
        summary: as it is now.
        before: as it was before the run was resumed; empty if it was not, or had not ended.
        meter: of what was run now.
    """
    if "energy_estimate" in before and before["seconds"] == summary["seconds"]:
        # Nothing was left to do, and it cannot be estimated again.
        return {**summary, "energy_estimate": before["energy_estimate"]}
    return summary if meter is None else {**summary, "energy_estimate": meter.estimate()}


def _left_by(out: Path, again: str) -> str:
    """Say what an interrupted run leaves."""
    if holds_run(out):
        return f"its intervals until now are kept: {again.format(out=out)}"
    return "it had not finished an interval, so there is nothing to go on with: start it again"


def _print_conditions(met: Sequence[Mapping[str, Any]], planned: int) -> None:
    """Print which of the planned events the run met, and when."""
    if not planned:
        return
    words = [
        f"{event['words']} from {event['at_seconds']:g} s for {event['lasts_seconds']:g} s"
        for event in met
    ]
    say(f"{len(met)} of {planned} events happened: {'; '.join(words) or 'it ended before'}")


def _print_what_acted(reports: Sequence[IntervalReport]) -> None:
    """Print which specs could not be built, and what acted without having been decided for."""
    events = [event for report in reports for event in report.events]
    causes = Counter(
        (event["label"], str(event["cause"])) for event in events if event.get("label") is not None
    )
    for (label, cause), times in causes.items():
        named = "" if cause.startswith(label) else f"{label}: "
        often = f" ({counted(times, 'time')})" if times > 1 else ""
        say(f"compressor: {named}{cause}{often}")
    seconds = 0.0
    unasked: defaultdict[tuple[str, str], float] = defaultdict(float)
    for report in reports:
        acting = math.fsum(report.spec_seconds.values())
        seconds += report.seconds if acting else 0.0
        decision = report.decision.without_shadow
        for spec, busy in report.spec_seconds.items():
            if busy and spec not in decision.specs:
                unasked[decision.label, spec.label] += report.seconds * busy / acting
    share = math.fsum(unasked.values()) / seconds if unasked else 0.0
    if share > UNASKED:
        longest = sorted(unasked.items(), key=lambda each: -each[1])
        told = ", ".join(
            f"{spec} instead of {asked} in {spent / seconds:.0%}"
            for (asked, spec), spent in longest[:SHOWN]
        )
        more = ", ..." if len(longest) > SHOWN else ""
        say(f"what was not decided for acted in {share:.0%} of the seconds: {told}{more}")


def _print_summary(
    summary: Mapping[str, Any],
    reports: Sequence[IntervalReport],
    out: Path,
    planned: int,
    *,
    measured: bool,
) -> None:
    """Print what a run reached, what it met of the planned events, what acted, what it spent."""
    final = summary["final_return"]
    mean = f" (mean of the last {SCORED_EPISODES} episodes)" if not measured else ""
    reached = (
        "no episode has ended yet" if final is None else f"final return {rounded(final)}{mean}"
    )
    say(
        f"{summary['env_steps']:,} env steps in {summary['seconds']:.1f} s: "
        f"{rounded(summary['env_steps_per_second'])} per second; {reached}; records in {out}"
    )
    if not summary["env_steps"]:
        say("no rollout was full by then, and steps count once theirs is: give more --seconds")
    _print_conditions(summary["conditions"], planned)
    _print_what_acted(reports)
    phases = {name: value for name, value in summary["phases"].items() if value}
    waited = phases.pop("wait", None)
    busy = ", ".join(f"{name} {rounded(value)}" for name, value in phases.items())
    idle = "" if waited is None else f"; the learner waited {rounded(waited)} s"
    say(f"busy seconds by phase: {busy}{idle}")
    growth = summary["rss_bytes_per_minute"]
    memory = ", ".join(
        f"{name} {rss / 1e6:.0f} MB"
        + (f" ({growth[name] / 1e6:+.2f} MB/min)" if growth[name] is not None else "")
        for name, rss in summary["rss_bytes_max"].items()
    )
    if memory:
        grown = any(each is not None for each in growth.values())
        told = ", and its growth at the end" if grown else ""
        say(f"largest resident memory{told}: {memory}")
    if summary["cpu_seconds"]:
        used = ", ".join(
            f"{name} {rounded(value)}" for name, value in _by_kind(summary["cpu_seconds"]).items()
        )
        modelled = " (of the modelled machine)" if summary["profile"] is not None else ""
        say(f"processor seconds{modelled}: {used}")
    if (energy := summary.get("energy_estimate")) is not None:
        say(
            f"estimate of {energy['by'].partition(':')[0]} for the whole machine, others' work "
            f"included: {1e3 * energy['kwh']:.3g} Wh, {1e3 * energy['kg_co2e']:.3g} g CO2e "
            f"({energy['country']})"
        )
    # An event of a user's own may have the same cause, and no value.
    events = [each for each in summary["strategy_events"] if "value" in each]
    failed = [each for each in events if each.get("cause") == "error"]
    if failed:
        say(
            f"the strategy failed in {counted(len(failed), 'interval')}, in which a "
            f"fallback acted for it; the last time: {failed[-1]['value']}"
        )
    if summary["monitor_cpu_share"] is not None:
        say(f"processor time of the monitor: {summary['monitor_cpu_share']:.2%}")


def _by_kind(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return processor seconds by kind of process: a modelled actor stands for a batch of them."""
    found: dict[str, float] = {}
    for name, value in seconds.items():
        kind, numbered, _ = name.partition("-")
        kind += "s" if numbered else ""
        found[kind] = found.get(kind, 0.0) + value
    return found


def _interval_note(report: IntervalReport) -> str:
    """Return what progress shows of an interval: the latest score, speed, specs and memory."""
    scores = report.episode_returns
    result = ""
    if report.learner_return is not None:
        result = f"return {rounded(report.learner_return)},"
    elif scores:
        result = f"actors' return {rounded(sum(scores) / len(scores))},"
    note = f"{rounded(report.env_steps / report.seconds)} steps/s, {report.decision.label}"
    waiting = [spec.label for spec in report.waiting_kl_nats]
    note += f" ({', '.join(waiting)} not yet admitted)" if waiting else ""
    held = ", ".join(f"{name} {rss / 1e6:.0f}" for name, rss in report.rss_bytes.items())
    memory = f"(MB: {held})" if held else ""
    return " ".join(part for part in (result, note, memory) if part)


def free_folder(path: Path, resume: bool) -> Path:
    """Return the first of path, path-2, path-3, ... that is free for a run.

    To resume, it is the last of those that hold a run which was not finished, or of all.
    """
    names = (path.name if n == 1 else f"{path.name}-{n}" for n in count(1))
    candidates = (path.with_name(name) for name in names)
    if not resume:
        return next(filter(is_free, candidates))
    runs = list(takewhile(holds_run, candidates))
    unfinished = [each for each in runs if not (each / SUMMARY).is_file()]
    return (unfinished or runs or [path])[-1]
