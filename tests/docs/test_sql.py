"""docs/sql.md: every block runs, its differences are as it says, and what it calls not supported is refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from millpond.errors import MillpondError
from millpond.pond import Pond

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
TEXT = PAGE.read_text()


def table(title: str) -> list[list[str]]:
    part = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    return [
        [c.strip() for c in line.strip("| ").split(" | ")]
        for line in part.splitlines()
        if line.startswith("| `")
    ]


@pytest.fixture
def pond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pond]:
    monkeypatch.chdir(tmp_path)
    with millpond.open(tmp_path / "other", engine="inline") as made:
        yield made


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert len(blocks) >= 8
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)


def test_the_differences_are_as_told(pond: Pond) -> None:
    pond.sql("CREATE TABLE t (a int)")
    rows = table("Where it differs from PostgreSQL")
    assert len(rows) >= 6
    for query, here, _ in rows:
        wanted = re.findall(r"`([^`]*)`", here)[0]
        (found,) = pond.sql(query.strip("`")).fetchone() or (None,)
        assert found == (float(wanted) if wanted == "inf" else ast.literal_eval(wanted)), query


def test_what_is_not_supported_is_refused(pond: Pond) -> None:
    pond.sql("""
        CREATE TABLE orders (id int PRIMARY KEY, amount int, at timestamp);
        CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM orders;
        CREATE SOURCE bid WITH (connector = 'nexmark', events = 10)
    """)
    rows = table("What is not supported")
    assert len(rows) >= 12
    for statement, _ in rows:
        sql = re.findall(r"`([^`]*)`", statement)[0]
        with pytest.raises(MillpondError):
            pond.sql(sql)
            pytest.fail(f"it is supported: {sql}")
