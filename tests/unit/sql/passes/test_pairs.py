"""What each pass makes of queries: `pairs/` has a file for each pass, with queries and the expected relations.

Passes before the one that a file is named by have run.  A comment above a query says what to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millpond.sql.binding.bind import Binder
from millpond.sql.bound.reader import read_plan
from millpond.sql.bound.text import relation_text
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.passes.passes import passes
from millpond.sql.text.time_windows import as_plain_sql

PAIRS = Path(__file__).parent / "pairs"
TABLES = {
    "t": {"id": "INTEGER", "a": "INTEGER", "b": "VARCHAR", "ts": "TIMESTAMP", "l": "INTEGER[]"},
    "u": {"id": "INTEGER", "a": "INTEGER", "c": "DOUBLE"},
    "v": {"id": "INTEGER", "u": "INTEGER"},
    "w": {"tz": "TIMESTAMP WITH TIME ZONE", "ts": "TIMESTAMP", "s": "VARCHAR", "i": "INTERVAL"},
}
ZONES = {"fix_time_zone": "Asia/Tokyo"}  # of the session, where a pass is about it


def pairs() -> list[tuple[str, str, str]]:
    """Return (pass, query, expected relation) of each pair."""
    found = []
    for path in sorted(PAIRS.glob("*.sql")):
        for block in path.read_text().strip().split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("--")]
            query, _, expected = "\n".join(lines).partition(";\n")
            found.append((path.stem, query, expected.rstrip()))
    return found


def called(one: Callable[..., Any]) -> str:
    return one.func.__name__ if isinstance(one, partial) else one.__name__


def after(name: str, query: str) -> str:
    """Return the relation of a query after this pass and all before it."""
    zone = ZONES.get(name, "UTC")
    binder = Binder().in_zone(zone)
    for table, columns in TABLES.items():
        binder.table(table, [StepColumn(c, k) for c, k in columns.items()])

    def value(node: Any) -> object:
        return binder.constant(f"select {render(node, ())} as v").column(0)[0].as_py()

    relation = read_plan(binder.plan(as_plain_sql(query)))
    for one in passes(value, zone):
        relation = one(relation)
        if called(one) == name:
            return relation_text(relation)
    raise AssertionError(f"there is no pass {name}")


@pytest.mark.parametrize(("name", "query", "expected"), pairs(), ids=lambda text: text[:40])
def test_pass(name: str, query: str, expected: str) -> None:
    assert after(name, query) == expected


def test_every_pass_has_pairs() -> None:
    assert {path.stem for path in PAIRS.glob("*.sql")} == {
        called(one) for one in passes(lambda _: None, "Asia/Tokyo")
    }
