"""The last steps of a study: export the schedule, replay it in real time, report."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy
from accerl.records import SUMMARY
from accerl.runtime.run import IntervalReport
from accerl.spec import Decision
from accerl.train import train
from controller.actions import ActionSpace
from controller.bundle import export_bundle, load_bundle, verify_bundle
from controller.bundle_files import BundleMeta
from controller.policy import ControllerPolicy
from controller.schedule import summarise_games
from studies.inner import GameSetup
from studies.pipelines import base_config
from studies.progress import bar, console

REPLAY_GAME = "pong"


def export(
    out: Path,
    policy: ControllerPolicy,
    actions: ActionSpace,
    games: list[GameSetup],
    profile_hash: str,
    results: dict[str, dict[str, list[dict[str, Any]]]],
    *,
    inner_runs: int,
    seeds: list[int],
) -> None:
    """Export the controller and the schedules it chose on the test seeds; verify the bundle."""
    episodes = {
        setup.name: [
            [actions.indices(Decision.from_json(entry).main) for entry in result["decisions"]]
            for result in results["learned"][setup.name]
        ]
        for setup in games
    }
    longest = max(games, key=lambda setup: setup.horizon_seconds)
    lengths = {setup.name: (setup.horizon_seconds, setup.interval_seconds) for setup in games}
    schedules = summarise_games(actions, episodes, lengths)
    meta = BundleMeta(
        interval_seconds=longest.interval_seconds,
        horizon_seconds=longest.horizon_seconds,
        tier="virtual",
        profile_hash=profile_hash,
        games=tuple(setup.name for setup in games),
        seeds=tuple(seeds),
        inner_runs=inner_runs,
        results={
            setup.name: {
                f"{label}_final_return": _mean_final(results[label][setup.name])
                for label in ("learned", "fp32")
            }
            | {"test_runs": len(results["learned"][setup.name])}
            for setup in games
        },
    )
    export_bundle(out / "bundle", policy, actions, meta, schedules)
    checked = verify_bundle(out / "bundle")
    console.print(f"  bundle: {out / 'bundle'} (verified: {len(checked['files'])} files)")


def _mean_final(results: list[dict[str, Any]]) -> float:
    """Return the mean over runs of the last J."""
    return sum(result["returns"][-1] for result in results) / len(results)


def replay(out: Path, seconds: float, seed: int) -> None:
    """Run ALE Pong with the process runtime: the schedule, then fp32, for `seconds` each."""
    contestants: dict[str, Strategy] = {
        "schedule": load_bundle(out / "bundle", mode="schedule"),
        "fp32": FixedStrategy(),
    }
    for name, strategy in contestants.items():
        folder = out / "replay" / name
        if (folder / SUMMARY).is_file():
            continue
        shutil.rmtree(folder, ignore_errors=True)  # a run that was cut short starts again
        # The schedule chooses among all sizes, so the learner has the largest.
        config = replace(base_config(REPLAY_GAME, "original"), seconds=seconds, seed=seed)
        config = config.with_runtime(interval_seconds=seconds / 12)
        with bar(f"Pong, {name}", seconds, unit="share") as advance:

            def on_interval(report: IntervalReport) -> None:
                speed = report.env_steps / report.seconds
                advance(report.seconds, f"{speed:,.0f} steps/s, {report.decision.label}")

            result = train(
                config, strategy, strategy_name=name, out=folder, on_interval=on_interval
            )
        console.print(
            f"  {name}: {result.summary['env_steps']:,} env steps in "
            f"{result.summary['seconds']:.0f} s "
            f"({result.summary['env_steps_per_second']:,.0f} per second)"
        )


def report(out: Path, stream: Console) -> Path:
    """Write contest.json, report.html, the W&B runs and the W&B report; print the summary."""
    from analysis.contest import write_contest
    from analysis.html_report import write_study_report
    from analysis.terminal import print_summary
    from analysis.wandb_document import write_report_spec
    from analysis.wandb_report import write_offline_runs

    write_contest(out)
    html = write_study_report(out, out / "report.html")
    shutil.rmtree(out / "wandb", ignore_errors=True)  # of an earlier call: runs would pile up
    write_offline_runs(out, out / "wandb")
    write_report_spec(out, out / "wandb")
    print_summary(out, stream)
    return html
