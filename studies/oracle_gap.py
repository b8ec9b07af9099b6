"""The oracle gap: for every game and machine, how much there is for a controller to win.

Three schedules are compared with the best static spec, by the controller's own objective (the
discounted gain of J, `controller.objective`):

- the best open-loop schedule of two phases, searched among the best statics;
- a greedy-branch oracle, which at every decision tries all specs from a snapshot, measures J, and
  leaves the spec it has only for one that is better by more than a standard error;
- a placebo: the same oracle, but all its branches act with the best static spec, and differ in
  the actors' dice alone. What it wins is luck that no controller can foresee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accerl.envs import make_envs
from accerl.errors import UserError, did_you_mean
from accerl.evaluate import play_episodes, policy_infer
from accerl.presets import load_preset
from accerl.records import fingerprint, make_out_dir, versions, write_json
from accerl.runtime.profiles import load_profile
from accerl.runtime.serial import SerialRun
from accerl.spec import CompressionSpec, Decision
from analysis.export_figures import write_pngs
from analysis.figures_bench import oracle_gap
from analysis.stats import paired_ratio_of_means
from controller.env import CompressionControlEnv
from controller.instances import SPLITS, Instance, choose_horizon, game_instance
from controller.objective import default_beta, discounted_gain
from controller.references import load_reference
from studies.inner import InnerRuns
from studies.progress import bar, console

SPECS = (
    CompressionSpec(),
    CompressionSpec(bits=8),
    CompressionSpec(bits=8, sparsity=0.5),
    CompressionSpec(bits=8, student="net1"),
    CompressionSpec(bits=8, student="net2"),
    CompressionSpec(bits=8, student="net3"),
)
"""what is compared; levels between them differ little"""
INTERVALS = 12
SWITCHES = (3, 6, 9)
"""intervals after which the second phase may begin"""
FINALISTS = 3
"""statics that two-phase schedules are made of"""
REPORT_EPISODES = 32
"""per measurement of J that counts"""
CHOOSE_EPISODES = 96
"""per measurement that the oracle chooses by, with other seeds"""
CHOOSE_SEED = 555_000


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


_STEPS = {"catch": 30_000, "cartpole": 100_000}
_MINATAR_STEPS = 60_000
BUDGETS = {
    "tiny": GapBudget(
        pairs=(("catch", "paper-1080ti"), ("catch", "learner-bound")),
        env_steps={"catch": 16_000},
        seeds={"catch": 2},
    ),
    "default": GapBudget(
        pairs=_pairs(),
        env_steps={game: _STEPS.get(game, _MINATAR_STEPS) for game, _ in _pairs()},
        seeds={game: 3 if game in _STEPS else 2 for game, _ in _pairs()},
    ),
}


def _instance(job: Mapping[str, Any]) -> Instance:
    config = load_preset(job["game"]).with_runtime(eval_episodes=REPORT_EPISODES)
    latency = load_profile(job["profile"])
    horizon, interval = choose_horizon(config, latency, job["env_steps"], INTERVALS)
    return game_instance(
        config,
        latency,
        reference=load_reference(job["game"]),
        horizon_seconds=horizon,
        interval_seconds=interval,
        seed=job["seed"],
    )


def do_job(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job here: a kind of schedule for one (game, profile, seed); see the functions."""
    kinds: dict[str, Callable[[_Branching, dict[str, Any]], dict[str, Any]]] = {
        "static": _static,
        "two-phase": _two_phase,
        "oracle": _oracle,
    }
    branching = _Branching(_instance(job))
    try:
        return kinds[job["kind"]](branching, job)
    finally:
        branching.env.close()


class _Branching:
    """An episode of the outer environment that can be continued in several ways."""

    def __init__(self, instance: Instance) -> None:
        self.env = CompressionControlEnv([instance])
        self.env.reset()
        self.times = [0.0]
        self.scores = [instance.reference.random_return]

    @property
    def done(self) -> bool:
        return len(self.times) > INTERVALS

    def step(self, spec: CompressionSpec) -> None:
        """Act with `spec` for one interval."""
        *_, info = self.env.step_decision(Decision.of(spec))
        self.times.append(info["total_seconds"])
        self.scores.append(info["learner_return"])

    def snapshot(self) -> dict[str, Any]:
        return {
            "env": self.env.snapshot(),
            "times": list(self.times),
            "scores": list(self.scores),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.env.restore(snapshot["env"])
        self.times, self.scores = list(snapshot["times"]), list(snapshot["scores"])

    def value(self) -> float:
        """Return the discounted gain of the whole episode, normalised by the game's reference."""
        reference = self.env.instance.reference
        levels = [reference.normalise(score) for score in self.scores]
        return discounted_gain(self.times, levels, default_beta(self.times[-1]))


def _static(branching: _Branching, job: dict[str, Any]) -> dict[str, Any]:
    spec = CompressionSpec.from_json(job["spec"])
    while not branching.done:
        branching.step(spec)
    return {"value": branching.value(), "scores": branching.scores}


def _two_phase(branching: _Branching, job: dict[str, Any]) -> dict[str, Any]:
    """Act with `first`; from every switch on, also with each of `seconds`."""
    first = CompressionSpec.from_json(job["first"])
    branches = []
    while not branching.done:
        if len(branching.times) - 1 in SWITCHES:
            branches.append((len(branching.times) - 1, branching.snapshot()))
        branching.step(first)
    rows = []
    for at, snapshot in branches:
        for second in map(CompressionSpec.from_json, job["seconds"]):
            branching.restore(snapshot)
            while not branching.done:
                branching.step(second)
            rows.append({"at": at, "second": second.to_json(), "value": branching.value()})
    return {"rows": rows}


def _oracle(branching: _Branching, job: dict[str, Any]) -> dict[str, Any]:
    """Greedy branches over `specs`, beginning with `base`; of a placebo, over other dice."""
    acting = CompressionSpec.from_json(job["base"])
    specs = [CompressionSpec.from_json(spec) for spec in job["specs"]]
    envs = make_envs(job["game"], CHOOSE_EPISODES)
    chosen: list[str] = []
    errors: list[float] = []
    try:
        while not branching.done:
            start, number = branching.snapshot(), len(branching.times)
            found: list[tuple[CompressionSpec, np.ndarray, dict[str, Any]]] = []
            others = [spec for spec in specs if spec != acting] if not job["placebo"] else specs[1:]
            for index, spec in enumerate([acting, *others]):
                if index:
                    branching.restore(start)
                run = branching.env.run
                assert isinstance(run, SerialRun)
                if job["placebo"] and index:
                    for actor in run.actors:
                        actor.reseed(1_000 * number + index)
                branching.step(spec)
                infer = policy_infer(run.learner.policy)
                scores = play_episodes(envs, infer, CHOOSE_SEED + number)
                found.append((spec, scores, branching.snapshot()))
            best = _clearly_best([scores for _, scores, _ in found])
            errors.append(float(found[0][1].std(ddof=1) / np.sqrt(CHOOSE_EPISODES)))
            acting = found[best][0]
            chosen.append(acting.label)
            branching.restore(found[best][2])
    finally:
        envs.close()
    return {
        "value": branching.value(),
        "scores": branching.scores,
        "chosen": chosen,
        "standard_error": float(np.mean(errors)),
    }


def _clearly_best(scores: Sequence[np.ndarray]) -> int:
    """Return the branch to take: the first, unless one beats it by more than a standard error.

    Branches are compared episode by episode: starts and dice of the evaluation are the same.
    """
    gains = [own - scores[0] for own in scores]
    means = np.array([gain.mean() for gain in gains])
    errors = np.array([gain.std(ddof=1) / np.sqrt(len(gain)) for gain in gains])
    clear = means > errors
    clear[0] = False
    return int(np.argmax(np.where(clear, means, -np.inf))) if clear.any() else 0


def run_oracle_gap(
    out: Path,
    *,
    budget: str = "default",
    seed: int = 0,
    workers: int = 2,
    profile: str = "",
) -> dict[str, Any]:
    """Run the study, or go on with one that was interrupted; return its result.

    Args:
        out: the study's folder; gets oracle-gap.json and oracle-gap.png.
        budget: tiny or default.
        seed: first inner seed of each split's.
        workers: processes; on the virtual clock they do not disturb each other.
        profile: a latency profile to play all games on, in place of the splits'.

    Raises:
        UserError: the budget or the profile does not exist, or a number is not allowed.
    """
    if budget not in BUDGETS:
        raise UserError(f"--budget {budget!r} does not exist; {did_you_mean(budget, [*BUDGETS])}")
    if workers < 1:
        raise UserError(f"--workers must be at least 1, got {workers}")
    spent = BUDGETS[budget]
    if not 0 <= seed <= 10 - max(spent.seeds.values()):
        raise UserError(f"--seed {seed}: the splits have 10 inner seeds; take 0 to 7")
    pairs = spent.pairs
    if profile:
        pairs = tuple((game, profile) for game in dict.fromkeys(game for game, _ in pairs))
    make_out_dir(out)
    rows = []
    with InnerRuns(out / "inner_runs.jsonl", workers, do_job) as runs:
        for game, name in pairs:
            rows.append(_gap(runs, spent, game, name, seed))
            write_json(out / "oracle-gap.json", _result(rows, budget, seed, profile))
            console.print(_sentence(rows[-1]), highlight=False)
    figure = oracle_gap(rows)
    for path in write_pngs({figure.name: figure}, out):
        console.print(f"wrote {path} and {out / 'oracle-gap.json'}")
    return _result(rows, budget, seed, profile)


def _gap(
    runs: InnerRuns, budget: GapBudget, game: str, profile: str, first_seed: int
) -> dict[str, Any]:
    """Return one row: all schedules of a game on a machine."""
    split = next(name for name, each in SPLITS.items() if game in each.games)
    seeds = [SPLITS[split].seeds[first_seed + index] for index in range(budget.seeds[game])]
    latency = load_profile(profile)
    base_job = {
        "game": game,
        "profile": profile,
        "profile_hash": latency.hash,
        "env_steps": budget.env_steps[game],
    }

    def jobs(kind: str, **fields: Any) -> list[dict[str, Any]]:
        return [{**base_job, "kind": kind, "seed": seed, **fields} for seed in seeds]

    name = f"{game}, {profile}"
    with bar(f"{name}: statics", len(SPECS) * len(seeds)) as advance:
        asked = [job for spec in SPECS for job in jobs("static", spec=spec.to_json())]
        found = [result["value"] for result in runs.map(asked, lambda: advance(1, ""))]
    statics = np.array(found).reshape(len(SPECS), len(seeds))
    order = np.argsort(-statics.mean(axis=1))
    best, finalists = SPECS[order[0]], [SPECS[place] for place in order[:FINALISTS]]
    asked = [
        job
        for first in finalists
        for job in jobs(
            "two-phase",
            first=first.to_json(),
            seconds=[second.to_json() for second in finalists if second != first],
        )
    ]
    branches = [spec.to_json() for spec in SPECS]
    asked += [
        job
        for placebo in (False, True)
        for job in jobs("oracle", base=best.to_json(), specs=branches, placebo=placebo)
    ]
    with bar(f"{name}: schedules", len(asked)) as advance:
        results = runs.map(asked, lambda: advance(1, ""))
    count = len(seeds)
    phases = _best_two_phase(finalists, results[: FINALISTS * count], count)
    oracle, placebo = results[-2 * count : -count], results[-count:]
    static = statics[order[0]]
    fp32 = statics[SPECS.index(CompressionSpec())]
    config = load_preset(game)
    horizon, _ = choose_horizon(config, latency, budget.env_steps[game], INTERVALS)
    return {
        "game": game,
        "profile": profile,
        "profile_hash": latency.hash,
        "split": split,
        "seeds": seeds,
        "horizon_seconds": horizon,
        "statics": {
            spec.label: [float(value) for value in statics[place]]
            for place, spec in enumerate(SPECS)
        },
        "best_static": best.label,
        "fp32": _ratio(fp32, static),
        "two_phase": {**phases["what"], **_ratio(phases["values"], static)},
        "oracle": {
            **_ratio(np.array([run["value"] for run in oracle]), static),
            "chosen": [run["chosen"] for run in oracle],
        },
        "placebo": _ratio(np.array([run["value"] for run in placebo]), static),
        "return_standard_error": float(np.mean([run["standard_error"] for run in oracle])),
    }


def _best_two_phase(
    finalists: Sequence[CompressionSpec], results: Sequence[Mapping[str, Any]], seeds: int
) -> dict[str, Any]:
    """Return the schedule with the highest mean over seeds, and its values [seeds]."""
    candidates: dict[tuple[str, int, str], list[float]] = {}
    for index, result in enumerate(results):
        first = finalists[index // seeds]
        for row in result["rows"]:
            second = CompressionSpec.from_json(row["second"])
            key = (first.label, int(row["at"]), second.label)
            candidates.setdefault(key, []).append(row["value"])
    best = max(candidates, key=lambda key: np.mean(candidates[key]))
    what = {"first": best[0], "at_interval": best[1], "second": best[2]}
    return {"what": what, "values": np.array(candidates[best])}


def _ratio(values: np.ndarray, static: np.ndarray) -> dict[str, Any]:
    """Return values over the best static's: ratio of means over seeds, and its 95% interval."""
    found = paired_ratio_of_means(values, static, [""] * len(values), np.random.default_rng(0))
    told: dict[str, Any] = {"values": [float(value) for value in values]}
    if found is None:
        return {**told, "ratio": None, "low": None, "high": None}
    return {**told, "ratio": found.estimate, "low": found.low, "high": found.high}


def _sentence(row: Mapping[str, Any]) -> str:
    def told(name: str) -> str:
        ratio = row[name]["ratio"]
        return "?" if ratio is None else f"{ratio - 1.0:+.1%}"

    return (
        f"  {row['game']} on {row['profile']}: best static {row['best_static']}; over it fp32 "
        f"{told('fp32')}, two phases {told('two_phase')}, oracle {told('oracle')}, placebo "
        f"{told('placebo')}"
    )


def _result(
    rows: Sequence[Mapping[str, Any]], budget: str, seed: int, profile: str
) -> dict[str, Any]:
    options = f"--budget {budget} --seed {seed}" + (f" --profile {profile}" if profile else "")
    return {
        "study": "oracle-gap",
        "budget": budget,
        "seed": seed,
        "rows": list(rows),
        "fingerprint": fingerprint(),
        "versions": versions(),
        "command": f"accerl study run oracle-gap {options} --out DIR",
    }
