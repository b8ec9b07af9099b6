"""What people see of the room: its figures and its page, from a matrix that is made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from accerl.errors import UserError
from accerl.records import read_json, write_json
from accerl.runtime.latency.profiles import load_profile
from accerl.spec import IDENTITY, CompressionSpec, Decision
from analysis.comparison.families import by_family
from analysis.comparison.room.matrix import Matrix
from analysis.comparison.room.unseen import SPEED
from analysis.figures.studies.room import gains, heat_map, room_figures
from analysis.formats import gain_with_interval
from analysis.report.blocks import Text
from analysis.report.studies.room import SCALES, _events, beside, parts_note
from analysis.report.studies.room_tables import UNSEEN, worth_cell
from controller.env.instances import Instance
from studies.cli.report import Report
from studies.jobs.inner import StrategyResult
from studies.room.cells import make_cells
from studies.room.plan import RoomBudget, make_plan
from studies.room.result import decomposition, drawn_room
from studies.room.runs import rows_of
from studies.room.show import RESULT, SMALL, show
from studies.room.study import RoomStudy
from studies.room.tested import RuleRuns, acted_with, compared
from studies.room.tuned import SCHEDULE, Rule
from studies.study_folder import write_plan

SPECS = (IDENTITY, CompressionSpec(bits=8))
NET3 = CompressionSpec(student="net3", bits=8)
MACHINES = ("paper-1080ti", "learner-bound")
BUDGET = RoomBudget(
    games={"catch": 9_000}, machines=MACHINES, specs=SPECS, seeds=3, reference_runs=1
)


def instances() -> list[Instance]:
    cells = make_cells(BUDGET, {name: load_profile(name) for name in MACHINES}, SPECS)
    return [replace(item, horizon_seconds=600.0) for item in cells]


def tuned_rule(name: str, label: str, params: Mapping[str, Any]) -> Rule:
    return Rule(
        name=name,
        label=label,
        by_instance={},
        params=params,
        inner_runs=9,
        sets=3,
        tuned_on=(),
    )


def arriving_after(seconds: float) -> StrategyResult:
    """A run that passes both targets at once, with fp32 for a quarter of its time, then INT8."""
    first, then = Decision.of(IDENTITY), Decision.of(CompressionSpec(bits=8))
    return StrategyResult(
        times=(0.0, seconds - 1e-6, seconds, 4.0 * seconds),
        returns=(0.0, 0.0, 1e6, 1e6),
        decisions=(first, first, then),
        env_steps=(0, 10, 10, 40),
    )


def test_no_compression_is_run_with_every_seed_however_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All gains are over it, and what is stopped for being slow was so by luck too."""
    seconds = dict(zip(SPECS, (60.0, 20.0), strict=True)) | {NET3: 40.0}
    nobody = cast("Any", None)
    study = RoomStudy(tmp_path, BUDGET, tuple(seconds), 0, nobody, nobody, "plan")

    def run_cells(_: str, cells: Sequence[Any]) -> None:
        for item, spec, seed in cells:
            result = arriving_after(seconds[spec])
            study.runs[item.name, spec.label, seed] = rows_of(item, spec.label, seed, result)

    monkeypatch.setattr(study, "run_cells", run_cells)
    study.run_matrix("all", instances(), (300, 301, 302))
    made = Counter(label for _, label, _ in study.runs)
    assert made == {"original fp32": 6, "original INT8": 6, "net3 INT8": 4}


def matrix() -> Matrix:
    """INT8 takes a third of fp32's seconds on the first machine, and twice of them on the other."""
    cells = instances()
    seconds = np.log([[[60.0] * 3, [20.0] * 3], [[60.0] * 3, [120.0] * 3]])
    return Matrix(
        instances=tuple(item.name for item in cells),
        games=tuple(item.game for item in cells),
        machines=tuple(item.profile for item in cells),
        specs=tuple(spec.label for spec in SPECS),
        seeds=(300, 301, 302),
        log_seconds=seconds,
        log_steps=np.zeros_like(seconds),
        is_bound=np.zeros(seconds.shape, dtype=bool),
    )


def made_up() -> dict[str, Any]:
    """The result of that matrix, with a schedule for the first machine, and of other games."""
    cells, known = instances(), matrix()
    made = {
        (item.name, spec.label, seed): [{"final_return": 0.4 + 0.5 * (spec.bits == 8)}]
        for item in cells
        for spec in SPECS
        for seed in known.seeds
    }
    result = drawn_room(known, cells, made, 0)
    params = {cells[0].name: {"exploring": {"bits": 8}}}
    runs = {(cells[0].name, seed): arriving_after(10.0) for seed in known.seeds}
    tested = RuleRuns(tuned_rule(SCHEDULE, "a schedule", params), runs)
    result["strategies"] = compared(known, cells, [tested], 0)
    result["decomposition"] = decomposition(result["room"], result["strategies"])
    assert result["unseen"] == []  # it has one game
    gain = {"ratio": 1.0625, "low": 1.0, "high": 1.125}
    return result | {
        "unseen": [{"name": SPEED, "over_single": gain, "over_elsewhere": gain, "filled": 0.125}],
        "targets": [{"target": 0.5, "reached": 0.9, "ratio": 1.1, "low": 1.0, "high": 1.2}],
        "games": [
            {"game": "catch", "random_return": -0.7, "reference_return": 0.9, "noise_share": 0.125}
        ],
        "stopped": [{"instance": cells[0].name, "label": "original fp32", "seeds_saved": 1}],
        "core_hours": 0.1,
        "finished": True,
        "plan_hash": "0" * 12,
        "command": "accerl study run room --out DIR",
        "matrix": [],
    }


def test_the_room_of_a_known_matrix() -> None:
    """INT8 for all takes sqrt(20 x 120) s; the best of each machine sqrt(20 x 60): 1.41 times."""
    found = made_up()
    assert found["room"]["ratio"] == pytest.approx(2.0**0.5)
    assert found["room"]["speed"]["ratio"] == pytest.approx(2.0**0.5)
    assert found["room"]["fidelity"]["ratio"] == 1.0
    assert [group["ratio"] for group in found["groups"]] == pytest.approx([1.0, 2.0])
    assert found["chosen"]["one for all"] == "original INT8"
    (schedule,) = found["strategies"]
    assert schedule["over_virtual"]["ratio"] == pytest.approx(2.0)
    assert schedule["over_uncompressed"]["ratio"] == pytest.approx(6.0)
    assert schedule["pairs"] == 3
    assert found["decomposition"][-1]["ratio"] == pytest.approx(2.0)
    only_static = {**schedule, "params": {"an instance": {"spec": {"bits": 8}}}}
    names = [part["name"] for part in decomposition(found["room"], [only_static])]
    assert [name.split()[0] for name in names] == ["speed", "fidelity"]


def test_what_a_rule_gains_is_told_by_parts() -> None:
    """It takes 10 s on the first machine; on the other 90 s, where fp32 takes 60 and INT8 120."""
    cells, seeds = instances(), (300, 301)
    runs = {(cells[0].name, seed): arriving_after(10.0) for seed in seeds}
    runs |= {(cells[1].name, seed): arriving_after(90.0) for seed in seeds}
    rows = compared(matrix(), cells, [RuleRuns(tuned_rule("a", "A", {}), runs)], 0)
    (row,) = rows
    parts = {(part["by"], part["name"]): part for part in row["by"]}
    assert list(parts) == [
        ("game", "catch"),
        ("machines", "paper-1080ti"),
        ("machines", "learner-bound"),
        ("conditions", "same machine throughout"),
        ("conditions", "changing conditions"),
        ("seed", "300"),
        ("seed", "301"),
    ]
    assert parts["machines", "paper-1080ti"]["over_uncompressed"] == pytest.approx(6.0)
    assert parts["machines", "learner-bound"]["over_single"] == pytest.approx(120.0 / 90.0)
    assert parts["seed", "300"]["over_virtual"] == pytest.approx((2.0 * 60.0 / 90.0) ** 0.5)
    assert parts["seed", "300"]["pairs"] == 2
    slower = {"instance": cells[1].name, "ratio": pytest.approx(1.5), "seeds": 2}
    assert row["slower"] == [slower]
    assert row["acted"] == pytest.approx({"original INT8": 0.75, "original fp32": 0.25})
    assert beside(row) == (
        f"over no compression +100.0%, slower on 1 instance (times its seconds: {cells[1].name} "
        "1.50); decided for 75% original INT8, 25% original fp32."
    )


def test_a_mix_has_acted_with_each_of_its_specs_by_their_shares() -> None:
    mixed = Decision(((IDENTITY, 0.25), (CompressionSpec(bits=8), 0.75)))
    result = replace(arriving_after(8.0), decisions=(mixed,) * 3)
    assert acted_with([result, result]) == pytest.approx(
        {"original INT8": 0.75, "original fp32": 0.25}
    )


def test_what_compression_is_worth_by_family_of_machines() -> None:
    """Machines that were not drawn are families of their own."""
    one, other = made_up()["families"]
    assert (one["family"], one["instances"], one["filled"]) == ("paper-1080ti", 1, 0.0)
    assert one["seconds"] == pytest.approx({"original fp32": 1.0, "original INT8": 3.0})
    assert other["seconds"]["original INT8"] == pytest.approx(0.5)
    assert other["env_steps"]["original INT8"] == pytest.approx(1.0)
    assert other["final"] == pytest.approx({"original fp32": 0.4, "original INT8": 0.9})
    drawn = {"paper-1080ti": "laptop-0000", "learner-bound": "laptop-0001"}
    rows = [{**row, "machine": drawn[row["machine"]]} for row in made_up()["means"]]
    (family,) = by_family(rows)
    assert (family["family"], family["instances"]) == ("laptop", 2)
    assert family["seconds"]["original INT8"] == pytest.approx((3.0 * 0.5) ** 0.5)


def test_what_is_not_known_of_families_and_parts_is_said() -> None:
    """On the first machine fp32 missed its targets, and made no env step in one of three runs."""
    rows = made_up()["means"]
    rows[0] |= {"censored": 1.0, "env_steps_to_target": None}
    rows[1] |= {"seeds": 2}
    one, other = by_family(rows)
    assert (one["filled"], other["filled"]) == pytest.approx((1.0 / 6.0, 0.0))
    assert (one["missed"], other["missed"]) == pytest.approx((0.6, 0.0))
    assert worth_cell(one, "original INT8") == "3.00 (\N{EN DASH})"
    assert parts_note(made_up()["room"]) is None
    note = parts_note({"pairs": 6, "parts_pairs": 5})
    assert note is not None
    assert note.startswith("Speed and fidelity are those of 5 of 6 runs")


def test_a_gain_stands_before_its_interval_in_brackets() -> None:
    assert gain_with_interval(0.999, 0.996, 1.003) == "-0.1% (-0.4% to +0.3%)"
    assert gain_with_interval(0.999, None, None) == "-0.1%"


def test_every_gain_says_how_many_pairs_it_rests_on() -> None:
    pairs = {row["name"]: row["pairs"] for row in gains(made_up()).table}
    assert (pairs["in all"], pairs["speed (seconds per env step)"]) == (6, 6)
    assert (pairs["switching (best schedule)"], pairs["a schedule"]) == (3, 3)


def test_a_heat_map_has_a_cell_for_every_machine_and_spec() -> None:
    figure = heat_map(made_up()["means"], "catch")
    cells = {(row["machine"], row["spec"]): row["over_best"] for row in figure.table}
    assert cells["paper-1080ti", "original fp32"] == pytest.approx(3.0)
    assert cells["learner-bound*", "original INT8"] == pytest.approx(2.0)
    assert sorted(cells.values())[:2] == [1.0, 1.0]


def test_a_heat_map_marks_what_the_horizon_cut() -> None:
    rows = made_up()["means"]
    rows[0] |= {"censored": 1 / 3}
    shown = [row["cell"] for row in heat_map(rows, "catch").table]
    assert shown == ["3.00+", "1.00", "1.00", "2.00"]


def events() -> dict[str, Any]:
    """What `accerl bench events` writes, of one event."""
    rows = [
        {"event": "1 actor leaves", "window": window, "begins": at, "ends": at + 9.0}
        | {"real": 100.0, "virtual": 95.0, "ratio": 1.05}
        for at, window in ((0.0, "before"), (9.0, "during"), (18.0, "after"))
    ]
    return {
        **{"bench": "events", "game": "catch", "network": "net1", "actors": 2, "seeds": [0]},
        **{"spec": CompressionSpec(bits=8).to_json(), "rows": rows},
        **{"error_median": 0.05, "error_max": 0.2, "fingerprint": {"cpu": "one"}},
    }


@pytest.mark.slow
def test_the_gate_s_outcome_stands_on_the_page_and_among_the_records(tmp_path: Path) -> None:
    result = made_up()
    plan = make_plan(BUDGET, instances(), {"original rank 25% INT8": ["laptop-8000"]}, seed=0)
    write_plan(tmp_path, plan)
    assert show(tmp_path, result) == result
    assert read_json(tmp_path / RESULT) == result
    for short, row in zip(read_json(tmp_path / SMALL)["matrix"], result["means"], strict=True):
        assert CompressionSpec.from_json(short["spec"]).label == row["label"]
        assert short["spec"] == row["spec"]  # whole
        assert short["seconds_to_target"] == pytest.approx(row["seconds_to_target"], rel=1e-4)
    page = (tmp_path / "room.html").read_text()
    assert result["gate"]["reason"][:20] in page
    assert "50% of the way" in page
    assert "+6.2%" in page.split(f"<caption>{UNSEEN}")[1].split("</table>")[0]
    assert "12%" in page.split(f"<caption>{SCALES}")[1].split("</table>")[0]
    assert "at most 12% of a choice" in page
    assert "Gain of a schedule by part" in page
    assert "decided for 75% original INT8" in page
    assert "90%" in page.split("<caption>Final return: share")[1].split("</table>")[0]
    assert "original rank 25% INT8: no times on laptop-8000" in page
    assert {figure.name for figure in room_figures(result)} == {"room-catch", "room"}
    assert (tmp_path / "room-catch.png").read_bytes()[1:4] == b"PNG"
    assert "bench events --out FOLDER" in page
    write_json(tmp_path / "bench-events.json", events())
    (tmp_path / "room.html").unlink()
    pictures = tmp_path / "pictures"
    Report(runs=(tmp_path,), html=tmp_path / "room.html", figures=pictures).execute()
    assert result["gate"]["reason"][:20] in (tmp_path / "room.html").read_text()
    assert (pictures / "room-catch.csv").is_file()
    page = (tmp_path / "room.html").read_text()
    assert "Median error 5.0%, largest 20.0%" in page
    assert "1 actor leaves" in page
    assert (pictures / "events.png").read_bytes()[1:4] == b"PNG"


def test_clocks_that_were_not_compared_have_no_error_on_the_page() -> None:
    unknown = {"error_median": None, "error_max": None}
    text = _events({**events(), **unknown}).blocks[0]
    assert isinstance(text, Text)
    assert text.text.startswith("Error not measured: no window has env steps on both clocks; 1")


def test_a_study_that_was_interrupted_after_its_matrix_has_a_page(tmp_path: Path) -> None:
    result = {**made_up(), "strategies": [], "finished": False}
    write_plan(tmp_path, make_plan(BUDGET, instances(), {}, seed=0))
    write_json(tmp_path / RESULT, result)
    Report(runs=(tmp_path,), html=tmp_path / "room.html").execute()
    page = (tmp_path / "room.html").read_text()
    assert "was interrupted: controls" in page
    assert result["gate"]["reason"][:20] in page


def test_a_report_of_the_room_refuses_what_it_does_not_have(tmp_path: Path) -> None:
    write_json(tmp_path / RESULT, {"gate": {}})
    html = tmp_path / "room.html"
    with pytest.raises(UserError, match="no --wandb"):
        Report(runs=(tmp_path,), html=html, wandb=tmp_path / "wandb").execute()
    with pytest.raises(UserError, match=r"plan\.json"):
        Report(runs=(tmp_path,), html=html).execute()
    write_json(tmp_path / "plan.json", {"plan": {}})
    with pytest.raises(UserError, match=r"room\.json is incomplete or damaged: it has no room"):
        Report(runs=(tmp_path,), html=html).execute()
    assert not html.exists()
