"""`--json` prints exactly one JSON object on standard output, and it holds what was promised."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from accerl.records import fingerprint, read_json, read_metrics, versions
from accerl.runtime.latency.games import as_wired
from accerl.runtime.latency.predict import advise
from accerl.runtime.latency.profile import LatencyProfile
from accerl.runtime.latency.profiles import SHIPPED, load_profile, save_profile
from accerl.runtime.run import PHASES
from accerl.settings import configure
from accerl.spec import CompressionSpec
from analysis.records.load import load_study
from tests.fixtures.command_line import Finished, accerl, call
from tests.fixtures.runs.inner_runs import fast_profile
from tests.fixtures.studies.synthetic_study import write_study

SUMMARY_FIELDS = (
    "env", "seed", "runtime", "tier", "seconds", "env_steps", "env_steps_per_second",
    "final_return", "best_return", "phases", "spec_seconds", "decisions", "versions", "fingerprint",
)  # fmt: skip
INT8 = '{"bits": 8}'


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile on which two virtual seconds hold some learning."""
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(fast_profile(num_actors=1).to_json()))
    return path


def trained(
    capsys: pytest.CaptureFixture[str], profile: Path, out: Path, *more: object
) -> Finished:
    return accerl(
        capsys, "train", "catch", "--seconds", 2, "--seed", 51, "--spec", INT8,
        "--profile", profile, "--out", out, "--json", *more,
    )  # fmt: skip


def test_train_and_eval(profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    printed = trained(capsys, profile, out).json
    summary = read_json(out / "summary.json")
    assert printed == summary
    assert [name for name in SUMMARY_FIELDS if name not in summary] == []
    assert (summary["env"], summary["seed"], summary["runtime"]) == ("catch", 51, "serial")
    assert summary["tier"] == "virtual"
    assert summary["seconds"] == pytest.approx(2.0)
    assert summary["env_steps"] > 10_000
    assert summary["final_return"] > 0.5
    assert set(summary["phases"]) == set(PHASES)
    assert set(summary["spec_seconds"]) == {"original INT8"}
    (decision,) = summary["decisions"]
    assert decision["seconds"] == 0.0
    spec = CompressionSpec(bits=8).to_json()
    assert decision["decision"] == [{"spec": spec, "share": 1.0}]
    assert summary["versions"] == versions()
    assert summary["fingerprint"] == fingerprint()
    names = {path.name for path in out.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "summary.json", "checkpoint", "profile.json"}
    config = read_json(out / "config.json")
    assert config["hash"] == summary["config_hash"]
    assert len(list(read_metrics(out))) == 2

    played = accerl(capsys, "eval", out, "--episodes", 30, "--spec", INT8, "--json").json
    assert played["spec"] == spec
    assert (played["episodes"], len(played["returns"])) == (30, 30)
    assert played["mean_return"] == pytest.approx(sum(played["returns"]) / 30)
    assert played["mean_return"] > 0.4
    assert played["std_return"] >= 0.0
    full = accerl(capsys, "eval", out, "--episodes", 30, "--out", tmp_path / "eval", "--json").json
    assert full["spec"] == CompressionSpec().to_json()
    assert read_json(tmp_path / "eval" / "eval.json") == full

    # The same command gives the same numbers; a longer --resume goes on from there.
    again = trained(capsys, profile, tmp_path / "again").json
    assert again == printed
    longer = accerl(
        capsys, "train", "catch", "--seconds", 3, "--seed", 51, "--spec", INT8,
        "--profile", profile, "--out", out, "--resume", "--json",
    ).json  # fmt: skip
    assert longer["seconds"] == pytest.approx(3.0)
    assert longer["env_steps"] > printed["env_steps"]
    assert [report.index for report in read_metrics(out)] == [0, 1, 2]


def test_without_json_all_is_for_people_and_on_standard_output(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = accerl(
        capsys, "train", "catch", "--seconds", "0.1", "--profile", profile, "--out", tmp_path / "r"
    )
    assert (finished.code, finished.err) == (0, "")
    assert "env steps in 0.1 s" in finished.out


@pytest.mark.parametrize(
    "words",
    [
        ("profile", "list"),
        ("profile", "show"),
        ("profile", "diff", "paper-1080ti", "two-core"),
        ("profile", "advise"),
        ("profile", "sample", "2"),
        ("study", "list"),
        ("train", "catch", "--print-config"),
    ],
)
def test_every_object_names_machine_and_versions(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = accerl(capsys, *words, "--json").json
    assert printed["versions"] == versions()
    # A shipped profile says where it was measured: nowhere that a fingerprint is known of.
    assert printed["fingerprint"] == ({} if "show" in words else fingerprint())


def test_profiles(
    profile: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path / "home"))
    assert accerl(capsys, "profile", "list", "--json").json["profiles"] == list(SHIPPED)
    folder = tmp_path / "home" / "profiles"
    folder.mkdir(parents=True)
    (folder / "mine.json").write_text(profile.read_text())
    assert accerl(capsys, "profile", "list", "--json").json["profiles"] == [*SHIPPED, "mine"]
    shown = accerl(capsys, "profile", "show", "mine", "--json").json
    assert shown == {**json.loads(profile.read_text()), "versions": versions()}
    assert LatencyProfile.from_json(shown).hash == load_profile("mine").hash
    paper = accerl(capsys, "profile", "show", "--json").json
    assert paper["name"] == "paper-1080ti"
    assert paper["env_step_us"] == 3000.0
    original = next(row for row in paper["specs"] if row["spec"] == CompressionSpec().to_json())
    assert original["infer_us"] == {"1": 6000.0}
    table = accerl(capsys, "profile", "show", "mine")
    assert table.code == 0
    assert "original INT8" in table.out


def test_profiles_are_listed_with_what_tells_them_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text("{}")
    rows = accerl(capsys, "profile", "list", "--out", tmp_path, "--json").json["rows"]
    assert [row["name"] for row in rows] == [*SHIPPED, "broken"]
    assert "holds no latency profile" in rows[-1]["damaged"]
    paper, two_core = rows[:2]
    assert (paper["num_actors"], paper["num_distillers"], paper["env_step_us"]) == (12, 4, 3000.0)
    assert (two_core["cores"], bool(two_core["machine"])) == (2, True)
    table = accerl(capsys, "profile", "list", "--out", tmp_path)
    assert (table.code, table.err) == (0, "")
    assert all(name in table.out for name in (*SHIPPED, "broken"))


def test_a_fleet_of_more_specs_than_there_are_colours_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = [json.dumps({"sparsity": share / 20, "bits": 8}) for share in range(12)]
    sample = ("profile", "sample", "--fleet", 2, "--specs", *specs, "--out", tmp_path)
    rows = accerl(capsys, *sample, "--json").json["rows"]
    assert len({row["label"] for row in rows}) == 12
    assert read_json(tmp_path / "fleet.json")["rows"] == rows
    assert (tmp_path / "fleet.png").read_bytes()[1:4] == b"PNG"


def test_profiles_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    compared = accerl(capsys, "profile", "diff", "two-core", "edge", "--json").json
    rows = {
        (row["operation"], json.dumps(row["spec"]), row["batch"]): row for row in compared["rows"]
    }
    fp32 = json.dumps(CompressionSpec().to_json())
    assert rows["env", "null", None]["ratio"] == pytest.approx(6.0)
    assert rows["inference", fp32, 32]["ratio"] == pytest.approx(6.0)
    assert rows["publish", fp32, None]["ratio"] == 1.0
    assert compared["a"]["wiring"] != compared["b"]["wiring"]
    table = accerl(capsys, "profile", "diff", "two-core", "edge")
    assert (table.code, table.err) == (0, "")
    assert "publications travel at 1.56 MB/s" in table.out
    assert max(map(len, table.out.splitlines()[:60])) <= 100


def test_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path))
    assert accerl(capsys, "profile", "advise", "--json").json["profile"]["name"] == "two-core"
    given = ("profile", "advise", "--profile", "paper-1080ti", "--env", "paper-pong")
    advice = accerl(capsys, *given, "--json").json
    assert (advice["env"], advice["network"], advice["pays"]) == ("paper-pong", "original", True)
    assert advice["limit"] == "inference"
    assert advice["advice"].startswith("Yes: ")
    assert advice["bound"] == pytest.approx(3.0)  # 3 ms of 9 are the emulator's
    rows = {json.dumps(row["spec"]): row for row in advice["rows"]}
    assert len(rows) == len(advice["rows"]) == 48
    assert rows[json.dumps(CompressionSpec().to_json())]["speedup"] == 1.0
    best = max(row["env_steps_per_second"] for row in advice["rows"])
    start = rows[json.dumps(advice["start"])]
    assert best / 1.05 <= start["env_steps_per_second"] <= best
    table = accerl(capsys, *given)
    assert (table.code, table.err) == (0, "")
    assert advice["advice"].split(";")[0] in table.out
    smaller = accerl(capsys, *given, "--network", "net1", "--json").json
    assert smaller["network"] == "net1"
    assert len(smaller["rows"]) == 36


def test_advice_for_as_many_processes_as_settings_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCERL_HOME", str(tmp_path))
    here = replace(load_profile("two-core"), name="measured", fingerprint=fingerprint())
    save_profile(here, tmp_path / "profiles" / "measured.json")
    settings = {"runtime.num_actors": 3, "runtime.num_distillers": 1}
    given = [word for name, n in settings.items() for word in ("--set", f"{name}={n}")]
    for game in ("pong", "catch"):  # the second of which runs in one process
        rows = accerl(capsys, "profile", "advise", "--env", game, *given, "--json").json["rows"]
        config = configure(game, settings).with_runtime(runtime="process", clock="real")
        expected = [row.to_json() for row in advise(as_wired(here, config), config).rows]
        assert rows == json.loads(json.dumps(expected))
        assert expected != [row.to_json() for row in advise(here, config).rows]


def test_bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle"
    made = accerl(
        capsys, "controller", "train", "--iterations", 1, "--instances", 1, "--draws", 2,
        "--out", bundle, "--json",
    ).json  # fmt: skip
    assert made["bundle"] == str(bundle)
    rows = {row["strategy"]: row for row in made["rows"]}
    assert rows["original fp32"]["gain"] == 1.0
    assert rows["trained"]["ratio"] == 1.0
    assert rows["the rule that training starts from"]["low"] is not None
    best = rows["best static of each run, in hindsight"]
    assert best["gain"] >= max(1.0, rows["original INT8"]["gain"])
    shown = accerl(capsys, "schedule", "show", bundle, "--json").json
    assert shown["path"] == str(bundle)
    verified = accerl(capsys, "schedule", "verify", bundle, "--json").json
    assert 0.0 <= verified["max_logit_difference"] <= 1e-5
    exported = tmp_path / "exported"
    assert accerl(capsys, "schedule", "export", bundle, "--out", exported, "--json").json
    assert sorted(path.name for path in exported.iterdir()) == sorted(
        path.name for path in bundle.iterdir()
    )
    replayed = accerl(
        capsys, "schedule", "replay", exported, "--preset", "catch", "--seconds", 1,
        "--out", tmp_path / "replay", "--json",
    ).json  # fmt: skip
    assert replayed["decisions"]
    steered = accerl(
        capsys, "train", "catch", "--seconds", 1, "--strategy", exported,
        "--out", tmp_path / "steered", "--json",
    ).json  # fmt: skip
    assert steered["strategy"] == str(exported)


def test_settings_may_be_given_one_by_one(
    profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    settings = ("--set", "runtime.num_envs=8", "--set", "learner.corrector=retrace+importance")
    done = accerl(
        capsys, "train", "catch", "--seconds", 0.1, "--profile", profile, "--out", out, *settings
    )
    assert done.code == 0, done.err
    config = read_json(out / "config.json")
    assert config["runtime"]["num_envs"] == 8
    assert config["learner"]["corrector"] == "retrace+importance"


def test_a_clock_that_is_set_by_name_goes_with_any_runtime(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = ("train", "catch", "--runtime", "serial", "--set", "runtime.clock=real")
    runtime = accerl(capsys, *run, "--print-config", "--json").json["runtime"]
    assert (runtime["runtime"], runtime["clock"]) == ("serial", "real")


def test_what_is_printed_of_a_configuration_is_a_file_of_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ("train", "catch", "--print-config", "--json")
    printed = accerl(capsys, *shown, "--set", "learner.unroll=7", "--seed", 3)
    (tmp_path / "run.json").write_text(printed.out)
    assert accerl(capsys, *shown, "--config", tmp_path / "run.json").json == printed.json


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "quickstart" in accerl(capsys, "study", "list", "--json").json["studies"]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["profile"], ["profile", "--help"]], ids=str)
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    finished = accerl(capsys, *arguments)
    assert finished.code == 0
    assert "accerl profile show" in finished.out
    assert ("accerl train" in finished.out) == (arguments in ([], ["--help"]))


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "eval", "bench infer", "study run", "schedule replay", "report"):
        assert call(*command.split(), "--help") == 0
        assert f"accerl {command}" in capsys.readouterr().out


def test_controller_eval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_study(tmp_path / "study")
    found = accerl(capsys, "controller", "eval", folder, "--out", tmp_path / "out", "--json")
    printed = found.json
    assert read_json(tmp_path / "out" / "contest.json") == printed
    assert not (folder / "contest.json").exists()  # a study's own is left as it is
    assert printed["goal"]["held_out"].keys() == {"ratio", "low", "high", "n"}
    columns = {
        "strategy", "env", "game", "profile", "seed", "seconds_to_target", "censored", "auc",
        "final_return",
    }  # fmt: skip
    assert len(printed["rows"]) == len(load_study(folder).runs) > 10
    assert all(columns <= row.keys() for row in printed["rows"])
    assert all(
        {"a", "b", "ratio", "low", "high", "p_holm"} <= row.keys() for row in printed["contrasts"]
    )
    primary = next(row for row in printed["contrasts"] if row["metric"] == "seconds_to_target")
    assert primary["low"] <= primary["ratio"] <= primary["high"]
    assert "Each strategy by itself over all 3 instances" in found.err
