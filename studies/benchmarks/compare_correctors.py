"""What `accerl bench correctors --learn` measures: what each correction is worth to learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from accerl.correct import COMBINATIONS
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.presets import load_preset
from accerl.records import fingerprint, versions
from accerl.runtime.latency.profiles import load_profile
from accerl.runtime.run import IntervalReport
from accerl.spec import CompressionSpec
from accerl.train import train
from analysis.comparison.stats import paired_mean
from studies.progress import bar

REFERENCE = "vtrace+importance"
"""the paper's equation 4, which all are compared with, seed by seed"""


def compare_correctors(
    preset: str,
    *,
    spec: CompressionSpec,
    seconds: float,
    seeds: int,
    publish_every: int,
    correctors: Sequence[str] = tuple(COMBINATIONS),
) -> dict[str, Any]:
    """Learn a game with every corrector on the virtual clock, from actors that are not on-policy.

    Args:
        preset: the game, whose preset measures J.
        spec: what actors act with.
        seconds: length of each run on its clock.
        seeds: runs of each corrector; runs of one seed begin alike.
        publish_every: learner updates between two publications: the more, the staler the actors.
        correctors: names of `COMBINATIONS`.

    Returns:
        `rows`, one a corrector: means over seeds of J over the whole run and over its last quarter,
        the first one's paired difference to `REFERENCE` with its 95% interval, and the actors' KL,
        effective sample size and clipped share.

    Raises:
        UserError: there is no such preset, it does not measure J, or a number is not allowed.
    """
    if seeds < 2:
        raise UserError(f"--seeds must be at least 2 for an interval, got {seeds}")
    config = replace(load_preset(preset), seconds=seconds).with_runtime(
        runtime="serial", clock="virtual", publish_every=publish_every
    )
    if not config.runtime.eval_episodes:
        raise UserError(f"--learn {preset}: that preset does not measure J; take catch or cartpole")
    profile = load_profile(config.runtime.profile)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in correctors}
    with bar("correctors", seeds * len(found), unit="share") as advance:
        for seed in range(seeds):
            for name, results in found.items():
                run = replace(config, seed=seed).with_learner(corrector=name)
                results.append(_outcome(train(run, FixedStrategy(spec), profile=profile).reports))
                advance(1, name)
    return {
        "preset": preset,
        "spec": spec.to_json(),
        "seconds": seconds,
        "seeds": list(range(seeds)),
        "publish_every": publish_every,
        "profile": {"name": profile.name, "hash": profile.hash},
        "reference": REFERENCE,
        "rows": [
            {"corrector": name, **_row(results, found.get(REFERENCE, results))}
            for name, results in found.items()
        ],
        "fingerprint": fingerprint(),
        "versions": versions(),
    }


def _outcome(reports: list[IntervalReport]) -> dict[str, float]:
    """Return one run's J and how far its actors were from the learner, means over intervals."""
    returns = [r.learner_return for r in reports if r.learner_return is not None]
    learned = [report for report in reports if report.learner_updates]

    def mean(name: str) -> float:
        # Not every interval of a tiny network measures it.
        return float(np.mean([r.losses[name] for r in learned if name in r.losses]))

    return {
        "return_mean": float(np.mean(returns)),
        "return_last_quarter": float(np.mean(returns[-max(1, len(returns) // 4) :])),
        "kl_mean_nats": float(np.mean([report.kl_mean_nats for report in learned])),
        "policy_lag": float(np.mean([report.policy_lag for report in learned])),
        "ess_fraction": mean("ess_fraction"),
        "clipped_share": mean("clipped_share"),
    }


def _row(results: list[dict[str, float]], reference: list[dict[str, float]]) -> dict[str, float]:
    means = {name: float(np.mean([result[name] for result in results])) for name in results[0]}
    pairs = zip(results, reference, strict=True)
    differences = np.array([mine["return_mean"] - theirs["return_mean"] for mine, theirs in pairs])
    games = [""] * len(differences)
    gap = paired_mean(differences, games, np.random.default_rng(0))
    return {**means, "difference": gap.estimate, "low": gap.low, "high": gap.high}


def print_comparison(result: dict[str, Any], console: Console) -> None:
    """Print one line a corrector."""
    label = CompressionSpec.from_json(result["spec"]).label
    table = Table(
        title=f"bench correctors: {result['preset']}, {len(result['seeds'])} seeds, actors "
        f"{label}, published every {result['publish_every']} updates",
        title_justify="left",
    )
    table.add_column("corrector", no_wrap=True)
    for name in ("J, mean", "last quarter", f"J over {REFERENCE} (95%)", "KL", "lag", "ESS"):
        table.add_column(name, justify="right")
    table.add_column("clipped", justify="right")
    for row in result["rows"]:
        table.add_row(
            row["corrector"],
            f"{row['return_mean']:.3g}",
            f"{row['return_last_quarter']:.3g}",
            f"{row['difference']:+.3g} ({row['low']:+.3g} to {row['high']:+.3g})",
            f"{row['kl_mean_nats']:.3f}",
            f"{row['policy_lag']:.1f}",
            f"{row['ess_fraction']:.0%}",
            f"{row['clipped_share']:.0%}",
        )
    console.print(table)
