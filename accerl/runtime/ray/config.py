"""RayConfig: where a run on Ray takes place; what it does is the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from accerl.errors import UserError, require_fields


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """The cluster of a run on Ray; not part of the configuration's hash.

    Raises:
        UserError: a value lies outside what is allowed.
    """

    address: str = ""
    """auto (the cluster that this machine is a node of) or HOST:PORT of its head; empty: a cluster
    of this machine alone, which begins and ends with the run"""
    actor_cpus: float = 1.0
    """CPUs of a node that each actor and each distiller takes"""
    helper_resource: str = ""
    """custom resource of the nodes that compress and evaluate; empty: the learner's node does"""

    def __post_init__(self) -> None:
        require_fields(self, "ray", "actor_cpus", "must lie in 0..64", lambda n: 0.0 <= n <= 64.0)
        if self.address.startswith("ray://"):
            raise UserError(
                "ray: a run's learner reads rollouts from its own node's memory, which a client "
                "does not have; make this machine a node (`ray start --address=HOST:PORT`) and "
                "use --cluster auto"
            )
