"""The pictures of docs/event-time.md are those that their script draws now."""

from __future__ import annotations

import re
import runpy
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.docs.source_files import ROOT

SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "event_time_pictures.py"))
IMAGES = ROOT / "docs" / "images"


@pytest.mark.parametrize("file", SCRIPT["PICTURES"])
def test_the_picture_is_up_to_date(file: str) -> None:
    drawn = SCRIPT["PICTURES"][file]()
    assert drawn == (IMAGES / file).read_text(), "run: python scripts/event_time_pictures.py"
    ElementTree.fromstring(drawn)  # it is well-formed
    assert len(drawn) < 8_000


def test_pages_show_every_picture_and_no_other() -> None:
    shown = {
        name
        for page in ROOT.glob("docs/**/*.md")
        for name in re.findall(r"!\[[^\]]+\]\((?:\.\./)?images/([^)]+)\)", page.read_text())
    }
    assert shown == {path.name for path in IMAGES.iterdir()}
    drawn = {name for name in shown if name.endswith(".svg")}  # those of the dashboard are made in tests/e2e
    assert drawn == set(SCRIPT["PICTURES"])
