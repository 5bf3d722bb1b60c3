"""Every Python block of docs/time-machine.md runs, in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "time-machine.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.S))
    assert len(blocks) >= 6
    names: dict[str, object] = {"__name__": "time_machine"}
    for block in blocks:
        above = "\n" * text.count("\n", 0, block.start(1))  # so that errors name the line of the page
        exec(compile(above + block[1], str(PAGE), "exec"), names)
