"""Bundles in runs other than those that they were learned on: what to do where a spec is missing.

A run may not be able to act with every spec that a bundle chooses from. The indicator leaves such
specs out. A schedule acts with the nearest milder one instead (`Actions.nearest`). Either says so;
or the run refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.features import Features
from accerl.monitor.strategy import (
    Strategy,
    bind,
    events_of,
    explanation_of,
    fires,
    needs_of,
    overrule,
    reject,
    specs_of,
)
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import CompressionSpec, Decision
from controller.actions import Actions
from controller.bundle.read import read_bundle
from controller.env.compatibility import incompatibility


@dataclass(frozen=True)
class Replacement:
    """A spec that a run cannot act with, and what acts in its place."""

    spec: CompressionSpec
    acting: CompressionSpec | None
    """None: nothing; it is never chosen"""
    reason: str

    def __str__(self) -> str:
        place = "" if self.acting is None else f" -> {self.acting.label}"
        return f"{self.spec.label}{place} ({self.reason})"


class ServedStrategy:
    """A Strategy that decides as a bundle does, with what this run can act with.

    Args:
        strategy: what the bundle decides.
        identity: what identifies this strategy in a run's records.
        replacements: of specs that are missing here.
    """

    def __init__(
        self,
        strategy: Strategy,
        identity: Mapping[str, Any],
        replacements: tuple[Replacement, ...] = (),
    ) -> None:
        self.strategy = strategy
        self.identity = dict(identity)
        self.replacements = replacements
        self._acting = {item.spec: item.acting for item in replacements if item.acting is not None}

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec that it may act with here, each once."""
        return tuple(dict.fromkeys(self._acting.get(s, s) for s in specs_of(self.strategy)))

    @property
    def needs(self) -> frozenset[str]:
        """Raw indicators without which it can never act."""
        return needs_of(self.strategy)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What its shield has done, see `controller.shield.Shielded`."""
        return events_of(self.strategy)

    @property
    def fires(self) -> bool:
        """Whether its shield stepped in."""
        return fires(self.strategy)

    def to_json(self) -> dict[str, Any]:
        """Return name and parameters for the records: a run resumes with the same bundle only."""
        replaced = {
            item.spec.label: None if item.acting is None else item.acting.label
            for item in self.replacements
        }
        return {"name": "bundle", "params": {**self.identity, "replaced": replaced}}

    @property
    def explanation(self) -> dict[str, dict[str, float]]:
        """Why the bundle decided so."""
        return explanation_of(self.strategy)

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Tell the bundle what is known of the run."""
        bind(self.strategy, config, times)

    def overruled(self, decision: Decision) -> None:
        """Let the bundle know what acts instead."""
        overrule(self.strategy, decision)

    def rejected(self, spec: CompressionSpec) -> None:
        """Let the bundle know what cannot be built, and what that stands for."""
        for own in (spec, *(item.spec for item in self.replacements if item.acting == spec)):
            reject(self.strategy, own)

    def reset(self) -> None:
        """Forget everything of the last run."""
        self.strategy.reset()

    def decide(self, features: Features) -> Decision:
        """Return the bundle's decision, specs replaced; what becomes the same adds up."""
        decision, shares = self.strategy.decide(features), dict[CompressionSpec, float]()
        for spec, share in decision.mix:
            acting = self._acting.get(spec, spec)
            shares[acting] = shares.get(acting, 0.0) + share
        shadow = decision.shadow and self._acting.get(decision.shadow, decision.shadow)
        return Decision(tuple(shares.items()), None if shadow in shares else shadow)


def serve_bundle(
    path: str | Path,
    *,
    network: str,
    profile: LatencyProfile | None,
    mode: str = "policy",
    names: tuple[str, ...] = (),
    strict: bool = False,
) -> ServedStrategy:
    """Return a bundle as the strategy of a run.

    Its `identity` has the mode, and as "schedule" the one that is replayed; None: the policy
    decides.

    Args:
        path: the bundle's folder.
        network: of the run's learner.
        profile: of its virtual clock, as measured. On the real clock None for a schedule; the
            indicator acts by the times that are known (`AdvancedIndicator.bind`), if any.
        mode: "policy" or "schedule", as in `Bundle.strategy`.
        names: whose schedule is wanted, best first; the pooled one is the last resort.
        strict: refuse a bundle that may choose what the run cannot act with.

    Raises:
        UserError: the bundle is damaged or has no such mode, nothing of it can act here, or
            `strict` and something cannot.
    """
    bundle = read_bundle(path)
    schedule = bundle.schedule_for(*names) if mode == "schedule" else None
    strategy = bundle.strategy(mode, schedule)
    seen = None if profile is None else profile.for_network(network)
    chooses = mode == "policy"
    place = leave_out if chooses else replace_missing
    replacements = place(bundle.content.actions, specs_of(strategy), network, seen)
    if replacements and strict:
        raise UserError(
            f"{path}: this run cannot act with {len(replacements)} of its specs: "
            f"{', '.join(f'{item.spec.label} ({item.reason})' for item in replacements)}; leave "
            f"out --strict to act with {'others' if chooses else 'the nearest milder ones'}"
        )
    digest = bundle.manifest.digest[:12]
    identity = {"digest": digest, "mode": mode, "schedule": schedule}
    return ServedStrategy(strategy, identity, replacements)


def leave_out(
    actions: Actions,
    specs: tuple[CompressionSpec, ...],
    network: str,
    profile: LatencyProfile | None,
) -> tuple[Replacement, ...]:
    """Return those of `specs` that a run cannot act with, and nothing in their places.

    Args and errors are those of `replace_missing`.
    """
    return tuple(
        replace(item, acting=None) for item in replace_missing(actions, specs, network, profile)
    )


def replace_missing(
    actions: Actions,
    specs: tuple[CompressionSpec, ...],
    network: str,
    profile: LatencyProfile | None,
) -> tuple[Replacement, ...]:
    """Return what acts in place of those of `specs` that a run cannot act with.

    Args:
        actions: where replacements are taken from, by `Actions.nearest`.
        specs: members of `actions`.
        network: see `incompatibility`.
        profile: see `incompatibility`.

    Raises:
        UserError: the run can act with nothing in `actions`.
    """
    reasons = {spec: incompatibility(network, profile, spec) for spec in actions.all_specs}
    mask = actions.mask(lambda spec: reasons[spec] is None)
    found = []
    for spec in specs:
        reason = reasons[spec]
        if reason is not None:
            place = actions.nearest(mask, actions.position(actions.indices(spec)))
            found.append(Replacement(spec, actions.all_specs[place], reason))
    return tuple(found)
