from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from accerl.errors import UserError
from accerl.records import write_json
from accerl.spec import Decision
from analysis.comparison.contest import CONTEST
from analysis.records.load import load_study
from analysis.render.html import write_runs_report, write_study_report
from analysis.report.cost import budget_sentences
from analysis.report.study import StudyReport
from tests.fixtures.command_line import accerl
from tests.fixtures.reports.sections import SECTIONS
from tests.fixtures.studies.synthetic_study import FULL, make_report, write_run, write_study

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Reads a page as a browser would, and complains where a browser would repair."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.resources: list[str] = []
        self.links: list[str] = []
        self.tables: list[list[list[tuple[str, str | None]]]] = []
        self.captions: list[str] = []
        self._cell: list[str] | None = None
        self._value: str | None = None
        self._caption = False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(str(found.get("href")))
        elif tag in ("script", "link", "img", "iframe", "object", "embed", "video"):
            self.resources.append(tag)
        self.resources += [str(v) for k, v in attrs if k in ("src", "xlink:href", "data", "action")]
        if tag == "table":
            self.tables.append([])
            self.captions.append("")
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell, self._value = [], found.get("data-value")
        self._caption = tag == "caption"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if self._caption:
            self.captions[-1] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(("".join(self._cell).strip(), self._value))
            self._cell = None
        if tag == "caption":
            self._caption = False

    def table(self, caption: str) -> list[list[tuple[str, str | None]]]:
        for index, found in enumerate(self.captions):
            if caption in found:
                return self.tables[index][1:]
        raise AssertionError(f"no table {caption!r} among {self.captions}")


def assert_self_contained(text: str, page: Page) -> None:
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert page.resources == []
    assert all(link.startswith("#") for link in page.links)
    assert set(re.findall(r"url\(([^)]*)\)", text)) <= {f"#{name}" for name in page.ids}
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)


@pytest.fixture(scope="module")
def study_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_study(tmp_path_factory.mktemp("study"), seeds=(100, 101, 102, 103))
    write_json(folder / CONTEST, StudyReport.of(folder).contest)
    return folder


@pytest.fixture(scope="module")
def text(study_dir: Path) -> str:
    return write_study_report(
        StudyReport.of(study_dir), study_dir / "out" / "report.html"
    ).read_text()


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_study_report_opens_without_a_network(text: str, page: Page) -> None:
    assert_self_contained(text, page)
    assert text.count("<svg") == text.count("<summary>Data of this figure") == 14


def test_study_report_has_every_section_in_order(page: Page) -> None:
    assert [name for name in page.ids if name in SECTIONS] == list(SECTIONS)


def test_numbers_in_the_tables_equal_contest_json(study_dir: Path, page: Page) -> None:
    contest = json.loads((study_dir / "contest.json").read_text())
    names = {
        "seconds_to_target": "comparator: seconds to target",
        "auc": "comparator: area under the learning curve",
        "final_return": "comparator: final return",
        "cpu_seconds": "comparator: CPU-seconds",
        "publication_bytes": "comparator: bytes published",
    }
    for metric, caption in names.items():
        contrasts = [item for item in contest["contrasts"] if item["metric"] == metric]
        rows = page.table(caption)
        assert len(rows) == len(contrasts) == 5
        for row, item in zip(rows, contrasts, strict=True):
            estimate = item["difference"] if item["ratio"] is None else item["ratio"]
            digits = 2 if item["ratio"] is not None else 3
            assert float(str(row[1][1])) == estimate
            assert row[1][0] == f"{estimate:.{digits}f}"
            assert row[2][0] == f"{item['low']:.{digits}f} to {item['high']:.{digits}f}"
            assert float(str(row[4][1])) == item["p_holm"]
            assert row[5][0] == str(item["n"])


def test_the_answer_is_the_verdict(study_dir: Path, text: str) -> None:
    contest = json.loads((study_dir / "contest.json").read_text())
    answer = text[text.index('id="answer"') : text.index('id="reach"')]
    assert contest["verdict"][0] in text[: text.index('id="curves"')]
    for sentence in contest["verdict"]:
        assert sentence.replace("'", "&#39;").replace("<", "&lt;") in answer


def test_every_test_run_is_listed(study_dir: Path, page: Page) -> None:
    contest = json.loads((study_dir / "contest.json").read_text())
    (listed,) = [
        rows[1:]
        for rows in page.tables
        if rows[0][-1][0] == "Final return" and rows[0][1][0] == "Instance"
    ]
    for row, item in zip(listed, contest["rows"], strict=True):
        assert float(str(row[3][1])) == item["seconds_to_target"]
        assert row[3][0].startswith("> ") == item["censored"]
        assert float(str(row[6][1])) == item["final_return"]


def test_replay_claims_speed_and_no_score(text: str, page: Page) -> None:
    replay = text[text.index("The bundle on the real clock") : text.index('id="oracle-gap"')]
    assert "No score is claimed" in replay
    assert "2.44x the speed of the fp32 run" in replay
    assert "return" not in replay.lower()
    assert [row[0][0] for row in page.table("Speed and seconds by phase")] == ["indicator", "fp32"]


def test_provenance_names_machine_versions_seeds_and_commands(text: str) -> None:
    provenance = text[text.index('id="provenance"') :]
    for wanted in ("Synthetic CPU", "2.13.0", "100-103", "accerl study run quickstart"):
        assert wanted in provenance


def test_unequal_budgets_are_not_hidden(study_dir: Path, tmp_path: Path) -> None:
    study = load_study(study_dir)
    assert budget_sentences(study)[0] == "Every tuned strategy was given the same 48 inner runs."
    data = json.loads((study_dir / "study.json").read_text())
    data["strategies"][-1]["inner_runs"] = 400
    path = write_study(tmp_path, strategies=("fp32", "learned"), games=("freeway",), seeds=(100,))
    (path / "study.json").write_text(json.dumps({**data, "strategies": data["strategies"][-2:]}))
    assert "NOT equal" in budget_sentences(load_study(path))[0]
    plan = {**data["plan"], "budget": {"inner_runs": 400}}
    planned = {**data, "strategies": data["strategies"][-2:], "plan": plan}
    (path / "study.json").write_text(json.dumps(planned))
    assert budget_sentences(load_study(path))[:2] == [
        "Every tuned strategy was given the same 400 inner runs.",
        "Spent less, in whole rounds: Linear KL mix 48.",
    ]


def test_runs_on_validation_seeds_are_counted(study_dir: Path, tmp_path: Path) -> None:
    def budget(**changes: dict[str, Any]) -> str:
        data = json.loads((study_dir / "study.json").read_text())
        for item in data["strategies"]:
            item |= changes.get(item["name"], {})
        if not (tmp_path / "runs").exists():
            (tmp_path / "runs").symlink_to(study_dir / "runs")
        (tmp_path / "study.json").write_text(json.dumps(data))
        return " ".join(budget_sentences(load_study(tmp_path)))

    assert "candidates of trained ones: 0 for Best static, KL max rule," in budget()
    found = budget(learned={"validation_runs": 640}, linear={"validation_runs": 200})
    assert "640 for Learned controller; 200 for Linear KL mix; 0 for Best static," in found


def test_a_bare_study_still_gives_a_whole_report(tmp_path: Path) -> None:
    path = write_study(tmp_path / "s", strategies=("learned",), games=("freeway",), seeds=(100,))
    for name in ("profiles/paper.json", "tuning.jsonl", "meta_training.jsonl"):
        (path / name).unlink()
    (path / "replay").rename(tmp_path / "gone")
    (path / "bundle").rename(tmp_path / "gone_too")
    text = write_study_report(StudyReport.of(path), tmp_path / "r.html").read_text()
    page = Page(text)
    assert_self_contained(text, page)
    assert set(SECTIONS) <= set(page.ids)
    assert "nothing to compare" in text
    assert "Acting latency" not in text


def test_names_from_records_cannot_break_the_page(tmp_path: Path) -> None:
    path = write_study(
        tmp_path / "s",
        strategies=("fp32", "learned"),
        games=("freeway",),
        seeds=(100, 101),
        notes=["<script>alert(1)</script>"],
        name='a "<b>study',
    )
    text = write_study_report(StudyReport.of(path), tmp_path / "r.html").read_text()
    assert "<script" not in text
    assert_self_contained(text, Page(text))


def test_runs_report_shows_runs_side_by_side(study_dir: Path, tmp_path: Path) -> None:
    runs = [study_dir / f"runs/{name}/freeway/seed-100" for name in ("learned", "fp32")]
    text = write_runs_report(runs, tmp_path / "r.html").read_text()
    page = Page(text)
    assert_self_contained(text, page)
    wanted = ("summary", "curves", "indicators", "schedules", "phases", "provenance")
    assert [name for name in page.ids if name in wanted] == list(wanted)
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    rows = page.tables[0][1:]
    assert [row[0][0] for row in rows] == ["learned", "fp32"]
    for row, summary in zip(rows, summaries, strict=True):
        assert float(str(row[5][1])) == summary["env_steps"]
        assert float(str(row[7][1])) == summary["final_return"]


def test_the_terminal_has_a_table_of_scores_for_each_game(
    study_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games = sorted(load_study(study_dir).games)[:2]
    runs = [study_dir / f"runs/fp32/{game}/seed-100" for game in games]
    said = accerl(capsys, "report", *runs, "--html", tmp_path / "r.html").out
    assert [f"Time to score: {game}" in said for game in games] == [True, True]


def test_runs_report_warns_of_mixed_clocks_and_unfinished_runs(
    study_dir: Path, tmp_path: Path
) -> None:
    reports = [make_report(i, 5.0, None, Decision.of(FULL)) for i in range(3)]
    cut = write_run(tmp_path / "cut", reports, finish=False)
    text = write_runs_report([cut, study_dir / "replay/fp32"], tmp_path / "r.html").read_text()
    assert "never finished" in text
    assert "come from different clocks" in text
    assert "was not evaluated" in text
    assert_self_contained(text, Page(text))


def test_a_study_given_as_a_run_gets_the_study_report(study_dir: Path, tmp_path: Path) -> None:
    text = write_runs_report([study_dir], tmp_path / "r.html").read_text()
    assert 'id="contrasts"' in text


def test_mistakes_are_user_errors(study_dir: Path, tmp_path: Path) -> None:
    run = study_dir / "replay/fp32"
    with pytest.raises(UserError, match="no run directory given"):
        write_runs_report([], tmp_path / "r.html")
    with pytest.raises(UserError, match="give it alone"):
        write_runs_report([study_dir, run], tmp_path / "r.html")
    with pytest.raises(UserError, match="given twice"):
        write_runs_report([run, run], tmp_path / "r.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"folder: Is a directory; .*give another file"):
        write_runs_report([run], tmp_path / "folder")
