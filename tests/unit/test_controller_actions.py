"""ActionSpace: indices name specs and back, and levels are ordered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.spec import CompressionSpec
from controller.actions import ActionSpace


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


def test_json_round_trip() -> None:
    space = ActionSpace(bits=(32,), sparsities=(0.0, 0.3), students=("net1", "net3"))
    assert ActionSpace.from_json(json.loads(json.dumps(space.to_json()))) == space


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


def test_from_json_refuses_other_keys() -> None:
    with pytest.raises(UserError, match="expected the keys"):
        ActionSpace.from_json({**ActionSpace().to_json(), "rank": [1.0]})
