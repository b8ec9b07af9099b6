"""Rollouts on their way to the learner: as they are on its own node, each frame once elsewhere."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from accerl.acting.rollout import Rollout
from accerl.networks.frames import join, split
from accerl.networks.observation import ObservationSpec

_LEVEL = 1  # of zlib: the next ones cost more time than they save bytes


def pack(rollout: Rollout, observation: ObservationSpec, *, travels: bool) -> dict[str, np.ndarray]:
    """Return a rollout as arrays, which Ray copies into shared memory as they are.

    Args:
        rollout: what to send; nothing of it is copied, unless it travels.
        observation: of its states.
        travels: whether to another machine: then images are sent once and compressed. Three of
            four frames of an Atari state are those of the state before it.
    """
    arrays = rollout.state_dict()
    if not (travels and observation.is_pixels):
        return arrays
    frames, whole = split(arrays.pop("obs"), observation.frames)
    data = zlib.compress(frames.data, _LEVEL)
    return {**arrays, "frames": np.frombuffer(data, np.uint8), "whole": whole}


def unpack(arrays: Mapping[str, np.ndarray], observation: ObservationSpec) -> Rollout:
    """Return the rollout that was packed; it may be read-only."""
    if "obs" in arrays:
        return Rollout(**arrays)
    others = dict(arrays)
    stack, whole = observation.frames, others.pop("whole")
    data = zlib.decompress(others.pop("frames").data)
    size = int(np.prod(observation.shape)) // stack
    frames = np.frombuffer(data, observation.dtype).reshape(-1, size)
    obs = join(frames, whole, stack).reshape(*whole.shape, *observation.shape)
    return Rollout(obs=obs, **others)


def size_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    """Return what a packed rollout takes in an object store, and on a link."""
    return sum(array.nbytes for array in arrays.values())
