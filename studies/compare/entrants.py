"""Entrants of a comparison: a spec as JSON, a strategy by its name, or a bundle's folder."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.strategies import FixedStrategy
from accerl.monitor.strategy import Strategy, specs_of
from accerl.own_code import own_errors, source_hash
from accerl.records import json_hash
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec, is_import_path
from accerl.training.resume import run_identity
from accerl.training.run import known_times
from studies.jobs.inner import has_own_dice, with_dice
from studies.run_checks import check_run
from studies.strategies import choose_strategy, names_bundle

LONGEST = 60
"""characters of a folder's name that a strategy's label gives"""


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A strategy that takes part."""

    label: str
    strategy: Strategy
    """as it is before its first decision"""
    identity: Mapping[str, Any]
    """what its runs depend on beside the configuration"""
    params: Mapping[str, Any]
    """as they were given; dice that these do not set have the seed of the run"""

    @property
    def folder(self) -> str:
        """The name of the folder of its runs, which no other strategy has."""
        plain = self.label.replace(" ", "-")
        name = re.sub(r"[^\w.%-]+", "-", plain).strip("-.")[:LONGEST]
        return name if name == plain else f"{name}-{json_hash(self.identity)[:8]}"

    def seeded(self, seed: int) -> Self:
        """Return it with dice of its own for the run of a seed: intervals over seeds hold them."""
        return replace(self, strategy=with_dice(self.strategy, seed, self.params))


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
        try:
            entrant = _read(text, config, profile)
        except UserError as error:
            reason = str(error).removeprefix("--strategy-params: ").removeprefix("strategy ")
            raise UserError(f"--strategies {text!r}: {reason}") from error
        for other in found:
            if other.identity == entrant.identity:
                raise UserError(
                    f"--strategies: {text!r} is the same as {other.label!r}; name each once"
                )
        found.append(entrant)
    return found


def _read(text: str, config: RunConfig, profile: LatencyProfile | None) -> Entrant:
    name, brace, rest = (part.strip() for part in text.partition("{"))
    params = f"{{{rest}" if brace else "{}"
    if not name and not brace:
        raise UserError("name a strategy, or give a spec as JSON")
    if not name:
        strategy: Strategy = FixedStrategy(CompressionSpec.from_json(text))
        label = strategy.specs[0].label
    else:
        given = {"spec": "{}", "params": params, "bundle_mode": "policy", "strict": False}
        strategy = choose_strategy(name, config, **given)
        label = " ".join(text.split())
        if names_bundle(name):
            path = str(Path(name))
            label = path if names_bundle(path) else f"./{path}"
    check_run(config, strategy, profile, begins=True)
    with own_errors("strategy", strategy):
        pickle.dumps(strategy)  # it travels to other processes
        identity = run_identity(config, strategy, label, profile)
    del identity["strategy"]  # what it is called
    if (times := known_times(config, None)) is not None and profile is None:
        identity["times"] = times.hash  # what it knows of this machine
    if profile is not None:
        for decided in ("precision", "distill_precision"):
            del identity["machine"][decided]  # the folder decides it, and the job's key says so
    own = (name, *(spec.student for spec in specs_of(strategy)))
    own = [each for each in dict.fromkeys(own) if is_import_path(each)]
    sources = {each: source_hash(each) for each in own}
    given = json.loads(params) if name else {}
    more: dict[str, Any] = {"sources": sources, "own_dice": has_own_dice(strategy, given)}
    more["of"] = " ".join(text.split()) if sources else ""
    return Entrant(label=label, strategy=strategy, identity={**identity, **more}, params=given)
