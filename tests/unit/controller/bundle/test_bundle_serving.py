"""A bundle in runs that cannot act with all of its specs: others act, or the run refuses."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance
from accerl.monitor.features import Features
from accerl.monitor.strategy import Strategy, bind
from accerl.runtime.latency.profile import LatencyProfile
from accerl.spec import STUDENTS, CompressionSpec, Decision
from accerl.training.run import run_training
from controller.actions import ActionSpace
from controller.bundle.bundle import export_bundle, read_bundle
from controller.bundle.meta import ProfileId
from controller.bundle.serving import (
    Replacement,
    ServedSchedule,
    ServedStrategy,
    replace_missing,
    serve_bundle,
)
from controller.env.compatibility import incompatibility
from tests.fixtures.controllers.made_bundles import (
    ACTIONS,
    HARD,
    META,
    features_at,
    make_bundle,
    make_schedules,
    make_wide,
)
from tests.fixtures.runs.inner_runs import fast_profile, tiny_catch

INT8 = CompressionSpec(bits=8)
NET1, NET3 = CompressionSpec(student="net1"), CompressionSpec(student="net3")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("made") / "learned")


def without_int8() -> LatencyProfile:
    profile = fast_profile()
    return replace(profile, specs=tuple(row for row in profile.specs if row.spec.bits != 8))


def test_a_run_that_can_act_with_everything_changes_nothing(bundle: Path) -> None:
    served = serve_bundle(bundle, network="original", profile=fast_profile())
    assert served.replacements == ()
    assert served.identity["schedule"] is None
    assert set(served.specs) == set(ACTIONS.all_specs)


@pytest.mark.parametrize(
    ("network", "profile", "spec", "acting"),
    [
        ("net1", None, NET1, "original fp32"),
        ("net1", None, NET3, None),
        ("net3", None, NET3, "original fp32"),
        ("net2", None, replace(NET1, bits=8, sparsity=0.5), "original pruned 50% INT8"),
        ("original", without_int8(), INT8, "original fp32"),
        ("original", without_int8(), replace(NET3, bits=8), "net3 fp32"),
        ("net1", without_int8(), replace(NET1, bits=8, sparsity=0.25), "original pruned 25% fp32"),
        ("original", without_int8(), NET3, None),
    ],
)
def test_what_a_run_cannot_act_with_is_replaced_by_the_nearest_milder(
    network: str, profile: LatencyProfile | None, spec: CompressionSpec, acting: str | None
) -> None:
    seen = None if profile is None else profile.for_network(network)
    found = replace_missing(ACTIONS, (spec,), network, seen)
    if acting is None:
        assert found == ()
    else:
        (replacement,) = found
        assert replacement.acting is not None
        assert (replacement.spec, replacement.acting.label) == (spec, acting)
        assert incompatibility(network, seen, replacement.acting) is None


def test_where_nothing_milder_exists_the_nearest_acts() -> None:
    only_int8 = replace(
        fast_profile(), specs=tuple(row for row in fast_profile().specs if row.spec.bits == 8)
    )
    (replacement,) = replace_missing(ACTIONS, (CompressionSpec(),), "original", only_int8)
    assert replacement.acting == INT8


def test_a_run_that_can_act_with_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no spec of the action space exists"):
        replace_missing(ActionSpace(bits=(8,)), (INT8,), "original", without_int8())


def test_an_engine_that_is_not_installed_is_incompatible(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = CompressionSpec(graph="eager")
    assert (
        incompatibility("original", None, INT8) is incompatibility("original", None, eager) is None
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert incompatibility("original", None, INT8) == "onnxruntime not installed"
    assert incompatibility("original", None, eager) is None


@pytest.mark.parametrize("network", STUDENTS)
def test_a_run_refuses_what_is_incompatible(network: str) -> None:
    profile = without_int8().for_network(network)
    found = set()
    for spec in (*ACTIONS.all_specs, CompressionSpec(rank=0.5), CompressionSpec(graph="eager")):
        try:
            Decision.of(spec).check_students(network)
            profile.infer_seconds(spec, 8)
        except UserError:
            assert incompatibility(network, profile, spec) is not None
        else:
            assert incompatibility(network, profile, spec) is None
            found.add(spec.student)
    assert found == {"original", *STUDENTS[STUDENTS.index(network) + 1 :]}


def test_everything_that_is_left_out_is_listed_or_refused(bundle: Path) -> None:
    served = serve_bundle(bundle, network="net2", profile=None)
    told = list(map(str, served.replacements))
    assert len(told) == 12  # net1 and net2: two of four students
    assert "net1 fp32 (student not smaller than the learner's network net2)" in told
    bind(served, replace(tiny_catch(), network="net2"), None)
    assert {spec.student for spec in served.specs} == {"original", "net3"}
    with pytest.raises(UserError, match=r"cannot act with 12 of its specs: net1 fp32 \(.*--strict"):
        serve_bundle(bundle, network="net2", profile=None, strict=True)


def scheduled(
    bundle: Path,
    profile: LatencyProfile | None = None,
    *,
    game: str | None = None,
    strict: bool = False,
    **run: Any,
) -> ServedSchedule:
    config = replace(tiny_catch(), **run)
    served = ServedSchedule(read_bundle(bundle), game, strict=strict)
    bind(served, config, None if profile is None else profile.for_network(config.network))
    return served


def test_a_schedule_is_judged_by_what_it_holds(bundle: Path) -> None:
    """Its policy may choose net1 and net2; this schedule holds net3 and the original only."""
    assert scheduled(bundle, strict=True, network="net2").replacements == ()
    (first, *rest) = scheduled(bundle, without_int8()).replacements
    assert str(first) == (
        "net3 pruned 50% INT8 -> net3 pruned 50% fp32 (no times in latency profile fast)"
    )
    assert first.spec == ACTIONS.spec(HARD)
    assert rest == []
    with pytest.raises(UserError, match=r"cannot act with 1 of its specs.*nearest milder ones"):
        scheduled(bundle, without_int8(), strict=True)


def test_the_schedule_of_the_run_is_preferred(tmp_path: Path) -> None:
    """That of the game on the machine, of the machine's family, of the game, of all runs."""
    of = make_schedules()["catch"]
    names = ("all", "breakout", "breakout-edge-0001", "edge", "catch-fast")
    bundle = export_bundle(tmp_path / "learned", make_wide(), META, dict.fromkeys(names, of))

    def chosen(preset: str, machine: str, **options: Any) -> tuple[str | None, str]:
        served = scheduled(bundle, replace(fast_profile(), name=machine), preset=preset, **options)
        return served.wanted, served.identity["schedule"]

    assert chosen("catch", "fast") == ("catch-fast", "catch-fast")
    assert chosen("breakout", "edge-0001") == ("breakout-edge-0001", "breakout-edge-0001")
    assert chosen("breakout", "edge-0002") == ("breakout-edge-0002", "edge")
    assert chosen("breakout", "fast") == ("breakout-fast", "breakout")
    assert chosen("pong", "fast") == ("pong-fast", "all")
    assert chosen("catch", "fast", game="edge") == ("edge", "edge")
    real = tiny_catch(clock="real")  # what is known of the machine is not what charges the run
    bind(served := ServedSchedule(read_bundle(bundle)), real, fast_profile())
    assert (served.wanted, served.identity["schedule"]) == ("catch", "all")


def test_a_measured_machine_has_a_schedule_in_its_own_bundle_alone(tmp_path: Path) -> None:
    """Every machine's own profile is called "measured"."""
    own = replace(fast_profile(), name="measured")
    other = replace(own, env_step_us=2.0 * own.env_step_us)
    known = replace(META, profiles=(ProfileId(name=own.name, hash=own.hash),))
    schedule = make_schedules()["catch"]
    schedules = {"all": schedule, "catch-measured": schedule}
    bundle = export_bundle(tmp_path / "learned", make_wide(), known, schedules)

    def chosen(profile: LatencyProfile, game: str | None = None) -> str:
        return scheduled(bundle, profile, game=game).identity["schedule"]

    assert chosen(own) == "catch-measured"
    assert chosen(other) == "all"
    part = replace(own, game="breakout").for_game("catch", "net1")
    assert chosen(replace(part, env_step_us=3.0, origin=own.hash)) == "catch-measured"
    assert chosen(other, "catch-measured") == "catch-measured"


def test_the_records_tell_the_bundle_the_mode_and_the_replacements(bundle: Path) -> None:
    told = scheduled(bundle, network="net3").to_json()
    digest = read_bundle(bundle).manifest.digest[:12]
    assert told["name"] == "bundle"
    assert told["params"] == {
        "digest": digest,
        "mode": "schedule",
        "schedule": "catch",
        "replaced": {"net3 pruned 50% INT8": "original pruned 50% INT8"},
    }


class Mixing:
    """A strategy that mixes two specs, one of which is missing in the run."""

    needs = ("learner_return",)
    specs = (INT8, CompressionSpec())

    def reset(self) -> None:
        pass

    def decide(self, features: Features) -> Decision:
        return Decision(((INT8, 0.25), (CompressionSpec(), 0.75)))


def test_shares_of_what_becomes_the_same_add_up() -> None:
    found = replace_missing(ACTIONS, Mixing.specs, "original", without_int8())
    served = ServedStrategy(Mixing(), {}, found)
    assert found == (Replacement(INT8, CompressionSpec(), "no times in latency profile fast"),)
    assert served.decide(features_at(0.0, 60.0)) == Decision.of(CompressionSpec())
    assert served.specs == (CompressionSpec(),)
    assert served.needs == {"learner_return"}


@pytest.mark.parametrize("acting", [CompressionSpec(), CompressionSpec(bits=16)])
def test_a_shadow_is_replaced_too_and_is_none_if_that_acts(acting: CompressionSpec) -> None:
    class Shadowing(Mixing):
        def decide(self, features: Features) -> Decision:
            return Decision(((acting, 1.0),), INT8)

    found = replace_missing(ACTIONS, Shadowing.specs, "original", without_int8())
    decision = ServedStrategy(Shadowing(), {}, found).decide(features_at(0.0, 60.0))
    shadow = None if acting == CompressionSpec() else CompressionSpec()
    assert decision == Decision(((acting, 1.0),), shadow)


class TestServedCompliance(StrategyCompliance):
    @pytest.fixture(autouse=True)
    def _bundle(self, bundle: Path) -> None:
        self.bundle = bundle

    def make(self) -> Strategy:
        served = serve_bundle(self.bundle, network="net2", profile=None)
        bind(served, replace(tiny_catch(), network="net2"), None)
        return served


@pytest.mark.parametrize("mode", ["policy", "schedule"])
def test_a_run_under_a_served_bundle_is_deterministic(bundle: Path, mode: str) -> None:
    """A learner of net1, to which half of the specs are new or missing."""
    config = replace(tiny_catch(eval_episodes=0), network="net1")
    profile = replace(without_int8(), num_actors=1)
    runs = []
    for _ in range(2):
        served = (
            serve_bundle(bundle, network="net1", profile=profile)
            if mode == "policy"
            else ServedSchedule(read_bundle(bundle))
        )
        result = run_training(config, served, profile=profile)
        runs.append([report.to_json() for report in result.reports])
        for report in result.reports:
            assert {spec.bits for spec in report.decision.specs} == {32}
    assert runs[0] == runs[1]
