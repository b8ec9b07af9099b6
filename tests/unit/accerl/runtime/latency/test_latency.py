"""Latency profiles: the paper's numbers, interpolation between measured ones, files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.runtime.latency.profile import (
    LatencyProfile,
    SpecLatency,
)
from accerl.runtime.latency.profiles import (
    SHIPPED,
    load_profile,
    paper_profile,
    profile_folder,
    profile_names,
    save_profile,
    standard_specs,
)
from accerl.spec import IDENTITY, STUDENTS, CompressionSpec

SPARSE = CompressionSpec(sparsity=0.5)


def profile(**changes: Any) -> LatencyProfile:
    rows = (
        SpecLatency(spec=SPARSE, infer_us={4: 20.0}, publish_ms=5.0, distill_us=3.0),
        SpecLatency(
            spec=IDENTITY, infer_us={16: 40.0, 1: 100.0, 4: 60.0}, publish_ms=9.0, distill_us=7.0
        ),
    )
    values = {
        "name": "test",
        "source": "a test",
        "env_step_us": 30.0,
        "learner_us_per_sample": 200.0,
        "specs": rows,
        "num_actors": 2,
        "cores": 4,
        "fingerprint": {"cpu": "x"},
    }
    return LatencyProfile(**{**values, **changes})


def test_the_paper_s_times_are_the_paper_s() -> None:
    """Table 6 and figure 1: milliseconds at batch 1; 25 ms per 160 samples; 3 ms per env step."""
    paper = paper_profile()
    times = {"original": 6.0, "net1": 2.5, "net2": 1.9, "net3": 1.2}
    for student, milliseconds in times.items():
        spec = CompressionSpec(student=student)
        assert paper.infer_seconds(spec, 1) == pytest.approx(milliseconds * 1e-3)
    assert paper.infer_seconds(CompressionSpec(bits=8), 1) == pytest.approx(3e-3)
    assert paper.env_seconds(1) == pytest.approx(3e-3)
    assert paper.learn_seconds(160) == pytest.approx(25e-3)
    assert paper.fingerprint == {}


def test_every_choice_of_the_controller_has_a_time_and_harder_compression_is_never_slower() -> None:
    paper = paper_profile()
    for bits in (32, 8):
        times = [
            [
                paper.infer_seconds(
                    CompressionSpec(student=student, sparsity=sparsity, bits=bits), 32
                )
                for sparsity in (0.0, 0.25, 0.5, 0.75)
            ]
            for student in STUDENTS
        ]
        assert all(row == sorted(row, reverse=True) for row in times)
        assert all(
            list(column) == sorted(column, reverse=True) for column in zip(*times, strict=True)
        )
    standard = {spec.label for spec in standard_specs()}
    assert {row.spec.label for row in paper.specs} <= standard
    assert len(standard) == len(standard_specs())


def test_seconds_are_microseconds_per_state_times_states() -> None:
    test = profile()
    assert test.infer_seconds(IDENTITY, 1) == pytest.approx(100e-6)
    assert test.infer_seconds(IDENTITY, 16) == pytest.approx(16 * 40e-6)
    assert test.env_seconds(8) == pytest.approx(8 * 30e-6)
    assert test.learn_seconds(10) == pytest.approx(10 * 200e-6)
    assert test.publish_seconds(IDENTITY) == pytest.approx(9e-3)
    assert test.distill_seconds(IDENTITY, 10) == pytest.approx(70e-6)


def test_between_measured_batches_and_sparsities_times_are_interpolated() -> None:
    test = profile()
    # Batch 2 lies half way between 1 and 4 on the scale of doublings; outside, the end holds.
    assert test.infer_seconds(IDENTITY, 2) == pytest.approx(2 * 80e-6)
    assert test.infer_seconds(IDENTITY, 64) == pytest.approx(64 * 40e-6)
    quarter = CompressionSpec(sparsity=0.25)
    assert test.infer_seconds(quarter, 4) == pytest.approx(4 * 40e-6)
    assert test.publish_seconds(quarter) == pytest.approx(7e-3)
    assert test.infer_seconds(CompressionSpec(sparsity=0.9), 4) == pytest.approx(4 * 20e-6)


def test_pruned_networks_say_nothing_about_the_whole_one() -> None:
    net1 = CompressionSpec(student="net1")
    times = SpecLatency(spec=net1, infer_us={4: 20.0}, publish_ms=5.0, distill_us=3.0)
    known = [replace(times, spec=replace(net1, sparsity=level)) for level in (0.25, 0.5)]
    test = profile(specs=(*profile().specs, *known))
    assert all(test.has(replace(net1, sparsity=level)) for level in (0.25, 0.3, 0.5, 0.8))
    assert not any(test.has(replace(net1, sparsity=level)) for level in (0.0, 0.2))
    with pytest.raises(UserError, match="no times for 'net1 fp32'"):
        test.infer_seconds(net1, 4)


def test_one_level_of_sparsity_says_nothing_about_others() -> None:
    eager = CompressionSpec(graph="eager")
    two_core = load_profile("two-core")
    assert two_core.has(eager)
    assert not two_core.has(replace(eager, sparsity=0.5))
    with pytest.raises(UserError, match="no times for 'original pruned 50%"):
        two_core.infer_seconds(replace(eager, sparsity=0.5), 16)


@pytest.mark.parametrize(
    "spec",
    [CompressionSpec(bits=16), CompressionSpec(student="net1"), CompressionSpec(rank=0.5)],
    ids=lambda spec: spec.label,
)
def test_a_spec_that_was_not_measured_is_not_guessed(spec: CompressionSpec) -> None:
    with pytest.raises(UserError, match=f"has no times for '{spec.label}'"):
        profile().infer_seconds(spec, 1)


@pytest.mark.parametrize("network", STUDENTS[1:])
def test_a_smaller_learner_is_charged_as_what_it_is(network: str) -> None:
    """Its own network under the name original; smaller students under their own."""
    paper = paper_profile()
    seen = paper.for_network(network)
    levels: list[dict[str, Any]] = [
        {}, {"bits": 8}, {"sparsity": 0.4}, {"sparsity": 0.5, "bits": 8}
    ]  # fmt: skip
    for changes in levels:
        own = CompressionSpec(**changes)
        named = CompressionSpec(student=network, **changes)
        assert seen.infer_seconds(own, 4) == paper.infer_seconds(named, 4)
        assert seen.infer_seconds(own, 4) < paper.infer_seconds(own, 4)
        assert seen.publish_seconds(own) == paper.publish_seconds(named)
        assert seen.distill_seconds(own, 64) == paper.distill_seconds(named, 64)
        for student in STUDENTS[1:]:
            spec = CompressionSpec(student=student, **changes)
            if STUDENTS.index(student) > STUDENTS.index(network):
                assert seen.infer_seconds(spec, 4) == paper.infer_seconds(spec, 4)
            else:
                with pytest.raises(UserError, match="has no times for"):
                    seen.infer_seconds(spec, 4)
    share = paper.infer_seconds(CompressionSpec(student=network), 1) / 6e-3
    assert seen.learn_seconds(160) == pytest.approx(25e-3 * share)
    assert seen.env_seconds(3) == paper.env_seconds(3)
    assert paper.for_network("original") == paper


def test_a_smaller_learner_that_was_not_measured_is_not_guessed() -> None:
    assert profile().for_network("original") == profile()
    with pytest.raises(
        UserError, match=r"no times for a learner of 'net1'; `accerl profile measure"
    ):
        profile(small_learner_us={"net2": 9.0}).for_network("net1")


@pytest.mark.parametrize(
    "changes",
    [
        {"env_step_us": 0.0},
        {"learner_us_per_sample": -1.0},
        {"small_learner_us": {"net1": 0.0}},
        {"specs": ()},
    ],
)
def test_times_must_be_positive(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="every time must be positive"):
        profile(**changes)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    original = profile(small_learner_us={"net1": 50.0, "net3": 10.0})
    save_profile(original, tmp_path / "deep" / "test.json")
    restored = load_profile(str(tmp_path / "deep" / "test.json"))
    assert restored == original
    assert restored.hash == original.hash
    assert load_profile("test", tmp_path / "deep") == original


def test_the_hash_tells_profiles_apart() -> None:
    hashes = {
        profile().hash,
        profile(env_step_us=31.0).hash,
        profile(num_actors=3).hash,
        profile(fingerprint={"cpu": "y"}).hash,
        profile(small_learner_us={"net1": 50.0}).hash,
        profile(specs=profile().specs[:1]).hash,
        profile(specs=(replace(profile().specs[0], publish_ms=6.0), profile().specs[1])).hash,
    }
    assert len(hashes) == 7


def test_profiles_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path))
    assert profile_folder() == tmp_path / "profiles"
    assert profile_names() == list(SHIPPED)
    save_profile(profile(name="mine"), tmp_path / "profiles" / "mine.json")
    assert profile_names() == [*SHIPPED, "mine"]
    assert load_profile("mine").name == "mine"
    assert load_profile("paper") == paper_profile()
    with pytest.raises(UserError, match=r"'min' does not exist; did you mean 'mine'\?"):
        load_profile("min")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data.pop("specs"), "is damaged: .*'specs'"),
        (lambda data: data.update(format=9), "it has format 9"),
        (lambda data: data.update(colour="red"), "is damaged: .*'colour'"),
        (lambda data: data["specs"][0].pop("infer_us"), "is damaged: .*'infer_us'"),
        (lambda data: data["specs"][0].update(publish_ms="fast"), "is damaged: .*'fast'"),
        (lambda data: data["specs"][0]["spec"].update(bits=7), "bits"),
        (lambda data: data.update(env_step_us=-1.0), "every time must be positive"),
        (lambda data: data.update(env_step_us=math.inf), "every time must be positive"),
        (lambda data: data.update(env_step_us=10**400), "every time must be positive"),
        (lambda data: data.update(cores=10**400), "nothing in it may be"),
        (lambda data: data.update(step_bytes=10**400), "step_bytes above 0"),
        (lambda data: data.update(observation=[0]), "observation has a side below 1"),
        (lambda data: data["specs"][0].update(infer_us={}), "infer_us of every spec must give"),
        (lambda data: data["specs"][0].update(infer_us={"0": 1.0}), "batch sizes of at least 1"),
        (lambda data: data.update(small_learner_us=[3.0]), "is damaged: .*'list'"),
        (lambda data: data.update(small_learner_us={"net1": "slow"}), "is damaged: .*'slow'"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any, reason: str) -> None:
    data = profile().to_json()
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(data))
    assert load_profile(str(path)) == profile()
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=reason) as refused:
        load_profile(str(path))
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("held", ["null", "[]", '"edge"', '{"name": "edge"}'])
def test_a_file_that_holds_something_else_is_told_from_a_damaged_one(
    tmp_path: Path, held: str
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(held)
    with pytest.raises(UserError, match=r"this file holds no latency profile; `accerl profile"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cores": 0}, "at least one core"),
        ({"learner": "tpu"}, "learner 'tpu' does not exist"),
        ({"gpu_core": 1.5}, "gpu_core must lie above 0"),
        ({"num_hosts": 3}, "3 machines for 2 rollouts at a time"),
        ({"num_hosts": 1, "down_bytes_per_second": -1.0}, "nothing in it may be negative"),
        ({"write_us": math.nan}, "nothing in it may be negative, NaN or infinite"),
        ({"up_bytes_per_second": math.inf}, "nothing in it may be negative, NaN or infinite"),
        ({"step_bytes": math.nan}, "step_bytes above 0"),
        ({"specs": paper_profile().specs[:1] * 2}, "a spec stands there twice"),
    ],
)
def test_impossible_machines_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        profile(**changes)


def test_links_are_each_machine_s_own() -> None:
    """A publication goes to each machine once, whatever the number of actors on it."""
    rows = tuple(replace(row, size_bytes=3_000_000) for row in profile().specs)
    far = profile(specs=rows, num_hosts=2, down_bytes_per_second=1e6, up_bytes_per_second=2e5)
    assert far.send_seconds(IDENTITY) == pytest.approx(3.0)
    assert replace(far, num_hosts=1).send_seconds(IDENTITY) == pytest.approx(3.0)
    # On one machine the actors share a link, and each fetches its own.
    assert replace(far, num_hosts=0).send_seconds(IDENTITY) == pytest.approx(6.0)
    assert far.upload_seconds(1000) == pytest.approx(2.0)
    assert profile().send_seconds(IDENTITY) == profile().upload_seconds(1000) == 0.0
    assert far.group_cores(8) == 0.0
    paper = load_profile("paper")
    assert paper.group_cores(32) == pytest.approx(32 / 3)
    assert paper.group_cores(8) == 8.0


def test_states_that_are_inferred_in_pieces_cost_what_their_pieces_cost() -> None:
    own = profile()
    _, whole, _ = own.act_seconds(IDENTITY, 5)
    _, pieces, _ = own.act_seconds(IDENTITY, 5, 2)
    assert whole == pytest.approx(own.infer_seconds(IDENTITY, 5))
    pair, one = own.infer_seconds(IDENTITY, 2), own.infer_seconds(IDENTITY, 1)
    assert pieces == pytest.approx(2.0 * pair + one)
    assert pieces > whole
