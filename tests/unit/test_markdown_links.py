"""What one page of the documentation says of another is there: files, and headings in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
FOLDERS = ("accerl", "controller", "studies", "tests", "analysis")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(p for each in FOLDERS for p in (ROOT / each).rglob("*.md")))
)


def anchors(page: Path) -> set[str]:
    """Return what may follow # in a link to the page, as GitHub makes it of headings."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(CODE.sub("", (ROOT / page).read_text())):
        if link.startswith(("http://", "https://")):
            continue
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        assert not heading or heading in anchors(target), f"{page} links to {link}"
