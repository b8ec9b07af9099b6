"""Schedule bundles on the command line: as strategies of runs, and told to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from accerl.config import RunConfig
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import STUDENTS, Decision
from controller.bundle.card import TIER_NOTES
from controller.bundle.schedule import QUANTILES
from controller.bundle.serving import ServedStrategy, serve
from studies.progress import console

SHOWN = (0, 2, 4)
"""places in QUANTILES of what a table shows; `--json` has them all"""


def bundle_strategy(path: str, config: RunConfig, *, mode: str, strict: bool) -> ServedStrategy:
    """Return a bundle as the strategy of a run, and print what is not as the bundle has it.

    Args:
        path: the bundle's folder.
        config: of the run.
        mode: policy or schedule.
        strict: refuse a bundle that may choose what the run cannot act with.

    Raises:
        UserError: see `controller.bundle.serving.serve`.
    """
    virtual = config.runtime.clock == "virtual"
    profile = load_profile(config.runtime.profile) if virtual else None
    here = (
        [config.preset] if profile is None else [f"{config.preset}-{profile.name}", config.preset]
    )
    served = serve(
        path,
        network=config.network,
        profile=profile,
        mode=mode,
        names=tuple(here),
        strict=strict,
    )
    if served.schedule is not None and served.schedule != here[0]:
        say(f"{path} has no schedule for {here[0]}; replaying that of {served.schedule!r}")
    replaced = served.strategy.replacements
    if replaced:
        say(
            f"warning: this run cannot act with {len(replaced)} of the specs of {path}; the "
            "nearest milder ones act instead: " + "; ".join(map(str, replaced))
        )
    return served.strategy


def say(text: str) -> None:
    """Print one line as it is: names of folders are no markup."""
    console.print(text, markup=False, soft_wrap=True)


def print_bundle(shown: Mapping[str, Any]) -> None:
    """Print what `show_bundle` found."""
    tier = f"{shown['tier']} ({TIER_NOTES[shown['tier']]})"
    say(f"{shown['path']}: a compression schedule learned on tier {tier}")
    _print_origin(shown)
    _print_actions(shown["action_table"])
    _print_schedules(shown["schedule_rows"])
    say("Results, as ratios of the controller's value to the other strategy's:")
    for line in shown["results_in_words"] or ["none in this bundle"]:
        say(f"  {line}")


def _print_origin(shown: Mapping[str, Any]) -> None:
    """Print where a controller comes from."""
    for item in shown["instances"]:
        machine = f" on {item['profile']}" if item["profile"] else ""
        seeds = ", ".join(map(str, item["seeds"])) or "not recorded"
        lasting = f"{item['horizon_seconds']:g} s in steps of {item['interval_seconds']:g} s"
        say(f"  trained on {item['game']}{machine}, seeds {seeds}, {lasting}")
    profiles = [f"{item['name']} ({item['hash']})" for item in shown["profiles"]]
    say(
        f"  {shown['inner_runs']} inner runs; latency profiles: {', '.join(profiles) or 'none'}; "
        f"contest plan: {shown['contest'] or 'none'}"
    )
    say(
        f"  decides every {shown['interval_seconds']:g} s of {shown['horizon_seconds']:g} s; "
        f"shield: {shown['shield']}; reads "
        f"{len(shown['features'])} features (version {shown['features_version']}); code "
        f"{shown['git_revision'] or 'of unknown revision'}"
    )


def _print_actions(actions: Sequence[Mapping[str, Any]]) -> None:
    """Print every combination: a row per student, a column per bit-width, sparsities inside."""
    specs = [action["spec"] for action in actions]
    bits = list(dict.fromkeys(spec["bits"] for spec in specs))
    table = Table(title=f"Actions: {len(specs)} combinations", title_justify="left")
    table.add_column("student")
    for width in bits:
        table.add_column(f"{width} bits: sparsity", no_wrap=True)
    for student in sorted({spec["student"] for spec in specs}, key=STUDENTS.index):
        cells = [
            ", ".join(
                f"{spec['sparsity']:.0%}"
                for spec in specs
                if spec["student"] == student and spec["bits"] == width
            )
            for width in bits
        ]
        table.add_row(student, *cells)
    console.print(table)


def _print_schedules(schedules: Mapping[str, Any]) -> None:
    """Print what was usually done when, with quantiles of every knob; equal schedules once."""
    shares = " | ".join(f"{QUANTILES[place]:.0%}" for place in SHOWN)
    say(
        "Schedules: the combination nearest to the median of the runs; "
        f"every knob at {shares} of them"
    )
    same: list[tuple[list[str], Any]] = []
    for name, rows in schedules.items():
        names = next((names for names, known in same if known == rows), None)
        if names is None:
            same.append(([name], rows))
        else:
            names.append(name)
    for names, rows in same:
        table = Table(title=escape(", ".join(names)), title_justify="left")
        for column in ("of the run", "acts with", "chosen by", *rows[0]["levels"]):
            table.add_column(column, no_wrap=True)
        for row in rows:
            levels = [_levels(values) for values in row["levels"].values()]
            span = f"{row['from']:.0%} to {row['to']:.0%}"
            table.add_row(span, row["label"], f"{row['agreement']:.0%}", *levels)
        console.print(table)


def _levels(values: Sequence[Any]) -> str:
    """Return the levels at the quantiles that are shown; one alone where they are the same."""
    shown = [values[place] for place in SHOWN]
    told = [f"{value:.0%}" if isinstance(value, float) else str(value) for value in shown]
    return told[0] if len(set(told)) == 1 else " | ".join(told)


def print_chosen(summary: Mapping[str, Any]) -> None:
    """Print what a run acted with, and from when on."""
    say("What was chosen when:")
    for entry in summary["decisions"]:
        share = entry["seconds"] / summary["seconds"]
        label = Decision.from_json(entry["decision"]).label
        say(f"  from {entry['seconds']:.1f} s ({share:.0%} of the run): {label}")
