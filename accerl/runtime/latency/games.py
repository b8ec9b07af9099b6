"""Which times of a latency profile a run is charged: its own game's, or the nearest."""

from __future__ import annotations

from dataclasses import replace

from accerl.config import RunConfig
from accerl.families import shown
from accerl.presets import PRESETS
from accerl.runtime.conditions import ACTORS, THROTTLE
from accerl.runtime.latency.profile import PIXELS, LatencyProfile
from accerl.runtime.wiring import Wiring


def times_of_game(profile: LatencyProfile, config: RunConfig) -> LatencyProfile:
    """Return a profile as a run's game sees it, for any network.

    A preset without times of its own is charged those that the profile begins with: small games
    keep the trade-offs of the real ones.
    """
    shape = None if config.preset in PRESETS else shown(config).shape
    return profile.for_game(config.game, config.network, shape)


def times_of_run(profile: LatencyProfile, config: RunConfig) -> LatencyProfile:
    """Return a profile as a run sees it: the times of its game and of its learner's network.

    Raises:
        UserError: there are no times for a learner of this network.
    """
    return times_of_game(profile, config).for_network(config.network)


def with_games_of(profile: LatencyProfile, other: LatencyProfile | None) -> LatencyProfile:
    """Return a profile that holds also the times of another of the same machine, but for its own.

    Args:
        profile: as measured now.
        other: as measured before, if it was.
    """
    if other is None or other.fingerprint.get("id") != profile.fingerprint.get("id"):
        return profile
    if other.on_gpu != profile.on_gpu:  # the fingerprint knows no GPU
        return profile
    games = (replace(each, games=()) for each in (other, *other.games))
    kept = tuple(each for each in games if what_is_timed(each) != what_is_timed(profile))
    return replace(profile, games=kept)


def what_is_timed(profile: LatencyProfile) -> tuple[str, tuple[int, ...], str]:
    """Return game, shape of observations, and learner's network of a profile's own times."""
    return profile.game, profile.observation, profile.network


def no_longer_timed(before: LatencyProfile | None, after: LatencyProfile) -> list[str]:
    """Return game and spec of times that a profile has lost by being measured again, each once."""
    if before is None:
        return []
    own = {what_is_timed(times): times.specs for times in (after, *after.games)}
    lost = [
        f"{times.game}: {row.spec.label}"
        for times in (before, *before.games)
        for row in times.specs
        if row.spec not in {kept.spec for kept in own.get(what_is_timed(times), ())}
    ]
    return list(dict.fromkeys(lost))


def as_wired(profile: LatencyProfile, config: RunConfig) -> LatencyProfile:
    """Return a profile with the processes that a run on the real clock has, not those it assumes.

    The serial runtime has one process for all, which no profile describes: nothing changes there.
    """
    if config.runtime.clock == "virtual" or config.runtime.runtime == "serial":
        return profile
    wiring = Wiring.of(config.adapted().runtime)
    processes = wiring.actors + wiring.learners + wiring.distillers + wiring.compressor
    return replace(
        profile,
        num_actors=wiring.actors,
        actors_per_batch=1,
        num_distillers=wiring.distillers,
        num_hosts=min(profile.num_hosts, wiring.actors),
        cores=int(min(wiring.cores, processes)),  # infinite on Ray, which gives each its own
        origin=profile.whole_hash,
    )


def notes_on_events(profile: LatencyProfile, config: RunConfig) -> list[str]:
    """Say which of a run's events change nothing on a machine, and what is meant by its actors."""
    events = config.conditions.events
    slowed = {event.process for event in events if event.kind == THROTTLE}
    by_group = any(event.kind == ACTORS or event.process.startswith("actor-") for event in events)
    notes = []
    if config.conditions.changes_bandwidth and not profile.has_links:
        notes.append(
            f"bandwidth events change nothing: latency profile {profile.name!r} has no links"
        )
    if profile.learner == "gpu" and "learner" in slowed:
        notes.append(
            "events that slow the learner's core change nothing: on latency profile "
            f"{profile.name!r} a GPU learns"
        )
    if by_group and profile.actors_per_batch > 1:
        notes.append(
            f"for events {profile.actors_per_batch} actors, which fill rollouts together, count as "
            f"one: latency profile {profile.name!r} has {profile.groups}"
        )
    return notes


def note_on_times(profile: LatencyProfile, config: RunConfig) -> str | None:
    """Say of a game that it is charged another one's times; None: it has its own.

    Nothing is said of a preset that is charged times of 84x84 networks, such as Pong's, with which
    all profiles that ship begin.
    """
    times = times_of_game(profile, config)
    is_shared = config.preset in PRESETS and (times.observation or PIXELS) == PIXELS
    if is_shared or times.game == config.game:
        return None
    return (
        f"latency profile {profile.name!r} has no times of {config.game}: those of {times.game} "
        f"are charged (`accerl profile measure --game {config.game}` adds its own)"
    )
