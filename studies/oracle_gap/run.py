"""The oracle gap: for every game and machine, how much there is for a controller to win.

Three schedules are compared with the best static spec, by the controller's own objective (the
discounted gain of J, `controller.objective`):

- the best open-loop schedule of two phases, searched among the best statics;
- a greedy-branch oracle, which at every decision tries all specs from a snapshot, measures J, and
  leaves the spec it has only for one that is better by more than a standard error;
- a placebo: the same oracle, but all its branches act with the best static spec, and differ in
  the actors' dice alone. What it wins is luck that no controller can foresee.

The best static and the best two phases are chosen by their mean over the very seeds that they are
reported on, so both are somewhat optimistic; the oracle chooses by other episodes than count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import CompressionSpec
from analysis.comparison.stats import finite_or_none
from controller.env.instances import ENV_STEPS, SPLITS, make_instance
from controller.env.references import load_reference
from studies.jobs.executor import Executor
from studies.learning.interval import mean_interval
from studies.options import StudyOptions
from studies.oracle_gap.branching import (
    OracleJob,
    StaticJob,
    TwoPhaseJob,
    TwoPhaseResult,
    base_config,
)
from studies.progress import bar, console, say
from studies.study_folder import claim

RESULT = "oracle-gap.json"
SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(bits=8, sparsity=0.5),
    CompressionSpec(bits=8, student="net1"),
    CompressionSpec(bits=8, student="net3"),
)
"""what is compared; levels between them differ little"""
FINALISTS = 3
"""statics that two-phase schedules are made of"""


@dataclass(frozen=True, kw_only=True)
class GapBudget:
    """How much the study spends."""

    pairs: tuple[tuple[str, str], ...]
    """(game, profile)"""
    env_steps: Mapping[str, int]
    """of uncompressed actors within the horizon, by game: sets the horizon"""
    seeds: Mapping[str, int]
    """inner seeds by game"""


def _pairs() -> tuple[tuple[str, str], ...]:
    splits = (SPLITS["train"], SPLITS["validation"])
    return tuple(
        (game, profile) for split in splits for game in split.games for profile in split.profiles
    )


MINATAR_STEPS = 40_000
"""a fifth of `ENV_STEPS`: some forty runs' worth of branches per seed would take hours. So the gap
of these games is that of early learning"""
BUDGETS = {
    "tiny": GapBudget(
        pairs=(("catch", "paper-1080ti"), ("catch", "learner-bound")),
        env_steps={"catch": 16_000},
        seeds={"catch": 2},
    ),
    "default": GapBudget(
        pairs=_pairs(),
        env_steps={
            game: MINATAR_STEPS if "minatar" in game else ENV_STEPS[game] for game, _ in _pairs()
        },
        seeds={game: 2 if "minatar" in game else 5 for game, _ in _pairs()},
    ),
}


def run_oracle_gap(out: Path, options: StudyOptions) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    Args:
        out: the study's folder; gets oracle-gap.json and oracle-gap.png.
        options: what is asked; the seed is the first inner seed of each split's, and all games are
            played on a profile, in place of the splits'.

    Raises:
        UserError: the budget or the profile does not exist, a number is not allowed, or `out` holds
            what other settings have found.
    """
    options.check("oracle-gap", BUDGETS)
    spent, seed = BUDGETS[options.budget], options.seed
    last = 10 - max(spent.seeds.values())
    if not 0 <= seed <= last:
        raise UserError(f"--seed {seed}: the splits have 10 inner seeds; take 0 to {last}")
    pairs = spent.pairs
    if options.profile:
        games = dict.fromkeys(game for game, _ in pairs)
        pairs = tuple((game, options.profile) for game in games)
    _check_profiles(pairs)
    make_out_dir(out)
    claim(out, options.settings("oracle-gap"))
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    with options.open_executor(out) as executor:
        for game, name in pairs:
            rows.append(_gap(executor, spent, game, name, seed))
            result = _result(rows, options, executor.runs_by)
            write_json(out / RESULT, result)
            console.print(_sentence(rows[-1]), highlight=False)
    from analysis.figures.bench import oracle_gap  # brings Altair, which no job needs
    from analysis.figures.export import write_pngs

    for path in write_pngs([oracle_gap(rows)], out):
        say(f"wrote {path} and {out / RESULT}")
    return result


def _check_profiles(pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse, before anything runs, a profile that does not exist or lacks a spec's times."""
    for game, name in pairs:
        profile = times_of_run(load_profile(name), load_preset(game))
        missing = [spec.label for spec in SPECS if not profile.has(spec)]
        if missing:
            raise UserError(
                f"latency profile {name!r} has no times for {', '.join(missing)}; choose another, "
                "or measure one (`accerl profile measure`)"
            )


def _gap(
    executor: Executor, budget: GapBudget, game: str, profile: str, first_seed: int
) -> dict[str, Any]:
    """Return one row: all schedules of a game on a machine."""
    split = next(name for name, each in SPLITS.items() if game in each.games)
    seeds = [SPLITS[split].seeds[first_seed + index] for index in range(budget.seeds[game])]
    latency = load_profile(profile)
    scale = load_reference(game).to_json()
    instance = make_instance(game, latency, budget.env_steps[game], **scale)
    instance = replace(instance, base=base_config(game))

    with bar(f"{instance.name}: statics", len(SPECS) * len(seeds)) as advance:
        asked = [
            StaticJob(instance=instance, seed=seed, spec=spec) for spec in SPECS for seed in seeds
        ]
        found = [outcome.result.value for outcome in executor.map(asked, advance)]
    statics = np.array(found).reshape(len(SPECS), len(seeds))
    order = np.argsort(-statics.mean(axis=1))
    best, finalists = SPECS[order[0]], [SPECS[place] for place in order[:FINALISTS]]
    two_phase = [
        TwoPhaseJob(
            instance=instance,
            seed=seed,
            first=first,
            seconds=tuple(second for second in finalists if second != first),
        )
        for first in finalists
        for seed in seeds
    ]
    oracles = [
        OracleJob(instance=instance, seed=seed, base=best, specs=SPECS, placebo=placebo)
        for placebo in (False, True)
        for seed in seeds
    ]
    with bar(f"{instance.name}: schedules", len(two_phase) + len(oracles)) as advance:
        switches = [outcome.result for outcome in executor.map(two_phase, advance)]
        greedy = [outcome.result for outcome in executor.map(oracles, advance)]
    phases = _best_two_phase(finalists, switches, len(seeds))
    oracle, placebo = greedy[: len(seeds)], greedy[len(seeds) :]
    static = statics[order[0]]
    fp32 = statics[SPECS.index(CompressionSpec())]
    return {
        "game": game,
        "profile": latency.name,
        "profile_hash": latency.hash,
        "split": split,
        "seeds": seeds,
        "horizon_seconds": instance.horizon_seconds,
        "statics": {
            spec.label: [float(value) for value in statics[place]]
            for place, spec in enumerate(SPECS)
        },
        "best_static": best.label,
        "fp32": _ratio(fp32, static),
        "two_phase": {**phases["what"], **_ratio(phases["values"], static)},
        "oracle": {
            **_ratio(np.array([run.value for run in oracle]), static),
            "chosen": [list(run.chosen) for run in oracle],
        },
        "placebo": _ratio(np.array([run.value for run in placebo]), static),
        "return_standard_error": float(np.mean([run.standard_error for run in oracle])),
    }


def _best_two_phase(
    finalists: Sequence[CompressionSpec], results: Sequence[TwoPhaseResult], seeds: int
) -> dict[str, Any]:
    """Return the schedule with the highest mean over seeds, and its values [seeds]."""
    candidates: dict[tuple[str, int, str], list[float]] = {}
    for index, result in enumerate(results):
        first = finalists[index // seeds]
        for switch in result.switches:
            key = (first.label, switch.at, switch.second.label)
            candidates.setdefault(key, []).append(switch.value)
    best = max(candidates, key=lambda key: np.mean(candidates[key]))
    what = {"first": best[0], "at_interval": best[1], "second": best[2]}
    return {"what": what, "values": np.array(candidates[best])}


def _ratio(values: np.ndarray, static: np.ndarray) -> dict[str, Any]:
    """Return values over the best static's: ratio of means over seeds, and its 95% interval.

    The interval is Student's t over the seeds' differences, in shares of the static's mean: with
    two or three seeds it is as wide as so little evidence deserves.
    """
    found: dict[str, Any] = {"values": [float(value) for value in values]}
    base = float(static.mean())
    if base <= 0.0:  # nothing was learned: a ratio would mean nothing
        return {**found, "ratio": None, "low": None, "high": None}
    ratio, low, high = mean_interval((1.0 + (values - static) / base).tolist())
    return {**found, "ratio": ratio, "low": finite_or_none(low), "high": finite_or_none(high)}


def _sentence(row: Mapping[str, Any]) -> str:
    def percent(name: str) -> str:
        ratio = row[name]["ratio"]
        return "?" if ratio is None else f"{ratio - 1.0:+.1%}"

    return (
        f"  {row['game']} on {row['profile']}: best static {row['best_static']}; over it fp32 "
        f"{percent('fp32')}, two phases {percent('two_phase')}, oracle {percent('oracle')}, "
        f"placebo {percent('placebo')}"
    )


def _result(
    rows: Sequence[Mapping[str, Any]], options: StudyOptions, runs_by: Mapping[str, int]
) -> dict[str, Any]:
    return {
        **options.settings("oracle-gap"),
        "rows": list(rows),
        "fingerprint": fingerprint(),
        "versions": versions(),
        "runs_by": runs_by,
        "command": options.command("oracle-gap"),
    }
