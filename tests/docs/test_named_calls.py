"""Messages and pages name no call that does not exist: `pond.name` is a method of a pond."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from millpond import Pond
from tests.docs.source_files import ROOT, nodes, source_files

CALL = re.compile(r"(?<![\w.`/:-])pond\.([a-z]\w*)(?!\w*/)")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md"])


def unknown_calls(text: str) -> list[str]:
    attributes = {*dir(Pond), "store", "settings"}
    return [name for name in CALL.findall(text) if name not in attributes and name != "md"]


def texts() -> Iterator[tuple[str, str]]:
    for file in source_files():
        for node in nodes(file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{file.path}:{node.lineno}", node.value
    for page in PAGES:
        yield str(page.relative_to(ROOT)), page.read_text()


def test_every_call_of_a_pond_that_a_text_names_exists() -> None:
    assert not [(where, found) for where, text in texts() if (found := unknown_calls(text))]


@pytest.mark.parametrize(
    ("text", "expected"), [("use pond.keyed(…)", ["keyed"]), ("pond.drain(), or pond.settings", [])]
)
def test_an_unknown_call_is_found(text: str, expected: list[str]) -> None:
    assert unknown_calls(text) == expected
