"""Every Python block of the page on functions runs, in order, in one namespace."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) >= 8
    module = types.ModuleType("page_on_functions")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for number, block in enumerate(blocks, 1):
        code = compile(block, f"{PAGE.name}, block {number}", "exec", dont_inherit=True)
        exec(code, module.__dict__)


def test_its_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link
