"""Fleets: at how many actors on other machines the learner, the link or the object store limits.

The equations are those of `predict`, for G actors with a core each and a learner on a node of its
own, where a compressor has a core too. Added is what Ray's messages take (`MessageCosts`): per
rollout of S env steps

    learner's core:  receive + 2 wait G + unpack      (calls, looking for answers, stacks of frames)
    actor's core:    send + pack
    link, inwards:   b bytes, so that env steps per second <= L S / b

on a link of L bytes per second, which carries all rollouts one after the other, and per publication
of P bytes, fetched once by each of the N nodes that act,

    compressor:      call G                           (every actor is told)
    link, outwards:  N P / L seconds, which its weights age by.

The object store of the learner's node holds the rollouts of all slots, G slots b, and two
publications. Left out: what Ray's own processes take of other cores than these, chance, and how
much worse the learner learns from older weights; `policy_lag` says how old they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from accerl.config import RunConfig
from accerl.errors import require, require_fields
from accerl.json_fields import JsonFields
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.predict import LIMITS, steady_state
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.steady import Work
from accerl.runtime.wiring import Wiring
from accerl.spec import CompressionSpec

FLEET_LIMITS = {
    **LIMITS,
    "link": "the link into the learner's node limits",
    "store": "the object store of the learner's node is full",
}
"""what limits a fleet, in words"""
FULL = 1.0 - 1e-9
"""share of the link's bytes from which on it limits: all of them, but for rounding"""


@dataclass(frozen=True, kw_only=True)
class MessageCosts(JsonFields):
    """What Ray's messages take: processor seconds, and bytes of a rollout.

    The defaults were measured by `accerl bench messages` on two cores of an AMD EPYC, with Pong's
    rollouts of random play.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    call_seconds: float = 3.7e-4
    """driver: a call without arguments and its empty answer"""
    receive_seconds: float = 9.7e-4
    """driver: a call whose answer is a rollout with each frame once"""
    receive_whole_seconds: float = 1.73e-3
    """driver: a call whose answer is a rollout as it is"""
    send_seconds: float = 8.8e-4
    """actor: putting a rollout with each frame once into the object store"""
    send_whole_seconds: float = 5.7e-3
    """actor: putting a rollout as it is there"""
    wait_seconds: float = 9.7e-8
    """driver: looking whether one more answer has come"""
    pack_seconds: float = 1.57e-2
    """actor: taking a rollout apart into frames, and deflating them"""
    unpack_seconds: float = 7.0e-3
    """driver: the way back"""
    rollout_bytes: float = 165_980.0
    """of a rollout with each frame once, deflated"""
    whole_bytes: float = 29_852_712.0
    """of a rollout as it is"""
    samples: int = 1024
    """env steps of that rollout"""

    def __post_init__(self) -> None:
        names = " ".join(field.name for field in fields(self))
        rule = "must be at least 0 and finite"
        require_fields(self, "costs", names, rule, lambda value: 0.0 <= value < math.inf)
        sizes = "rollout_bytes whole_bytes samples"  # they are divided by
        require_fields(self, "costs", sizes, "must be at least 1", lambda value: value >= 1)


@dataclass(frozen=True, kw_only=True)
class FleetSettings:
    """The machines of a fleet.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    link_gbit: float = 10.0
    """of the learner's node, each way, 10^9 bits a second"""
    actors_per_node: int = 16
    store_gb: float = 16.0
    """object store of the learner's node, 10^9 bytes"""
    packed: bool = True
    """whether rollouts travel with each frame once, or as they are"""

    def __post_init__(self) -> None:
        names = "link_gbit actors_per_node store_gb"
        rule = "must be positive and finite"
        require_fields(self, "fleet", names, rule, lambda value: 0.0 < value < math.inf)


@dataclass(frozen=True, kw_only=True)
class FleetRow:
    """A fleet of one size, acting with one spec."""

    spec: CompressionSpec
    actors: int
    env_steps_per_second: float
    limit: str
    """a key of `FLEET_LIMITS`"""
    learner_share: float
    """of the learner's core that learning and messages keep busy"""
    message_share: float
    """of it, what Ray's messages take"""
    bytes_in_per_second: float
    """rollouts, into the learner's node"""
    bytes_out_per_second: float
    """publications, out of it"""
    store_bytes: float
    """held in the object store of the learner's node"""
    age_updates: float
    """learner updates that weights take to reach the actors"""
    policy_lag: float
    """learner updates between the weights that acted and the update that uses them, roughly"""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {**asdict(self), "spec": self.spec.to_json()}


def plan_fleet(
    profile: LatencyProfile,
    config: RunConfig,
    specs: Sequence[CompressionSpec],
    largest: int,
    *,
    settings: FleetSettings | None = None,
    costs: MessageCosts | None = None,
) -> list[FleetRow]:
    """Return the rows of fleets of 1 to `largest` actors, for each spec.

    Args:
        profile: of an actor's core and of the learner; its wiring is not used.
        config: gives network, environments per actor, unroll, reuse and how often to publish.
        specs: what acts.
        largest: actors.
        settings: the machines.
        costs: of messages; None: as measured.

    Raises:
        UserError: there is no actor, or the profile has no times for a spec.
    """
    require(largest >= 1, "--fleet", "must be at least 1", largest)
    settings, costs = settings or FleetSettings(), costs or MessageCosts()
    times = times_of_run(profile, config)
    return [
        _row(times, config, spec, actors, settings, costs)
        for spec in specs
        for actors in fleet_sizes(largest)
    ]


def fleet_sizes(largest: int) -> list[int]:
    """Return 1, 2, 5, 10, ... up to `largest`, which is the last."""
    steps = (mantissa * 10**power for power in range(7) for mantissa in (1, 2, 5))
    return [*(size for size in steps if size < largest), largest]


def _row(
    profile: LatencyProfile,
    config: RunConfig,
    spec: CompressionSpec,
    actors: int,
    settings: FleetSettings,
    costs: MessageCosts,
) -> FleetRow:
    wired = replace(
        profile,
        num_actors=actors,
        actors_per_batch=1,
        num_hosts=actors,
        cores=2 + profile.num_distillers,
        down_bytes_per_second=0.0,
        up_bytes_per_second=0.0,
    )
    link = settings.link_gbit * 1e9 / 8.0
    work = Work.of(wired, config, spec)
    scale = work.rollout / costs.samples  # rollouts of other lengths have bytes in proportion
    if settings.packed:
        receive, send = costs.receive_seconds, costs.send_seconds + costs.pack_seconds * scale
        unpack, size = costs.unpack_seconds * scale, costs.rollout_bytes * scale
    else:
        receive, send = costs.receive_whole_seconds, costs.send_whole_seconds * scale
        unpack, size = 0.0, costs.whole_bytes * scale
    message = (receive + 2.0 * costs.wait_seconds * actors + unpack) / work.rollout
    published = profile.size_bytes(spec)
    nodes = math.ceil(actors / settings.actors_per_node)
    work = replace(
        work,
        act=work.act + send / (work.rollout * actors),
        learn=work.learn + message,
        publish=work.publish + costs.call_seconds * actors,
        send=nodes * published / link,
        upload=size / link,
        hosts=1,  # links: all rollouts come in on that of the learner's node
    )
    found = steady_state(work, config, spec)
    speed, limit = found.env_steps_per_second, found.limit
    if speed * size >= FULL * link * work.rollout:
        limit = "link"
    slots = actors * Wiring.of(config.runtime, wired).slots_each(config.runtime.queue_rollouts)
    held = slots * size + 2.0 * published
    if held > settings.store_gb * 1e9:
        limit = "store"
    rollouts = speed / work.rollout
    between = max(config.runtime.publish_every, math.ceil(found.age_updates))
    return FleetRow(
        spec=spec,
        actors=actors,
        env_steps_per_second=speed,
        limit=limit,
        learner_share=min(1.0, speed * (work.learn + work.copy / (between * work.rollout))),
        message_share=speed * message,
        bytes_in_per_second=rollouts * size,
        bytes_out_per_second=rollouts / between * nodes * published,
        store_bytes=held,
        age_updates=found.age_updates,
        policy_lag=found.policy_lag,
    )
