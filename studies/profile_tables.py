"""Tables of latency profiles, of how two differ, and of what one lets expect of compression."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from accerl.config import RunConfig
from accerl.runtime.latency.compare import Difference, describe_wiring
from accerl.runtime.latency.fleet import FLEET_LIMITS, FleetRow
from accerl.runtime.latency.predict import (
    STALE_UPDATES,
    WORTHWHILE,
    Advice,
    Prediction,
    advise,
)
from accerl.runtime.latency.profile import PIXELS, LatencyProfile
from accerl.runtime.latency.row import SpecLatency
from accerl.spec import CompressionSpec
from analysis.formats import rounded
from studies.progress import numbers_table

MARKED = 5
"""differences that `print_differences` points out, and those that are as large"""
_SEVERAL = 6  # spreads that are worth a line each


def print_profiles(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Print one row per profile, as `profile_row` makes them, or of a file that is damaged."""
    table = numbers_table(
        "Latency profiles", "name", "actors", "distillers", "cores", "env us", "learner us"
    )
    table.add_column("machine")
    for row in rows:
        if "damaged" in row:
            table.add_row(row["name"], *[""] * 5, row["damaged"])
            continue
        together = f" / {row['actors_per_batch']}" if row["actors_per_batch"] > 1 else ""
        table.add_row(
            row["name"],
            f"{row['num_actors']}{together}",
            str(row["num_distillers"]),
            str(row["cores"]),
            rounded(row["env_step_us"]),
            rounded(row["learner_us_per_sample"]),
            row["machine"] or "-",
        )
    console.print(table)
    sources = {row["name"]: row["source"] for row in rows if "source" in row}
    columns = {
        "actors": "how many / how many of them fill a batch side by side",
        "cores": "of the learner's machine, which all processes on it share",
        "learner": "one pass of Original over one sample",
    }
    _print_facts(console, {**sources, **columns})


def machine_row(machine: LatencyProfile, config: RunConfig) -> dict[str, Any]:
    """Return a machine's row in a list of them: what it is, and what is fastest on it."""
    advice = advise(machine, config)
    fastest = min(advice.rows, key=lambda row: (row.is_stale, -row.speedup))  # as `fastest_first`
    return {
        "name": machine.name,
        "hash": machine.hash,
        "cores": machine.cores,
        "num_actors": machine.num_actors,
        "learner_us_per_sample": machine.learner_us_per_sample,
        "env_step_us": machine.env_step_us,
        "learner": machine.learner,
        "num_hosts": machine.num_hosts,
        "down_bytes_per_second": machine.down_bytes_per_second,
        "up_bytes_per_second": machine.up_bytes_per_second,
        "fp32_env_steps_per_second": advice.fp32.env_steps_per_second,
        "limit": advice.fp32.limit,
        "fastest": fastest.spec.to_json(),
        "fastest_label": fastest.spec.label,
        "fastest_ratio": fastest.speedup,
        "source": machine.source,
    }


def print_machines(rows: Sequence[dict[str, Any]], config: RunConfig, console: Console) -> None:
    """Print one row per machine, as `machine_row` makes them."""
    table = numbers_table(
        f"Machines, and {config.preset} on them",
        *("name", "cores", "actors", "env us", "learner", "us", "MB/s to, from", "fp32 steps/s"),
        *("limit", "fastest", "over fp32"),
    )
    for row in rows:
        links = row["down_bytes_per_second"], row["up_bytes_per_second"]
        table.add_row(
            row["name"],
            str(row["cores"]),
            str(row["num_actors"]),
            rounded(row["env_step_us"]),
            row["learner"],
            rounded(row["learner_us_per_sample"]),
            ", ".join(rounded(link / 1e6) for link in links) if any(links) else "-",
            rounded(row["fp32_env_steps_per_second"]),
            row["limit"],
            row["fastest_label"],
            f"{row['fastest_ratio']:.2f}",
        )
    console.print(table)
    columns = {
        "learner": "one pass of Original over one sample",
        "cores": "of the learner's machine; actors share them, unless they are on other machines",
        "MB/s": "publications to each machine that acts, rollouts from it",
        "limit": "of fp32, as `accerl profile advise` says it",
        "fastest": "of what acts with fresh weights, where anything does",
        "use one": "accerl train catch --profile NAME; accerl profile advise --profile NAME",
    }
    _print_facts(console, columns)


def print_fleet(
    rows: Sequence[FleetRow], profile: LatencyProfile, config: RunConfig, console: Console
) -> None:
    """Print one row per fleet and spec, and what limits in words."""
    table = numbers_table(
        f"Fleets for {config.preset}, {config.network}, on {profile.name}'s times",
        *("acts", "actors", "env steps/s", "learner", "Ray", "in MB/s", "out MB/s", "store MB"),
        *("age", "lag"),
    )
    table.add_column("limit")
    for row in rows:
        table.add_row(
            row.spec.label,
            f"{row.actors:,}",
            rounded(row.env_steps_per_second),
            f"{row.learner_share:.0%}",
            f"{row.message_share:.0%}",
            rounded(row.bytes_in_per_second / 1e6),
            rounded(row.bytes_out_per_second / 1e6),
            rounded(row.store_bytes / 1e6),
            rounded(row.age_updates),
            f"{row.policy_lag:,.0f}",
            row.limit,
        )
    console.print(table)
    limits = {row.limit: FLEET_LIMITS[row.limit] for row in rows}
    columns = {
        "learner, Ray": "share of the learner's core that is busy, and with Ray's messages",
        "in, out, store": "of the learner's node: rollouts, publications, memory",
        "age, lag": "learner updates that weights take to the actors, and until they are used",
    }
    _print_facts(console, {**limits, **columns})


def profile_row(profile: LatencyProfile) -> dict[str, Any]:
    """Return one profile's row in a list of them."""
    return {
        "name": profile.name,
        "source": profile.source,
        "num_actors": profile.num_actors,
        "actors_per_batch": profile.actors_per_batch,
        "num_distillers": profile.num_distillers,
        "cores": profile.cores,
        "env_step_us": profile.env_step_us,
        "learner_us_per_sample": profile.learner_us_per_sample,
        "games": [_times_of(times) for times in (profile, *profile.games)],
        "machine": profile.fingerprint.get("cpu", ""),
        "hash": profile.hash,
    }


def print_profile(profile: LatencyProfile, console: Console) -> None:
    """Print a latency profile: for each game whose times it holds, one row per spec, and below."""
    for times in (profile, *profile.games):
        _print_times(replace(times, name=profile.name), console)
    _print_facts(
        console,
        {
            "wiring": "; ".join(describe_wiring(profile)),
            "holds times of": "; ".join(_times_of(times) for times in (profile, *profile.games)),
            "hash": profile.hash,
        },
    )


def _times_of(times: LatencyProfile) -> str:
    """Say which game's times these are, and of which networks' learners."""
    networks = ", ".join((times.network, *times.small_learner_us))
    return f"{times.game} ({'x'.join(map(str, times.observation or PIXELS))}; {networks})"


def _print_times(profile: LatencyProfile, console: Console) -> None:
    batches = sorted({batch for row in profile.specs for batch in row.infer_us})
    columns: dict[str, Callable[[SpecLatency], float | None]] = {
        f"infer us\nbatch {batch}": lambda row, batch=batch: row.infer_us.get(batch)
        for batch in batches
    }
    columns |= {
        # The least number there is: what cannot be distilled takes no time.
        "distil us": lambda row: row.distill_us if row.distill_us > 1e-300 else None,
        "publish\nms": lambda row: row.publish_ms,
        "load\nms": lambda row: row.load_ms,
        "sent\nkB": lambda row: row.size_bytes / 1e3,
    }
    shown = {name: of for name, of in columns.items() if any(of(row) for row in profile.specs)}
    table = numbers_table(f"Latency profile {profile.name!r}: {profile.game}", "spec", *shown)
    ordered = sorted(profile.specs, key=lambda row: row.spec.mildness)
    for row, after in zip(ordered, [*ordered[1:], ordered[-1]], strict=True):
        cells = [_number(of(row)) for of in shown.values()]
        is_last = after.spec.student != row.spec.student
        table.add_row(row.spec.label, *cells, end_section=is_last)
    console.print(table)
    smaller = [f"{network} {rounded(us)}" for network, us in profile.small_learner_us.items()]
    learners = ", ".join([f"{profile.network} {rounded(profile.learner_us_per_sample)}", *smaller])
    _print_facts(
        console,
        {
            "us per env step": f"env {rounded(profile.env_step_us)}, "
            f"write {rounded(profile.write_us)}",
            "learner, us per sample": learners,
            "spread (quartiles / median)": _spreads(profile.spread),
            "times are of": f"{profile.game}; inference and distilling per state",
            "source": profile.source,
        },
    )


def print_differences(
    a: LatencyProfile, b: LatencyProfile, rows: Sequence[Difference], console: Console
) -> None:
    """Print ratios B / A per operation and spec, the largest marked, and where wiring differs."""
    both = [row for row in rows if row.size < math.inf]
    largest = sorted((row.size for row in both), reverse=True)[:MARKED]
    threshold = max(math.log(WORTHWHILE), largest[-1])
    console.print(f"[bold]{b.name} / {a.name}[/bold]: above 1, {b.name} takes longer")
    for row in both:
        if row.spec is None:
            unit = "us per sample" if row.operation.startswith("learner") else "us per env step"
            console.print(
                f"  {row.operation:14} {rounded(row.a):>9} -> {rounded(row.b):>9} {unit:15} "
                f"{_ratio(row, threshold)}"
            )
    of_specs = {(row.spec, _column(row)): row for row in both if row.spec is not None}
    names = list(dict.fromkeys(name for _, name in of_specs))
    table = numbers_table("", "spec", *names)
    for spec in dict.fromkeys(spec for spec, _ in of_specs):
        found = [of_specs.get((spec, name)) for name in names]
        cells = ["" if row is None else _ratio(row, threshold) for row in found]
        table.add_row(spec.label, *cells)
    if names:
        console.print(table)
    console.print("  *: the largest differences")
    alone = dict.fromkeys(
        f"{(b if row.b else a).name} alone has times or sizes of: {row.operation}"
        for row in rows
        if row.size == math.inf
    )
    for text in alone:
        console.print(f"  {text}")
    pairs = [
        (one, other)
        for one, other in zip(describe_wiring(a), describe_wiring(b), strict=True)
        if one != other
    ]
    for one, other in pairs:
        console.print(f"  {a.name}: {one}; {b.name}: {other}")
    if not pairs:
        console.print("  Both are wired alike.")


def print_advice(
    advice: Advice, profile: LatencyProfile, config: RunConfig, console: Console
) -> None:
    """Print what a few specs are predicted to bring, then the advice in bold."""
    table = numbers_table(
        f"{config.preset} ({config.network} learns) on {profile.name}",
        "actors' spec",
        *("env steps/s", "over fp32", "limited by", "weights arrive", "policy lag"),
    )
    shown = _shown(advice)
    for row in shown:
        table.add_row(
            row.spec.label,
            rounded(row.env_steps_per_second),
            f"{row.speedup:.2f}",
            row.limit,
            _duration(row.age_seconds),
            f"{row.policy_lag:,.0f}",
            style="bold" if row is advice.start else "",
        )
    console.print(table)
    other = len(advice.rows) - len(shown)
    _print_facts(
        console,
        {
            "bound": f"{advice.bound:.2f} times fp32's env steps/s, if inference cost nothing",
            "original": f"the learner's own network, {config.network}",
            "policy lag": "in learner updates, roughly; limited by network or publication: weights "
            f"arrive more than {STALE_UPDATES:g} updates late",
            "wiring": "; ".join(describe_wiring(profile)),
            "times": f"of {profile.game} and its networks"
            f"{'' if profile.game == config.game else ', whatever the game'}: {profile.source}",
            "not shown": f"{other} specs (--json has all)" if other else "",
        },
    )
    console.print(advice.sentence, style="bold", markup=False)
    if profile.game != config.game:
        console.print(
            f"These are times of {profile.game}, not of {config.game}: what that takes on your "
            f"machine, `accerl profile measure --game {config.game}` finds out.",
            markup=False,
        )


def _shown(advice: Advice) -> list[Prediction]:
    """Return the rows to show: unpruned in ONNX Runtime, the one to start from, the fastest."""
    fastest = max(advice.rows, key=lambda row: row.speedup)
    wanted = {advice.start.spec} | ({fastest.spec} if fastest.speedup >= WORTHWHILE else set())
    return [
        row
        for row in advice.rows
        if row.spec in wanted | {CompressionSpec(student=row.spec.student, bits=row.spec.bits)}
    ]


def _number(value: float | None) -> str:
    return "" if value is None else rounded(value)


def _duration(seconds: float) -> str:
    return f"{rounded(seconds)} s" if seconds >= 1.0 else f"{rounded(seconds * 1e3)} ms"


def _column(row: Difference) -> str:
    return row.operation if row.batch is None else f"infer\nbatch {row.batch}"


def _ratio(row: Difference, threshold: float) -> str:
    """Write the ratio of two numbers that are there, marked if it reaches the threshold."""
    ratio = f"{row.b / row.a:,.2f}"
    return f"[bold]{ratio}*[/bold]" if row.size >= threshold else ratio


def _spreads(spread: dict[str, float]) -> str:
    """Write spreads by operation; of many, the median and the worst."""
    if len(spread) <= _SEVERAL:
        return ", ".join(f"{name} {value:.0%}" for name, value in spread.items())
    ordered = sorted(spread, key=lambda name: spread[name])
    middle, worst = ordered[len(ordered) // 2], ordered[-1]
    return f"{spread[middle]:.0%} in the middle, {spread[worst]:.0%} at worst ({worst})"


def _print_facts(console: Console, facts: dict[str, str]) -> None:
    """Print the facts that have a text, with their names in a column."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(max_width=72)
    for name, text in facts.items():
        if text:
            grid.add_row(f"  {name}", text)
    console.print(grid)
