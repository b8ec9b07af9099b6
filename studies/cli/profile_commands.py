"""What each `accerl profile` command does; `profile_options` names the arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.records import fingerprint, versions
from accerl.runtime.latency.compare import compare, wiring
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profiles import (
    TAKEN,
    load_profile,
    profile_folder,
    profile_names,
    save_profile,
    this_machine,
)
from studies.cli import profile_tables as tables
from studies.progress import console, share_bar


def measure(name: str, repeats: int, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Measure, keep and print a profile."""
    from accerl.runtime.latency.measure import measure_profile

    if repeats < 1:
        raise UserError(f"--repeats must be at least 1, got {repeats}")
    # With --out it is loaded by its path: there names cannot clash.
    taken = out is None and name in TAKEN
    if taken or not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(
            f"--name {name!r}: use letters, digits, - and _; {', '.join(TAKEN)} are taken"
        )
    with share_bar("latency profile") as on_progress:
        profile = measure_profile(name, repeats=repeats, on_progress=on_progress)
    path = (out or profile_folder()) / f"{name}.json"
    save_profile(profile, path)
    if not quiet:
        tables.print_profile(profile, console)
    console.print(f"wrote {path}; use it with --profile {name if out is None else path}")
    return profile.to_json()


def list_profiles(out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Print what there is; a damaged file is told of, and hides no other."""
    names, rows = profile_names(out), []
    for name in names:
        try:
            rows.append(tables.profile_row(load_profile(name, out)))
        except UserError as error:
            rows.append({"name": name, "damaged": str(error)})
    if not quiet:
        tables.print_profiles(rows, console)
    return {"profiles": names, "rows": rows}


def show(name: str, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Print a profile."""
    profile = load_profile(name, out)
    if not quiet:
        tables.print_profile(profile, console)
    return profile.to_json()


def diff(first: str, second: str, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    """Print how two profiles differ."""
    a, b = load_profile(first, out), load_profile(second, out)
    rows = compare(a, b)
    if not quiet:
        tables.print_differences(a, b, rows, console)
    return {
        "a": {"name": a.name, "hash": a.hash, "wiring": wiring(a)},
        "b": {"name": b.name, "hash": b.hash, "wiring": wiring(b)},
        "rows": [row.to_json() for row in rows],
    }


def give_advice(
    name: str | None, preset: str, network: str | None, out: Path | None, *, quiet: bool
) -> dict[str, Any]:
    """Predict every spec and print whether compressing pays."""
    profile = load_profile(name or this_machine(out), out)
    config = load_preset(preset)
    config = replace(config, network=network or config.network)
    advice = advise(profile, config)
    if not quiet:
        tables.print_advice(advice, profile, config, console)
    return {
        "profile": {"name": profile.name, "hash": profile.hash, "game": profile.game},
        "env": preset,
        "network": config.network,
        "pays": advice.pays,
        "start": advice.start.spec.to_json(),
        "limit": advice.fp32.limit,
        "bound": advice.bound,
        "advice": advice.sentence,
        "rows": [row.to_json() for row in advice.rows],
        "versions": versions(),
        "fingerprint": fingerprint(),
    }
