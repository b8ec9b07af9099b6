"""Conditions: what happens to a machine while a run is on it, as a schedule of events.

Another program takes cores, a link gets slow, a core gets hot, actors leave and join. Two runtimes
play the same schedule: the serial one on the virtual clock, exactly; the process runtime by really
doing these things to its processes. Others refuse it. A strategy is never told; it sees what a
process can see of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from accerl.errors import UserError, did_you_mean, is_number, require, require_choice
from accerl.json_fields import JsonFields, read_toml_or_json
from accerl.seeds import Role, generator

CO_TENANT, BANDWIDTH, THROTTLE, ACTORS = "co-tenant", "bandwidth", "throttle", "actors"
KINDS = (CO_TENANT, BANDWIDTH, THROTTLE, ACTORS)
_RULES = {
    CO_TENANT: ("must be a whole number of cores, at least 1", lambda x: x >= 1 and x % 1 == 0),
    BANDWIDTH: ("must be the share that is left, above 0 and below 1", lambda x: 0 < x < 1),
    THROTTLE: ("must be how many times slower, above 1", lambda x: 1 < x < math.inf),
    ACTORS: ("must be a whole number of actors, at least 1", lambda x: x >= 1 and x % 1 == 0),
}
"""what the amount of each kind means, and which are allowed"""
MEAN_EVENTS = 3.0
"""of a run, where they are drawn"""
_LASTS = (0.1, 0.3)  # shortest and longest drawn event, as shares of the run
_BANDWIDTH_LEFT, _SLOWER, _FEWER = 0.2, 2.0, 3.0
_MOST_DRAWN = 12  # actors
_LINK = ("down_bytes_per_second", "up_bytes_per_second")


@dataclass(frozen=True, kw_only=True)
class Condition(JsonFields):
    """One event: something about the machine differs for a while.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    at_seconds: float
    """the run's clock when it begins"""
    lasts_seconds: float
    kind: str
    """co-tenant, bandwidth, throttle or actors"""
    amount: float
    """co-tenant: processes of others, each of which would fill a core and gets its fair share;
    bandwidth: the share of each link that is left; throttle: how many times slower the core is;
    actors: how many act, of those that the run has, or more; of a latency profile's actors, those
    that fill a batch together count as one"""
    process: str = ""
    """throttle: whose core, such as actor-0 or learner; empty: every process's. Co-tenant: beside
    which actor that has a machine of its own, on its core; empty: on the learner's machine"""

    def __post_init__(self) -> None:
        require_choice("event: kind", self.kind, KINDS)
        for name in ("at_seconds", "lasts_seconds", "amount"):
            given = getattr(self, name)
            require(is_number(given), f"event: {name}", "must be a number", given)
        require(self.at_seconds >= 0, "event: at_seconds", "must not be negative", self.at_seconds)
        positive = self.lasts_seconds > 0
        require(positive, "event: lasts_seconds", "must be positive", self.lasts_seconds)
        rule, allowed = _RULES[self.kind]
        require(allowed(self.amount), f"event: {self.kind}: amount", rule, self.amount)
        require(type(self.process) is str, "event: process", "must be a name", self.process)
        if self.process and self.kind not in (THROTTLE, CO_TENANT):
            raise UserError(f"event: process goes with throttle and co-tenant, not {self.kind}")

    @classmethod
    def read(cls, data: Any) -> Condition:
        """Read an event that a person wrote.

        Raises:
            UserError: something is missing or unknown, or is not allowed.
        """
        known = [item.name for item in fields(cls)]
        if not isinstance(data, dict):
            raise UserError(f"event: an object with {', '.join(known)} is needed, got {data!r}")
        for name in data:
            if name not in known:
                raise UserError(f"event: there is no {name!r}; {did_you_mean(name, known)}")
        missing = [name for name in known if name not in data and name != "process"]
        if missing:
            raise UserError(f"event: it lacks {', '.join(missing)}")
        return cls(**data)

    @property
    def ends(self) -> float:
        """The run's clock when it is over."""
        return self.at_seconds + self.lasts_seconds

    def is_on(self, seconds: float) -> bool:
        """Whether it is under way at that time."""
        return self.at_seconds <= seconds < self.ends

    @property
    def words(self) -> str:
        """The event in words, for reports."""
        number = f"{self.amount:g}"
        if self.kind == CO_TENANT and self.process:
            return f"other programs beside {self.process}"
        if self.kind == CO_TENANT:
            return f"other programs on {number} core{'' if self.amount == 1 else 's'}"
        if self.kind == BANDWIDTH:
            return f"bandwidth at {self.amount:.0%}"
        if self.kind == THROTTLE:
            return f"{self.process or 'all cores'} {number} times slower"
        return f"{number} actor{'' if self.amount == 1 else 's'}"


@dataclass(frozen=True)
class Moment:
    """The machine at one moment."""

    co_tenants: int = 0
    """processes of others that compute without pause on the learner's machine"""
    bandwidth: float = 1.0
    """share of each link that is left; of several events the product"""
    actors: int | None = None
    """how many act; None: all of the run's own. Of several events the last to begin counts"""
    throttles: tuple[tuple[str, float], ...] = ()
    """whose core is how many times slower; of several events the product. That of an actor on a
    machine of its own, which shares it fairly with j processes of others, is 1 + j times slower"""

    def slowdown(self, process: str) -> float:
        """Return how many times slower the core of a process is."""
        factor = 1.0
        for name, slower in self.throttles:
            factor *= slower if name in ("", process) else 1.0
        return factor


@dataclass(frozen=True)
class Conditions(JsonFields):
    """A schedule: the events of one run, in any order; none by default.

    What is under way is a function of the clock, so a run that is resumed needs no more than that.
    """

    events: tuple[Condition, ...] = ()
    """each {at_seconds, lasts_seconds, kind, amount}, as `accerl train --events FILE` reads them"""
    down_bytes_per_second: float = 0.0
    """real clock: a link that publications pass, all actors' together; 0: shared memory. On the
    virtual clock the latency profile has the link"""
    up_bytes_per_second: float = 0.0
    """the same for rollouts on their way to the learner: each frame of their states once, and not
    deflated (7,056 bytes an env step of Atari; a latency profile assumes `step_bytes`, deflated)"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))  # JSON knows no tuples
        for name in _LINK:
            given = getattr(self, name)
            number = is_number(given) and given >= 0
            require(number, f"events: {name}", "must be a number that is not negative", given)

    @property
    def has_link(self) -> bool:
        """Whether a run on the real clock has a link between learner and actors."""
        return self.down_bytes_per_second > 0 or self.up_bytes_per_second > 0

    @property
    def changes_bandwidth(self) -> bool:
        """Whether an event is about bandwidth."""
        return any(event.kind == BANDWIDTH for event in self.events)

    @property
    def least_share(self) -> float:
        """What events leave of the bandwidth at least; 1: all of it."""
        return min((self.at(event.at_seconds).bandwidth for event in self.events), default=1.0)

    def check(self, seconds: float) -> None:
        """Refuse an event that a run of that length does not reach.

        Raises:
            UserError: naming the event.
        """
        for number, event in enumerate(self.events, start=1):
            if event.at_seconds >= seconds:
                raise UserError(
                    f"event {number} ({event.words}) begins at {event.at_seconds:g} s, and the run "
                    f"ends at {seconds:g} s; give it an earlier at_seconds, or more --seconds"
                )

    def check_link(self) -> None:
        """Refuse events about bandwidth where there is none.

        Raises:
            UserError: saying what to add.
        """
        if not self.has_link and self.changes_bandwidth:
            raise UserError(
                "--events: shared memory has no bandwidth that could fall; say in the file how "
                "many down_bytes_per_second and up_bytes_per_second the run's link has"
            )

    def check_processes(self, names: Collection[str]) -> None:
        """Refuse a throttle of a process that the run does not have.

        Raises:
            UserError: naming the event.
        """
        for number, event in enumerate(self.events, start=1):
            if event.process and event.process not in names:
                hint = did_you_mean(event.process, sorted(names))
                raise UserError(f"event {number}: the run has no process {event.process!r}; {hint}")

    def check_machines(self, *, apart: bool) -> None:
        """Refuse co-tenants beside a process that has no machine of its own.

        Args:
            apart: whether actors are on other machines than the learner.

        Raises:
            UserError: naming the event.
        """
        for number, event in enumerate(self.events, start=1):
            beside = event.process if event.kind == CO_TENANT else ""
            if beside and not (apart and beside.startswith("actor-")):
                raise UserError(
                    f"event {number}: {beside} is on the learner's machine, where a co-tenant "
                    "slows everybody; leave out its process"
                )

    def most_actors(self, own: int) -> int:
        """Return how many actors are there at most, of a run that has `own`."""
        return max([own, *(int(event.amount) for event in self.events if event.kind == ACTORS)])

    def under_way(self, begins: float, ends: float) -> tuple[Condition, ...]:
        """Return the events of which a part lies in [begins, ends), first to begin first."""
        found = [event for event in self.events if event.at_seconds < ends and event.ends > begins]
        return tuple(sorted(found, key=lambda event: event.at_seconds))

    def at(self, seconds: float) -> Moment:
        """Return the machine at a time of the run's clock."""
        co_tenants, bandwidth, throttles, actors = Counter[str](), 1.0, [], None
        for event in sorted(self.events, key=lambda event: event.at_seconds):
            if not event.is_on(seconds):
                continue
            if event.kind == CO_TENANT:
                co_tenants[event.process] += int(event.amount)
            elif event.kind == BANDWIDTH:
                bandwidth *= event.amount
            elif event.kind == THROTTLE:
                throttles.append((event.process, event.amount))
            else:
                actors = int(event.amount)
        here = co_tenants.pop("", 0)
        throttles += [(process, 1.0 + others) for process, others in co_tenants.items()]
        return Moment(here, bandwidth, actors, tuple(throttles))

    def next_change(self, seconds: float, kind: str = "") -> float:
        """Return when an event (of that kind) next begins or ends after a time; infinite: never."""
        events = [event for event in self.events if kind in ("", event.kind)]
        times = [time for event in events for time in (event.at_seconds, event.ends)]
        return min((time for time in times if time > seconds), default=math.inf)


UNCHANGING = Conditions()


def read_events(file: Path) -> Conditions:
    """Return the schedule that a TOML or JSON file holds: ``{"events": [{...}, ...]}``.

    Beside the events it may give the link of a run on the real clock.

    Raises:
        UserError: it cannot be read, holds anything else, or an event is not allowed.
    """
    where = f"--events {file}"
    data = read_toml_or_json(file, where)
    events = data.pop("events", None) if isinstance(data, dict) else None
    if not isinstance(events, list):
        raise UserError(f'{where}: an object {{"events": [...]}} with a list of events is needed')
    for name in set(data) - set(_LINK):
        raise UserError(f"{where}: there is no {name!r}; {did_you_mean(name, ['events', *_LINK])}")
    found = []
    for number, given in enumerate(events, start=1):
        try:
            found.append(Condition.read(given))
        except UserError as error:
            reason = str(error).removeprefix("event: ")
            raise UserError(f"{where}: event {number}: {reason}") from error
    try:
        return Conditions(tuple(found), **data)
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix('events: ')}") from error


def draw_conditions(
    seed: int,
    horizon_seconds: float,
    *,
    actors: int,
    cores: int,
    linked: bool,
    hosts: int = 0,
) -> Conditions:
    """Draw the events of a run as a Poisson process; the same for the same arguments.

    The number of events is Poisson distributed, their beginnings are uniform in [0, horizon), and
    each lasts 10 to 30% of the horizon, cut off at its end. All kinds that the machine can show are
    equally likely: others take 1 to half of the learner's cores, or share the core of an actor that
    has a machine of its own, each of the machines being as likely; bandwidth falls to a fifth; one
    core or all get two times slower, also where a GPU that it does not slow learns; a third to
    three times as many actors (at most 12, or those that there are) act. Where all actors fill
    rollouts together, as on a server, two or three times as many act, and the core of `actor-0` is
    that of all.

    Args:
        seed: of the stream, such as a plan's hash.
        horizon_seconds: length of the run.
        actors: that fill rollouts side by side.
        cores: that all processes on the learner's machine share.
        linked: whether publications or rollouts travel over a link.
        hosts: other machines that the actors are on, the first of them on the first and so on.
    """
    drawn = generator(seed, Role.CONDITIONS)
    kinds = [kind for kind in KINDS if kind != BANDWIDTH or linked]
    events = []
    for _ in range(int(drawn.poisson(MEAN_EVENTS))):
        at, lasts = horizon_seconds * drawn.random(), horizon_seconds * drawn.uniform(*_LASTS)
        kind = kinds[int(drawn.integers(len(kinds)))]
        process = ""
        if kind == CO_TENANT:
            host = int(drawn.integers(-1, hosts)) if hosts else -1
            process = "" if host < 0 else f"actor-{host}"
            amount = 1.0 if process else float(drawn.integers(1, max(cores // 2, 1) + 1))
        elif kind == BANDWIDTH:
            amount = _BANDWIDTH_LEFT
        elif kind == THROTTLE:
            amount = _SLOWER
            cored = ["learner", *(f"actor-{index}" for index in range(actors))]
            chosen = int(drawn.integers(len(cored)))
            process = cored[chosen] if drawn.random() < 0.5 else ""
        else:
            amount = _other_number(actors, float(drawn.uniform(-1.0, 1.0)))
        lasts = min(lasts, horizon_seconds - at)
        events.append(
            Condition(at_seconds=at, lasts_seconds=lasts, kind=kind, amount=amount, process=process)
        )
    return Conditions(tuple(sorted(events, key=lambda event: event.at_seconds)))


def _other_number(actors: int, power: float) -> float:
    """Return another number of actors: `_FEWER` ** power times as many, within what is drawn."""
    number = round(actors * _FEWER**power)
    if number == actors:
        number += 1 if power > 0.0 else -1
    most = max(actors, _MOST_DRAWN)
    number = min(number, most) if number >= 1 else actors + 1
    return float(number if number != actors else actors - 1)


def to_records(events: Iterable[Condition]) -> tuple[dict[str, Any], ...]:
    """Return events as an interval's record holds them, each with its `words`."""
    return tuple({**event.to_json(), "words": event.words} for event in events)
