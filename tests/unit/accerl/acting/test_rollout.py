"""Rollouts and the shared-memory slab: shapes, poison, other processes, nothing left behind."""

from __future__ import annotations

import multiprocessing
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest

from accerl.acting.rollout import HEADER, POISON_BYTE, Rollout, RolloutShape, Slab
from accerl.networks.policy_net import ObservationSpec

SHAPE = RolloutShape(
    unroll=3, num_envs=2, num_actions=4, observation=ObservationSpec((2, 5), "uint8")
)


def test_every_field_has_the_shape_that_the_learner_expects() -> None:
    rollout = Rollout.allocate(SHAPE)
    shapes = {name: (array.shape, str(array.dtype)) for name, array in rollout.state_dict().items()}
    assert shapes == {
        "obs": ((4, 2, 2, 5), "uint8"),
        "action": ((3, 2), "int64"),
        "reward": ((3, 2), "float32"),
        "terminated": ((3, 2), "bool"),
        "truncated": ((3, 2), "bool"),
        "life_lost": ((3, 2), "bool"),
        "logits": ((3, 2, 4), "float32"),
        "log_prob": ((3, 2), "float32"),
        "episode_return": ((3, 2), "float32"),
        "header": ((len(HEADER),), "float64"),
    }
    assert SHAPE.samples == 6


def test_returns_are_the_scores_of_ended_episodes_in_time_order() -> None:
    rollout = Rollout.allocate(SHAPE)
    rollout.episode_return[:] = np.nan
    rollout.episode_return[2, 0] = 3.0
    rollout.episode_return[0, 1] = -1.0
    assert rollout.returns() == [-1.0, 3.0]
    rollout.header[:2] = (7, 1)
    assert (rollout.publication, rollout.spec_index) == (7, 1)


def test_a_copy_does_not_follow_the_original() -> None:
    rollout = Rollout.allocate(SHAPE)
    copied = rollout.copy()
    rollout.reward[:] = 9.0
    assert not copied.reward.any()


@pytest.fixture
def slab() -> Any:
    slab = Slab(SHAPE, 3)
    yield slab
    slab.close()


def test_unwritten_memory_is_poisoned_in_every_field(slab: Slab) -> None:
    for slot in range(3):
        for name, array in slab[slot].state_dict().items():
            assert set(array.view(np.uint8).ravel()) == {POISON_BYTE}, name
    # Nobody could take these numbers for data.
    assert slab[0].action[0, 0] < 0
    assert slab[0].reward[0, 0] != 0.0
    assert slab[0].header[0] < 0.0 or slab[0].header[0] > 1e9 or 0.0 < slab[0].header[0] < 1e-9


def fill(rollout: Rollout, value: int) -> None:
    for array in rollout.state_dict().values():
        array[:] = value


def test_slots_do_not_overlap(slab: Slab) -> None:
    for slot in (2, 0, 1):
        fill(slab[slot], slot)
    for slot in range(3):
        for name, array in slab[slot].state_dict().items():
            assert (array == (slot if array.dtype != np.bool_ else bool(slot))).all(), name


def answer_slot_1_with_slot_2(handle: dict[str, Any]) -> None:
    other = Slab(**handle)
    assert other[1].action[2, 1] == 41
    fill(other[2], int(other[1].action[2, 1]) + 1)
    other.close()


def test_two_processes_see_the_same_slots(slab: Slab) -> None:
    fill(slab[1], 41)
    process = multiprocessing.get_context("spawn").Process(
        target=answer_slot_1_with_slot_2, args=(slab.handle(),)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 0
    for name, array in slab[2].state_dict().items():
        assert (array == (42 if array.dtype != np.bool_ else True)).all(), name
    assert (slab[0].action < 0).all()  # nobody wrote there
    # Its end did not take the memory away from the owner.
    Slab(**slab.handle()).close()


def test_closing_removes_every_name() -> None:
    slab = Slab(SHAPE, 2)
    names = slab.handle()["names"]
    guest = Slab(**slab.handle())
    guest.close()
    for name in names.values():
        SharedMemory(name=name).close()  # the guest removed nothing
    slab.close()
    slab.close()
    assert len(names) == len(SHAPE.fields())
    for name in names.values():
        with pytest.raises(FileNotFoundError):
            SharedMemory(name=name)


def test_names_are_removed_even_while_a_view_is_alive() -> None:
    """An exception in mid-update keeps views of the slab alive in its frames."""
    slab = Slab(SHAPE, 1)
    names, view = slab.handle()["names"], slab[0].obs
    slab.close()
    for name in names.values():
        with pytest.raises(FileNotFoundError):
            SharedMemory(name=name)
    del view
