"""The profiles that come with the package: complete, distinct, and honest about their origin."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.records import fingerprint
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import PAPER, SHIPPED, load_profile, save_profile, this_machine
from accerl.spec import BITS, IDENTITY, STUDENTS, CompressionSpec

ASSEMBLED = ("gpu-learner", "edge", "slow-env", "learner-bound")
FACTORED = [
    CompressionSpec(student=student, bits=bits, sparsity=sparsity)
    for student in STUDENTS
    for bits in BITS
    for sparsity in (0.0, 0.25, 0.5, 0.75)
]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_choice_has_positive_times(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert all(profile.has(spec) for spec in FACTORED)
    for network in STUDENTS:
        seen = profile.for_network(network)
        assert seen.learn_seconds(1) > 0.0
        assert min(sum(seen.act_seconds(row.spec, 32)) for row in seen.specs) > 0.0
        assert min(seen.publish_seconds(row.spec) for row in seen.specs) > 0.0


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_survives_its_file(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    assert LatencyProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile
    save_profile(profile, tmp_path / "copy.json")
    assert load_profile(str(tmp_path / "copy.json")).hash == profile.hash


def test_their_seconds_are_never_mixed() -> None:
    assert len({load_profile(name).hash for name in SHIPPED}) == len(SHIPPED)
    assert SHIPPED[:2] == (PAPER, "two-core")


def test_only_what_was_measured_carries_a_machine() -> None:
    measured = load_profile("two-core")
    assert measured.fingerprint["cores"] == measured.cores == 2
    for name in ASSEMBLED:
        profile = load_profile(name)
        assert "assembled, not measured" in profile.source
        assert (profile.fingerprint, profile.spread) == ({}, {})


def test_smaller_networks_are_sent_in_fewer_bytes() -> None:
    """INT8 is about a quarter of float32; pruning half of all units leaves about a quarter."""
    edge = load_profile("edge")
    whole = edge.send_seconds(IDENTITY)
    assert whole == pytest.approx(4 * 6.5e6 / (12.5e6 / 8), rel=0.02)
    assert edge.send_seconds(CompressionSpec(bits=8)) == pytest.approx(whole / 4, rel=0.05)
    assert edge.send_seconds(CompressionSpec(sparsity=0.5)) == pytest.approx(whole / 4, rel=0.05)


def test_the_assembled_differ_from_the_measured_as_they_say() -> None:
    base = load_profile("two-core")
    edge, gpu = load_profile("edge"), load_profile("gpu-learner")
    acting = base.act_seconds(IDENTITY, 32)
    assert edge.act_seconds(IDENTITY, 32) == pytest.approx([6.0 * part for part in acting])
    assert gpu.learn_seconds(1000) == pytest.approx(6e-3)
    assert min(gpu.small_learner_us.values()) >= 1.0
    assert gpu.groups == 4
    assert load_profile("slow-env").env_seconds(1) == pytest.approx(0.02)
    slow = load_profile("learner-bound")
    assert slow.learn_seconds(1) == pytest.approx(6.0 * base.learn_seconds(1))


def test_this_machine_is_its_measured_profile_if_there_is_one(tmp_path: Path) -> None:
    assert this_machine(tmp_path) == "two-core"
    of_another = replace(load_profile("two-core"), fingerprint={"id": "another"})
    path = tmp_path / "measured.json"
    save_profile(of_another, path)
    assert this_machine(tmp_path) == "two-core", "the folder is shared with that one"
    save_profile(replace(of_another, fingerprint=fingerprint()), path)
    assert this_machine(tmp_path) == "measured"
