"""The W&B Report: the sections and figures of the HTML, built offline and saved to a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from accerl.errors import UserError
from analysis.figures.parts import study_colours
from analysis.figures.theme import SUBJECT_COLOUR, Figure, render_svg
from analysis.render import html
from analysis.render.html import write_study_report
from analysis.render.wandb_document import chart_name, chart_spec, save_report, write_report_spec
from analysis.render.wandb_runs import strategy_run_id
from analysis.report.study import StudyReport
from tests.fixtures.command_line import accerl
from tests.fixtures.reports.wandb_server import WandbServer, wandb_server
from tests.fixtures.studies.synthetic_contest import write_contest_study
from tests.fixtures.studies.synthetic_study import write_study


@pytest.fixture(scope="module", autouse=True)
def _undrawn() -> Iterator[None]:
    """Pages are not drawn: others look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "render_svg", lambda figure: "")
        yield


@pytest.fixture(scope="module")
def study_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_contest_study(tmp_path_factory.mktemp("contest"), seeds=(100, 101))
    return folder


@pytest.fixture(scope="module")
def report(study_dir: Path) -> StudyReport:
    return StudyReport.of(study_dir)


@pytest.fixture(scope="module")
def figures(report: StudyReport) -> list[Figure]:
    return report.figures


@pytest.fixture(scope="module")
def blocks(report: StudyReport, study_dir: Path) -> list[dict[str, Any]]:
    path = write_report_spec(report, study_dir)
    assert path == study_dir / "wandb" / "report.json"
    return json.loads(path.read_text())["blocks"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WandbServer]:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    with wandb_server() as running:
        monkeypatch.setenv("WANDB_BASE_URL", running.url)
        wandb.teardown()  # it reads its settings once
        yield running
        wandb.teardown()


def flat(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All blocks in order, also those that are closed at first below a heading."""
    for block in blocks:
        yield block
        yield from flat(block.get("collapsedChildren") or [])


def headings(blocks: list[dict[str, Any]], level: int) -> list[str]:
    return [
        block["children"][0]["text"]
        for block in blocks
        if block["type"] == "heading" and block["level"] == level
    ]


def charts(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        panel["config"]
        for block in flat(blocks)
        if block["type"] == "panel-grid"
        for panel in block["metadata"]["panelBankSectionConfig"]["panels"]
        if panel["viewType"] == "Vega2"
    ]


def markdown(blocks: list[dict[str, Any]]) -> str:
    found = (block for block in flat(blocks) if block["type"] == "markdown-block")
    return "\n".join(block["content"] for block in found)


def test_sections_are_those_of_the_html(
    report: StudyReport, blocks: list[dict[str, Any]], tmp_path: Path
) -> None:
    text = write_study_report(report, tmp_path / "report.html").read_text()
    ids = re.findall(r'<section id="([^"]+)"', text)
    assert [title.lower().replace(" ", "-") for title in headings(blocks, 2)] == ids
    assert len(ids) == 13
    subheadings = re.findall(r"<h3>([^<]+)</h3>", text)
    assert set(subheadings) <= set(headings(blocks, 3))


def test_every_figure_is_a_chart_over_its_own_table(
    blocks: list[dict[str, Any]], figures: list[Figure]
) -> None:
    found = charts(blocks)
    assert [item["panelDefId"] for item in found] == [f"entity/{chart_name(f)}" for f in figures]
    for item, figure in zip(found, figures, strict=True):
        assert item["fieldSettings"] == {name: name for name in figure.columns}
        assert f'"value": "figures/{figure.name}"' in json.dumps(item["userQuery"])


def test_run_sets_hold_no_runs_of_another_plan(
    report: StudyReport, blocks: list[dict[str, Any]]
) -> None:
    plan = report.study.info["plan_hash"]
    asked = [
        {item["key"]["name"]: item["value"] for item in runs["filters"]["filters"]}
        for block in flat(blocks)
        if block["type"] == "panel-grid"
        for runs in block["metadata"]["runSets"]
    ]
    assert {each.pop("role") for each in asked} == {"strategy", "report"}
    assert all(each == {"study": "contest", "plan_hash": plan} for each in asked)


def test_own_plots_say_what_they_are_and_are_coloured_as_the_figures(
    report: StudyReport, blocks: list[dict[str, Any]]
) -> None:
    study = report.study
    ((place, colours),) = [
        (index, block["metadata"]["customRunColors"])
        for index, block in enumerate(blocks)
        if block["type"] == "panel-grid" and block["metadata"]["customRunColors"]
    ]
    assert colours == {
        strategy_run_id(study, name): colour for name, colour in study_colours(study).items()
    }
    assert colours[strategy_run_id(study, study.subject)] == SUBJECT_COLOUR
    assert "means over test seeds, not interquartile means" in json.dumps(blocks[place - 1])


def test_the_primary_metric_is_marked(blocks: list[dict[str, Any]]) -> None:
    assert markdown(blocks).count(" (primary): First time at which") == 1


def test_a_chart_bound_to_its_table_is_the_figure(figures: list[Figure]) -> None:
    known = {figure.name: figure for figure in figures}
    for name in ("seconds-to-target", "schedule-story", "oracle-gap", "transfer"):
        figure = known[name]
        text = re.sub(r"\$\{field:([^}]+)\}", r"\1", json.dumps(chart_spec(figure)))
        spec = json.loads(text)
        assert spec.pop("data") == {"name": "wandb"}
        del spec["$schema"], spec["config"]
        bound = Figure(figure.name, figure.title, figure.caption, spec, figure.table)
        assert render_svg(bound) == render_svg(figure)
        fields = set(re.findall(r"\$\{field:([^}]+)\}", json.dumps(chart_spec(figure))))
        assert {"kind", "ratio", "other", "low", "high", "panel"} & fields
        assert fields <= set(figure.columns)


def test_tables_hold_the_numbers_of_the_contest(
    report: StudyReport, blocks: list[dict[str, Any]]
) -> None:
    contest = report.contest
    text = markdown(blocks)
    assert f"**{contest['verdict'][0]}**" in text
    planned = [
        c
        for c in contest["contrasts"]
        if c["metric"] == "seconds_to_target" and c["family"] == "primary"
    ]
    assert len(planned) == 3
    for item in planned:
        assert f"| {item['ratio']:.2f} | {item['low']:.2f} to {item['high']:.2f} |" in text


def test_names_cannot_break_a_table(tmp_path: Path) -> None:
    folder = write_study(
        tmp_path, strategies=("fp32", "learned"), games=("freeway",), seeds=(100, 101)
    )
    info = json.loads((folder / "study.json").read_text())
    info["strategies"][0]["label"] = "a | b\nc"
    (folder / "study.json").write_text(json.dumps(info))
    spec = json.loads(write_report_spec(StudyReport.of(folder), folder).read_text())
    assert "| a \\| b c |" in markdown(spec["blocks"])


def test_saving_makes_charts_project_and_report(
    server: WandbServer,
    report: StudyReport,
    study_dir: Path,
    figures: list[Figure],
    blocks: list[dict[str, Any]],
) -> None:
    url, refused = save_report(report, study_dir, "team/outer")
    assert refused == []
    assert url.startswith(f"{server.url}/team/outer/reports/")
    made = server.of("CreateCustomChart")
    assert [item["chartName"] for item in made] == [chart_name(figure) for figure in figures]
    assert json.loads(made[0]["spec"]) == chart_spec(figures[0])
    assert server.of("CreateProject") == [{"input": {"entityName": "team", "name": "outer"}}]
    (view,) = server.of("upsertView")
    saved = json.loads(view["spec"])["blocks"]
    assert headings(saved, 2) == headings(blocks, 2)
    assert [item["panelDefId"] for item in charts(saved)] == [
        f"team/{chart_name(figure)}" for figure in figures
    ]


def test_a_refused_chart_is_told_and_its_table_stands_in(
    server: WandbServer,
    report: StudyReport,
    study_dir: Path,
    figures: list[Figure],
    blocks: list[dict[str, Any]],
) -> None:
    server.refuses["CreateCustomChart"] = "no charts on this plan"
    _, refused = save_report(report, study_dir, "team/outer")
    (sentence,) = refused
    assert sentence.startswith("learning-curves, learning-curves-env-steps, ")
    (view,) = server.of("upsertView")
    saved = json.loads(view["spec"])["blocks"]
    assert charts(saved) == []
    text = markdown(saved)
    for figure in figures:
        assert f"**{figure.title}.** {figure.caption}" in text
    assert text.count("**Data of this figure (") == len(figures)


def test_a_server_that_refuses_is_one_clear_line(
    server: WandbServer, report: StudyReport, study_dir: Path, blocks: list[dict[str, Any]]
) -> None:
    server.refuses["upsertView"] = "permission denied"
    with pytest.raises(UserError, match=r"did not save the report to team/outer: .*denied") as told:
        save_report(report, study_dir, "team/outer")
    assert "\n" not in str(told.value)


def test_without_a_key_nothing_is_asked(
    server: WandbServer,
    report: StudyReport,
    study_dir: Path,
    blocks: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    with pytest.raises(UserError, match=r"no usable W&B key .* run `wandb login`"):
        save_report(report, study_dir, "team/outer")
    assert server.asked == []


def test_a_key_that_the_server_does_not_know(
    server: WandbServer, report: StudyReport, study_dir: Path, blocks: list[dict[str, Any]]
) -> None:
    server.refuses["Viewer"] = "who are you"
    with pytest.raises(UserError, match="no usable W&B key"):
        save_report(report, study_dir, "team/outer")
    assert server.of("upsertView") == []


@pytest.mark.parametrize("target", ["team", "/outer", "team/", "team/outer/more"])
def test_a_target_without_entity_and_project(
    report: StudyReport, study_dir: Path, target: str
) -> None:
    with pytest.raises(UserError, match="give ENTITY/PROJECT"):
        save_report(report, study_dir, target)


def test_mistakes_on_the_command_line(
    study_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["report", study_dir, "--html", tmp_path / "r.html", "--wandb-save", "team/outer"]
    assert "--wandb-save needs" in accerl(capsys, *told).complaint
    missing = accerl(capsys, *told, "--wandb", tmp_path / "nowhere")
    assert missing.code == 2
    assert "write it with --wandb" in missing.err


def test_wandb_alone_writes_beside_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_study(
        tmp_path / "s", strategies=("fp32", "learned"), games=("freeway",), seeds=(100, 101)
    )
    html = tmp_path / "page" / "r.html"
    told = accerl(capsys, "report", folder, "--html", html, "--wandb", "--json").json
    assert told["wandb_report"] == str(html.parent / "wandb" / "report.json")
    assert len(told["wandb"]) == 3
    assert {Path(path).parent for path in told["wandb"]} == {html.parent / "wandb"}
    run = folder / "runs/learned/freeway/seed-100"
    named = accerl(
        capsys, "report", run, "--html", html, "--json", "--wandb", tmp_path / "other"
    ).json
    assert Path(named["wandb"][0]).parent == tmp_path / "other" / "wandb"
    none = accerl(capsys, "report", run, "--html", html, "--json").json
    assert none["wandb"] == []
    several = accerl(capsys, "report", run, "--html", html, "--wandb", "a", "b")
    assert several.code == 2
    assert "--wandb takes one folder" in several.err
