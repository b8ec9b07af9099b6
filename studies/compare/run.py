"""`accerl compare`: strategies side by side on one game and machine, paired by seed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.own_code import source_hash
from accerl.records import SUMMARY, fingerprint, make_out_dir, plain, versions, write_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.training.run_folder import CHECKPOINT
from analysis.formats import ranges
from analysis.records.comparison import COMPARISON, load_comparison
from controller.bundle.bundle import read_bundle
from controller.bundle.meta import git_revision
from studies.benchmarks.repeats import timed_here
from studies.compare.entrants import Entrant, read_entrants
from studies.compare.job import ComparedJob, TimedComparedJob
from studies.jobs.executor import check_workers, open_executor, revisions
from studies.learning.curve import LearningCurve
from studies.learning.interval import mean_interval
from studies.progress import bar, duration, say
from studies.run_checks import say_what_is_assumed
from studies.strategies import clock_profile, names_bundle, note_on_strategy
from studies.students.table import compared_rows, ratio_of
from studies.study_folder import claim

RUNS = "runs"
START_UP_SECONDS = 60.0
"""that a run may take besides, at most: starting, and playing the learner in the end"""
UNSEEN = 400
"""the first of seeds that no study tunes, trains or tests on"""
SHARES = (0.5, 0.9)
"""of the way from the baseline's first score to its last, where scores lie that nobody chose"""
Curves = Mapping[tuple[str, int], LearningCurve]
"""by label of the strategy, and seed"""


def compare(
    config: RunConfig,
    strategies: Sequence[str],
    *,
    out: Path,
    seeds: int = 3,
    scores: Sequence[float] = (),
    workers: int = 0,
) -> dict[str, Any]:
    """Train under each strategy with the same seeds; return and write what they took.

    Args:
        config: of the first run; the others have the seeds after its own.
        strategies: see `entrants.read_entrants`; the first is what the others are compared with.
        out: folder; gets comparison.json, and run directories below runs/. Runs that are there are
            not made again: strategies and seeds may be added to it. What was compared there before
            and is not now stays among the runs, and is named.
        seeds: runs of each.
        scores: that actors are timed to; by default `SHARES` of what the first strategy reaches.
        workers: runs at once on the virtual clock; 0: as many as there are cores and memory for.

    Raises:
        UserError: a strategy does not exist or cannot act here, a number is not allowed, or the
            folder holds something else.
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    if not all(math.isfinite(score) for score in scores):
        raise UserError(f"--scores must be finite numbers, got {list(scores)}")
    if config.until_score is not None:
        raise UserError(
            "a comparison is of runs of one length: leave --until-score out, and give --scores"
        )
    check_workers(workers)
    profile = clock_profile(config)
    if profile is None and workers > 1:
        raise UserError(
            "--workers goes with the virtual clock: on the real one runs are made one after another"
        )
    entrants = read_entrants(strategies, config, profile)
    say_what_is_assumed(config, profile)
    order = range(config.seed, config.seed + seeds)
    notes = notes_on(strategies, config, order)  # now: the machine may be measured meanwhile
    make_out_dir(out)
    claim(out, {"study": "compare", **_settings(config)})
    _say_what_is_shown_no_more(out, [entrant.label for entrant in entrants], order)
    jobs = _jobs(config, entrants, order, profile, out)
    with open_executor(out, workers) as executor:
        if profile is None:
            _say_what_is_left(config, [job for job in jobs if not executor.is_saved(job)])
        with bar("runs", len(jobs)) as advance:
            made = executor.map(jobs, advance)
    curves = {(job.label, job.config.seed): end.result for job, end in zip(jobs, made, strict=True)}
    labels = [entrant.label for entrant in entrants]
    given = tuple(scores) or reached_by(labels[0], curves)
    result = {
        "game": config.preset,
        "network": config.network,
        "clock": config.runtime.clock,
        "profile": None if profile is None else profile.name,
        "profile_hash": None if profile is None else profile.hash,
        "seconds": config.seconds,
        "events": [event.to_json() for event in config.conditions.events],
        "seeds": list(order),
        "baseline": labels[0],
        "scores": list(given),
        "scores_given": bool(scores),
        "strategies": strategy_rows(labels, curves, given),
        "run_folders": {each.label: str(Path(RUNS) / each.folder) for each in entrants},
        "apart": [] if profile is not None else made_apart(jobs, config.seconds),
        "notes": notes,
        "runs_by": revisions(made),
        "git_revision": git_revision(),
        "fingerprint": fingerprint(),
        "versions": versions(),
    }
    write_json(out / COMPARISON, result)
    return result


def _say_what_is_shown_no_more(out: Path, labels: Sequence[str], seeds: Sequence[int]) -> None:
    """Print what the comparison that is there has, and the one that takes its place has not."""
    try:
        found = load_comparison(out)
    except UserError:  # there is none, or none that could be shown
        return
    gone = [row["label"] for row in found["strategies"] if row["label"] not in labels]
    if unasked := set(found["seeds"]) - set(seeds):
        gone.append(f"{'seeds' if len(unasked) > 1 else 'seed'} {ranges(sorted(unasked))}")
    if gone:
        say(
            f"{COMPARISON} and its page will no longer show {', '.join(gone)}, as you did not ask "
            "for them; their runs stay, and need not be made again"
        )


def _say_what_is_left(config: RunConfig, jobs: Sequence[ComparedJob]) -> None:
    """Print how long runs on the real clock will take, and which of them were made before."""
    if not jobs:
        return
    whole = duration(len(jobs) * config.seconds)
    say(f"{len(jobs)} runs of {config.seconds:g} s, one after another: {whole} and start-up")
    if old := sum(job.out is not None and job.out.is_dir() for job in jobs):
        say(f"  {old} of them are there, by other code or packages, and are made again")


def _settings(config: RunConfig) -> dict[str, Any]:
    """Return what all runs of a folder have in common, flat: a difference is named by its field."""
    data = plain(config.to_json())
    for name in ("hash", "seed", "ray"):  # of one run, and where it takes place
        del data[name]
    found = {}
    for section, value in data.items():
        nested = value if isinstance(value, dict) else {"": value}
        found |= {f"{section}.{name}".rstrip("."): each for name, each in nested.items()}
    named = (config.network, config.game, *config.env.wrappers, *config.own.paths)
    own = dict.fromkeys(name.partition(":")[0] for name in named if ":" in name)
    # Flat too: a refusal names the module that has changed.
    found |= {f"source of {module}": source_hash(module) for module in own}
    if not own:
        found["source of own code"] = {}  # as in the folders of comparisons that are there
    if config.start:
        found["learner in start"] = _digest(Path(config.start) / CHECKPOINT)
    return found


def notes_on(strategies: Sequence[str], config: RunConfig, seeds: Sequence[int]) -> list[str]:
    """Return what nobody measured of this machine although strategies go by it, each note once.

    Bundles that were trained on the game with some of the seeds are named too.

    Args:
        strategies: see `entrants.read_entrants`.
        config: of their runs.
        seeds: of their runs.
    """
    found: list[str] = []
    for text in strategies:
        name, brace, rest = (part.strip() for part in text.partition("{"))
        if not name:
            continue
        measured = note_on_strategy(name, f"{brace}{rest}" or "{}", config)
        notes = (measured, _note_on_seeds(name, config.preset, seeds))
        found += [note for note in notes if note is not None and note not in found]
    return found


def _note_on_seeds(name: str, game: str, seeds: Sequence[int]) -> str | None:
    """Say of a bundle that it was trained on the game with some of the seeds; None: it was not."""
    if not names_bundle(name):
        return None
    trained = [each for each in read_bundle(name).meta.instances if each.game == game]
    known = {seed for each in trained for seed in (*each.seeds, *each.validated)}
    shared = known.intersection(seeds)
    if not shared:
        return None
    return (
        f"the bundle {name} was trained or chosen on {game} with seeds {ranges(shared)}, which are "
        "among "
        f"these: it may do better here than elsewhere (--seed {UNSEEN} takes others)"
    )


def made_apart(jobs: Sequence[ComparedJob], seconds: float) -> list[int]:
    """Return the seeds whose runs on the real clock were not made one after another.

    They ended farther apart than twice what they take, so the machine may have drifted meanwhile.
    """
    ended: dict[int, list[float]] = {}
    for job in jobs:
        assert job.out is not None
        at = (job.out / SUMMARY).stat().st_mtime
        ended.setdefault(job.config.seed, []).append(at)
    each = 2.0 * (seconds + START_UP_SECONDS)
    return [seed for seed, at in ended.items() if max(at) - min(at) > each * len(at)]


def _digest(path: Path) -> str:
    """Return a hash of a file, or of all files in a folder."""
    digest = sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:12]


def _jobs(
    config: RunConfig,
    entrants: Sequence[Entrant],
    seeds: Sequence[int],
    profile: LatencyProfile | None,
    out: Path,
) -> list[ComparedJob]:
    """Return all runs, in rotated order: a machine that drifts does so for all alike."""
    timed = None if profile is not None else [*timed_here(), config.ray.address]
    jobs = []
    for place, seed in enumerate(seeds):
        turn = place % len(entrants)
        for entrant in [*entrants[turn:], *entrants[:turn]]:
            fields = {
                "config": replace(config, seed=seed),
                "label": entrant.label,
                "strategy": entrant.seeded(seed).strategy,
                "identity": entrant.identity,
                "latency": profile,
                "out": out / RUNS / entrant.folder / f"seed-{seed}",
            }
            made = (
                ComparedJob(**fields) if timed is None else TimedComparedJob(**fields, timed=timed)
            )
            jobs.append(made)
    return jobs


def reached_by(label: str, curves: Curves) -> tuple[float, ...]:
    """Return scores on the way that a strategy's runs go, `SHARES` of it; none if they go nowhere.

    They are of four digits, and of the mean over its runs.
    """
    known = [
        [score for score in curve.scores if score is not None]
        for (name, _), curve in curves.items()
        if name == label
    ]
    ends = [(values[0], values[-1]) for values in known if values]
    if not ends:
        return ()
    first, last = np.mean(ends, axis=0)
    if last <= first:
        return ()
    return tuple(float(f"{first + share * (last - first):.4g}") for share in SHARES)


def strategy_rows(
    labels: Sequence[str], curves: Curves, scores: Sequence[float]
) -> list[dict[str, Any]]:
    """Return what each strategy's runs show, over those of the first with the same seeds."""
    rows = compared_rows(labels, curves, scores)
    base = {run["seed"]: run for run in rows[0]["runs"]}
    for row in rows:
        pairs = [(run, base[run["seed"]]) for run in row["runs"]]
        rates = [[run["env_steps"] / run["seconds"] for run in pair] for pair in pairs]
        row["speed"] = ratio_of([math.log(own / other) for own, other in rates if own and other])
        gained = [
            own["learner_score"] - other["learner_score"]
            for own, other in pairs
            if own["learner_score"] is not None and other["learner_score"] is not None
        ]
        mean, low, high = mean_interval(gained)
        row["learner_score_gain"] = {
            "difference": mean if gained else None,
            "interval": [low, high] if math.isfinite(low) else None,
        }
        own = [curve for (name, _), curve in curves.items() if name == row["label"]]
        firsts = [first for curve in own if (first := curve.first_score) is not None]
        for found in row["to_score"]:
            found["at_once"] = sum(first >= found["score"] for first in firsts)
        row["acted"] = acted(own)
        row["served"] = served(own)
        row["learner_cut_off"] = sum(curve.learner_cut_off for curve in own)
        row["core_seconds"] = (
            float(np.mean([curve.core_seconds[-1] for curve in own]))
            if all(curve.core_seconds for curve in own)
            else None
        )
    return rows


def acted(curves: Sequence[LearningCurve]) -> dict[str, float]:
    """Return the share of all seconds that each decision held, the longest first."""
    spent: dict[str, float] = {}
    for curve in curves:
        for label, begins, ends in zip(
            curve.acting, [0.0, *curve.seconds], curve.seconds, strict=False
        ):
            spent[label] = spent.get(label, 0.0) + ends - begins
    total = sum(spent.values())
    return {
        label: seconds / total
        for label, seconds in sorted(spent.items(), key=lambda each: -each[1])
    }


def served(curves: Sequence[LearningCurve]) -> dict[str, float]:
    """Return by decision in which share of the seconds that it held actors acted with it."""
    held: defaultdict[str, float] = defaultdict(float)
    kept: defaultdict[str, float] = defaultdict(float)
    for curve in curves:
        for label, share, begins, ends in zip(
            curve.acting, curve.served, [0.0, *curve.seconds], curve.seconds, strict=False
        ):
            if share is not None:
                held[label] += ends - begins
                kept[label] += share * (ends - begins)
    return {label: kept[label] / seconds for label, seconds in held.items() if seconds}
