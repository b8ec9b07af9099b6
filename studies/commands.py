"""What each command does; the command line only names the arguments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from accerl.config import RunConfig
from accerl.envs import check_installed
from accerl.errors import UserError, did_you_mean
from accerl.monitor.strategies import STRATEGIES, FixedStrategy, make_strategy
from accerl.monitor.strategy import Strategy
from accerl.presets import load_preset
from accerl.records import METRICS, make_out_dir
from accerl.runtime.latency import (
    load_profile,
    profile_folder,
    profile_names,
    save_profile,
)
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, Decision
from studies.progress import bar, console, share_bar


def train(
    preset: str,
    *,
    seconds: float | None,
    seed: int,
    runtime: str | None,
    clock: str | None,
    profile: str | None,
    strategy: str,
    spec: str,
    network: str | None,
    precision: str | None,
    out: Path | None,
    resume: bool,
    wandb: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Resolve the options of `accerl train` and run it."""
    config = replace(load_preset(preset), seed=seed)
    if seconds is not None:
        config = replace(config, seconds=seconds)
    changes: dict[str, Any] = {}
    if runtime is not None:
        changes["runtime"] = runtime
        changes["clock"] = clock or ("virtual" if runtime == "serial" else "real")
    elif clock is not None:
        changes["clock"] = clock
    if profile is not None:
        changes["profile"] = profile
    config = config.with_runtime(**changes)
    if profile is not None and config.runtime.clock == "real":
        raise UserError("--profile goes with the virtual clock; add --runtime serial")
    if network is not None:
        config = replace(config, network=network)
    if precision is not None:
        config = config.with_learner(precision=precision)
    chosen = _strategy(strategy, spec)
    out = out or _free_folder(Path("runs") / f"{preset}-seed{seed}", resume)
    if _holds_run(out) and not resume:
        raise UserError(f"{out} already holds a run; add --resume, or give another --out")
    name = f"fixed {CompressionSpec.from_json(spec).label}" if strategy == "fixed" else strategy
    summary = run_recorded(config, chosen, name, out, resume=resume, quiet=quiet)
    if wandb:
        from analysis.wandb_report import write_offline_runs

        for folder in write_offline_runs([out], out / "wandb"):
            console.print(f"wrote {folder} (upload with `wandb sync {folder}`)")
    return summary


def run_recorded(
    config: RunConfig,
    strategy: Strategy,
    strategy_name: str,
    out: Path,
    *,
    resume: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train with a progress bar, print what came of it, return the summary."""
    from accerl.train import check_resumable, run_identity
    from accerl.train import train as run

    virtual = config.runtime.clock == "virtual"
    profile = load_profile(config.runtime.profile) if virtual else None
    # What the run would refuse when it comes to it is refused before anything is written.
    check_installed(config.game)
    for decision in _decisions(strategy):
        decision.check_students(config.network)
    if profile is not None:
        times = profile.for_network(config.network)
        if isinstance(strategy, FixedStrategy):
            times.infer_seconds(strategy.spec, config.runtime.num_envs)
    if resume:
        check_resumable(config, out, run_identity(strategy_name, profile))
    make_out_dir(out)
    console.print(
        f"{config.preset}: {config.game}, seed {config.seed}, {config.runtime.runtime} runtime, "
        f"{config.runtime.clock} clock, {config.seconds:g} s, strategy {strategy_name}"
    )
    with bar("training", config.seconds, unit="share") as advance:

        def on_interval(report: IntervalReport) -> None:
            scores = report.episode_returns
            result = f"J {report.learner_return:.2f}" if report.learner_return is not None else ""
            if not result and scores:
                result = f"return {sum(scores) / len(scores):.1f}"
            note = f"{report.env_steps / report.seconds:,.0f} steps/s, {report.decision.label}"
            held = "+".join(f"{rss / 1e6:.0f}" for rss in report.rss_bytes.values())
            memory = f"{held} MB" if held else ""
            advance(report.seconds, " ".join(part for part in (note, memory, result) if part))

        result = run(
            config,
            strategy,
            strategy_name=strategy_name,
            out=out,
            resume=resume,
            profile=profile,
            on_interval=on_interval,
        )
    summary = result.summary
    final = summary["final_return"]
    console.print(
        f"{summary['env_steps']:,} env steps in {summary['seconds']:.1f} s: "
        f"{summary['env_steps_per_second']:,.0f} per second; final return "
        f"{'none finished yet' if final is None else f'{final:.2f}'}; records in {out}"
    )
    if not quiet:
        shares = {k: v for k, v in summary["phases"].items() if v > 0.0}
        spent = ", ".join(f"{name} {value:.1f}" for name, value in shares.items())
        console.print(f"busy seconds by phase: {spent}")
        grown = summary["rss_bytes_per_minute"]
        memory = [
            f"{name} {rss / 1e6:.0f} MB"
            + (f" ({grown[name] / 1e6:+.2f} MB/min)" if grown[name] is not None else "")
            for name, rss in summary["rss_bytes_max"].items()
        ]
        if memory:
            console.print(f"resident memory at most, and its growth at last: {', '.join(memory)}")
    return summary


def _decisions(strategy: Strategy) -> list[Decision]:
    """Return what a strategy of the command line may decide; a mix as its parts."""
    from controller.policy import LearnedStrategy
    from controller.schedule import ReplayedSchedule

    if isinstance(strategy, LearnedStrategy):
        return [strategy.actions.decision(indices) for indices in strategy.actions.all_indices()]
    if isinstance(strategy, ReplayedSchedule):
        return [point.decision for point in strategy.schedule.points]
    specs = [value for value in vars(strategy).values() if isinstance(value, CompressionSpec)]
    return [Decision.of(spec) for spec in specs]


def _holds_run(path: Path) -> bool:
    """Whether a folder holds intervals of a run; one that ended before its first holds nothing."""
    metrics = path / METRICS
    return metrics.is_file() and metrics.stat().st_size > 0


def _strategy(name: str, spec: str) -> Strategy:
    """Return the strategy of that name, or the one that a bundle holds."""
    from controller.bundle import is_bundle, load_bundle

    if name != "fixed" and spec != "{}":
        raise UserError(f"--spec goes with the fixed strategy; {name!r} chooses its own specs")
    if name in STRATEGIES:
        parsed = CompressionSpec.from_json(spec)
        return FixedStrategy(parsed) if name == "fixed" else make_strategy(name)
    if is_bundle(name):
        return load_bundle(Path(name), mode="policy")
    if Path(name).exists():
        raise UserError(f"--strategy {name}: this is not a schedule bundle (no bundle.json)")
    hint = did_you_mean(name, list(STRATEGIES))
    raise UserError(f"strategy {name!r} does not exist; {hint}, or the folder of a bundle")


def _free_folder(path: Path, resume: bool) -> Path:
    """Return `path`, or the first of path-2, path-3, ... that holds no run."""
    if resume:
        return path
    candidate, number = path, 1
    while _holds_run(candidate):
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def evaluate(run: Path, episodes: int, spec: str, seed: int) -> dict[str, Any]:
    """Play a checkpoint and print the mean."""
    from accerl.train import evaluate_checkpoint

    result = evaluate_checkpoint(run, episodes, CompressionSpec.from_json(spec), seed)
    console.print(
        f"{episodes} episodes: mean return {result['mean_return']:.2f}, "
        f"standard deviation {result['std_return']:.2f}"
    )
    return result


def bench(measure: Callable[[], dict[str, Any]], quiet: bool) -> dict[str, Any]:
    """Run a benchmark and print its table."""
    from studies.bench import print_table

    result = measure()
    print_table(result)
    return result


def profile_measure(name: str, repeats: int, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Measure, keep and print a profile."""
    from accerl.runtime.measure import measure_profile
    from studies.tables import print_profile

    if repeats < 1:
        raise UserError(f"--repeats must be at least 1, got {repeats}")
    if name == "paper" or not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"--name {name!r}: use letters, digits, - and _; 'paper' is taken")
    with share_bar("latency profile") as on_progress:
        profile = measure_profile(name, repeats=repeats, on_progress=on_progress)
    path = (out or profile_folder()) / f"{name}.json"
    save_profile(profile, path)
    if not quiet:
        print_profile(profile, console)
    console.print(f"wrote {path}; use it with --profile {name if out is None else path}")
    return profile.to_json()


def profile_list(out: Path | None) -> dict[str, Any]:
    """Print the names of the profiles."""
    names = profile_names(out)
    console.print("\n".join(names))
    return {"profiles": names}


def profile_show(name: str, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Print a profile."""
    from studies.tables import print_profile

    profile = load_profile(name, out)
    if not quiet:
        print_profile(profile, console)
    return profile.to_json()


STUDIES = {
    "quickstart": "train a controller, compare it with tuned hand-set strategies, export, replay"
}


def study_list() -> dict[str, Any]:
    """Print the studies."""
    for name, text in STUDIES.items():
        console.print(f"{name}: {text}")
    return {"studies": STUDIES}


def study_run(
    name: str, out: Path, *, budget: str, seed: int, workers: int, profile: str
) -> dict[str, Any]:
    """Run a study by name; return its contest."""
    from accerl.records import read_json
    from studies.quickstart import run_quickstart

    if name not in STUDIES:
        raise UserError(f"study {name!r} does not exist; {did_you_mean(name, list(STUDIES))}")
    run_quickstart(out, budget=budget, seed=seed, workers=workers, profile=profile)
    return read_json(out / "contest.json")


def schedule_export(study: Path, out: Path) -> dict[str, Any]:
    """Copy a study's bundle, verified before and after."""
    from controller.bundle import is_bundle, show_bundle, verify_bundle

    source = study / "bundle" if (study / "bundle").is_dir() else study
    if not is_bundle(source):
        raise UserError(f"{study} holds no schedule bundle; finish its study first")
    verify_bundle(source)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists; give --out a new folder")
    try:
        shutil.copytree(source, out, dirs_exist_ok=True)
    except OSError as error:
        shutil.rmtree(out, ignore_errors=True)
        raise UserError(f"cannot write {out}: {error.strerror or error}") from error
    verify_bundle(out)
    console.print(f"exported {out}")
    return show_bundle(out)


def schedule_show(bundle: Path) -> dict[str, Any]:
    """Describe a bundle: its card, which says where it comes from and what it does when."""
    from controller.bundle import show_bundle

    shown = show_bundle(bundle)
    console.print((bundle / "README.md").read_text(), markup=False)
    return shown


def schedule_verify(bundle: Path) -> dict[str, Any]:
    """Check a bundle and say what was checked."""
    from controller.bundle import verify_bundle

    checked = verify_bundle(bundle)
    console.print(
        f"{bundle} is intact: {len(checked['files'])} files match their hashes; torch and ONNX "
        f"logits agree to {checked['max_logit_difference']:.1e}"
    )
    return checked


def schedule_replay(
    bundle: str, preset: str, seconds: float, seed: int, out: Path | None, *, quiet: bool
) -> dict[str, Any]:
    """Train under the open-loop schedule of a bundle."""
    from controller.bundle import load_bundle

    strategy = load_bundle(Path(bundle), mode="schedule")
    # A schedule may choose any size, so the learner has the largest.
    config = replace(load_preset(preset), network="original", seed=seed, seconds=seconds)
    out = out or _free_folder(Path("runs") / f"{preset}-replay-seed{seed}", resume=False)
    if _holds_run(out):
        raise UserError(f"{out} already holds a run; give another --out")
    return run_recorded(config, strategy, f"schedule {bundle}", out, quiet=quiet)


def controller_train(out: Path, iterations: int, seed: int) -> dict[str, Any]:
    """Meta-train on analytic games and export."""
    from studies.tier0 import train_tier0

    if iterations < 1:
        raise UserError(f"--iterations must be at least 1, got {iterations}")
    result = train_tier0(out, iterations, seed)
    console.print(
        f"reaches {result['share_of_optimum']:.1%} of the dynamic-programming optimum on "
        f"{result['games']} held-out analytic games; bundle in {out}"
    )
    return result


def controller_eval(study: Path, quiet: bool) -> dict[str, Any]:
    """Compute the contest of a study and print it."""
    from accerl.records import read_json
    from analysis.contest import write_contest
    from analysis.terminal import print_summary

    path = write_contest(study)
    if not quiet:
        print_summary(study, console)
    return read_json(path)


def report(
    runs: list[Path],
    html: Path,
    wandb: Path | None,
    figures: Path | None,
    scores: tuple[float, ...],
) -> dict[str, Any]:
    """Write the HTML report, and W&B runs and pictures if wanted."""
    from analysis.export_figures import write_figures, write_run_figures
    from analysis.html_report import label_runs, write_runs_report
    from analysis.load import is_study, load_run
    from analysis.scores import score_table
    from analysis.terminal import rich_table
    from analysis.wandb_report import write_offline_runs

    if not runs:
        raise UserError("name a study folder or at least one run directory")
    written = write_runs_report(runs, html, scores)
    console.print(f"wrote {written}")
    lone_study = len(runs) == 1 and is_study(runs[0])
    source: Path | list[Path] = runs[0] if lone_study else runs
    if figures is not None:
        paths = write_figures(runs[0], figures) if lone_study else write_run_figures(runs, figures)
        for path in paths:
            console.print(f"wrote {path}")
    if not lone_study:
        labelled = label_runs([load_run(path) for path in runs])
        console.print(rich_table(score_table(labelled, scores)))
    folders = write_offline_runs(source, wandb) if wandb is not None else []
    for folder in folders:
        console.print(f"wrote {folder} (upload with `wandb sync {folder}`)")
    return {"html": str(written), "wandb": [str(folder) for folder in folders]}
