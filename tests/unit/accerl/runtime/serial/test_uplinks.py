"""Links: one rollout after the other on each, and all of them at once."""

from __future__ import annotations

import json

from accerl.runtime.serial.servers import Servers
from accerl.runtime.serial.uplinks import Uplinks


def arrivals(servers: Servers, links: Uplinks) -> list[tuple[int, float]]:
    """Return (slot, time) of everything that arrives."""
    found = []
    while (event := servers.advance(100.0)) is not None:
        found.append((links.sent(event[0]), servers.now))
    return found


def linked() -> tuple[Servers, Uplinks]:
    servers = Servers(["uplink-0", "uplink-1"])
    return servers, Uplinks(servers, 2)


def test_actors_of_a_machine_send_in_turn_and_machines_side_by_side() -> None:
    servers, links = linked()
    for actor, slot in ((0, 10), (1, 11), (2, 12)):  # the third is on the first one's machine
        links.send(actor, slot, 1.5)
    assert arrivals(servers, links) == [(10, 1.5), (11, 1.5), (12, 3.0)]


def test_what_is_under_way_survives() -> None:
    servers, links = linked()
    links.send(0, 5, 2.0)
    links.send(2, 6, 2.0)
    servers.advance(0.5)
    others, copies = linked()
    others.load_state_dict(json.loads(json.dumps(servers.state_dict())))
    copies.load_state_dict(json.loads(json.dumps(links.state_dict())))
    assert arrivals(others, copies) == arrivals(servers, links) == [(5, 2.0), (6, 4.0)]
