"""Bundles in runs other than those that they were learned on: what to do where a spec is missing.

A run may not be able to act with every spec that a bundle chooses from. The indicator leaves such
specs out. A schedule acts with the nearest milder one instead (`Actions.nearest`). Either says so;
or the run refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

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
from accerl.runtime.latency.profiles import MEASURED
from accerl.spec import CompressionSpec, Decision
from controller.actions import Actions
from controller.bundle.read import Bundle, read_bundle
from controller.bundle.schedule import names_for
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

    @property
    def specs(self) -> tuple[CompressionSpec, ...]:
        """Every spec that it may act with here, each once."""
        acting = self._acting()
        return tuple(dict.fromkeys(acting.get(s, s) for s in specs_of(self.strategy)))

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
        """Whether it is away from rest: always; neither indicator nor schedule has such a state."""
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
        acting = self._acting()
        for spec, share in decision.mix:
            acts = acting.get(spec, spec)
            shares[acts] = shares.get(acts, 0.0) + share
        shadow = decision.shadow and acting.get(decision.shadow, decision.shadow)
        return Decision(tuple(shares.items()), None if shadow in shares else shadow)

    def _acting(self) -> dict[CompressionSpec, CompressionSpec]:
        """Return what acts in place of what."""
        return {item.spec: item.acting for item in self.replacements if item.acting is not None}


class _Unbound:
    """Stands in for the schedule that a run has yet to choose: it may act with all of theirs."""

    def __init__(self, bundle: Bundle) -> None:
        replays = [bundle.strategy("schedule", name) for name in bundle.schedules]
        self.specs = tuple(dict.fromkeys(spec for each in replays for spec in specs_of(each)))

    def reset(self) -> None:
        self._refuse()

    def decide(self, features: Features) -> Decision:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(
            "bundle: a run chooses the schedule: bind it to one before it decides "
            "(`accerl.monitor.strategy.bind`), or give load_bundle a game"
        )


class ServedSchedule(ServedStrategy):
    """A Strategy that replays a schedule of a bundle: the one that suits the run it is bound to.

    That is the schedule of its game on the machine of its latency profile, or else of the machine's
    family, of the game, or of all runs together; on the real clock, and on a measured machine other
    than the bundle's own, the first two are left out. The nearest milder specs act in place of
    those that the run cannot act with.

    Args:
        bundle: that holds the schedules.
        game: name of the schedule, whatever the run; None: the run chooses.
        strict: refuse a run that cannot act with all specs of its schedule.

    Raises:
        UserError: there is no schedule of that name, or none at all.
    """

    def __init__(self, bundle: Bundle, game: str | None = None, *, strict: bool = False) -> None:
        # A bundle without schedules is refused here, not when a run begins.
        chosen = game is not None or not bundle.schedules
        strategy = bundle.strategy("schedule", game) if chosen else _Unbound(bundle)
        super().__init__(strategy, _identity(bundle, "schedule", game))
        self._bundle, self._game, self._strict = bundle, game, strict
        self.wanted = game
        """the schedule that suits the run best, whether the bundle has it or not; None: no run is
        known"""

    def bind(self, config: RunConfig, times: LatencyProfile | None) -> None:
        """Choose the schedule for a run, and what acts in place of what it cannot act with.

        Raises:
            UserError: no schedule is for such a run, it can act with nothing of the bundle, or
                strictly not with everything of the schedule.
        """
        charged = times if config.runtime.clock == "virtual" else None
        machine = None if charged is None else self._machine_of(charged)
        names = names_for(config.preset, machine) if self._game is None else (self._game,)
        schedule = self._bundle.schedule_for(*names)
        strategy = self._bundle.strategy("schedule", schedule)
        actions, network = self._bundle.content.actions, config.network
        replacements = replace_missing(actions, specs_of(strategy), network, charged)
        if self._strict:
            _refuse_missing(self._bundle, replacements, "the nearest milder ones")
        self.wanted, self.strategy, self.replacements = names[0], strategy, replacements
        self.identity = _identity(self._bundle, "schedule", schedule)

    def _machine_of(self, charged: LatencyProfile) -> str | None:
        """Return the name of a run's machine; None: a bundle cannot know which one it is.

        Every machine's own profile is called "measured". It is the bundle's where the times agree.
        """
        known = {profile.hash for profile in self._bundle.meta.profiles}
        is_another = charged.name == MEASURED and charged.whole_hash not in known
        return None if is_another else charged.name


def serve_bundle(
    path: str | Path, *, network: str, profile: LatencyProfile | None, strict: bool = False
) -> ServedStrategy:
    """Return the policy of a bundle as the strategy of a run.

    Args:
        path: the bundle's folder.
        network: of the run's learner.
        profile: of its virtual clock, as measured. On the real clock the indicator acts by the
            times that are known (`AdvancedIndicator.bind`), if any; None: by none.
        strict: refuse a bundle that may choose what the run cannot act with.

    Raises:
        UserError: the bundle is damaged, nothing of it can act here, or `strict` and something
            cannot.
    """
    bundle = read_bundle(path)
    strategy = bundle.strategy()
    seen = None if profile is None else profile.for_network(network)
    replacements = leave_out(bundle.content.actions, specs_of(strategy), network, seen)
    if strict:
        _refuse_missing(bundle, replacements, "others")
    return ServedStrategy(strategy, _identity(bundle, "policy", None), replacements)


def _identity(bundle: Bundle, mode: str, schedule: str | None) -> dict[str, Any]:
    """Return what identifies a served bundle in the records of a run.

    Args:
        bundle: that is served.
        mode: see `Bundle.strategy`.
        schedule: the one that is replayed; None: the policy decides, or the run has yet to choose.
    """
    return {"digest": bundle.manifest.digest[:12], "mode": mode, "schedule": schedule}


def _refuse_missing(bundle: Bundle, replacements: Sequence[Replacement], others: str) -> None:
    """Refuse a run that cannot act with some specs; without --strict `others` act."""
    if replacements:
        raise UserError(
            f"{bundle.path}: this run cannot act with {len(replacements)} of its specs: "
            f"{', '.join(f'{item.spec.label} ({item.reason})' for item in replacements)}; leave "
            f"out --strict to act with {others}"
        )


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
