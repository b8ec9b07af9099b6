"""Entrants of a comparison: a spec as JSON, a strategy by its name, or a bundle's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy, specs_of
from accerl.own_code import source_hash
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec, is_own_network
from accerl.training.run import run_identity
from controller.bundle.bundle import is_bundle
from studies.run_checks import check_run
from studies.strategies import choose_strategy


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A strategy that takes part."""

    label: str
    strategy: Strategy
    """as it is before its first decision"""
    identity: Mapping[str, Any]
    """what tells it from others in records (`run_identity`), and of the user's own its source"""


def read_entrants(
    texts: Sequence[str], config: RunConfig, profile: LatencyProfile | None
) -> list[Entrant]:
    """Return the strategies that are named, checked against the run that they decide in.

    Args:
        texts: ``{"bits": 8}``, ``kl-threshold``, ``kl-threshold {"threshold_nats": 2.0}``, or a
            bundle's folder.
        config: of the run.
        profile: that charges its virtual clock; None: the clock is real.

    Raises:
        UserError: one does not exist or cannot act here, two are the same, or there are too few.
    """
    if len(texts) < 2:
        raise UserError(
            f"a comparison needs two strategies or more, got {len(texts)}: the first is what the "
            "others are compared with"
        )
    found: list[Entrant] = []
    for text in texts:
        label, strategy = _read(text, config)
        if label in (other.label for other in found):
            raise UserError(f"{label!r} is named twice among the strategies; name each once")
        check_run(config, strategy, profile, begins=True)
        identity = run_identity(config, strategy, label, profile)
        named = (text.partition(" {")[0], *(spec.student for spec in specs_of(strategy)))
        if own := [name for name in dict.fromkeys(named) if is_own_network(name)]:
            identity["source"] = {name: source_hash(name) for name in own}
        found.append(Entrant(label=label, strategy=strategy, identity=identity))
    return found


def _read(text: str, config: RunConfig) -> tuple[str, Strategy]:
    """Return a strategy and what it is called."""
    if text.lstrip().startswith("{"):
        spec = CompressionSpec.from_json(text)
        return spec.label, FixedStrategy(spec)
    name, brace, rest = text.partition(" {")
    strategy = choose_strategy(
        name,
        config,
        spec="{}",
        params=f"{{{rest}" if brace else "{}",
        bundle_mode="policy",
        strict=False,
    )
    return (str(Path(text)) if is_bundle(name) else text), strategy
