"""The options of every command: what they are called, what they mean, what they default to.

A docstring here is what `--help` prints; `commands` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from accerl.records import make_out_dir
from studies.cli import commands, run_commands
from studies.progress import console

Json = Annotated[bool, tyro.conf.arg(name="json", help="print one JSON object on standard output")]
Name = tyro.conf.Positional[str]
WandbFolder = Annotated[
    Path | None,
    # Alone, without a folder, the option means a folder beside the report.
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="[DIR]",
        instance_from_str=lambda given: commands.wandb_folder(given),
        is_instance=lambda value: value is None or isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
]
Settings = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(name="set", metavar="SECTION.NAME=VALUE"),
]


def train(
    preset: Name,
    /,
    *,
    seconds: float | None = None,
    seed: int = 0,
    runtime: str | None = None,
    clock: str | None = None,
    profile: str | None = None,
    strategy: str = "fixed",
    spec: str = "{}",
    strategy_params: str = "{}",
    bundle_mode: str = "policy",
    strict: bool = False,
    shield: float | None = None,
    network: str | None = None,
    precision: str | None = None,
    set_: Settings = (),
    start: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    wandb: bool = False,
    json_: Json = False,
) -> Any:
    """Train one agent: `accerl train pong --seconds 120 --spec '{"bits": 8}'`.

    Args:
        preset: a small game (catch, cartpole, acrobot, minatar-breakout, minatar-asterix,
            minatar-freeway, minatar-seaquest, minatar-space-invaders), an Atari game (pong,
            breakout, alien, amidar, bank_heist, beam_rider, hero, name_this_game, riverraid,
            road_runner, seaquest, space_invaders), paper-pong (the paper's settings), or ald-pong
            (Actor-Learner Distillation)
        seconds: length of the run on its own clock (default: the preset's)
        seed: of everything random
        runtime: serial or process (default: the preset's)
        clock: virtual or real; the serial runtime defaults to virtual
        profile: latency profile of the virtual clock (default: paper-1080ti)
        strategy: fixed, kl-threshold, reward-gap, linear-kl, three-stage, random,
            first-that-fires, sw-ucb, thompson, gp-bandit, or the path of a schedule bundle
        spec: for the fixed strategy: what actors act with, as JSON
        bundle_mode: of a schedule bundle: policy (reacts to the run) or schedule (replays what the
            controller usually did, by the clock)
        strict: refuse a bundle that may choose specs this run cannot act with; without it the
            nearest milder ones act instead
        strategy_params: of any of these but a bundle, as JSON: '{"threshold_nats": 2.0}'
        shield: largest KL in nats (the paper: 14) above which an interval acts with the mildest of
            the strategy's specs, as it does when the strategy fails
        network: of the learner: original, net1, net2 or net3 (default: the preset's)
        precision: of the learner: fp32 or bf16 (default: the preset's)
        set_: other settings of the preset, such as compression.prune_criterion=taylor
        start: run directory whose learner this run begins with
        out: run directory (default: runs/PRESET-seedN)
        resume: go on with the run in --out from its last checkpoint
        wandb: also write an offline W&B run to the run directory
        json_: print the summary as JSON
    """
    return run_commands.train(
        preset,
        seconds=seconds,
        seed=seed,
        runtime=runtime,
        clock=clock,
        profile=profile,
        strategy=strategy,
        spec=spec,
        params=strategy_params,
        bundle_mode=bundle_mode,
        strict=strict,
        shield=shield,
        network=network,
        precision=precision,
        settings=set_,
        start=start,
        out=out,
        resume=resume,
        wandb=wandb,
        quiet=json_,
    )


def evaluate(
    run: Name,
    /,
    *,
    episodes: int = 10,
    spec: str = "{}",
    seed: int = 0,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Play episodes with a checkpoint: `accerl eval runs/pong-seed0 --episodes 20`.

    Args:
        run: run directory
        episodes: how many to play
        spec: compression to act with, as JSON; full precision by default
        seed: of the episodes
        out: folder to write eval.json to
        json_: print the result as JSON
    """
    return written(run_commands.evaluate(Path(run), episodes, spec, seed), out, "eval.json")


def study_run(
    name: Name,
    /,
    *,
    out: Path,
    budget: str = "default",
    seed: int = 0,
    workers: int = 2,
    profile: str = "",
    storage: str = "",
    json_: Json = False,
) -> Any:
    """Run a study, or go on with an interrupted one: `accerl study run quickstart --out DIR`.

    Args:
        name: quickstart, contest or oracle-gap
        out: the study's folder
        budget: tiny (minutes; shows that everything works) or default
        seed: of samplers and controller; of oracle-gap, the first of each split's inner seeds
        workers: processes for inner runs; 0: all is done by `accerl study worker` elsewhere
        profile: latency profile to use in place of measuring this machine; of oracle-gap, in
            place of the splits'
        storage: where jobs are kept (default: jobs.journal in --out), for workers on several
            machines: postgresql+psycopg://user:password@host/database
        json_: print the contest, or what was found, as JSON
    """
    return commands.study_run(
        name, out, budget=budget, seed=seed, workers=workers, profile=profile, storage=storage
    )


def study_list(*, storage: str = "", json_: Json = False) -> Any:
    """List the studies, and how the jobs in a storage stand.

    Args:
        storage: as given to `accerl study run`
        json_: print the lists as JSON
    """
    return commands.study_list(storage)


def study_worker(
    *,
    study: str,
    storage: str = "",
    out: Path | None = None,
    once: bool = False,
    json_: Json = False,
) -> Any:
    """Do jobs of a study that runs elsewhere: `accerl study worker --study quickstart --out DIR`.

    Args:
        study: name of the study
        storage: as given to `accerl study run` (default: jobs.journal in --out)
        out: the study's folder, if this machine sees it; else records travel through the storage
        once: end when no job is waiting (default: when the study is finished)
        json_: print what came of each job as JSON
    """
    return commands.study_worker(study, storage, out, once=once)


def schedule_export(study: Name, /, *, out: Path, json_: Json = False) -> Any:
    """Copy the bundle that a study learned to a folder of its own, verified.

    Args:
        study: study folder
        out: the new bundle's folder
        json_: print the result as JSON
    """
    return commands.schedule_export(Path(study), out)


def schedule_show(bundle: Name, /, *, json_: Json = False) -> Any:
    """Describe a schedule bundle.

    Args:
        bundle: bundle folder
        json_: print the description as JSON
    """
    return commands.schedule_show(Path(bundle))


def schedule_verify(bundle: Name, /, *, json_: Json = False) -> Any:
    """Check schema, hashes, and that both forms of the policy agree.

    Args:
        bundle: bundle folder
        json_: print the result as JSON
    """
    return commands.schedule_verify(Path(bundle))


def schedule_replay(
    bundle: Name,
    /,
    *,
    preset: str = "pong",
    seconds: float = 60.0,
    seed: int = 0,
    strict: bool = False,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Drive a run by the open-loop schedule of a bundle.

    Args:
        bundle: bundle folder
        preset: what to train
        seconds: length of the run
        seed: of everything random
        strict: refuse a bundle whose schedule holds specs that this run cannot act with; without it
            the nearest milder ones act instead
        out: run directory
        json_: print the summary as JSON
    """
    return commands.schedule_replay(bundle, preset, seconds, seed, out, strict=strict, quiet=json_)


def controller_train(
    *,
    out: Path,
    iterations: int = 30,
    seed: int = 0,
    json_: Json = False,
) -> Any:
    """Meta-train a controller on the analytic tier and export it as a bundle.

    Args:
        out: the bundle's folder
        iterations: policy-gradient iterations of 32 episodes
        seed: of initialisation and games
        json_: print the result as JSON
    """
    return commands.controller_train(out, iterations, seed)


def controller_eval(study: Name, /, *, out: Path | None = None, json_: Json = False) -> Any:
    """Compare the strategies of a finished study: rows per run, contrasts with intervals.

    Args:
        study: study folder
        out: folder to write contest.json to
        json_: print the contest as JSON
    """
    return written(commands.controller_eval(Path(study), json_), out, "contest.json")


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    /,
    *,
    html: Path,
    wandb: WandbFolder = None,
    wandb_save: str | None = None,
    figures: Path | None = None,
    scores: tuple[float, ...] = (),
    json_: Json = False,
) -> Any:
    """Write the HTML report of a study folder or of run directories.

    Args:
        runs: one study folder, or run directories
        html: file to write
        wandb: also write offline W&B runs, and of a study the W&B report, to this folder; without
            one, to the folder "wandb" beside the HTML file. A folder must not stand before RUNS
        wandb_save: ENTITY/PROJECT to save the W&B report to; needs a key, and the runs that an
            earlier call wrote to --wandb must have been synced there
        figures: folder to write every figure to as PNG with its data as CSV; of runs, their curves
        scores: of runs, tell when each of these scores was first reached
        json_: print the paths as JSON
    """
    return commands.report(list(runs), html, wandb, wandb_save, figures, scores)


def written(result: Any, out: Path | None, name: str) -> Any:
    """Also write a result into --out, if given."""
    if out is not None:
        from accerl.records import write_json

        write_json(make_out_dir(out) / name, result)
        console.print(f"wrote {out / name}")
    return result
