"""How benchmarks are printed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from accerl.runtime.run import PHASES
from accerl.spec import CompressionSpec
from studies.benchmarks.clocks.clock_cases import LEARNED
from studies.progress import numbers_table

EXPLANATIONS = {
    "infer": "Acting, one core. Ratios are speed-ups over the network that is compressed, at the "
    "same batch; KL (nats) and agreement of greedy actions are with it, on states that nothing was "
    "fitted to.",
    "publish": "From weights to an engine that acts. naive: torch.onnx.export, ONNX Runtime's "
    "static quantisation and a session.",
    "learner": "One update of the learner on the paper's batch of 160.",
}
FITTED = "fitted to follow the ball"
"""a policy without a run"""


def print_rows(result: Mapping[str, Any], console: Console) -> None:
    """Print a benchmark whose result is rows of equal columns."""
    table = numbers_table(f"bench {result['bench']}", *result["rows"][0])
    for row in result["rows"]:
        table.add_row(*(_cell(value) for value in row.values()))
    console.print(table)
    console.print(EXPLANATIONS[result["bench"]])
    if result.get("policy") == FITTED:
        console.print(
            "Without --run nothing has learned a game: pruning and low rank cost such a policy "
            "more KL, and it is harder to distil."
        )
    if sizes := result.get("memory_mb"):
        shown = ", ".join(f"{size:,.0f}" for size in sizes)
        console.print(f"resident memory after each tenth of the publications: {shown} MB")
    console.print(f"spread: {result['spread_is']}; machine: {result['fingerprint']['cpu']}")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return CompressionSpec.from_json(value).label
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def print_inner(result: Mapping[str, Any], console: Console) -> None:
    """Print the inner runs' core-seconds by phase."""
    phases = list(result["rows"][0]["phases"])
    title = f"bench inner: {result['game']} on {result['profile']}, core-seconds per "
    table = numbers_table(
        f"{title}{result['per']:,} env steps", "spec", "precision", "all", "spread", *phases
    )
    for row in result["rows"]:
        seconds = (row["core_seconds"], row["spread"], *row["phases"].values())
        label = CompressionSpec.from_json(row["spec"]).label
        table.add_row(label, row["precision"], *(f"{value:.1f}" for value in seconds))
    console.print(table)
    console.print(f"spread: {result['spread_is']}; machine: {result['fingerprint']['cpu']}")


def print_pipeline(result: Mapping[str, Any], console: Console) -> None:
    """Print the pipeline benchmark: speeds and phases of each configuration, then the ratios."""
    phases = [
        name
        for name in PHASES
        if any(config["phases"][name] >= 5e-4 for config in result["configs"].values())
    ]
    table = numbers_table(
        f"bench pipeline: {result['game']}, network {result['network']}",
        "configuration",
        *("steps/s", "spread", "CPU-s / 1,000", "samples/s", "fill", "lag", "RSS MB"),
        *(f"{name} ms" for name in phases),
    )
    for name, config in result["configs"].items():
        memory = " ".join(f"{held:,.0f}" for held in config["rss_mb"].values())
        table.add_row(
            name,
            f"{config['env_steps_per_second']:,.0f}",
            f"{config['spread']:,.0f}",
            f"{config['cpu_seconds_per_1000_steps']:.3f}",
            f"{config['learner_samples_per_second']:,.0f}",
            f"{config['queue_fill']:.2f}",
            f"{config['policy_lag']:.1f}",
            memory,
            *(f"{config['phases'][phase]:.3f}" for phase in phases),
        )
    console.print(table)
    ratios = numbers_table(
        "Ratios of env steps per second", "fast / slow", "median", "spread", "bound"
    )
    for name, ratio in result["ratios"].items():
        spread, bound = result["ratio_spread"][name], result["bounds"][name]
        ratios.add_row(name, f"{ratio:.2f}", f"{spread:.2f}", f"{bound:.2f}")
    if result["ratios"]:
        console.print(ratios)
    console.print(
        f"Phases are milliseconds per env step, summed over actors. Medians of "
        f"{result['repeats']} interleaved runs of {result['seconds']:g} s (seeds "
        f"{', '.join(map(str, result['seeds']))}); spread: interquartile range. bound: what the "
        "ratio would be if the faster side's inference cost nothing and all cores were always "
        "busy: seconds per step >= max((env + write) / actors, learn, (env + write + learn) / "
        f"cores). RSS: learner, then the others. Machine: {result['fingerprint']['cpu']}, "
        f"{result['cores']} cores."
    )


def print_students(result: Mapping[str, Any], console: Console) -> None:
    """Print pruned copies, KL against updates, and each compression's KL and size."""
    fitted = values_in(result["pruned"], "fitted_states")
    table = numbers_table(
        f"bench students: copies of {result['policy']} before any distillation, KL in nats",
        *("pruned", "criterion", "budget", "not fitted"),
        *(f"{count:,} states" for count in fitted if count),
    )
    for key in values_in(result["pruned"], "sparsity", "criterion", "budget"):
        sparsity, *names = key
        table.add_row(f"{sparsity:.0%}", *names, *_kls(result["pruned"], fitted, key))
    console.print(table)
    updates = values_in(result["curves"], "updates")
    table = numbers_table(
        "KL after so many distillation updates, in nats",
        *("network", "start", "batch"),
        *(f"{count:,}" for count in updates),
    )
    for key in values_in(result["curves"], "network", "start", "batch"):
        shown = [row for row in result["curves"] if _has(row, key)]
        table.add_row(*map(str, key), *(f"{row['kl_mean']:.3g}" for row in shown))
    console.print(table)
    table = numbers_table("Compressions", "spec", "KL", "bytes of weights", "MACs", "smallest")
    for row in result["specs"]:
        size, macs = f"{row['weight_bytes']:,}", f"{row['macs']:,}"
        mark = "yes" if row["smallest"] else ""
        table.add_row(row["network"], f"{row['kl_mean']:.3g}", size, macs, mark)
    console.print(table)
    console.print(
        f"KL from a policy that stands still, on {result['compared']:,} states of later steps "
        f"than the {result['states']:,} that networks learn from. fitted: least squares on so many "
        "states (compression.prune_compensate). start: random weights, or the policy's most "
        "important units, fitted (compression.distill_start); the pruned network's random start is "
        "its units as they are. smallest: nothing that is as close has fewer bytes."
    )


def values_in(rows: Sequence[Mapping[str, Any]], *fields: str) -> list[Any]:
    """Return the values of one field, or tuples of several, each once, in the rows' order."""
    found = [tuple(row[field] for field in fields) for row in rows]
    unique = list(dict.fromkeys(found))
    return unique if len(fields) > 1 else [value for (value,) in unique]


def _has(row: Mapping[str, Any], values: tuple[Any, ...]) -> bool:
    return tuple(row.values())[: len(values)] == values


def _kls(
    rows: Sequence[Mapping[str, Any]], fitted: Sequence[int], key: tuple[Any, ...]
) -> list[str]:
    found = {row["fitted_states"]: row["kl_mean"] for row in rows if _has(row, key)}
    return [f"{found[count]:.3g}" for count in fitted]


def print_clock(result: Mapping[str, Any], console: Console) -> None:
    """Print one line a case, then how well the clocks agree, and where they do not."""
    for game in result["games"]:
        learned = game in LEARNED
        table = numbers_table(
            f"bench clock: {game}, {len(result['seeds'])} seeds of "
            f"{result['seconds'][game]:g} s on each clock",
            *("actors", "real steps/s", "virtual", "error", "real lag", "virtual", "apart"),
            *(("real mean J", "virtual") if learned else ()),
        )
        for row in result["rows"]:
            if row["game"] != game:
                continue
            lag = row["lag"]
            cells = [
                f"{row['real']:,.0f}",
                f"{row['virtual']:,.0f}",
                f"{row['error']:+.1%}",
                f"{lag['real_mean']:.1f}",
                f"{lag['virtual_mean']:.1f}",
                f"{lag['distance_updates']:.2f}",
            ]
            if learned:
                cells += [
                    f"{np.median(row[name]):.2f}"
                    for name in ("return_real_all", "return_virtual_all")
                ]
            table.add_row(row["label"], *cells)
        console.print(table)
    console.print(
        f"Env steps/s: error {result['time_error_median']:.1%} in the median, "
        f"{result['time_error_max']:.1%} at worst. Medians over seeds; the first intervals are "
        "left out. lag: learner updates; apart: area between the two distributions of lag."
    )
    if result["spearman"] is not None:
        console.print(
            f"Rank correlation of the return per second (the mean of J over a run) between the "
            f"clocks: {result['spearman']:.2f} (95% {result['spearman_low']:.2f} to "
            f"{result['spearman_high']:.2f}, bootstrap over cases and seeds)."
        )
    for game, found in result["by_game"].items():
        console.print(
            f"{game}: error {found['time_error_median']:.1%} median, {found['time_error_max']:.1%} "
            f"worst; rank correlation of env steps/s {_rho(found['spearman_speed'])}."
        )
    for game, ratios in result["drift"].items():
        console.print(
            f"{game}: over the real runs the machine's latencies drifted by "
            + ", ".join(f"{name} {ratio - 1.0:+.0%}" for name, ratio in ratios.items())
        )
    unlearned = [game for game in result["games"] if game not in LEARNED]
    if unlearned:
        console.print(
            f"{', '.join(unlearned)}: speed and lag only; nothing is learned in that time."
        )
    for line in result["disagreements"] or ["Nothing disagrees by more than 8% or one update."]:
        console.print(line, markup=False)


def _rho(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def print_events(result: Mapping[str, Any], console: Console) -> None:
    """Print env steps/s around each event on both clocks, and whether they agree."""
    table = numbers_table(
        f"bench events: {result['game']}, {result['network']}, {result['actors']} actors, "
        f"{len(result['seeds'])} seeds of {result['seconds']:g} s on each clock",
        *("event", "when", "real steps/s", "virtual", "real/virtual"),
    )
    for row in result["rows"]:
        found = (row["real"], row["virtual"])
        cells = ["none" if value is None else f"{value:,.0f}" for value in found]
        ratio = row["ratio"]
        cells.append("" if ratio is None else f"{ratio:.2f}")
        table.add_row(row["event"], row["window"], *cells)
    console.print(table)
    if result["error_median"] is None:
        console.print("Error not measured: no window has env steps on both clocks.")
        return
    during = result["error_median_during"]
    shown = "not measured" if during is None else f"{during:.1%}"
    console.print(
        f"Error {result['error_median']:.1%} in the median (10% are allowed), "
        f"{shown} during events, "
        f"{result['error_max']:.1%} at worst (20%): "
        f"{'within' if result['within'] else 'not within'} the bars."
    )


def print_advised(result: Mapping[str, Any], console: Console) -> None:
    """Print predicted and real env steps/s of each spec, and whether the advice was good."""
    table = numbers_table(
        f"bench advice: {result['game']}, {result['network']}, {result['actors']} actors on "
        f"{result['cores']} cores, learner on {result['device']} in {result['precision']}",
        *("spec", "limit", "predicted steps/s", "real", "error", "predicted speed-up", "real"),
        *("predicted lag", "real", "acted"),
    )
    for row in result["rows"]:
        cells = [f"{row['predicted']:,.0f}", f"{row['real']:,.0f}", f"{row['error']:+.0%}"]
        cells += [f"{row['predicted_speedup']:.2f}", f"{row['real_speedup']:.2f}"]
        cells += [f"{row['predicted_lag']:.1f}", f"{row['real_lag']:.1f}", f"{row['acted']:.0%}"]
        table.add_row(row["label"], row["limit"], *cells)
    console.print(table)
    console.print(
        f"Env steps/s are off by {result['error_median']:.1%} in the median, "
        f"{result['error_max']:.1%} at worst; speed-ups over fp32 by "
        f"{result['speedup_error_median']:.1%} and {result['speedup_error_max']:.1%}. Advised is "
        f"{result['advised']}: {_share_of_pace(result)} of the pace of the fastest, "
        f"{result['fastest']}.",
        markup=False,
    )
    if left_out := result.get("left_out"):
        console.print(
            f"Left out of this, for something else acted for them (they waited to be admitted, "
            f"say): {', '.join(left_out)}.",
            markup=False,
        )


def _share_of_pace(result: Mapping[str, Any]) -> str:
    share = result["advised_over_fastest"]
    return "an unknown share" if share is None else f"{share:.0%}"
