"""A bundle of an Advanced Indicator: what goes in comes out, is checked, and serves any run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import accerl
from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.compliance import StrategyCompliance, made_up_features
from accerl.monitor.strategies import FirstThatFires
from accerl.monitor.strategy import Strategy, bind, explanation_of, specs_of
from accerl.presets import load_preset
from accerl.records import read_json, write_json
from accerl.runtime.latency.games import times_of_run
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from controller.actions import PresetActions
from controller.bundle.bundle import load_bundle, read_bundle, show_bundle, verify_bundle
from controller.bundle.files import BELIEFS, FILES, GRAPH, MANIFEST, WEIGHTS
from controller.bundle.schedule import median_schedule
from controller.bundle.serving import ServedSchedule, serve_bundle
from controller.indicator.candidates import SCORED, SCORED_VERSION
from controller.indicator.onnx_graph import build_onnx, onnx_scores
from controller.indicator.strategy import AdvancedIndicator
from controller.shield import Shielded
from tests.fixtures.controllers.made_bundles import (
    SPECS,
    features_at,
    make_indicator,
    make_indicator_bundle,
    resign,
)

INT8, NET1, NET3, HALF_RANK = SPECS
MACHINE = "edge-8000"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_indicator_bundle(tmp_path_factory.mktemp("made") / "learned")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "learned")
    return tmp_path / "learned"


def a_run(network: str = "original") -> tuple[RunConfig, LatencyProfile]:
    config = replace(load_preset("catch"), network=network).with_runtime(clock="virtual")
    return config, times_of_run(load_profile(MACHINE), config)


def test_what_is_read_decides_and_explains_as_what_was_exported(folder: Path) -> None:
    loaded, original = load_bundle(folder), make_indicator()
    assert isinstance(loaded, AdvancedIndicator)
    assert loaded.to_json() == original.to_json()
    for strategy in (loaded, original):
        bind(strategy, *a_run())
        strategy.reset()
    chosen = set()
    for step in range(12):
        known = {"served_share": 1.0, "compression_kl_nats": 0.1 * step**2, "ess_fraction": 0.5}
        known |= {"entropy_fraction": 0.5, "compression_kl_is_new": 1.0}
        features = made_up_features(seconds=5.0 * step, kl_mean_nats=0.1 * step**2, **known)
        decision = loaded.decide(features)
        assert decision == original.decide(features)
        assert loaded.explanation == original.explanation
        chosen.add(decision.label)
    assert len(chosen) > 1


def test_the_manifest_says_what_kind_of_policy_reads_and_chooses_what(folder: Path) -> None:
    manifest = read_json(folder / MANIFEST)
    policy = {"kind": "indicator", "hidden": 6, "features_version": SCORED_VERSION}
    assert manifest["policy"] == policy
    assert {row["name"]: row["text"] for row in manifest["features"]} == SCORED
    labels = [row["label"] for row in manifest["action_table"]]
    assert labels == [spec.label for spec in (IDENTITY, *SPECS)]
    assert set(manifest["files"]) == set(FILES)
    own = read_json(folder / BELIEFS)
    assert own["prior"]["cost"] == 0.4
    assert own["settings"]["cap_nats"] == 0.3


def test_torch_and_onnx_runtime_score_alike(folder: Path) -> None:
    indicator = make_indicator(4)
    vectors = np.random.default_rng(1).uniform(-9, 9, (64, len(SCORED))).astype(np.float32)
    scores = onnx_scores(build_onnx(indicator.scorer), vectors)
    assert scores.shape == (64,)
    mine = indicator.scorer(torch.from_numpy(vectors)).detach().numpy()
    np.testing.assert_allclose(mine, scores, rtol=1e-5, atol=1e-5)
    report = verify_bundle(folder)
    assert (report["parameters"], report["actions"]) == (111, 5)
    assert report["max_logit_difference"] <= 1e-5
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("prior"),
        lambda data: data["prior"].pop("cost"),
        lambda data: data["prior"].update(cost=-1.0),
        lambda data: data["prior"].update(luck=1.0),
        lambda data: data["settings"].pop("cap_nats"),
        lambda data: data["settings"].update(cap_nats="much"),
        lambda data: data["settings"].update(specs=[{"bits": 7}]),
        lambda data: data["settings"].update(specs=3),
        lambda data: data.update(more=1),
    ],
)
def test_beliefs_of_another_form_are_found(
    folder: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    data = read_json(folder / BELIEFS)
    change(data)
    write_json(folder / BELIEFS, data)
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"indicator\.json does not hold an indicator") as caught:
        load_bundle(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest["features"][0].update(name="luck"), "lists other features"),
        (lambda manifest: manifest["policy"].update(features_version=1), "train it again"),
        (lambda manifest: manifest["policy"].pop("features_version"), "lists other features"),
        (lambda manifest: manifest["action_table"].pop(), "does not list its actions"),
    ],
)
def test_signed_manifests_that_do_not_fit_are_found(
    folder: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    resign(folder, change)
    with pytest.raises(UserError, match=message) as caught:
        load_bundle(folder)
    assert "\n" not in str(caught.value)


def test_features_in_other_words_are_the_same_features(folder: Path) -> None:
    resign(folder, lambda manifest: manifest["features"][0].update(text="how fast it is"))
    assert verify_bundle(folder)["ok"]


def test_a_forged_graph_or_weights_are_found_by_their_scores(folder: Path) -> None:
    other = make_indicator_bundle(folder.parent / "other")
    (folder / GRAPH).write_bytes(build_onnx(make_indicator(1).scorer))
    resign(folder, lambda manifest: None)
    with pytest.raises(UserError, match=r"controller\.onnx .* disagree"):
        verify_bundle(folder)
    weights = load_file(other / WEIGHTS)
    weights["outer"][2] += 0.01
    save_file(weights, other / WEIGHTS)
    resign(other, lambda manifest: None)
    with pytest.raises(UserError, match="disagree"):
        verify_bundle(other)


def test_card_and_show_describe_it_in_words(folder: Path) -> None:
    card, shown = (folder / "README.md").read_text(), show_bundle(folder)
    for fact in (
        "believes something of the speed and the fidelity of each of 5 specs",
        "counts exp(-0.4 D^0.5)",
        "above a KL of 0.3 nats",
        "less than 97% of no compression does not act",
        "| net3 INT8 | 0.086 |",
        "| speed | log of the rate over the fastest candidate's, in tenths |",
        "trained on: catch-edge (seeds 0, 1)",
        "catch-edge: seconds to target 0.71 times that of fp32",
        "0% to 50%: net3 INT8, chosen by 100%",
    ):
        assert fact in card
    assert "{" not in card
    assert "ablation" not in card
    assert json.loads(json.dumps(shown)) == shown
    blind = make_indicator_bundle(folder.parent / "blind", uses_kl=False)
    assert "ablation: it does not look at KL" in (blind / "README.md").read_text()


def test_the_fallback_is_the_schedule_of_the_machine_s_family(folder: Path) -> None:
    bundle = read_bundle(folder)
    assert set(bundle.schedules) == {
        *("catch-laptop-0001", "catch-edge-0001", "laptop", "edge", "catch", "all")
    }
    served, (config, times) = ServedSchedule(bundle), a_run()
    bind(served, replace(config, preset="pong"), times)
    assert (served.wanted, served.identity["schedule"]) == ("pong-edge-8000", "edge")
    assert served.decide(features_at(0.0, 60.0)) == Decision.of(NET3)
    assert served.decide(features_at(45.0, 60.0)) == Decision.of(IDENTITY)
    bind(named := ServedSchedule(bundle, "edge"), replace(config, network="net3"), None)
    (missing,) = named.replacements
    assert (missing.spec, missing.acting) == (NET3, INT8)


def test_specs_that_differ_in_rank_alone_stay_apart_in_schedules() -> None:
    actions = PresetActions((IDENTITY, INT8, HALF_RANK))
    schedule = median_schedule(actions, [[(1,)], [(2,)], [(2,)], [(0,)], [(2,)]], 5.0, 5.0)
    (point,) = schedule.points
    assert point.decision == Decision.of(HALF_RANK)
    assert point.agreement == pytest.approx(3 / 5)
    assert point.levels["bits"] == [32, 8, 8, 8, 8]
    schedule.check(actions)
    with pytest.raises(UserError, match="rank 50% INT8 is not in it"):
        schedule.check(PresetActions((IDENTITY, INT8)))


def test_in_a_run_it_leaves_out_what_cannot_act(folder: Path) -> None:
    config, times = a_run("net2")
    served = serve_bundle(folder, network="net2", profile=times)
    assert [str(item) for item in served.replacements] == [
        "net1 INT8 (student not smaller than the learner's network net2)",
        "original rank 50% INT8 (no times in latency profile edge-8000)",
    ]
    bind(served, config, times)
    assert served.specs == (IDENTITY, INT8, NET3)
    assert served.to_json()["params"]["replaced"] == {
        "net1 INT8": None,
        "original rank 50% INT8": None,
    }
    with pytest.raises(UserError, match=r"cannot act with 2 of its specs.*to act with others"):
        serve_bundle(folder, network="net2", profile=times, strict=True)


def test_without_an_uncompressed_actor_there_is_nothing_to_compare_with() -> None:
    config, times = a_run()
    lacking = replace(times, specs=tuple(row for row in times.specs if row.spec.bits == 8))
    with pytest.raises(UserError, match=r"compares with no compression.*no times in latency"):
        make_indicator().bind(config, lacking)


class TestServedIndicator(StrategyCompliance):
    @pytest.fixture(autouse=True)
    def _bundle(self, made: Path) -> None:
        self.bundle = made

    def make(self) -> Strategy:
        config, times = a_run()
        served = serve_bundle(self.bundle, network="original", profile=times)
        bind(served, config, times)
        return served


class TestShieldedIndicator(TestServedIndicator):
    def make(self) -> Strategy:
        return Shielded(super().make())


class TestComposedIndicator(TestServedIndicator):
    def make(self) -> Strategy:
        return FirstThatFires((super().make(),))


def test_wrappers_pass_on_what_is_known_of_the_run_and_why_it_was_decided(folder: Path) -> None:
    served = serve_bundle(folder, network="net2", profile=None)
    strategy = Shielded(FirstThatFires((served,)), 14.0)
    bind(strategy, *a_run("net2"))
    assert specs_of(strategy) == (IDENTITY, INT8, NET3)
    strategy.reset()
    decision = strategy.decide(made_up_features())
    why = explanation_of(strategy)
    assert why == explanation_of(served)
    assert why[decision.without_shadow.label]["chosen"] == 1.0


def test_a_shield_that_steps_in_says_what_acts_and_what_was_thought(folder: Path) -> None:
    shielded = Shielded(serve_bundle(folder, network="original", profile=None), 14.0)
    bind(shielded, *a_run())
    shielded.reset()
    wanted = shielded.decide(made_up_features()).without_shadow.label
    assert wanted != IDENTITY.label
    assert shielded.decide(made_up_features(kl_max_nats=15.0)) == Decision.of(IDENTITY)
    why = explanation_of(shielded)
    assert [label for label, row in why.items() if row["chosen"]] == [IDENTITY.label]
    assert max(why, key=lambda label: why[label]["score"]) != IDENTITY.label
    shielded.decide(made_up_features(kl_max_nats=float("nan")))
    assert explanation_of(shielded) == {}  # it was not asked


def test_what_a_shield_lets_act_says_nothing_of_what_it_overruled(folder: Path) -> None:
    """The KL of no compression is not taken for that of the spec that was decided on."""
    for wrap in (Shielded, lambda served: Shielded(FirstThatFires((served,)))):
        served = serve_bundle(folder, network="original", profile=None)
        shielded = wrap(served)
        bind(shielded, *a_run())
        shielded.reset()
        wanted = shielded.decide(made_up_features()).without_shadow.label
        new = {"served_share": 1.0, "compression_kl_is_new": 1.0}
        far = {"compression_kl_nats": 3.0, "kl_mean_nats": 3.0, **new}
        shielded.decide(made_up_features(kl_max_nats=15.0, **far))
        before = explanation_of(served)[wanted]["kl_nats"]
        assert before > 0.5
        near = {"compression_kl_nats": 1e-5, "kl_mean_nats": 1e-5, **new}
        shielded.decide(made_up_features(kl_max_nats=0.1, **near))
        assert explanation_of(served)[wanted]["kl_nats"] == pytest.approx(before)


def test_a_bundle_is_a_strategy_in_python(folder: Path) -> None:
    strategy = accerl.load_bundle(folder)
    assert specs_of(strategy) == (IDENTITY, *SPECS)
    assert CompressionSpec(rank=0.5, bits=8) in specs_of(strategy)
