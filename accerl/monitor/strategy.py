"""Strategy: whatever turns features into a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from accerl.errors import UserError, did_you_mean
from accerl.monitor.features import Features
from accerl.monitor.indicators import Indicator
from accerl.monitor.monitor import Monitor
from accerl.own_code import find_own, own_errors
from accerl.records import plain
from accerl.spec import CompressionSpec, Decision, is_import_path

if TYPE_CHECKING:
    from accerl.config import RunConfig
    from accerl.runtime.latency.profile import LatencyProfile

_EXPLAINED = "it must be numbers by name for each label: {'original INT8': {'score': 1.2}}"


class Strategy(Protocol):
    """A hand-set rule, a bandit, the learned controller or a replayed schedule.

    `to_json`, which returns name and `params` for the run's records, is optional. So are eight
    more attributes, which are read with `specs_of`, `needs_of`, `fires`, `events_of`, `bind`,
    `overrule`, `reject` and `explanation_of`:
    `specs`, every spec that it may act with or name as a shadow, lets a run refuse what it cannot
    build before it begins; `needs`, the names of raw indicators without which it can never act,
    likewise;
    `fires`, whether its last decision was away from its state of rest, makes room for other rules
    in a composition; `events`, what happened to it in this run as a list of dicts in plain JSON,
    goes into the summary;
    `bind(config, times)` tells it, before `reset`, what is known of the run beforehand;
    `overruled(decision)`, that something else acts than it decided; `rejected(spec)`, that a spec
    cannot be built in this run, so that something else acts for it (not that one failed which is
    tried again with other weights); and `explanation`, why it
    decided so as a dict of numbers by name for each label, goes into the interval's record.
    One that draws random numbers draws them in `reset` by its int attribute `seed`, which commands
    set to the run's, unless its parameters give one.
    """

    def reset(self) -> None:
        """Forget everything of the last run; called before the first decision of a run."""
        ...

    def decide(self, features: Features) -> Decision:
        """Return what to act with during the next interval."""
        ...


def specs_of(strategy: Strategy) -> tuple[CompressionSpec, ...]:
    """Return every spec that a strategy declares to act with; none: it does not say.

    Raises:
        UserError: a strategy of the user's own declares something else.
    """
    with own_errors("specs of strategy", strategy):
        specs = tuple(getattr(strategy, "specs", ()))
        for spec in specs:
            if not isinstance(spec, CompressionSpec):
                raise TypeError(f"each must be a CompressionSpec, got {spec!r}")
    return specs


def needs_of(strategy: Strategy) -> frozenset[str]:
    """Return the raw indicators without which a strategy can never act.

    Raises:
        UserError: a strategy of the user's own names them in another form.
    """
    with own_errors("needs of strategy", strategy):
        needs = getattr(strategy, "needs", ())
        names = None if isinstance(needs, str) else tuple(needs)  # a word is read as its letters
        if names is None or not all(isinstance(name, str) for name in names):
            raise TypeError(f"it must be a collection of indicators' names, got {needs!r}")
    return frozenset(names)


def fires(strategy: Strategy) -> bool:
    """Whether a strategy was away from rest in its last decision; one that does not say was.

    Raises:
        UserError: a strategy of the user's own raised something.
    """
    with own_errors("fires of strategy", strategy):
        return bool(getattr(strategy, "fires", True))


def declares(strategy: Strategy, attribute: str) -> bool:
    """Return whether a strategy has one of the attributes that are optional.

    Raises:
        UserError: a strategy of the user's own raised something.
    """
    with own_errors(f"{attribute} of strategy", strategy):
        return hasattr(strategy, attribute)


def events_of(strategy: Strategy) -> list[dict[str, Any]]:
    """Return what happened to a strategy since its reset, in plain JSON; none: it does not say.

    Raises:
        UserError: a strategy of the user's own says it in another form.
    """
    with own_errors("events of strategy", strategy):
        events = list(getattr(strategy, "events", ()))
        for event in events:
            if not isinstance(event, Mapping):
                raise TypeError(f"each must be a dict, as {{'switched': 8}} is, got {event!r}")
        return plain([dict(event) for event in events])


def bind(strategy: Strategy, config: RunConfig, times: LatencyProfile | None) -> None:
    """Tell a strategy, if it asks, what is known of a run before it begins.

    Args:
        strategy: that is to decide in it; called before its `reset`.
        config: of the run.
        times: of its machine, as the run sees it (`times_of_run`); None: they are not known.

    Raises:
        UserError: a strategy of the user's own raised something.
    """
    hook = getattr(strategy, "bind", None)
    if hook is not None:
        with own_errors("strategy", strategy):
            hook(config, times)


def reset(strategy: Strategy) -> None:
    """Have a strategy forget everything of the last run.

    Raises:
        UserError: a strategy of the user's own raised something.
    """
    with own_errors("strategy", strategy):
        strategy.reset()


def decide(strategy: Strategy, features: Features) -> Decision:
    """Return what a strategy decides.

    Raises:
        UserError: it is no decision, or a strategy of the user's own raised something.
    """
    with own_errors("strategy", strategy):
        decision = strategy.decide(features)
    if not isinstance(decision, Decision):
        raise UserError(
            f"strategy {type(strategy).__name__}: decide() must return a Decision, such as "
            f"Decision.of(CompressionSpec(bits=8)), got {type(decision).__name__}"
        )
    return decision


def explanation_of(strategy: Strategy) -> dict[str, dict[str, float]]:
    """Return why the last decision was made: numbers by candidate's label; none: not said.

    Raises:
        UserError: a strategy of the user's own says it in another form.
    """
    with own_errors("explanation of strategy", strategy):
        why = getattr(strategy, "explanation", {})
        if not isinstance(why, Mapping):
            raise TypeError(f"{_EXPLAINED}, got {why!r}")
        return {str(label): _numbers(row) for label, row in why.items()}


def _numbers(row: object) -> dict[str, float]:
    """Return what is said of one candidate; raise TypeError where it is something else."""
    found: Any = plain(dict(row)) if isinstance(row, Mapping) else None
    if found is None or not all(isinstance(value, int | float) for value in found.values()):
        raise TypeError(f"{_EXPLAINED}, got {row!r}")
    return {name: float(value) for name, value in found.items()}  # as records hold them


def bind_rule(strategy: Strategy, config: RunConfig, times: LatencyProfile | None) -> None:
    """Bind a part of a strategy; refuse students of one that leaves nothing out by itself.

    Raises:
        UserError: it may act with one that is not smaller than the learner's network.
    """
    if not hasattr(strategy, "bind"):
        check_students(strategy, config)
    bind(strategy, config, times)


def check_students(strategy: Strategy, config: RunConfig) -> None:
    """Refuse a strategy whose students are not there, or not smaller than the learner's network.

    Raises:
        UserError: it may.
    """
    for spec in specs_of(strategy):
        Decision.of(spec).check_students(config.network)
        if is_import_path(spec.student):
            find_own("network", spec.student, "mynets:small")


def check_times(strategy: Strategy, times: LatencyProfile, config: RunConfig) -> None:
    """Refuse a strategy that may act with a spec that a virtual clock has no times for.

    Args:
        strategy: that knows the run: what chooses from what can act has left out the others.
        times: that charge the clock, as the run sees them.
        config: of the run.

    Raises:
        UserError: it may, or something may act while a student waits (`compress/admission.py`).
    """
    for spec in specs_of(strategy):
        times.infer_seconds(spec, config.runtime.num_envs)
        waits = spec.student_key is not None and config.compression.admit_kl_nats > 0.0
        if waits and not times.has(spec.undistilled):
            raise UserError(
                f"latency profile {times.name!r} has no times for {spec.undistilled.label!r}, "
                f"which acts while {spec.label!r} waits; measure both (`accerl profile measure "
                "--specs`), or set compression.admit_kl_nats to 0"
            )


def overrule(strategy: Strategy, decision: Decision) -> None:
    """Tell a strategy, if it asks, that something else acts than it decided, or than it knows of.

    Args:
        strategy: that was asked, or should have been, and is not followed.
        decision: what acts instead during the next interval.

    Raises:
        UserError: a strategy of the user's own raised something.
    """
    _tell(strategy, "overruled", decision)


def reject(strategy: Strategy, spec: CompressionSpec) -> None:
    """Tell a strategy, if it asks, that a spec cannot be built in this run.

    Raises:
        UserError: a strategy of the user's own raised something.
    """
    _tell(strategy, "rejected", spec)


def _tell(strategy: Strategy, hook: str, what: Decision | CompressionSpec) -> None:
    """Call a method that a strategy may have; errors of a user's own are named as such."""
    method = getattr(strategy, hook, None)
    if method is not None:
        with own_errors("strategy", strategy):
            method(what)


def tell_rejected(strategy: Strategy, events: Iterable[Mapping[str, Any]]) -> None:
    """Tell a strategy, if it asks, of the specs that a report's events say cannot be built.

    Of what failed with some weights, and is tried again with others, it hears nothing.
    """
    for event in events:
        if event.get("label") is not None and not event.get("is_retried", False):
            reject(strategy, CompressionSpec.from_label(event["label"]))


def check_needs(
    strategy: Strategy, eval_episodes: int, indicators: Sequence[Indicator] = ()
) -> None:
    """Refuse a strategy that could never act in a run.

    Args:
        strategy: see `needs_of`.
        eval_episodes: of the run's measurements of J; 0: it measures none.
        indicators: of the user's own, which the run has beside those of `Monitor`.

    Raises:
        UserError: it needs J, which is not measured, or an indicator that does not exist.
    """
    name = getattr(strategy, "name", type(strategy).__name__)
    needs = needs_of(strategy)
    known = Monitor(2, 1.0, indicators).start().raw
    for missing in sorted(needs - set(known)):
        raise UserError(
            f"strategy {name}: it needs the indicator {missing!r}, which does not exist; "
            f"{did_you_mean(missing, list(known))}"
        )
    if eval_episodes == 0 and needs & {"learner_return", "reward_gap"}:
        raise UserError(
            f"strategy {name}: it compares with the learner's return, which this run does not "
            "measure; add --set runtime.eval_episodes=16"
        )
