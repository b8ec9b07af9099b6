"""`accerl study run bits`: train policies, round them to fewer and fewer bits, have them play."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from accerl.records import SUMMARY, fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY
from controller.bundle.meta import git_revision
from studies.bits.job import BitsJob, BitsRows
from studies.bits.plan import (
    BITS,
    BUDGETS,
    CLAIM,
    ENV_STEPS_PER_CORE_SECOND,
    FLOAT32,
    PROFILE,
    BitsBudget,
)
from studies.bits.result import Found, bits_verdicts, game_result, game_table, tuned_what
from studies.jobs.executor import Executor
from studies.learning.job import LearningJob
from studies.options import StudyOptions, check_disk
from studies.progress import bar, console, duration, say
from studies.study_folder import write_plan

RESULT = "bits.json"
FREE_BYTES = 1_000_000_000
"""of the disk: a checkpoint of Original is 80 MB, its states a little more"""


def run_bits(out: Path, options: StudyOptions) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    Args:
        out: the study's folder; gets bits.json, bits.html, bits.png, and the policies' runs.
        options: what is asked; a profile stands in place of `PROFILE`, and all nodes of a cluster
            have to see the folder.

    Raises:
        UserError: the budget or the profile does not exist, the profile lacks times of what is to
            act, a number is not allowed, the folder holds another plan, or the disk is full.
    """
    options.check("bits", BUDGETS)
    spent = BUDGETS[options.budget]
    latency = load_profile(options.profile or PROFILE)
    # Workers of a cluster have other working directories.
    trainings = _trainings(out.absolute(), spent, latency, options.seed)
    for job in trainings:  # before anything is written
        job.check()
    untrained = [job for job in trainings if job.out and not (job.out / SUMMARY).is_file()]
    check_disk(out, FREE_BYTES * len(untrained) // len(trainings))
    make_out_dir(out)
    machine = {"profile_hash": latency.hash}  # a name may stand for new times
    plan = {**options.settings("bits"), **machine, "spent": asdict(spent), "bits": list(BITS)}
    write_plan(out, plan, alone=True)
    with options.open_executor(out) as executor:
        left = [job for job in trainings if not executor.is_saved(job)]
        seconds = sum(job.env_steps for job in left) / ENV_STEPS_PER_CORE_SECOND[options.budget]
        say(
            f"{len(trainings)} policies, {len(left)} of them still to be trained, which takes a "
            f"core {duration(seconds)}"
        )
        with bar("training", len(trainings)) as advance:
            executor.map(trainings, advance)
        write = partial(_write, out, spent, options, executor)
        result = write(_rounded(executor, trainings, spent, write))
    return _show(out, result)


def _trainings(
    out: Path, spent: BitsBudget, latency: LatencyProfile, seed: int
) -> list[LearningJob]:
    """Return the training of every policy, seed by seed: all games are compared on the first."""
    return [
        LearningJob.with_spec(
            IDENTITY,
            game=game,
            network=spent.network,
            latency=latency,
            settings={},
            env_steps=env_steps,
            seed=seed + index,
            out=out / "policies" / game / f"seed-{seed + index}",
        )
        for index in range(spent.seeds)
        for game, env_steps in spent.env_steps.items()
    ]


def _rounded(
    executor: Executor,
    trainings: Sequence[LearningJob],
    spent: BitsBudget,
    write: Callable[[Mapping[str, Found]], object],
) -> dict[str, Found]:
    """Round every policy; return what copies do by game. What is known is written as it comes."""
    found: dict[str, dict[tuple[int, int], BitsRows]] = {game: {} for game in spent.env_steps}
    jobs = [
        BitsJob(trained=trained, bits=bits, budget=spent)
        for trained in trainings
        for bits in (FLOAT32, *BITS)
    ]
    size = len(BITS) + 1
    with bar("rounding", len(jobs)) as advance:
        for start in range(0, len(jobs), size):
            portion = jobs[start : start + size]
            for job, outcome in zip(portion, executor.map(portion, advance), strict=True):
                found[job.trained.game][job.trained.seed, job.bits] = outcome.result
            write(found)
    return {**found}


def _write(
    out: Path,
    spent: BitsBudget,
    options: StudyOptions,
    executor: Executor,
    found: Mapping[str, Found],
) -> dict[str, Any]:
    games = [game_result(game, spent, own) for game, own in found.items()]
    known = [game for game in games if game is not None]
    result = {
        **options.settings("bits"),
        "key": spent.key,
        "git_revision": git_revision(),
        "games": known,
        "runs": spent.seeds * len(spent.env_steps) * (len(BITS) + 1),
        "runs_made": sum(map(len, found.values())),
        "claim": CLAIM,
        "verdicts": bits_verdicts(known),
        "tuned": tuned_what(spent),
        "command": options.command("bits"),
        "fingerprint": fingerprint(),
        "versions": versions(),
        "runs_by": executor.runs_by,
    }
    write_json(out / RESULT, result)
    return result


def _show(out: Path, result: dict[str, Any]) -> dict[str, Any]:
    from analysis.figures.export import write_pngs
    from analysis.figures.studies.bits import bits_figures  # brings Altair, which no job needs
    from analysis.render.html import write_page
    from analysis.report.studies.bits import bits_sections

    for game in result["games"]:
        console.print(game_table(game))
        check = game["engine"]
        say(
            f"  8 bits in the INT8 engine: KL {check['engine_kl_nats']:.3g} of itself, "
            f"{check['simulated_kl_nats']:.3g} of its arithmetic in float32, "
            f"{check['between_kl_nats']:.3g} between the two"
        )
    pictures = write_pngs(bits_figures(result), out)
    page = write_page(bits_sections(result), out / "bits.html", "Bits")
    for path in (out / RESULT, page, *pictures):
        say(f"wrote {path}")
    return result
