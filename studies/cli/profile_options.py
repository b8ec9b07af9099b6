"""The options of `accerl profile`; see `options`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies.cli import profile_commands
from studies.cli.options import Json, Name


def profile_measure(
    *, name: str = "measured", repeats: int = 5, out: Path | None = None, json_: Json = False
) -> Any:
    """Measure this machine's latency profile and keep it under a name.

    Args:
        name: to load it by: `accerl train catch --profile NAME`
        repeats: interleaved rounds of inference
        out: folder to keep it in (default: ~/.cache/accerl/profiles, or under $ACCERL_HOME)
        json_: print the profile as JSON
    """
    return profile_commands.measure(name, repeats, out, quiet=json_)


def profile_advise(
    *,
    profile: str | None = None,
    env: str = "pong",
    network: str | None = None,
    out: Path | None = None,
    json_: Json = False,
) -> Any:
    """Tell whether compressing pays on a machine, and which spec to start from.

    Args:
        profile: name or JSON file (default: measured, if this machine was, else two-core)
        env: preset, which gives environments, unroll, reuse and how often to publish
        network: of the learner: original, net1, net2 or net3 (default: the preset's)
        out: folder to look in
        json_: print the predictions of all specs as JSON
    """
    return profile_commands.give_advice(profile, env, network, out, quiet=json_)


def profile_list(*, out: Path | None = None, json_: Json = False) -> Any:
    """List the latency profiles that can be used by name.

    Args:
        out: folder to look in
        json_: print names and rows as JSON
    """
    return profile_commands.list_profiles(out, quiet=json_)


def profile_show(
    name: Name = "paper-1080ti", /, *, out: Path | None = None, json_: Json = False
) -> Any:
    """Show a latency profile as a table.

    Args:
        name: name or JSON file
        out: folder to look in
        json_: print the profile as JSON
    """
    return profile_commands.show(name, out, quiet=json_)


def profile_diff(a: Name, b: Name, /, *, out: Path | None = None, json_: Json = False) -> Any:
    """Compare two latency profiles: ratios B / A, and wiring.

    Args:
        a: name or JSON file
        b: name or JSON file
        out: folder to look in
        json_: print all ratios as JSON
    """
    return profile_commands.diff(a, b, out, quiet=json_)
