"""The Python blocks of the pages on sources run: in order, in one module, in an empty folder."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

CONNECTORS = Path(__file__).parents[2] / "docs" / "connectors"
PAGES = [
    "file-source.md",
    "inserting-rows.md",
    "writing-a-source.md",
]  # those that need a server are run by tests/kafka and tests/postgres
BLOCK = re.compile(r"```python\n(.*?)```", re.S)


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch, replaced: dict[str, str] | None = None) -> None:
    text = page.read_text()
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        code = block[1]
        for old, new in (replaced or {}).items():
            code = code.replace(old, new)
        above = "\n" * text.count("\n", 0, block.start(1))  # so that errors name the line of the page
        exec(compile(above + code, str(page), "exec", dont_inherit=True), module.__dict__)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(CONNECTORS / page, monkeypatch)
