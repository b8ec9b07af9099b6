from __future__ import annotations

import importlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from analysis.figures.theme import Figure
from analysis.records.load import load_study
from analysis.render.wandb_runs import MOST_ROWS, check_size, strategy_run_id, write_offline_runs
from analysis.report.study import StudyReport
from tests.fixtures.studies.synthetic_study import write_study

BLOCK = 32768


def records(folder: Path) -> Iterator[Any]:
    """Read an offline W&B file: a 7-byte header, then LevelDB log framing in 32 KiB blocks."""
    schema = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (path,) = folder.glob("run-*.wandb")
    data = path.read_bytes()
    position, parts = 7, b""
    while position + 7 <= len(data):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        if kind == 0:
            break
        position += 7
        parts += data[position : position + length]
        position += length
        if kind in (1, 4):
            record = schema.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def item_name(item: Any) -> str:
    return item.key or "/".join(item.nested_key)


def read_run(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"history": [], "summary": {}, "config": {}, "steps": {}}
    for record in records(folder):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            found["history"].append(
                {item_name(i): json.loads(i.value_json) for i in record.history.item}
            )
        elif kind == "summary":
            found["summary"] |= {
                item_name(i): json.loads(i.value_json) for i in record.summary.update
            }
        elif kind == "run":
            found["name"] = record.run.display_name or found.get("name")
            found["config"] |= {
                item_name(i): json.loads(i.value_json) for i in record.run.config.update
            }
        elif kind == "metric":
            metric = record.metric
            found["steps"][metric.name or metric.glob_name] = metric.step_metric
    return found


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have all requests, of the process that W&B starts too, go to a proxy: there are none."""
    wandb = importlib.import_module("wandb")
    wandb.teardown()  # its process would have the environment of an earlier test
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        # Nothing but W&B's own settings may keep it from asking, and nothing past the proxy.
        for name in ("WANDB_MODE", "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for scheme in ("http", "https", "all"):
            address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
            monkeypatch.setenv(f"{scheme}_proxy", address)
            monkeypatch.setenv(f"{scheme}_proxy".upper(), address)
        yield
        wandb.teardown()  # it sends what it has left to send
        proxy.settimeout(0.0)
        asked: list[bytes] = []
        with suppress(BlockingIOError):
            while True:
                request, _ = proxy.accept()
                with request, suppress(TimeoutError):
                    request.settimeout(1.0)
                    asked.append(request.recv(200))
        # Another test may look for a server where there is none, and by chance find this port.
        assert not [request for request in asked if b" HTTP/1." in request]


@pytest.mark.usefixtures("no_network")
def test_one_silent_offline_run_a_strategy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study_dir = write_study(
        tmp_path / "s",
        strategies=("fp32", "learned"),
        games=("breakout", "freeway"),
        seeds=(100, 101),
    )
    before = {key: value for key, value in os.environ.items() if key.startswith("WANDB_")}
    worked_out = StudyReport.of(study_dir)
    folders = write_offline_runs(worked_out, study_dir / "wandb")
    assert capfd.readouterr() == ("", "")
    after = {key: value for key, value in os.environ.items() if key.startswith("WANDB_")}
    after.pop("WANDB_SERVICE", None)  # how W&B finds its own process again
    assert after == {key: value for key, value in before.items() if key != "WANDB_SERVICE"}
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {study_dir / "wandb"}
    runs = {run["name"]: run for run in map(read_run, folders)}
    assert set(runs) == {"fp32 only", "Learned controller", "quickstart: report"}
    study, contest = worked_out.study, worked_out.contest
    report = runs["quickstart: report"]
    assert report["config"]["role"] == "report"
    assert {run["config"]["plan_hash"] for run in runs.values()} == {study.info["plan_hash"]}
    figures = worked_out.figures
    assert set(report["summary"]) >= {f"figures/{figure.name}/_type" for figure in figures}
    for figure in figures:
        (path,) = study_dir.glob(f"wandb/offline-run-*/files/media/table/figures/{figure.name}_*")
        data = json.loads(path.read_text())
        assert data["columns"] == figure.columns
        assert len(data["data"]) == len(figure.table)
    for label, strategy in (("fp32 only", "fp32"), ("Learned controller", "learned")):
        run = runs[label]
        assert run["config"]["role"] == "strategy"
        assert run["config"]["strategy"] == strategy
        assert run["steps"]["*"] == "horizon_share"
        logged = {key for row in run["history"] for key in row}
        assert {
            "horizon_share",
            "seconds/breakout",
            "charts/episodic_return",
            "charts/learner_return",
            "charts/learner_return/breakout",
            "charts/SPS",
            "losses/value",
            "kl/mean_nats",
        } <= logged
        # Games with other horizons share an axis, and none is without points of its own.
        last = run["history"][-1]
        assert last["horizon_share"] == 1.0
        assert (last["seconds/breakout"], last["seconds/freeway"]) == (120.0, 90.0)
        assert all("charts/learner_return/freeway" in row for row in run["history"])
        for row in contest["rows"]:
            if row["strategy"] == strategy:
                key = f"contest/{row['env']}/seed-{row['seed']}/seconds_to_target"
                assert run["summary"][key] == pytest.approx(row["seconds_to_target"])
    ratio = next(c["ratio"] for c in contest["contrasts"] if c["metric"] == "seconds_to_target")
    found = runs["Learned controller"]["summary"]["contrast/fp32/seconds_to_target/ratio"]
    assert found == pytest.approx(ratio)


@pytest.mark.usefixtures("no_network")
def test_single_runs_are_logged_interval_by_interval(tmp_path: Path) -> None:
    study_dir = write_study(
        tmp_path / "s", strategies=("learned",), games=("freeway",), seeds=(100,)
    )
    path = study_dir / "runs/learned/freeway/seed-100"
    (folder,) = write_offline_runs([path], tmp_path / "out")
    assert folder.is_relative_to(tmp_path / "out")
    run = read_run(folder)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["seconds"] for row in run["history"]] == [row["total_seconds"] for row in lines]
    assert [row["charts/learner_return"] for row in run["history"]] == [
        pytest.approx(row["learner_return"]) for row in lines
    ]
    assert run["summary"]["final_return"] == pytest.approx(lines[-1]["learner_return"])


@pytest.mark.usefixtures("no_network")
def test_runs_of_an_earlier_call_are_replaced_and_no_others(tmp_path: Path) -> None:
    study_dir = write_study(
        tmp_path / "s", strategies=("learned",), games=("freeway",), seeds=(100,)
    )
    path, out = study_dir / "runs/learned/freeway/seed-100", tmp_path / "out"
    foreign = out / "wandb" / "offline-run-20200101_000000-abcdefgh"
    foreign.mkdir(parents=True)
    (first,) = write_offline_runs([path], out)
    (second,) = write_offline_runs([path], out)
    assert not first.exists()
    assert {*out.glob("wandb/offline-run-*")} == {second, foreign}


@pytest.mark.usefixtures("no_network")
def test_runs_of_another_source_stay(tmp_path: Path) -> None:
    study_dir = write_study(
        tmp_path / "s", strategies=("learned",), games=("freeway",), seeds=(100, 101)
    )
    a, b = (study_dir / f"runs/learned/freeway/seed-{seed}" for seed in (100, 101))
    out = tmp_path / "out"
    first = write_offline_runs([a, b], out)
    (again,) = write_offline_runs([b], out)
    assert {*out.glob("wandb/offline-run-*")} == {first[0], again}
    of_study = write_offline_runs(StudyReport.of(study_dir), out)
    assert {*out.glob("wandb/offline-run-*")} == {first[0], again, *of_study}
    newer = write_offline_runs(StudyReport.of(study_dir), out)
    ids = [[folder.name.rpartition("-")[2] for folder in each] for each in (of_study, newer)]
    assert ids[0] == ids[1]  # what is uploaded again replaces what was
    assert strategy_run_id(load_study(study_dir), "learned") in ids[0]
    assert len(set(ids[0])) == len(of_study)
    assert {*out.glob("wandb/offline-run-*")} == {first[0], again, *newer}


def test_a_table_that_would_be_cut_short_is_refused() -> None:
    rows = [{"x": number} for number in range(MOST_ROWS + 1)]
    check_size(Figure("long", "Long", "", {}, rows[1:]))
    with pytest.raises(UserError, match=r"figure long has 10,001 rows, and W&B keeps 10,000"):
        check_size(Figure("long", "Long", "", {}, rows))


def test_mistakes_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run directory given"):
        write_offline_runs([], tmp_path / "out")
    with pytest.raises(UserError, match="not a folder"):
        write_offline_runs([tmp_path / "nowhere"], tmp_path / "out")
