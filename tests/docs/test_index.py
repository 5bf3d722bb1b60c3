"""docs/README.md leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_index_names_every_page_once() -> None:
    links = re.findall(r"\]\(([\w/.-]+\.md)\)", (DOCS / "README.md").read_text())
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    pages -= {page for page in pages if page.startswith("decisions/0")}  # their index has them
    listed = [link for link in links if not link.startswith("../")]
    assert sorted(listed) == sorted(pages)


def test_the_index_of_decisions_names_every_record_once() -> None:
    folder = DOCS / "decisions"
    rows = re.findall(
        r"^\| \[(\d+)\]\(([\w.-]+)\) \| .+ \| \w.* \|$", (folder / "README.md").read_text(), re.M
    )
    assert [file for _, file in rows] == sorted(page.name for page in folder.glob("0*.md"))
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))


def test_the_changelog_is_short_and_has_its_areas_once() -> None:
    """Condense the oldest lines of an area when it grows: a reader wants what there is, not each step to it."""
    lines = (DOCS.parent / "CHANGELOG.md").read_text().splitlines()
    assert len(lines) <= 300
    headings = [line for line in lines if line.startswith("#")]
    assert len(headings) > 8 and len(headings) == len(set(headings))
