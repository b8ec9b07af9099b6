"""SharedBlocks: the memory through which a run's learner, compressor, distillers and actors share.

What the learner has learned (`weights`) and seen (`states`, and a sample of them to calibrate on)
goes to whoever compresses and distils; what they made of it goes to the actors (`mailbox`).
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from accerl.acting.rollout import RolloutShape
from accerl.compress.distillation.state_ring import StateRing, kept_states, ring_bytes
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.networks.graph_policy import Policy, count_bytes
from accerl.runtime.process.board import Board
from accerl.runtime.process.samples import SampleRing
from accerl.runtime.publishing.charges import MOST_IDLE
from accerl.spec import Decision
from accerl.weights import Mailbox, WeightVector, count_weights

STUDENTS_EACH = MOST_IDLE
"""networks of the learner's size that a distiller may show; a shared student counts twice"""
MIXED = 8
"""specs that a mix may hold; memory is taken from the machine only for those that it does hold"""
_SLACK_BYTES = 262_144  # of an artifact besides its weights


@dataclass(frozen=True)
class SharedBlocks:
    """The blocks of one run, owned by the learner's process."""

    weights: WeightVector
    samples: SampleRing
    states: StateRing
    mailbox: Mailbox

    @classmethod
    def of(cls, config: RunConfig, policy: Policy, shape: RolloutShape) -> SharedBlocks:
        """Make the blocks for a learner's policy and its rollouts."""
        compression, kept = config.compression, _kept_states(config, shape)
        numbers, gradients = count_weights(policy), compression.needs_gradients
        observation, actions = shape.observation, shape.num_actions
        with ExitStack() as stack:
            take = stack.enter_context  # what is there is let go of if the next fails
            blocks = cls(
                weights=take(closing(WeightVector(numbers, gradients=gradients))),
                samples=take(closing(SampleRing(observation, compression.calibration_states))),
                states=take(closing(StateRing(observation, actions, kept, shared=True))),
                mailbox=take(closing(Mailbox(MIXED * artifact_bytes(policy)))),
            )
            stack.pop_all()
        return blocks

    def close(self) -> None:
        """Let go of the memory and remove it. Safe to call twice."""
        for block in (self.weights, self.samples, self.states, self.mailbox):
            block.close()


def shared_bytes(
    config: RunConfig, policy: Policy, shape: RolloutShape, slots: int, distillers: int
) -> int:
    """Return the shared memory that a run may come to take: its blocks, slots and boards.

    Args:
        config: of the run.
        policy: the learner's.
        shape: of a rollout.
        slots: rollouts that there are.
        distillers: that have boards.
    """
    observation, kept = shape.observation, _kept_states(config, shape)
    vectors = 2 if config.compression.needs_gradients else 1
    return (
        slots * shape.size_bytes
        + WeightVector.segment_bytes(vectors * 4 * count_weights(policy), 1)
        + config.compression.calibration_states * observation.size_bytes
        + ring_bytes(observation, shape.num_actions, kept)
        + Mailbox.segment_bytes(MIXED * artifact_bytes(policy), 2)
        + distillers * Board.segment_bytes(board_bytes(policy), 2)
    )


def check_mix(decision: Decision) -> None:
    """Refuse a mix of more specs than the mailbox has room for.

    Raises:
        UserError: it is such a mix.
    """
    mixed = len(decision.mix)
    if mixed > MIXED:
        raise UserError(
            f"decision: a mix of {mixed} specs, and the process runtime takes {MIXED} at most; mix "
            "fewer, or use --runtime serial"
        )


def board_bytes(policy: Policy) -> int:
    """Return how many bytes a distiller's board may hold."""
    return STUDENTS_EACH * artifact_bytes(policy)


def artifact_bytes(policy: Policy) -> int:
    """Return how many bytes an artifact may have: what the learner's network consists of, and more.

    Students are no larger, and graphs bring what they are made of.
    """
    return count_bytes(policy) + _SLACK_BYTES


def network_of(config: RunConfig, policy: Policy) -> tuple[Any, ...]:
    """Return what another process needs to build the learner's network."""
    return config.network, policy.observation, policy.num_actions


def _kept_states(config: RunConfig, shape: RolloutShape) -> int:
    return kept_states(shape.observation, config.compression.distill_states, shape.samples)
