"""Links of a serial run: rollouts on their way from the machines that act to the learner's.

Each machine sends one rollout after the other. Its actors fill their next slots meanwhile; who has
none left waits, so that the slots bound what is under way.
"""

from __future__ import annotations

from collections import deque

from accerl.runtime.serial.servers import Servers
from accerl.runtime.wiring import UPLINK


class Uplinks:
    """What each machine that acts still has to send.

    Args:
        servers: the run's; each link is one of them.
        hosts: machines; 0: rollouts need not travel.
    """

    def __init__(self, servers: Servers, hosts: int) -> None:
        self._servers = servers
        self._waiting: list[deque[tuple[int, float]]] = [deque() for _ in range(hosts)]

    def send(self, actor: int, slot: int, seconds: float) -> None:
        """Send a slot that an actor has filled, when its machine has sent all before it."""
        host = actor % len(self._waiting)
        self._waiting[host].append((slot, seconds))
        if len(self._waiting[host]) == 1:
            self._begin(host)

    def _begin(self, host: int) -> None:
        self._servers.send(f"{UPLINK}-{host}", self._waiting[host][0][1])

    def sent(self, link: str) -> int:
        """Return the slot that has arrived, and send the next one."""
        host = int(link.rpartition("-")[2])
        slot, _ = self._waiting[host].popleft()
        if self._waiting[host]:
            self._begin(host)
        return slot

    def state_dict(self) -> list[list[list[float]]]:
        """Return what is under way and what waits, as plain numbers."""
        return [[list(each) for each in waiting] for waiting in self._waiting]

    def load_state_dict(self, state: list[list[list[float]]]) -> None:
        """Go on from a state returned by `state_dict`."""
        self._waiting = [
            deque((int(slot), float(seconds)) for slot, seconds in waiting) for waiting in state
        ]
