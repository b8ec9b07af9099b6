"""ActionSpace: indices name specs and back, and levels are ordered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.monitor.strategies import RandomStrategy
from accerl.spec import CompressionSpec
from controller.actions import ActionSpace, PresetActions, find_actions, hardness
from controller.shield import Shielded


def test_default_space_starts_at_the_identity() -> None:
    space = ActionSpace()
    assert space.sizes == (2, 3, 4)
    assert space.decision((0, 0, 0)).main == CompressionSpec()
    assert space.spec((1, 2, 3)) == CompressionSpec(bits=8, sparsity=0.5, student="net3")


def test_indices_inverts_spec_everywhere() -> None:
    space = ActionSpace(bits=(32, 16), graph="eager")
    specs = [space.spec(indices) for indices in space.all_indices()]
    assert len(set(specs)) == 24
    assert [space.indices(spec) for spec in specs] == space.all_indices()


def test_students_of_ones_own_stand_in_any_order() -> None:
    own = tuple(f"tests.fixtures.own_networks:{name}" for name in ("OwnMLP", "OwnConv"))
    assert ActionSpace(students=("original", *own)).sizes[2] == 3
    assert ActionSpace(students=("original", *own[::-1])).sizes[2] == 3
    with pytest.raises(UserError, match="without repeats"):
        ActionSpace(students=("original", own[0], own[0]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": ()}, "bits is empty"),
        ({"bits": (8, 32)}, "mild to hard"),
        ({"sparsities": (0.5, 0.5)}, "mild to hard"),
        ({"students": ("net3", "net1")}, "mild to hard"),
        ({"students": ("net4",)}, "does not exist"),
        ({"sparsities": (0.0, 1.0)}, "sparsity"),
        ({"graph": "eager"}, "ONNX Runtime only"),
    ],
)
def test_mistakes_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ActionSpace(**fields)


@pytest.mark.parametrize("indices", [(0, 0), (2, 0, 0), (0, -1, 0), (0, 0, 0, 0)])
def test_bad_indices_are_refused(indices: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="action"):
        ActionSpace().spec(indices)


def test_a_spec_outside_the_space_is_named() -> None:
    with pytest.raises(UserError, match="net1 bf16"):
        ActionSpace().indices(CompressionSpec(student="net1", bits=16))


def test_presets_are_one_head() -> None:
    joint = find_actions("joint")
    assert joint.sizes == (8,)
    assert joint.spec((0,)) == CompressionSpec()
    assert [joint.indices(joint.spec(i)) for i in joint.all_indices()] == joint.all_indices()
    with pytest.raises(UserError, match="net1 bf16 is not in it; it has the presets original"):
        joint.indices(CompressionSpec(student="net1", bits=16))


def test_presets_must_differ() -> None:
    with pytest.raises(UserError, match="none of them twice"):
        PresetActions((CompressionSpec(), CompressionSpec()))


def test_misspelt_action_spaces_are_named() -> None:
    with pytest.raises(UserError, match="did you mean 'factored'"):
        find_actions("factord")


def test_masks_and_positions_are_in_the_order_of_all_indices() -> None:
    space = find_actions("factored")
    mask = space.mask(lambda spec: spec.bits != 8 and spec.student != "net3")
    for place, indices in enumerate(space.all_indices()):
        assert space.position(indices) == place
        assert mask[place] == (indices[0] != 2 and indices[2] != 3)
    heads = np.split(space.head_masks(mask), np.cumsum(space.sizes)[:-1])
    assert [head.tolist() for head in heads] == [
        [True, True, False],
        [True, True, True, True],
        [True, True, True, False],
    ]


@pytest.mark.parametrize("index", [-1, 8, 0.5, "a", None, math.nan, math.inf, [1]])
def test_what_is_no_index_is_named(index: Any) -> None:
    joint = find_actions("joint")
    whole: Any = (2.0,), (np.int64(2),)
    assert [joint.position(indices) for indices in whole] == [2, 2]
    with pytest.raises(UserError, match=r"action: index .* of head 0 is not in 0\.\.7"):
        joint.position((index,))


def test_a_missing_combination_becomes_the_nearest_milder_one() -> None:
    space = find_actions("factored")
    mask = space.mask(lambda spec: spec.bits == 32 or spec.student == "original")
    place = space.position((2, 1, 1))  # INT8 needs one step less of student, two of bits
    assert space.all_indices()[space.nearest(mask, place)] == (2, 1, 0)
    assert space.nearest(mask, 0) == 0


def test_where_nothing_milder_exists_the_nearest_acts() -> None:
    joint = find_actions("joint")
    mask = joint.mask(lambda spec: spec.bits == 8)
    assert joint.spec((joint.nearest(mask, 0),)) == CompressionSpec(bits=8)


def test_an_action_space_without_any_existing_spec_is_refused() -> None:
    with pytest.raises(UserError, match="no spec of the action space exists"):
        ActionSpace().mask(lambda spec: False)


def test_low_rank_and_networks_of_your_own_are_harder_than_none() -> None:
    low_rank, other = CompressionSpec(rank=0.25), CompressionSpec(student="impala", bits=16)
    rivals = RandomStrategy((low_rank, CompressionSpec()))
    assert Shielded(rivals).fallback == CompressionSpec()
    assert sum(hardness(CompressionSpec(student="original", bits=16))) < sum(hardness(other))
    presets = PresetActions((CompressionSpec(), low_rank, CompressionSpec(bits=8)))
    mask = np.array([True, True, False])
    assert presets.nearest(mask, 2) == 0
