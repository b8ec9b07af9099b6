"""Actors' processes of a serial run: the slots that they were lent, and what they are doing."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any

from accerl.acting.actor import Actor
from accerl.config import RunConfig
from accerl.envs import make_envs
from accerl.seeds import Role, number


def actor_name(index: int) -> str:
    """Return the name of an actor's server."""
    return f"actor-{index}"


@dataclass
class Lent:
    """Slots that an actor may fill, in this order."""

    slots: list[int]
    publication: int
    """number of the publication to wait for a while"""
    waited: bool = False


class ModelledActor:
    """An actor's process: the slots it was lent, and what it is doing."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.inbox: list[Lent] = []
        self.filling: int | None = None
        self.charged = 0.0
        """core-seconds of what it is doing"""

    @classmethod
    def of(cls, config: RunConfig, index: int) -> ModelledActor:
        """Return an actor with environments of its own."""
        runtime = config.runtime
        with ExitStack() as stack:  # closes them where they cannot be reset
            envs = make_envs(config.game, runtime.num_envs, config.env)
            stack.enter_context(closing(envs))
            actor = Actor(
                envs,
                number(config.seed, Role.ACTOR, index, 0, 0),
                threads=runtime.actor_threads,
                infer_batch=runtime.infer_batch,
            )
            stack.pop_all()
        return cls(actor)

    def close(self) -> None:
        """Close its environments."""
        self.actor.envs.close()

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on bit-exactly."""
        return {
            "actor": self.actor.state_dict(),
            "inbox": [asdict(lent) for lent in self.inbox],
            "filling": self.filling,
            "charged": self.charged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state returned by `state_dict`."""
        self.actor.load_state_dict(state["actor"])
        self.inbox = [Lent(**{**lent, "slots": list(lent["slots"])}) for lent in state["inbox"]]
        self.filling, self.charged = state["filling"], state["charged"]
