"""The report in a real browser: every section and table is there, readable and reachable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from analysis.render.html import write_study_report
from analysis.report.study import StudyReport
from tests.fixtures.reports.browser import page_address
from tests.fixtures.reports.sections import SECTIONS
from tests.fixtures.studies.synthetic_contest import write_contest_study
from tests.fixtures.studies.synthetic_study import write_study

pytestmark = pytest.mark.browser
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIGURES = """svgs => svgs.map(svg => {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')];
  const boxes = texts.map(text => text.getBoundingClientRect());
  const out = box => box.left < frame.left - 2 || box.right > frame.right + 2;
  const sizes = texts.filter(text => text.textContent.trim())
    .map(text => parseFloat(getComputedStyle(text).fontSize));
  return {
    label: svg.getAttribute('aria-label'),
    width: frame.width,
    height: frame.height,
    cut_off: boxes.filter(box => box.width && out(box)).length,
    smallest_text: frame.width / svg.viewBox.baseVal.width * Math.min(...sizes),
  };
})"""
"""of every figure: its name and size, how many texts reach beyond it, and the px of the smallest"""
SHUT = """folds => folds.map(fold => {
  fold.open = true;
  const shown = fold.querySelector(':scope > :not(summary)').getBoundingClientRect();
  return shown.width > 0 && shown.height > 0 ? null : fold.textContent.trim().slice(0, 40);
}).filter(Boolean)"""
"""which folds show nothing when they are opened"""
CONTRAST = """element => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(part => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ink = light(getComputedStyle(element).color);
  const page = light(getComputedStyle(document.body).backgroundColor);
  return (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05);
}"""
"""ratio of luminances of an element's ink and the page, as WCAG 2 defines it"""


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_contest_study(tmp_path_factory.mktemp("contest"), seeds=(100, 101))
    return write_study_report(StudyReport.of(folder), folder / "report.html")


@pytest.fixture
def console() -> Iterator[list[str]]:
    """Collects what the page complains about; a test that leaves something in it fails."""
    found: list[str] = []
    yield found
    assert found == []


def open_page(browser: Browser, report: Path, console: list[str], width: int, scheme: str) -> Page:
    page = browser.new_page(
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("requestfailed", lambda request: console.append(f"failed: {request.url}"))
    page.on(
        "request",
        lambda request: None if request.url.startswith("file:") else console.append(request.url),
    )
    page.goto(page_address(report))
    return page


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)
def test_every_section_can_be_reached_and_read(
    browser: Browser, contest: Path, console: list[str], width: int, scheme: str
) -> None:
    page = open_page(browser, contest, console, width, scheme)
    links = page.locator("#contents a")
    assert [link.get_attribute("href") for link in links.all()] == [f"#{id}" for id in SECTIONS]
    for number, id in enumerate(SECTIONS):
        links.nth(number).click()
        expect(page.locator(f"#{id} h2")).to_be_in_viewport()
        assert page.evaluate("document.activeElement.id") == id
    assert page.evaluate(OVERFLOW) <= 0
    fold = page.locator("details").first
    fold.locator("> summary").click()
    expect(fold.locator("> :not(summary)").first).to_be_visible()
    assert page.locator("details").evaluate_all(SHUT) == []
    assert page.evaluate(OVERFLOW) <= 0
    figures = page.locator("figure svg").evaluate_all(FIGURES)
    assert len(figures) > 10
    for figure in figures:
        assert figure["width"] > 300, figure
        assert figure["height"] > 50, figure
        assert figure["cut_off"] == 0, figure
        assert figure["smallest_text"] >= 9.0, figure
    for selector in ("h1", "section p", "td", "figcaption", "nav a", ".warning li"):
        assert page.locator(selector).first.evaluate(CONTRAST) >= 4.5, selector
    page.close()


def test_the_contents_work_from_the_keyboard(
    browser: Browser, contest: Path, console: list[str]
) -> None:
    page = open_page(browser, contest, console, 1280, "light")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for id in SECTIONS[:3]:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.hash") == f"#{id}"
    page.keyboard.press("Enter")
    expect(page.locator("#contrasts h2")).to_be_in_viewport()
    fold = page.locator("#contrasts details").first
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(fold.locator("table")).to_be_visible()
    page.close()


def test_tables_fit_a_wide_window(browser: Browser, contest: Path, console: list[str]) -> None:
    """Those of many columns scroll, and shades at their sides say so."""
    page = open_page(browser, contest, console, 1200, "light")
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    boxes = page.locator(".scroll").all()
    wide = [box for box in boxes if box.evaluate("box => box.scrollWidth > box.clientWidth + 1")]
    assert [box.get_attribute("aria-label") for box in wide] == ["Settings of the latency profiles"]
    attached = wide[0].evaluate("box => getComputedStyle(box).backgroundAttachment")
    assert attached == "local, local, scroll, scroll"
    page.close()


def test_a_study_without_the_optional_files_is_whole_too(
    browser: Browser, tmp_path: Path, console: list[str]
) -> None:
    folder = write_study(tmp_path, strategies=("fp32", "learned"), seeds=(100, 101))
    report = write_study_report(StudyReport.of(folder), folder / "report.html")
    page = open_page(browser, report, console, 390, "dark")
    for id in SECTIONS:
        expect(page.locator(f"#{id} h2")).to_be_visible()
        assert page.locator(f"#{id} > *").count() >= 4  # title, lead, something, the way back
    assert page.evaluate(OVERFLOW) <= 0
    page.close()
