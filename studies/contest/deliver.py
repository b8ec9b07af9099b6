"""The last steps of a study: export the bundle, let it decide in real time, report."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy
from accerl.records import SUMMARY, fingerprint, read_json, write_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.run import IntervalReport
from accerl.seeds import Role, generator
from accerl.spec import Decision
from accerl.training.run import run_training
from analysis.comparison.stats import paired_log_ratio
from controller.actions import ActionSpace
from controller.bundle.bundle import export_bundle, load_bundle, verify_bundle
from controller.bundle.files import MANIFEST
from controller.bundle.meta import (
    HELD_OUT,
    BundleMeta,
    ProfileId,
    Result,
    TrainedOn,
    code_revision,
)
from controller.bundle.schedule import POOLED, groups_of, median_schedules
from controller.env.instances import Instance
from controller.indicator.strategy import AdvancedIndicator
from studies.benchmarks.pipelines import base_config
from studies.contest.training import Trained
from studies.jobs.inner import StrategyResult
from studies.progress import bar, console, say

Results = Mapping[str, Mapping[str, Sequence[StrategyResult]]]
"""by strategy and instance, the test runs, in the order of their seeds"""
REPLAY_GAME = "pong"


def export(
    out: Path,
    policy: AdvancedIndicator,
    actions: ActionSpace,
    instances: list[Instance],
    trained: list[Instance],
    profiles: Mapping[str, LatencyProfile],
    results: Results,
    *,
    subject: str,
    decisions: Mapping[str, list[Sequence[Decision]]],
    shield_nats: float,
    inner_runs: int,
    ended_with: str,
    seeds: Mapping[str, Sequence[int]],
    validated: Sequence[int],
    contest: str | None = None,
) -> None:
    """Export the controller and the schedules it chose on the validation seeds; verify the bundle.

    No schedule is made of test runs: replayed there, it would have seen them.

    Args:
        out: the study's folder.
        policy: the trained indicator.
        actions: the levels of its specs.
        instances: what it was tested on.
        decisions: what it chose on the validation seeds, by trained instance.
        shield_nats: of the shield that it acted under.
        trained: what it was trained on.
        profiles: by name, what charged their seconds.
        results: the test runs.
        subject: the controller's name among them.
        inner_runs: how many runs training cost.
        ended_with: what training ended with, see `BundleMeta`.
        seeds: inner seeds of training, by game.
        validated: seeds of the runs by which it was chosen, and its schedules were made.
        contest: hash of the contest's plan, if there was one.
    """
    episodes = {
        item.name: [
            [actions.indices(decision.main) for decision in run] for run in decisions[item.name]
        ]
        for item in trained
    }
    longest = max(trained, key=lambda item: item.horizon_seconds)
    lengths = {item.name: item.lengths for item in trained}
    groups = {item.name: groups_of(item.game, item.profile) for item in trained}
    schedules = median_schedules(actions, episodes, lengths, groups)
    meta = BundleMeta(
        interval_seconds=longest.interval_seconds,
        first_interval_seconds=longest.first_interval_seconds,
        horizon_seconds=longest.horizon_seconds,
        tier="virtual",
        profiles=tuple(
            ProfileId(name=name, hash=latency.hash) for name, latency in profiles.items()
        ),
        instances=tuple(
            TrainedOn(
                game=item.game,
                profile=item.profile,
                seeds=tuple(seeds.get(item.game, ())),
                validated=tuple(validated),
                horizon_seconds=item.horizon_seconds,
                interval_seconds=item.interval_seconds,
                first_interval_seconds=item.first_interval_seconds,
            )
            for item in trained
        ),
        inner_runs=inner_runs,
        ended_with=ended_with,
        shield_nats=shield_nats,
        results=tuple(ratio_rows(instances, results, subject, trained)),
        contest=contest,
    )
    export_bundle(out / "bundle", policy, meta, schedules)
    checked = verify_bundle(out / "bundle")
    say(f"  bundle: {out / 'bundle'} (verified: {len(checked['files'])} files)")


def ratio_rows(
    instances: list[Instance],
    results: Results,
    subject: str,
    trained: Collection[Instance] = (),
) -> list[Result]:
    """Return the controller's seconds to target beside every other strategy's, paired by seed.

    One row per game and strategy, and one per strategy over all games together, and over those
    that were not trained on: the ratio of geometric means, below 1 where the controller is faster,
    with its 95% interval.
    """
    rng = generator(0, Role.BOOTSTRAP, 0)
    named = {item.name: item.game for item in instances}
    rows = []
    for other in results:
        if other == subject:
            continue
        times, late = {}, {}
        for item in instances:
            mine, theirs = results[subject][item.name], results[other][item.name]
            both = min(len(mine), len(theirs))  # seeds that both were tested on
            sides = [
                [run.seconds_to_target(item) for run in runs[:both]] for runs in (mine, theirs)
            ]
            times[item.name] = [np.array([each.seconds for each in side]) for side in sides]
            late[item.name] = all(each.censored for side in sides for each in side)
        groups = {**{name: [name] for name in times}, POOLED: list(times)}
        new = [item.name for item in instances if item not in trained]
        if 0 < len(new) < len(instances):
            groups[HELD_OUT] = new
        for name, members in groups.items():
            ours, theirs = (np.concatenate([times[m][side] for m in members]) for side in (0, 1))
            labels = [member for member in members for _ in times[member][0]]
            shared = [
                (named[member], place)
                for member in members
                for place in range(len(times[member][0]))
            ]
            if all(late[member] for member in members):
                continue  # between two runs that miss the target the ratio is 1 anyhow
            found = paired_log_ratio(ours, theirs, labels, rng, clusters=shared)
            rows.append(
                Result(
                    instance=name,
                    metric="seconds_to_target",
                    against=other,
                    ratio=found.estimate,
                    **found.bounds(),
                    n=len(ours),
                )
            )
    return rows


def variant_rows(
    instances: list[Instance],
    results: Results,
    trained: Sequence[Trained],
    rule: str,
) -> list[dict[str, Any]]:
    """Return every way of training that was tried, its seconds to target over the best rule's.

    Over `instances` and the seeds that all of them were tested on: with others each, equal
    policies would differ.
    """
    rng = generator(0, Role.BOOTSTRAP, 1)
    rows = []
    least = {
        item.name: min(len(results[way.entrant.name][item.name]) for way in trained)
        for item in instances
    }
    for way in trained:
        labels, shared, ours, theirs = [], [], [], []
        arrived = False
        for item in instances:
            mine = results[way.entrant.name][item.name][: least[item.name]]
            paired = zip(mine, results[rule][item.name][: len(mine)], strict=True)
            for place, (run, other) in enumerate(paired):
                labels.append(item.name)
                shared.append((item.game, place))
                times = run.seconds_to_target(item), other.seconds_to_target(item)
                arrived = arrived or not all(time.censored for time in times)
                ours.append(times[0].seconds)
                theirs.append(times[1].seconds)
        found = paired_log_ratio(np.array(ours), np.array(theirs), labels, rng, clusters=shared)
        nothing = {"low": None, "high": None}  # all at the horizon: no width, and nothing known
        rows.append(
            {
                "name": way.entrant.label,
                "what": way.what,
                "ratio": found.estimate,
                **(found.bounds() if arrived else nothing),
                "note": f"acts: {way.entrant.params['accepted']}; {len(ours)} pairs, "
                f"{len(set(shared))} independent",
            }
        )
    return rows


def replay(out: Path, seconds: float, seed: int, times: LatencyProfile | None) -> None:
    """Run ALE Pong with the process runtime: the bundle decides, then fp32, for `seconds` each.

    Args:
        out: the study's folder.
        seconds: of each run.
        seed: of both.
        times: that the study measured of this machine; None: it did not, or of another.
    """
    contestants: dict[str, Strategy] = {
        "indicator": load_bundle(out / "bundle"),
        "fp32": FixedStrategy(),
    }
    digest, note = read_json(out / "bundle" / MANIFEST)["digest"], out / "replay.json"
    made_by = {"digest": digest, "machine": fingerprint()["id"], "code": code_revision()}
    if not note.is_file() or read_json(note) != made_by:
        shutil.rmtree(out / "replay", ignore_errors=True)  # both: they are compared
        write_json(note, made_by)
    for name, strategy in contestants.items():
        folder = out / "replay" / name
        if (folder / SUMMARY).is_file():
            continue
        shutil.rmtree(folder, ignore_errors=True)  # a run that was cut short starts again
        # It chooses among all sizes, so the learner has the largest.
        config = replace(base_config(REPLAY_GAME, "original"), seconds=seconds, seed=seed)
        config = config.with_runtime(interval_seconds=seconds / 12)
        with bar(f"Pong, {name}", seconds) as advance:

            def on_interval(report: IntervalReport) -> None:
                speed = report.env_steps / report.seconds
                advance(report.seconds, f"{speed:,.0f} steps/s, {report.decision.label}")

            result = run_training(
                config,
                strategy,
                strategy_name=name,
                out=folder,
                times=times,
                on_interval=on_interval,
            )
        console.print(
            f"  {name}: {result.summary['env_steps']:,} env steps in "
            f"{result.summary['seconds']:.0f} s "
            f"({result.summary['env_steps_per_second']:,.0f} per second)"
        )


def report(out: Path, stream: Console) -> Path:
    """Write contest.json, report.html, the W&B runs and the W&B report; print the summary."""
    from analysis.comparison.contest import CONTEST
    from analysis.render.html import write_study_report
    from analysis.render.terminal import print_summary
    from analysis.render.wandb_document import write_report_spec
    from analysis.render.wandb_runs import write_offline_runs
    from analysis.report.study import StudyReport

    found = StudyReport.of(out)
    write_json(out / CONTEST, found.contest)
    html = write_study_report(found, out / "report.html")
    shutil.rmtree(out / "wandb", ignore_errors=True)  # of an earlier call: runs would pile up
    write_offline_runs(found, out / "wandb")
    write_report_spec(found, out / "wandb")
    print_summary(found, stream)
    return html
