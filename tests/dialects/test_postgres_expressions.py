"""Random expressions mean what a real PostgreSQL says, as a read and as a view (law 1)."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import millpond
from millpond.errors import MillpondError
from tests.dialects.postgres_expressions import Expression, expression
from tests.sql.fuzz.postgres import Server

COUNT = int(os.environ.get("MILLPOND_EXPRESSIONS", "120"))
FIRST = int(os.environ.get("MILLPOND_EXPRESSIONS_SEED", "1"))
ERROR = "an error"
_LEAST = re.compile(r"@ \(-2147483647 - 1\)|-2147483647 - 1.*%")

_DIGITS = re.compile(r"\d+\.\d+")
_ROWS = re.compile(r"\(\(.*, .*\) [<=] \(.*, .*\)\)")


def test_expressions_mean_the_same(server: Server, tmp_path: Path) -> None:
    rng = random.Random(FIRST)
    wrong = []
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE one (id int); INSERT INTO one VALUES (1)")
        for start in range(0, COUNT, 20):
            asked = [expression(rng, depth=rng.choice((1, 1, 2, 2, 3))) for _ in range(20)]
            wanted = _answers(lambda q: server.con.execute(q).fetchone(), asked)
            read = _answers(lambda q: pond.sql(q).fetchone(), asked)
            sound = [e for e, w, r in zip(asked, wanted, read, strict=True) if w != ERROR and r != ERROR]
            pond.sql(f"CREATE MATERIALIZED VIEW v{start} AS SELECT {_listed(sound)} FROM one; FLUSH")
            viewed = dict(zip(sound, pond.sql(f"SELECT * FROM v{start}").fetchone() or (), strict=True))
            for one, theirs, ours in zip(asked, wanted, read, strict=True):
                if not _same(theirs, ours) and not _is_explained(one, theirs, ours):
                    wrong.append((one.text, theirs, ours))
                elif one in viewed and not _same(ours, viewed[one]):
                    wrong.append((one.text, ours, "as a view", viewed[one]))
    assert not wrong, wrong


def _listed(asked: list[Expression]) -> str:
    return ", ".join(f"({e.text})::text AS c{n}" for n, e in enumerate(asked)) or "1 AS c0"


def _answers(ask: Callable[[str], Any], asked: list[Expression]) -> list[str | None]:
    """The texts of all, together if none fails."""
    import psycopg

    failures = (psycopg.Error, MillpondError)
    try:
        return list(ask(f"SELECT {_listed(asked)}"))
    except failures:
        pass
    found: list[str | None] = []
    for one in asked:
        try:
            found.append(ask(f"SELECT ({one.text})::text")[0])
        except failures:
            found.append(ERROR)
    return found


def _same(theirs: str | None, ours: str | None) -> bool:
    if theirs == ours or theirs is None or ours is None:
        return theirs == ours
    try:
        a, b = Decimal(theirs), Decimal(ours)
    except InvalidOperation:
        return False
    return a == b or abs(a - b) <= Decimal("1e-15") * max(Decimal(1), abs(a))


def _is_explained(one: Expression, theirs: str | None, ours: str | None) -> bool:
    """docs/sql.md, "Where it differs": more than 38 digits, errors that are hidden or not needed, and others."""
    if ours == ERROR and (("NaN" in one.text and "/" in one.text) or _LEAST.search(one.text)):
        return True
    if ours == ERROR:
        return "<<" in one.text or "1e3" in one.text or "12345678901234567.5" in one.text
    if theirs == ERROR:
        wider = "-2147483647 - 1" in one.text or "- (~ 2147483647)" in one.text or "date '" in one.text
        wider = wider or ("nullif" in one.text and "2147483647 + 1" in one.text)
        wider = wider or " BETWEEN " in one.text or _ROWS.search(one.text) is not None  # what was not needed
        return ours is None or "NULL" in one.text or wider
    if (
        "/" in one.text and theirs is not None
    ):  # a quotient has 16 digits after the point, also inside of a text
        return _DIGITS.sub(_rounded, theirs) == _DIGITS.sub(_rounded, ours or "") or one.text.count("/") > 1
    return False


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.10g}"
