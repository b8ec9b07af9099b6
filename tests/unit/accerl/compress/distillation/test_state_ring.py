"""The ring of states: frames stored once, nothing mixed up, what was lost is not returned."""

from __future__ import annotations

import threading
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch

from accerl.compress.distillation import state_ring
from accerl.compress.distillation.state_ring import HELD_OUT, StateBatch, StateRing, kept_states
from accerl.envs import make_envs
from accerl.networks.observation import ObservationSpec

PIXELS = ObservationSpec((4, 84, 84), "uint8", frames=4)
VECTOR = ObservationSpec((3,), "float32")


def atari_rollouts(count: int, steps: int = 16, envs: int = 4) -> list[np.ndarray]:
    """Return consecutive rollouts [T, B, 4, 84, 84] of random play that crosses games' ends."""
    games = make_envs("breakout", envs)
    obs, rng = games.reset(0), np.random.default_rng(0)
    found = []
    for _ in range(count):
        rollout = np.empty((steps, envs, 4, 84, 84), np.uint8)
        for step in range(steps):
            rollout[step] = obs
            obs = games.step(rng.integers(games.num_actions, size=envs)).obs
        found.append(rollout)
    games.close()
    return found


def numbered(start: int, steps: int = 4, envs: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors [T, B, 3] and logits [T, B, 2] that hold their own number in the ring."""
    number = start + np.arange(envs * steps).reshape(envs, steps).T
    obs = np.repeat(number[:, :, None], 3, axis=2).astype(np.float32)
    return obs, np.repeat(number[:, :, None], 2, axis=2).astype(np.float32)


def test_stacks_come_back_as_they_were_and_share_their_frames() -> None:
    ring = StateRing(PIXELS, 4, 256)
    expected: list[np.ndarray] = []
    for version, obs in enumerate(atari_rollouts(30)):
        logits = np.full((*obs.shape[:2], 4), version, np.float32)
        ring.add(obs, logits, version)
        expected += list(obs.transpose(1, 0, 2, 3, 4).reshape(-1, 4, 84, 84))
        numbers = np.arange(ring.first, ring.total)
        batch = ring.take(numbers)
        assert batch is not None
        assert np.array_equal(batch.obs, np.stack(expected[ring.first : ring.total]))
        assert np.array_equal(batch.version, numbers // 64)
        assert np.array_equal(batch.logits[:, 0], numbers // 64)
    assert ring.total == 30 * 64
    assert 192 < len(ring) <= 256
    # Episodes ended meanwhile: some stacks do not continue the one before.
    assert int(ring._header[2]) > 30 * 4 * (16 + 3)


def test_a_full_ring_of_atari_states_takes_at_most_150_megabytes() -> None:
    assert StateRing(PIXELS, 18, 16_384).size_bytes <= 150e6


@pytest.mark.parametrize("stack", [1, 4])
def test_colours_are_no_frames_of_their_own(stack: int) -> None:
    ring = StateRing(ObservationSpec((3 * stack, 84, 84), "uint8", frames=stack), 4, 64)
    rng = np.random.default_rng(0)
    frames = rng.integers(256, size=(16 + stack - 1, 4, 3, 84, 84), dtype=np.uint8)
    obs = np.concatenate([frames[at : at + 16] for at in range(stack)], axis=2)
    for version in range(2):
        ring.add(obs, np.zeros((16, 4, 4), np.float32), version)
    assert len(ring) == ring.capacity
    batch = ring.take(np.arange(ring.first, ring.total))
    assert batch is not None
    assert np.array_equal(batch.obs, obs.transpose(1, 0, 2, 3, 4).reshape(batch.obs.shape))


@pytest.mark.parametrize("channels", [4, 5, 20])
def test_planes_that_nobody_stacked_are_stored_whole(channels: int) -> None:
    """Those of a state do not continue the last one's, so that few would fit as frames."""
    ring = StateRing(ObservationSpec((channels, 40, 40), "uint8"), 3, 64)
    states = np.random.default_rng(0).integers(256, size=(8, 4, channels, 40, 40), dtype=np.uint8)
    for version in range(3):
        ring.add(states, np.zeros((8, 4, 3), np.float32), version)
    assert len(ring) == ring.capacity == 64


def test_other_states_are_stored_whole_and_the_oldest_go_first() -> None:
    ring = StateRing(VECTOR, 2, 20)
    for start in range(0, 40, 8):
        ring.add(*numbered(start), version=start)
    assert (ring.first, ring.total) == (20, 40)
    batch = ring.take(np.array([39, 20, 25]))
    assert batch is not None
    assert batch.obs[:, 0].tolist() == batch.logits[:, 1].tolist() == [39.0, 20.0, 25.0]
    assert batch.version.tolist() == [32, 16, 24]
    assert ring.take(np.array([19])) is None
    assert ring.take(np.array([40])) is None
    with pytest.raises(ValueError, match="does not fit a ring of 20"):
        ring.add(*numbered(40, steps=11), version=0)


def test_nobody_learns_from_what_is_held_out() -> None:
    ring, generator = StateRing(VECTOR, 2, 64), torch.Generator().manual_seed(0)
    with pytest.raises(LookupError, match="no state"):
        ring.draw(4, generator)
    assert ring.held_out(4) is None
    for start in range(0, 80, 8):
        ring.add(*numbered(start), version=0)
    drawn = np.concatenate([ring.draw(64, generator).obs[:, 0] for _ in range(20)]).astype(int)
    assert set(drawn) == {n for n in range(16, 80) if n % HELD_OUT}
    held = ring.held_out(3)
    assert held is not None
    assert held.obs[:, 0].tolist() == [64.0, 48.0, 32.0]


def test_another_process_reads_the_same_memory() -> None:
    ring = StateRing(VECTOR, 2, 16, shared=True)
    other = StateRing(**ring.handle())
    ring.add(*numbered(0), version=3)
    batch = other.take(np.arange(8))
    assert batch is not None
    assert batch.obs[:, 0].tolist() == list(range(8))
    handle = ring.handle()
    other.close()
    ring.close()
    with pytest.raises(FileNotFoundError):
        StateRing(**handle)


def test_states_are_there_while_a_rollout_as_large_as_the_ring_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring, generator = StateRing(VECTOR, 2, kept_states(VECTOR, 8, 8)), torch.Generator()
    ring.add(*numbered(0), version=0)
    write = state_ring._write
    found: list[StateBatch] = []

    def drawing(*given: Any) -> None:
        found.append(ring.draw(4, generator))
        write(*given)

    monkeypatch.setattr(state_ring, "_write", drawing)
    for start in (8, 16):
        ring.add(*numbered(start), version=start)
    assert all(len(batch.obs) == 4 for batch in found)
    assert {int(version) for batch in found for version in batch.version} == {0, 8}


def test_states_read_while_the_ring_is_written_are_whole() -> None:
    ring, stop = StateRing(VECTOR, 2, 64, shared=True), threading.Event()
    reader = StateRing(**ring.handle())

    def write() -> None:
        start = 0
        while not stop.is_set():
            ring.add(*numbered(start, steps=16), version=start)
            start += 32

    writer = threading.Thread(target=write)
    writer.start()
    generator = torch.Generator().manual_seed(0)
    try:
        while ring.total == 0:
            sleep(0.001)
        for _ in range(300):
            batch = reader.draw(16, generator)
            assert np.array_equal(batch.obs[:, 0], batch.logits[:, 0])
            assert (batch.obs == batch.obs[:, :1]).all()
    finally:
        stop.set()
        writer.join()
        reader.close()
        ring.close()


@pytest.mark.parametrize("limit", [None, 20_000])
def test_a_checkpoint_holds_the_newest_states(
    limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit is not None:
        monkeypatch.setattr(state_ring, "CHECKPOINT_BYTES", limit * 40)
    ring, rollouts = StateRing(PIXELS, 4, 128), atari_rollouts(4)
    for version, obs in enumerate(rollouts[:3]):
        ring.add(obs, np.full((16, 4, 4), version, np.float32), version)
    other = StateRing(PIXELS, 4, 128)
    other.load_state_dict(ring.state_dict())
    assert other.total == ring.total
    assert len(other) == (len(ring) if limit is None else 90)
    for each in (ring, other):
        each.add(rollouts[3], np.zeros((16, 4, 4), np.float32), 3)
    numbers = np.arange(max(ring.first, other.first), ring.total)
    mine, theirs = ring.take(numbers), other.take(numbers)
    assert mine is not None
    assert theirs is not None
    assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
