"""What a resumed run must share with what was started, and how it is brought to its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accerl.checkpoint import has_checkpoint, load_checkpoint
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies.base import HandSetStrategy
from accerl.monitor.strategy import Strategy, decide, declares, events_of, tell_rejected
from accerl.precision import choose_precision
from accerl.records import CONFIG, RunWriter, fingerprint, plain, read_json
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.parts import Parts
from accerl.runtime.run import IntervalReport
from accerl.training.episode import Episode
from accerl.training.run_folder import CHECKPOINT, read_config, seconds_finished
from accerl.training.score import Score

_FIXED = (
    "game", "network", "seed", "pixel_centre", "pixel_unit", "start",
    "env", "learner", "runtime", "compression", "own", "conditions",
)  # fmt: skip
"""settings that a resumed run may not change"""
LONGEST = 60
"""characters of two values that are named"""


def name_of(strategy: Strategy) -> str:
    """Return what a strategy is called in records, unless it was given a name."""
    return strategy.label if isinstance(strategy, HandSetStrategy) else type(strategy).__name__


def run_identity(
    config: RunConfig,
    strategy: Strategy,
    strategy_name: str | None,
    profile: LatencyProfile | None,
    parts: Parts | None = None,
    params: Mapping[str, Any] | None = None,  # of a strategy that says none itself
) -> dict[str, Any]:
    """Return what config.json says besides the configuration, for `check_resumable`."""
    settings, decided = getattr(strategy, "to_json", dict)(), config.adapted()
    return {
        "strategy": strategy_name or name_of(strategy),
        "strategy_params": plain(params if settings.get("params") is None else settings["params"]),
        "shield": plain(settings.get("shield")),
        "profile_hash": None if profile is None else profile.hash,
        "own_parts": {} if parts is None else parts.names,
        "machine": {
            # On the virtual clock actors and seconds are the profile's, on whatever machine.
            "num_actors": (decided if profile is None else config).runtime.num_actors,
            "device": decided.learner.device,
            "precision": decided.learner.precision,
            "distill_precision": choose_precision(
                decided.compression.distill_precision, decided.learner.device
            ),
            "fingerprint": fingerprint()["id"] if profile is None else None,
        },
    }


def _in_words(machine: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (machine or {}).items() if value)


def check_resumable(config: RunConfig, out: Path | None, identity: Mapping[str, Any]) -> None:
    """Refuse to resume what was not started, or with other settings; the length may change.

    Args:
        config: what the run would go on with.
        out: its folder.
        identity: see `run_identity`.

    Raises:
        UserError: with what to do instead.
    """
    if out is None:
        raise UserError("a run is resumed in its folder: give that as out")
    if not (out / CONFIG).is_file() or not has_checkpoint(out / CHECKPOINT):
        raise UserError(f"{out} holds no run with a checkpoint; start one with a new --out")
    recorded, data = read_config(out), read_json(out / CONFIG)
    names = [name for name, value in identity.items() if data.get(name) != value]
    if "strategy" in names and "digest" in (identity["strategy_params"] or {}):
        names.remove("strategy")  # a bundle is known by its digest, wherever it lies
    changed = [name for name in _FIXED if getattr(recorded, name) != getattr(config, name)]
    if names == ["machine"] and not changed:
        is_timed = identity["machine"]["fingerprint"] is not None
        why = (
            "seconds of two machines are not mixed"
            if is_timed
            else "networks learn otherwise there"
        )
        raise UserError(
            f"{out} was started on another machine, or with other cores or a GPU of it "
            f"({_in_words(data.get('machine'))}; here: {_in_words(identity['machine'])}), and "
            f"{why}; resume it there, or choose another --out"
        )
    if names or changed:
        theirs, ours = recorded.to_json(), config.to_json()
        told = [each for name in changed for each in _changes(name, theirs[name], ours[name])]
        raise UserError(
            f"{out} was started with other settings ({'; '.join([*told, *names])}: preset "
            f"{recorded.preset!r}, seed {recorded.seed}, strategy {data.get('strategy')!r}); "
            "resume it with the same ones, or choose another --out"
        )
    seconds_finished(config, out)


def _changes(name: str, there: Any, here: Any) -> list[str]:
    """Say what a setting was and is, or those of a part that are others."""
    if isinstance(there, dict) and isinstance(here, dict):
        changed = [key for key in there if there[key] != here.get(key)]
        return [
            each for key in changed for each in _changes(f"{name}.{key}", there[key], here[key])
        ]
    values = [repr(each) for each in (there, here)]
    return [f"{name} {' there, '.join(values)} here" if len("".join(values)) < LONGEST else name]


def go_on(
    episode: Episode, strategy: Strategy, score: Score, writer: RunWriter
) -> list[IntervalReport]:
    """Bring all to where the last checkpoint was; return the reports until then.

    Raises:
        UserError: there is no checkpoint, or another strategy decided during them.
    """
    state = load_checkpoint(writer.path / CHECKPOINT)
    reports = writer.recorded(state["intervals"])
    for features, report in zip(episode.restore(state, reports), reports, strict=True):
        decision = decide(strategy, features)
        if decision != report.decision:
            raise UserError(
                f"the run was started with another strategy: it acted with "
                f"{report.decision.label!r} where this one decides {decision.label!r}; resume "
                "it with the same --strategy, --strategy-params and --spec, and with the same "
                "--seconds if it goes by shares of the run's length; or choose another --out"
            )
        tell_rejected(strategy, report.events)
        if declares(strategy, "events"):  # read as in the run: compositions note their order so
            events_of(strategy)
        score.update(report)
    writer.go_on(len(reports), finished=episode.finished or score.is_reached)
    return reports
