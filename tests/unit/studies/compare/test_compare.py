"""Comparisons of strategies: what they run, keep, compute, print and refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accerl.config import RunConfig
from accerl.errors import UserError
from accerl.monitor.compliance import made_up_features
from accerl.records import read_json
from accerl.runtime.latency.profiles import load_profile
from accerl.settings import configure
from accerl.spec import IDENTITY, Decision
from analysis.report.studies.comparison import cautions
from studies.cli.main import run
from studies.compare.entrants import Entrant, read_entrants
from studies.compare.run import acted, compare, notes_on, reached_by, strategy_rows
from tests.fixtures.controllers.made_bundles import make_indicator_bundle
from tests.fixtures.studies.comparisons import curve, curves, result_of

OWN = "tests.fixtures.own_strategies:Careful"
FP32, NET3, SHORT = "{}", '{"bits": 8, "student": "net3"}', 6.0


def catch(**changes: Any) -> RunConfig:
    return configure("catch", {}, label="setting", **changes)


def test_ratios_are_of_equal_seeds_and_have_their_intervals() -> None:
    slow, quick = strategy_rows(["slow", "quick"], curves(), (5.0, 99.0))
    found = quick["to_score"][0]
    assert found["seconds_ratio"] == pytest.approx(0.51, abs=0.001)
    low, high = found["seconds_interval"]
    assert 0.45 < low < found["seconds_ratio"] < high < 0.56
    assert found["env_steps_ratio"] == 1.0
    assert quick["to_score"][1]["seconds_ratio"] is None  # nobody has reached it
    assert quick["speed"]["ratio"] == pytest.approx(1 / 0.51, abs=0.01)
    assert quick["learner_score_gain"] == {"difference": 1.0, "interval": [1.0, 1.0]}
    assert slow["core_seconds"] == 1.0
    assert strategy_rows(["slow"], {("slow", 0): curves()["slow", 0]}, (5.0,))[0]["speed"] == {
        "ratio": 1.0,
        "interval": None,  # of a single seed
    }


def test_scores_that_nobody_chose_lie_on_the_way_of_the_first_strategy() -> None:
    assert reached_by("slow", curves()) == (5.0, 9.0)
    flat = {("slow", 0): curve([3.0, 3.0], 1.0), ("slow", 1): curve([], 1.0)}
    assert reached_by("slow", flat) == ()
    assert reached_by("slow", {("slow", 0): curve([], 1.0)}) == ()


def test_shares_of_what_acted_are_of_seconds() -> None:
    short, long = curve([0.0] * 4, 1.0), curve([0.0] * 4, 3.0)
    assert acted([short, long]) == {"quick": pytest.approx(0.75), "slow": pytest.approx(0.25)}
    assert acted([]) == {}


def test_what_nobody_measured_of_this_machine_is_a_caution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path))
    blind = catch(network="tests.fixtures.own_networks:residual")
    texts = (FP32, "reward-gap", "indicator", 'indicator {"cap_nats": 0.2}')
    assert notes_on(texts, blind, []) == []  # its latency profile is all that there is to know
    (note,) = notes_on(texts, blind.with_runtime(runtime="process", clock="real"), [])
    assert "the indicator may stay without compression" in note
    (caution,) = cautions(result_of((5.0,), notes=[note]))
    assert caution.startswith("Nobody measured how fast")


def test_a_bundle_that_was_trained_on_these_seeds_is_a_caution(tmp_path: Path) -> None:
    texts = (FP32, str(make_indicator_bundle(tmp_path / "learned")))
    (note,) = notes_on(texts, catch(), range(3))
    assert (
        f"{texts[1]} was trained or chosen on catch with seeds 0-1, which are among these" in note
    )
    assert notes_on(texts, catch(), range(2, 5)) == []
    assert notes_on(texts, configure("cartpole", {}, label="setting"), range(3)) == []


def test_which_precision_auto_means_is_the_folder_s_not_the_entrant_s() -> None:
    profile = load_profile("paper-1080ti")
    (entrant, _) = read_entrants((FP32, NET3), catch(), profile)
    assert not {"precision", "distill_precision"} & entrant.identity["machine"].keys()
    (entrant, _) = read_entrants(
        (FP32, NET3), catch().with_runtime(runtime="process", clock="real"), None
    )
    assert entrant.identity["machine"]["precision"] == "fp32"


def test_entrants_are_specs_names_with_parameters_bundles_and_ones_own(tmp_path: Path) -> None:
    bundle = str(make_indicator_bundle(tmp_path / "learned"))
    rule = 'kl-threshold {"threshold_nats": 2.5}'
    texts = [FP32, NET3, rule, "indicator", bundle, f'{OWN} {{"bits": 8}}']
    found = read_entrants(texts, catch(), load_profile("paper-1080ti"))
    labels = [entrant.label for entrant in found]
    assert labels == ["original fp32", "net3 INT8", rule, "indicator", *texts[4:]]
    assert found[2].identity["strategy_params"]["threshold_nats"] == 2.5
    assert found[4].identity["strategy_params"]["digest"]
    assert len(found[5].identity["sources"][OWN]) == 12
    assert found[3].identity["sources"] == {}
    assert [entrant.folder for entrant in found[:2]] == ["original-fp32", "net3-INT8"]
    assert len({entrant.folder for entrant in found}) == 6
    assert all(len(entrant.folder) < 80 for entrant in found)


def test_what_is_written_alike_has_a_folder_of_its_own() -> None:
    specs = [{"bits": bits, "student": name} for bits in (8, 32) for name in ("net1", "net2")]
    long = f"random {json.dumps({'specs': specs, 'hold_intervals': 2})}"
    longer = f"random {json.dumps({'specs': specs, 'hold_intervals': 3})}"
    found = read_entrants([long, longer], catch(), load_profile("paper-1080ti"))
    assert found[0].folder != found[1].folder


def test_dice_of_strategies_are_those_of_the_seed_unless_they_are_given() -> None:
    rules = '{"rules": [{"name": "random", "params": {"specs": [{}, {"bits": 8}]}}]}'
    texts = ["sw-ucb", 'thompson {"seed": 7}', "reward-gap", f"first-that-fires {rules}"]
    found = read_entrants(texts, catch(), load_profile("paper-1080ti"))
    own, given, none, composed = (entrant.seeded(5).strategy for entrant in found)
    assert own.seed == 5  # pyright: ignore[reportAttributeAccessIssue]
    assert given.seed == 7  # pyright: ignore[reportAttributeAccessIssue]
    assert none is found[2].strategy
    assert composed.rules[0].seed == 5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_strategy_of_ones_own_draws_by_the_seed_of_the_run() -> None:
    named = "tests.fixtures.own_strategies:Drawing"
    texts = [named, f'{named} {{"seed": 7}}']
    own, given = read_entrants(texts, catch(), load_profile("paper-1080ti"))

    def drawn(entrant: Entrant, seed: int) -> list[Decision]:
        strategy = entrant.seeded(seed).strategy
        strategy.reset()
        return [strategy.decide(made_up_features()) for _ in range(20)]

    assert drawn(own, 5) == drawn(own, 5) != drawn(own, 6)
    assert drawn(own, 7) == drawn(given, 5) == drawn(given, 6)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([FP32], "two strategies or more"),
        ([FP32, '{"bits": 32}'], "same as 'original fp32'"),
        ([FP32, "fixed"], "same as 'original fp32'"),
        (["indicator", "indicator {}"], "same as 'indicator'"),
        ([FP32, ""], "name a strategy"),
        ([FP32, "kl-threshold {oops"], "--strategies .* not valid JSON"),
        ([FP32, "tests.fixtures.own_strategies:Unpacked"], r"own_strategies.py:\d+"),
        ([FP32, "tests.fixtures.own_strategies:Unbound"], r"own_strategies.py:\d+"),
        ([FP32, "kl-treshold"], "kl-threshold"),
        ([FP32, '{"bits": 7}'], "bits"),
        ([FP32, 'kl-threshold {"treshold_nats": 2.0}'], "threshold_nats"),
        ([FP32, "tests.fixtures.own_strategies:Nobody"], "has no attribute 'Nobody'"),
        ([FP32, "tests.fixtures.own_strategies:Undecided"], "has no decide"),
        ([FP32, f'{OWN} {{"bits": 7}}'], "cannot be made"),
    ],
)
def test_what_cannot_take_part_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_entrants(texts, catch(), load_profile("paper-1080ti"))


def compared(out: Path, strategies: tuple[str, ...], seeds: int, **changes: Any) -> dict[str, Any]:
    config = catch(seconds=SHORT, **changes)
    return compare(config, strategies, out=out, seeds=seeds, scores=(-0.5,), workers=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "catch"
    compared(out, (FP32, NET3), 1)
    return out


def made(folder: Path) -> Mapping[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/summary.json")}


@pytest.mark.parametrize("text", ["{", "[]", '{"seeds": 5}'])
def test_a_damaged_comparison_is_written_anew(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made(folder)
    (folder / "comparison.json").write_text(text)
    result = compared(folder, (FP32, NET3), 1)
    assert read_json(folder / "comparison.json") == json.loads(json.dumps(result))
    assert made(folder) == before
    assert "no longer show" not in capsys.readouterr().err


def test_a_comparison_goes_on_with_more_strategies_and_seeds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made(folder)
    assert {path.parts[-3] for path in before} == {"original-fp32", "net3-INT8"}
    result = compared(folder, (FP32, NET3, OWN), 2)
    after = made(folder)
    assert len(after) == 6
    assert {path: after[path] for path in before} == before
    own = result["strategies"][2]
    assert own["acted"] == {"original INT8": 1.0}
    assert result["strategies"][1]["speed"]["ratio"] > 1.0
    assert read_json(folder / "comparison.json") == json.loads(json.dumps(result))
    assert sum(result["runs_by"].values()) == 6
    capsys.readouterr()
    assert sum(compared(folder, (FP32, NET3), 1)["runs_by"].values()) == 2  # those of its own
    assert f"no longer show {own['label']}, seed 1, as" in capsys.readouterr().err
    assert made(folder) == after


def test_another_game_or_setting_gets_another_folder(folder: Path) -> None:
    with pytest.raises(UserError, match="network 'original' there, 'net1' here"):
        compared(folder, (FP32, NET3), 1, network="net1")
    with pytest.raises(UserError, match=r"seconds 6\.0 there, 12\.0 here"):
        compare(catch(seconds=2 * SHORT), (FP32, NET3), out=folder, seeds=1)


def test_a_comparison_has_a_page_with_figures(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    assert run(["report", str(folder), "--html", str(page), "--figures", str(figures)]) == 0
    text = page.read_text()
    assert "Strategies on catch" in text
    assert "net3 INT8" in text
    assert (figures / "scores-by-seconds.png").is_file()
    assert (figures / "scores-by-seconds.csv").is_file()
    capsys.readouterr()
    assert run(["report", str(folder), "--html", str(page), "--scores", "1"]) == 2
    assert "comparison" in capsys.readouterr().err


def test_the_command_prints_tables_and_writes_the_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("studies.compare.run.notes_on", lambda *_: ["nobody measured it"])
    words = ["compare", "catch", "--seconds", f"{SHORT:g}", "--strategies", FP32, NET3]
    words += ["--seeds", "1", "--scores", "-0.5", "--workers", "1", "--out", str(folder), "--json"]
    assert run(words) == 0
    printed = capsys.readouterr()
    told = " ".join(printed.err.split())
    assert "catch on paper-1080ti, original learns: 1 run of 6 s each" in told
    assert "To a score of -0.5" in told
    assert "few seeds (1) say little" in told
    assert "Nobody measured it." in told
    result = json.loads(printed.out)
    assert Path(result["html"]).is_file()
    assert result["baseline"] == IDENTITY.label


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 0}, "--seeds"),
        ({"scores": (float("nan"),)}, "--scores"),
        ({"workers": -1}, "work"),
    ],
)
def test_numbers_that_are_not_allowed_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        compare(catch(), (FP32, NET3), out=tmp_path / "out", **changes)
    with pytest.raises(UserError, match="one length"):
        compare(catch(until_score=1.0), (FP32, NET3), out=tmp_path / "out")
    with pytest.raises(UserError, match="--workers goes with the virtual clock"):
        compare(catch().with_runtime(clock="real"), (FP32,), out=tmp_path / "out", workers=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_on_the_real_clock_processes_take_turns(tmp_path: Path) -> None:
    config = replace(catch(), seconds=4.0).with_runtime(
        runtime="process", clock="real", num_actors=1, interval_seconds=1.0
    )
    result = compare(config, (FP32, NET3), out=tmp_path / "out", seeds=1)
    fp32, net3 = result["strategies"]
    assert result["profile"] is None
    assert fp32["distill_cores"] == 0.0 < net3["distill_cores"]
    assert fp32["core_seconds"] > 0.0
    before = made(tmp_path / "out")
    compare(config, (FP32, NET3), out=tmp_path / "out", seeds=1)
    assert made(tmp_path / "out") == before
