"""What `accerl train` and `accerl eval` do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accerl.config import RunConfig
from accerl.envs import check_installed, make_envs
from accerl.errors import UserError, did_you_mean
from accerl.monitor.strategies import STRATEGIES, HandSetStrategy, make_strategy
from accerl.monitor.strategy import Strategy, specs_of
from accerl.networks.students import check_own_student
from accerl.presets import load_preset
from accerl.records import METRICS, make_out_dir
from accerl.run_folder import starting_learner
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec, Decision, is_own_student
from studies.cli.settings import with_settings
from studies.progress import bar, console


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
    params: str,
    bundle_mode: str,
    strict: bool,
    shield: float | None,
    network: str | None,
    precision: str | None,
    settings: Sequence[str],
    start: Path | None,
    out: Path | None,
    resume: bool,
    wandb: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Resolve the options of `accerl train` and run it."""
    from controller.policy.shield import Shielded

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
    if start is not None:
        config = replace(config, start=str(start.absolute()))
    config = with_settings(config, settings)
    chosen = _strategy(strategy, spec, params, config, bundle_mode=bundle_mode, strict=strict)
    out = out or free_folder(Path("runs") / f"{preset}-seed{seed}", resume)
    if holds_run(out) and not resume:
        raise UserError(f"{out} already holds a run; add --resume, or give another --out")
    name = chosen.label if isinstance(chosen, HandSetStrategy) else strategy
    if shield is not None:
        chosen = Shielded(chosen, shield)
        name = f"{name} + {chosen.shield_label}"
    summary = run_recorded(config, chosen, name, out, resume=resume, quiet=quiet)
    if wandb:
        from analysis.render.wandb_runs import write_offline_runs

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
    from accerl.train import check_resumable, check_startable, run_identity
    from accerl.train import train as run

    virtual = config.runtime.clock == "virtual"
    profile = load_profile(config.runtime.profile) if virtual else None
    # What the run would refuse when it comes to it is refused before anything is written.
    check_installed(config.game)
    if config.start and not resume:
        starting_learner(config)
    check_startable(config, strategy)
    specs = specs_of(strategy)
    for spec in specs:
        Decision.of(spec).check_students(config.network)
    _check_own_students(config, specs)
    if profile is not None:
        times = profile.for_network(config.network)
        for spec in specs:
            times.infer_seconds(spec, config.runtime.num_envs)
    if resume:
        check_resumable(config, out, run_identity(strategy, strategy_name, profile))
    make_out_dir(out)
    console.print(
        f"{config.preset}: {config.game}, seed {config.seed}, {config.runtime.runtime} runtime, "
        f"{config.runtime.clock} clock, {config.seconds:g} s, strategy {strategy_name}"
    )
    past_seconds = 0.0
    with bar("training", config.seconds) as advance:

        def on_interval(report: IntervalReport) -> None:
            nonlocal past_seconds
            # By the run's own count: a resumed one does not begin at 0.
            passed, past_seconds = report.total_seconds - past_seconds, report.total_seconds
            advance(passed, _interval_note(report))

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
        if summary["monitor_cpu_share"] is not None:
            console.print(f"processor time of the monitor: {summary['monitor_cpu_share']:.2%}")
    return summary


def _interval_note(report: IntervalReport) -> str:
    """Return what progress tells of an interval: speed, specs, memory and the latest score."""
    scores = report.episode_returns
    result = f"J {report.learner_return:.2f}" if report.learner_return is not None else ""
    if not result and scores:
        result = f"return {sum(scores) / len(scores):.1f}"
    note = f"{report.env_steps / report.seconds:,.0f} steps/s, {report.decision.label}"
    held = "+".join(f"{rss / 1e6:.0f}" for rss in report.rss_bytes.values())
    memory = f"{held} MB" if held else ""
    return " ".join(part for part in (note, memory, result) if part)


def _check_own_students(config: RunConfig, specs: Sequence[CompressionSpec]) -> None:
    own = [spec for spec in specs if is_own_student(spec.student)]
    if own:
        envs = make_envs(config.game, 1)
        for spec in own:
            check_own_student(spec, config.inputs(envs.observation), envs.num_actions)
        envs.close()


def holds_run(path: Path) -> bool:
    """Whether a folder holds intervals of a run; one that ended before its first holds nothing."""
    metrics = path / METRICS
    return metrics.is_file() and metrics.stat().st_size > 0


def _strategy(
    name: str, spec: str, params: str, config: RunConfig, *, bundle_mode: str, strict: bool
) -> Strategy:
    """Return the strategy of that name and those parameters, or the one that a bundle holds."""
    from controller.bundle.bundle import is_bundle
    from controller.comparators.by_name import COMPARATORS, make_comparator
    from studies.cli.bundles import bundle_strategy

    if name != "fixed" and spec != "{}":
        raise UserError(f"--spec goes with the fixed strategy; {name!r} chooses its own specs")
    if name in STRATEGIES:
        if bundle_mode != "policy" or strict:
            raise UserError(
                f"--bundle-mode and --strict go with a schedule bundle; {name!r} is a hand-set "
                "strategy"
            )
        given = _read_params(params)
        if name == "fixed" and spec != "{}":
            if given:
                raise UserError("--spec and --strategy-params both set the fixed spec; give one")
            given = {"spec": spec}
        return make_strategy(name, **given)
    if name in COMPARATORS:
        return make_comparator(name, **{"specs": _presets(config), **_read_params(params)})
    if is_bundle(name):
        if params != "{}":
            raise UserError(
                f"--strategy-params goes with a hand-set strategy; {name!r} is a schedule bundle, "
                "which holds its own parameters"
            )
        return bundle_strategy(name, config, mode=bundle_mode, strict=strict)
    if Path(name).exists():
        raise UserError(f"--strategy {name}: this is not a schedule bundle (no bundle.json)")
    hint = did_you_mean(name, [*STRATEGIES, *COMPARATORS])
    raise UserError(f"strategy {name!r} does not exist; {hint}, or the folder of a bundle")


def _presets(config: RunConfig) -> tuple[CompressionSpec, ...]:
    """Return what comparators choose from in this run unless told."""
    from controller.comparators.by_name import existing_presets

    virtual = config.runtime.clock == "virtual"
    profile = load_profile(config.runtime.profile).for_network(config.network) if virtual else None
    return existing_presets(config.network, profile)


def _read_params(text: str) -> dict[str, Any]:
    """Return the JSON object of --strategy-params."""
    example = '{"threshold_nats": 2.0}'
    try:
        params = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"--strategy-params: not valid JSON ({error}); write it like {example}"
        ) from error
    if not isinstance(params, dict):
        raise UserError(
            f"--strategy-params: expected a JSON object such as {example}, got {params!r}"
        )
    return params


def free_folder(path: Path, resume: bool) -> Path:
    """Return `path`, or the first of path-2, path-3, ... that holds no run."""
    if resume:
        return path
    candidate, number = path, 1
    while holds_run(candidate):
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
