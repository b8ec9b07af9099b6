"""Rollouts that travel: every frame once, and the same states at the other end."""

from __future__ import annotations

import numpy as np
import pytest

from accerl.acting.rollout import Rollout, RolloutShape
from accerl.networks.observation import ObservationSpec
from accerl.runtime.ray.packing import pack, size_bytes, unpack

T, B = 7, 3


def stacked_rollout(stack: int, seed: int = 0) -> tuple[Rollout, ObservationSpec, int]:
    """Return a rollout of noise frames, with new episodes; and how many frames it holds."""
    rng = np.random.default_rng(seed)
    observation = ObservationSpec((stack, 84, 84), "uint8", frames=stack)
    shape = RolloutShape(unroll=T, num_envs=B, num_actions=4, observation=observation)
    rollout = Rollout.allocate(shape)
    rollout.logits[:] = rng.normal(size=rollout.logits.shape)
    frames = 0
    for b in range(B):
        held = rng.integers(256, size=observation.shape, dtype=np.uint8)
        frames += stack
        for t in range(T + 1):
            if t and rng.random() < 0.2:
                held = rng.integers(256, size=observation.shape, dtype=np.uint8)
                frames += stack
            elif t:
                held = np.concatenate([held[1:], rng.integers(256, size=(1, 84, 84))])
                frames += 1
            rollout.obs[t, b] = held
    return rollout, observation, frames


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_rollout_that_travels_is_the_same_at_the_other_end(stack: int, seed: int) -> None:
    rollout, observation, frames = stacked_rollout(stack, seed)
    packed = pack(rollout, observation, travels=True)
    arrived = unpack(packed, observation)
    for name, array in rollout.state_dict().items():
        np.testing.assert_array_equal(arrived.state_dict()[name], array, strict=True)
    others = sum(array.nbytes for name, array in rollout.state_dict().items() if name != "obs")
    # Noise does not deflate: what is sent is each frame, and hardly anything else.
    sent = size_bytes(packed) - others
    assert frames * 84 * 84 <= sent < frames * 84 * 84 * 1.01 + 200


def test_on_the_learners_node_nothing_is_copied() -> None:
    rollout, observation, _ = stacked_rollout(4)
    packed = pack(rollout, observation, travels=False)
    assert packed["obs"] is rollout.obs
    assert unpack(packed, observation).obs is rollout.obs


def test_vectors_travel_as_they_are() -> None:
    observation = ObservationSpec((4,), "float32")
    shape = RolloutShape(unroll=T, num_envs=B, num_actions=2, observation=observation)
    rollout = Rollout.allocate(shape)
    assert pack(rollout, observation, travels=True)["obs"] is rollout.obs
