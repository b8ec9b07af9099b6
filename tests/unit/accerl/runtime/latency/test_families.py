"""Families of machines: the same draws everywhere, ordered as physics demands."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.presets import load_preset
from accerl.runtime.latency.families import (
    FAMILIES,
    MACHINES,
    Draw,
    drawn_engines,
    is_less_work,
    machine_of,
    sample_machine,
    with_low_rank,
)
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profiles import load_profile, profile_names
from accerl.seeds import Role, generator
from accerl.spec import IDENTITY, CompressionSpec


@pytest.mark.parametrize("family", FAMILIES)
def test_a_machine_is_its_family_and_number(family: str) -> None:
    machine = sample_machine(family, 17)
    assert machine.name == f"{family}-0017"
    assert load_profile(machine.name).hash == machine.hash
    others = {sample_machine(family, number).hash for number in range(4)}
    assert len({machine.hash, *others}) == 5
    assert machine.name not in profile_names()


def test_families_with_the_same_number_have_nothing_in_common() -> None:
    edge, few = sample_machine("edge", 3), sample_machine("gpu-few-cores", 3)
    ratios = {b.infer_us[32] / a.infer_us[32] for a, b in zip(edge.specs, few.specs, strict=True)}
    assert len(ratios) > 20
    step_us = [
        [sample_machine(family, number).learner_us_per_sample for number in range(60)]
        for family in ("edge", "gpu-few-cores")
    ]
    correlation = np.asarray(np.corrcoef(step_us))[0, 1]
    assert abs(correlation) < 0.4  # from one stream they would go together


def test_names_of_machines() -> None:
    assert machine_of("gpu-few-cores-0003") == ("gpu-few-cores", 3)
    assert machine_of("edge") is machine_of("edge-3") is machine_of("toaster-0003") is None
    with pytest.raises(UserError, match="did you mean 'laptop'"):
        sample_machine("labtop", 0)
    with pytest.raises(UserError, match="0 to 9,999"):
        sample_machine("laptop", MACHINES)


@pytest.mark.parametrize("base", ["two-core", "paper"])
def test_less_work_never_takes_longer_than_in_the_base_table(base: str) -> None:
    rows = load_profile(base).specs
    pairs = [
        (less, more)
        for less in range(len(rows))
        for more in range(len(rows))
        if is_less_work(rows[less].spec, rows[more].spec)
    ]
    assert len(pairs) > 100
    for seed in range(5):
        drawn = drawn_engines(rows, Draw(generator(seed, Role.MACHINE, 99)))
        assert [row.spec for row in drawn] == [row.spec for row in rows]
        for less, more in pairs:
            for batch, us in rows[less].infer_us.items():
                if us <= rows[more].infer_us[batch]:
                    assert drawn[less].infer_us[batch] <= drawn[more].infer_us[batch]
        for row, own in zip(rows, drawn, strict=True):
            times = [own.infer_us[batch] for batch in sorted(own.infer_us)]
            of_base = [row.infer_us[batch] for batch in sorted(row.infer_us)]
            if of_base == sorted(of_base, reverse=True):
                assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_low_rank_lies_between_the_whole_network_and_a_pruned_one(family: str) -> None:
    machine = sample_machine(family, 5)
    for bits in (32, 8):
        specs = (
            CompressionSpec(bits=bits),
            CompressionSpec(bits=bits, rank=0.25),
            CompressionSpec(bits=bits, sparsity=0.25),
        )
        times = [machine.infer_seconds(spec, 32) for spec in specs]
        assert times == sorted(times, reverse=True)
        assert machine.publish_seconds(specs[1]) > machine.publish_seconds(specs[0])
        assert machine.size_bytes(specs[1]) <= machine.size_bytes(specs[0])


def test_low_rank_that_was_measured_is_not_derived() -> None:
    rows = with_low_rank(load_profile("two-core").specs)
    measured = tuple(
        replace(row, load_ms=7.0 if row.spec.rank < 1 else row.load_ms) for row in rows
    )
    assert with_low_rank(measured) == measured


def test_draws_lie_around_the_base_table() -> None:
    rows = load_profile("two-core").specs
    drawn = [drawn_engines(rows, Draw(generator(seed, Role.MACHINE, 98))) for seed in range(40)]
    for spec in (IDENTITY, CompressionSpec(bits=8), CompressionSpec(student="net2", bits=8)):
        place = next(place for place, row in enumerate(rows) if row.spec == spec)
        for batch, us in rows[place].infer_us.items():
            middle = median(each[place].infer_us[batch] for each in drawn)
            assert middle == pytest.approx(us, rel=0.2)
    ratios = {round(each[1].infer_us[1] / each[0].infer_us[1], 6) for each in drawn}
    assert len(ratios) == 40


@pytest.mark.parametrize("family", FAMILIES)
def test_advice_exists_for_every_machine(family: str) -> None:
    config = load_preset("minatar-breakout")
    for number in range(3):
        advice = advise(sample_machine(family, number), config)
        assert min(row.env_steps_per_second for row in advice.rows) > 0.0


def test_families_are_what_they_say() -> None:
    for number in range(6):
        laptop, few = sample_machine("laptop", number), sample_machine("gpu-few-cores", number)
        assert 2 <= laptop.cores <= 8
        assert laptop.learner_us_per_sample > 100.0
        assert 2 <= few.num_actors <= 8
        assert 10.0 <= few.env_step_us <= 300.0
        assert few.learner_us_per_sample <= 40.0
        server, edge = sample_machine("server", number), sample_machine("edge", number)
        assert server.actors_per_batch == server.num_actors >= 8
        assert server.infer_seconds(IDENTITY, 1) > 2e-3
        assert edge.env_step_us > 300.0
        assert 2.5e5 <= edge.down_bytes_per_second <= 2.5e7
        assert 0.1 <= edge.up_bytes_per_second / edge.down_bytes_per_second <= 1.0
        assert edge.num_hosts == edge.num_actors
        assert few.cores == few.num_actors + 1
        assert (few.learner, server.learner, edge.learner) == ("gpu", "gpu", "gpu")
        assert laptop.learner == "cpu"
