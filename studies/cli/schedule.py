"""`accerl schedule`: export, show, verify and replay schedule bundles."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro
from rich.markup import escape

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import check_new_dir
from accerl.spec import Decision
from accerl.training.run_folder import check_free
from analysis.render.fitting import FittingTable
from controller.bundle.bundle import is_bundle, show_bundle, verify_bundle
from controller.bundle.card import TIER_NOTES, seeds_text
from controller.bundle.schedule import QUANTILES
from studies.cli.command import Command, as_file_name, save_result
from studies.cli.options import GameOption
from studies.cli.recorded import free_folder, run_recorded
from studies.progress import console, paragraph, say
from studies.strategies import bundle_strategy

SHOWN = (0, 2, 4)
"""places in QUANTILES of what a table shows; `--json` has them all"""


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Copy the bundle that a study learned.

    The copy has a folder of its own, and is verified.
    """

    study: tyro.conf.Positional[Path]
    """study folder"""
    out: Path
    """the new bundle's folder"""

    def execute(self) -> dict[str, Any]:
        """Copy the bundle, verified before and after."""
        inside = self.study / "bundle"
        source = inside if inside.is_dir() else self.study
        if not self.study.is_dir():
            raise UserError(f"{self.study} does not exist; give a study's folder, or a bundle")
        if not is_bundle(source):
            raise UserError(f"{self.study} holds no schedule bundle; finish its study first")
        verify_bundle(source)
        if source.resolve() in (self.out.resolve(), *self.out.resolve().parents):
            raise UserError(f"--out {self.out} lies in the bundle itself; give a folder beside it")
        check_new_dir(self.out)
        try:
            shutil.copytree(source, self.out, dirs_exist_ok=True)
        except OSError as error:
            shutil.rmtree(self.out, ignore_errors=True)
            reason = error.strerror or "not all of its files could be copied"
            raise UserError(
                f"cannot write {self.out}: {reason}; free some space, or give another --out"
            ) from error
        verify_bundle(self.out)
        say(f"exported {self.out}")
        return show_bundle(self.out)


@dataclass(frozen=True, kw_only=True)
class Show(Command):
    """Describe a schedule bundle."""

    bundle: tyro.conf.Positional[Path]
    """bundle folder"""
    out: Path | None = None
    """folder for schedule.json"""

    def execute(self) -> dict[str, Any]:
        """Print where it comes from, what it chooses from, and what it does when."""
        found = show_bundle(self.bundle)
        _print_bundle(found)
        return save_result(found, self.out, "schedule.json")


@dataclass(frozen=True, kw_only=True)
class Verify(Command):
    """Check that a schedule bundle is intact.

    Its files match its schema and their hashes, and both forms of its policy agree.
    """

    bundle: tyro.conf.Positional[Path]
    """bundle folder"""
    out: Path | None = None
    """folder for verified.json"""

    def execute(self) -> dict[str, Any]:
        """Check the bundle and print what was checked."""
        checked = verify_bundle(self.bundle)
        say(
            f"{self.bundle} is intact: {len(checked['files'])} files match their hashes; torch and "
            f"ONNX logits agree to {checked['max_logit_difference']:.1e}; "
            f"{len(checked['schedules'])} schedules stay within its {checked['actions']} actions"
        )
        return save_result(checked, self.out, "verified.json")


@dataclass(frozen=True, kw_only=True)
class Replay(Command):
    """Train under a bundle's open-loop schedule.

    The learner is Original, the largest, else the game's preset. `accerl train GAME --strategy
    BUNDLE --bundle-mode schedule` takes any network, clock and setting.
    """

    bundle: tyro.conf.Positional[str]
    """bundle folder"""
    preset: GameOption = "pong"
    """what to train"""
    seconds: float = 60.0
    """length of the run"""
    seed: int = 0
    """seed of all random numbers"""
    strict: bool = False
    """refuse a bundle whose schedule holds specs that this run cannot act with; without it the
    nearest milder ones act instead"""
    out: Path | None = None
    """run directory"""

    def execute(self) -> dict[str, Any]:
        """Train, and print what was chosen when."""
        # A schedule may choose any size, so the learner has the largest.
        config = replace(
            load_preset(self.preset), network="original", seed=self.seed, seconds=self.seconds
        )
        strategy = bundle_strategy(self.bundle, config, mode="schedule", strict=self.strict)
        default = Path("runs") / f"{as_file_name(self.preset)}-replay-seed{self.seed}"
        out = self.out or free_folder(default, resume=False)
        check_free(out)
        again = "a replay cannot go on; start it again in another folder than {out}"
        summary = run_recorded(config, strategy, f"schedule {self.bundle}", out, again=again)
        say("What was chosen when:")
        for entry in summary["decisions"]:
            share = entry["seconds"] / summary["seconds"]
            label = Decision.from_json(entry["decision"]).label
            say(f"  from {entry['seconds']:.1f} s ({share:.0%} of the run): {label}")
        return summary


def _print_bundle(shown: Mapping[str, Any]) -> None:
    """Print what `show_bundle` found."""
    tier = f"{shown['tier']} ({TIER_NOTES[shown['tier']]})"
    paragraph(f"{shown['path']}: a controller trained on tier {tier}, and what it usually does")
    _print_origin(shown)
    paragraph(shown["introduction"])
    for line in shown["in_words"]:
        paragraph(line, indent=2)
    for title, rows in shown["tables"].items():
        _print_table(title, rows)
    _print_schedules(shown["schedule_rows"])
    paragraph("Results, as ratios of the controller's value to the other strategy's:")
    for line in shown["results_in_words"] or ["none in this bundle"]:
        paragraph(line, indent=2)


def _print_origin(shown: Mapping[str, Any]) -> None:
    """Print where a controller comes from."""
    for item in shown["instances"]:
        machine = f" on {item['profile']}" if item["profile"] else ""
        seeds = seeds_text(item["seeds"], item["validated"], shown["tier"])
        lasting = f"{item['horizon_seconds']:g} s in steps of {item['interval_seconds']:g} s"
        paragraph(f"trained on {item['game']}{machine}, seeds {seeds}, {lasting}", indent=2)
    profiles = [f"{item['name']} ({item['hash']})" for item in shown["profiles"]]
    ended = f", which ended with {shown['ended_with']}" if shown["ended_with"] else ""
    paragraph(
        f"{shown['inner_runs']} inner runs of training{ended}; latency profiles: "
        f"{', '.join(profiles) or 'none'}; contest plan: {shown['contest'] or 'none'}",
        indent=2,
    )
    paragraph(
        f"decides every {shown['interval_seconds']:g} s of {shown['horizon_seconds']:g} s; "
        f"shield: {shown['shield']}; code {shown['git_revision'] or 'of unknown revision'}",
        indent=2,
    )


def _print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys."""
    table = FittingTable(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(escape, map(str, row.values())))
    console.print(table)


def _print_schedules(schedules: Mapping[str, Any]) -> None:
    """Print what was usually done when, with quantiles of every knob; equal schedules once."""
    shares = " | ".join(f"{QUANTILES[place]:.0%}" for place in SHOWN)
    paragraph(
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
        table = FittingTable(title=escape(", ".join(names)), title_justify="left")
        for column in ("of the run", "acts with", "chosen by", *rows[0]["levels"]):
            table.add_column(column)
        for row in rows:
            levels = [_levels(values) for values in row["levels"].values()]
            span = f"{row['from']:.0%} to {row['to']:.0%}"
            table.add_row(span, row["label"], f"{row['agreement']:.0%}", *levels)
        console.print(table)


def _levels(values: Sequence[Any]) -> str:
    """Return the levels at the quantiles that are shown; one alone where they are the same."""
    shown = [values[place] for place in SHOWN]
    texts = [f"{value:.0%}" if isinstance(value, float) else str(value) for value in shown]
    return texts[0] if len(set(texts)) == 1 else " | ".join(texts)
