"""CompressionSpec and Decision: what is allowed, one line for what is not, and JSON both ways."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accerl.errors import UserError, did_you_mean
from accerl.spec import BITS, GRAPHS, IDENTITY, STUDENTS, CompressionSpec, Decision


@st.composite
def specs(draw: st.DrawFn) -> CompressionSpec:
    bits = draw(st.sampled_from(BITS))
    return CompressionSpec(
        student=draw(st.sampled_from(STUDENTS)),
        sparsity=draw(st.floats(0.0, 1.0, exclude_max=True)),
        rank=draw(st.floats(0.0, 1.0, exclude_min=True)),
        bits=bits,
        graph="onnx" if bits == 8 else draw(st.sampled_from(GRAPHS)),
    )


def test_the_default_is_no_compression() -> None:
    assert asdict(IDENTITY) == {
        "student": "original",
        "sparsity": 0.0,
        "rank": 1.0,
        "bits": 32,
        "graph": "onnx",
    }


@given(specs())
def test_a_spec_survives_json(spec: CompressionSpec) -> None:
    assert CompressionSpec.from_json(spec.to_json()) == spec
    assert CompressionSpec.from_json(json.dumps(spec.to_json())) == spec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sparsity": 1.2}, r"sparsity is the fraction removed .* \[0, 1\), got 1.2"),
        ({"sparsity": 1.0}, "sparsity is the fraction removed"),
        ({"sparsity": -0.1}, "sparsity is the fraction removed"),
        ({"sparsity": math.nan}, "sparsity must be a number, got nan"),
        ({"sparsity": "half"}, "sparsity must be a number, got 'half'"),
        ({"sparsity": True}, "sparsity must be a number, got True"),
        ({"rank": 0.0}, r"rank .* must lie in \(0, 1\], got 0.0"),
        ({"rank": 1.5}, "rank is the fraction of singular values kept"),
        ({"rank": math.nan}, "rank must be a number, got nan"),
        ({"bits": 7}, r"bits must be one of \[32, 16, 8\], got 7"),
        ({"bits": True}, "bits must be one of"),
        ({"bits": "8"}, "bits must be one of"),
        ({"bits": math.nan}, "bits must be one of"),
        ({"student": "net4"}, "student 'net4' does not exist; did you mean"),
        ({"student": None}, "student None does not exist"),
        ({"graph": "onx"}, "graph 'onx' does not exist; did you mean 'onnx'"),
        ({"bits": 8, "graph": "eager"}, "bits 8 runs in ONNX Runtime only"),
    ],
)
def test_values_outside_the_range_are_named(fields: dict[str, Any], message: str) -> None:
    for make in (lambda: CompressionSpec(**fields), lambda: CompressionSpec.from_json(fields)):
        with pytest.raises(UserError, match=message) as caught:
            make()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"bit": 8}', "unknown key 'bit'; did you mean 'bits'"),
        ('{"colour": 8}', "unknown key 'colour'; allowed: student, sparsity, rank, bits, graph"),
        ("{bits: 8}", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"bits": %s}' % ("8" * 5_000), "not valid JSON"),
        ('{"rank": %s}' % ("8" * 400), "rank must be a number"),
        ("[8]", "expected a JSON object"),
        ("8", "expected a JSON object"),
        ('{"sparsity": NaN}', "sparsity must be a number, got nan"),
    ],
)
def test_json_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        CompressionSpec.from_json(text)


def test_whole_numbers_are_the_same_spec() -> None:
    given = CompressionSpec.from_json('{"sparsity": 0, "rank": 1, "bits": 32.0}')
    assert given == IDENTITY
    assert json.dumps(given.to_json()) == json.dumps(IDENTITY.to_json())


def test_specs_are_keys_and_cannot_change() -> None:
    assert len({CompressionSpec(bits=8), CompressionSpec(bits=8), IDENTITY}) == 2
    spec: Any = CompressionSpec()
    with pytest.raises(FrozenInstanceError):
        spec.bits = 8


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        (IDENTITY, "original fp32"),
        (CompressionSpec(student="net3", sparsity=0.5, bits=8), "net3 pruned 50% INT8"),
        (CompressionSpec(rank=0.25, bits=16, graph="eager"), "original rank 25% bf16 eager"),
    ],
)
def test_labels_name_what_differs(spec: CompressionSpec, label: str) -> None:
    assert spec.label == label
    assert Decision.of(spec).label == label


@given(specs())
def test_a_label_is_read_back_to_the_digit(spec: CompressionSpec) -> None:
    assert CompressionSpec.from_label(spec.label) == spec


def test_close_specs_have_labels_of_their_own() -> None:
    fractions = (0.12, 0.124, 0.12400000000000001, 1.0 / 3.0, 5e-324, 0.1 + 0.2)
    made = [
        CompressionSpec.from_json({name: x}) for x in fractions for name in ("sparsity", "rank")
    ]
    assert len({spec.label for spec in made}) == len(set(made)) == len(made)
    assert made[2].label == "original pruned 12.4% fp32"
    assert [CompressionSpec.from_label(spec.label) for spec in made] == made
    own = CompressionSpec(student="nets.small:make", sparsity=0.07, bits=16, graph="eager")
    assert own.label == "nets.small:make pruned 7% bf16 eager"
    assert CompressionSpec.from_label(own.label) == own


@pytest.mark.parametrize("label", ["", "original", "net3 pruned INT8", "net3 pruned .% INT8"])
def test_other_words_are_no_label(label: str) -> None:
    with pytest.raises(UserError, match="no spec is labelled"):
        CompressionSpec.from_label(label)


NET3 = CompressionSpec(student="net3")


def test_a_decision_is_a_mix() -> None:
    decision = Decision(((NET3, 0.3), (IDENTITY, 0.7)))
    assert decision.specs == (NET3, IDENTITY)
    assert decision.main == IDENTITY
    assert decision.label == "30% net3 fp32 + 70% original fp32"
    assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision
    assert Decision(((NET3, 0.5), (IDENTITY, 0.5))).main == NET3


def test_a_shadow_does_not_act() -> None:
    acting = Decision(((NET3, 0.3), (IDENTITY, 0.7)))
    int8 = CompressionSpec(bits=8)
    decision = Decision(acting.mix, int8)
    assert (decision.specs, decision.main) == (acting.specs, acting.main)
    assert decision != acting == decision.without_shadow
    assert decision.named == (NET3, IDENTITY, int8)
    assert decision.label == "30% net3 fp32 + 70% original fp32 + shadow original INT8"
    alone = Decision(((IDENTITY, 1.0),), int8)
    assert alone.label == "original fp32 + shadow original INT8"
    written = decision.to_json()
    assert written[-1] == {"spec": int8.to_json(), "share": 0.0}
    assert sum(item["share"] for item in written) == 1.0
    assert Decision.from_json(json.loads(json.dumps(written))) == decision
    assert acting.to_json() == written[:-1]


def test_a_shadow_is_one_other_spec_that_the_learner_can_have() -> None:
    with pytest.raises(UserError, match="'net3 fp32' cannot be the shadow of a mix that it is"):
        Decision(((NET3, 0.3), (IDENTITY, 0.7)), NET3)
    written = Decision(((IDENTITY, 1.0),), NET3).to_json()
    with pytest.raises(UserError, match="one spec at most may have a share of 0"):
        Decision.from_json([*written, {"spec": {"bits": 8}, "share": 0.0}])
    decision = Decision(((IDENTITY, 1.0),), NET3)
    decision.check_students("net2")
    with pytest.raises(UserError, match="'net3' is not smaller than the learner's network"):
        decision.check_students("net3")


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ((), "the mix of specs is empty"),
        (((NET3, 0.5),), "shares must sum to 1, got 0.500000"),
        (((NET3, 1.0), (IDENTITY, 0.0)), "every share must be positive"),
        (((NET3, 1.5), (IDENTITY, -0.5)), "every share must be positive"),
        (((NET3, math.nan),), "every share must be positive"),
        (((NET3, 0.5), (NET3, 0.5)), "a spec appears twice"),
    ],
)
def test_impossible_mixes_are_named(mix: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Decision(mix)


@pytest.mark.parametrize("network", STUDENTS)
@pytest.mark.parametrize("student", STUDENTS)
def test_students_must_be_smaller_than_the_learner(student: str, network: str) -> None:
    spec = CompressionSpec(student=student)
    smaller = STUDENTS.index(student) > STUDENTS.index(network)
    decisions = [Decision.of(spec)]
    if student != "original":
        decisions.append(Decision(((IDENTITY, 0.9), (spec, 0.1))))
    for decision in decisions:
        if student == "original" or smaller:
            decision.check_students(network)
            continue
        with pytest.raises(UserError) as refused:
            decision.check_students(network)
        message = str(refused.value)
        assert (
            f"student '{student}' is not smaller than the learner's network, '{network}'" in message
        )
        assert "\n" not in message
        allowed = message.split("use ")[1].split(" (")[0].split(" or ")
        for name in allowed:
            Decision.of(CompressionSpec(student=name)).check_students(network)


def test_did_you_mean_names_the_closest_first() -> None:
    assert did_you_mean("ponng", ["pong", "hero"]) == "did you mean 'pong'? allowed: pong, hero"
    assert did_you_mean("xyz", ["pong", "hero"]) == "allowed: pong, hero"
