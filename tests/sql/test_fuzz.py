"""Random cases, each epoch of each compared with DuckDB and, where they are shared, PostgreSQL (law 1).

MILLPOND_FUZZ_CASES says how many are played, from seed MILLPOND_FUZZ_FIRST on.  The default is a few fixed seeds,
so that the verdict is the same on every machine.  What fails is shrunk and printed as a script for `millpond sql`.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import millpond
from tests.sampling import first
from tests.sql.fuzz.cases import Case, Change, Table, View
from tests.sql.fuzz.chance import case
from tests.sql.fuzz.engines import Duck
from tests.sql.fuzz.play import BROKEN, Outcome, play
from tests.sql.fuzz.postgres import Missing, Server
from tests.sql.fuzz.queries import Queries
from tests.sql.fuzz.shrink import report, shrunk

CASES = int(os.environ.get("MILLPOND_FUZZ_CASES", "4"))
FIRST = int(os.environ.get("MILLPOND_FUZZ_FIRST", "0"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server | str]:
    """PostgreSQL, or why there is none."""
    try:
        made = Server()
    except Missing as why:
        yield str(why)
        return
    yield made
    made.close()


@pytest.mark.parametrize("second", first(1, [True, False]), ids=["duckdb and postgresql", "duckdb"])
def test_random_cases(second: bool, server: Server | str) -> None:
    """Every view is the batch query at every epoch, whatever happens to the pond in between."""
    if second and isinstance(server, str):
        pytest.skip(server)
    ponds, all_ = 0, Outcome()
    for seed in range(FIRST, FIRST + CASES):
        found = case(seed)
        if found.shared != second and not isinstance(server, str):
            continue  # the other test plays it
        outcome = played(found, server)
        if outcome.wrong:
            raise AssertionError(failure(found, outcome, server))
        all_.add(outcome)
        ponds += 1
        if ponds % 25 == 0:
            print(told(ponds, all_), flush=True)
    print(told(ponds, all_))
    assert all_.views > 3 * ponds, "most queries are views"
    assert all_.compared["postgresql"] > 0 or not second


def told(ponds: int, outcome: Outcome) -> str:
    return f"{ponds} ponds, {outcome.views} views; compared {dict(outcome.compared)}; left out {dict(outcome.left_out)}"


def played(found: Case, server: Server | str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return play(Path(folder) / "pond", found, None if isinstance(server, str) else server.fresh)


def failure(found: Case, outcome: Outcome, server: Server | str, budget_s: float = 90.0) -> str:
    name, first = next(iter(outcome.wrong.items()))
    refused = first.startswith("refused")

    def fails(tried: Case) -> bool:
        now = played(tried, server).wrong.get(name)
        return now is not None and now.startswith("refused") == refused

    small = found if name == BROKEN else found.only([name])
    if not fails(small):
        return report(found, f"{name}: {first} (only together with the others)", [name])
    small = shrunk(small, fails, budget_s)
    return report(small, f"{name}: {played(small, server).wrong.get(name, first)}", [name])


def test_windows_are_of_every_kind() -> None:
    """Every frame with every EXCLUDE meets every kind of function, over orders that leave ties."""
    columns = {"id": "INTEGER", "k": "INTEGER", "c0": "VARCHAR", "c1": "DATE", "c2": "DECIMAL(10,2)"}
    written = Queries({"t0": columns}, random.Random(0), True)
    met = set()
    for _ in range(4000):
        text, _kinds = written.windowed(written.table(), "")
        for call, order in re.findall(r"CAST\((\w+)\([^()]*(?:\([^()]*\)[^()]*)*\) OVER \(([^()]*)\)", text):
            columns_of = re.search(r"ORDER BY (.*?)(?: (?:ROWS|RANGE|GROUPS) |$)", order)
            frame = re.search(r"(ROWS|RANGE|GROUPS) (.*?)(?: EXCLUDE (.*))?$", order)
            if columns_of is None or columns_of[1].count("NULLS") == len(columns):
                continue  # every column is ordered by: only equal rows tie
            met.add((call, *((frame[1], frame[3] or "") if frame else ("", ""))))
    excluded = ["", "CURRENT ROW", "GROUP", "TIES", "NO OTHERS"]
    frames = [("", ""), *itertools.product(["ROWS", "RANGE", "GROUPS"], excluded)]
    called = ["first_value", "last_value", "nth_value", "sum", "count", "min", "max"]
    assert not {(c, *f) for c in called for f in frames} - met
    assert {(c, "", "") for c in ("row_number", "rank", "dense_rank", "ntile", "lag", "lead")} <= met


class Liar(Duck):
    """An engine that takes every outer join for an inner one."""

    name = "liar"

    def run(self, statement: str) -> str | None:
        return super().run(statement.replace("LEFT JOIN", "JOIN"))


@pytest.mark.slow
def test_a_difference_is_found_and_made_small() -> None:
    """The check can fail, and what it prints is a script that shows the difference."""
    table = Table("t0", {"id": "INTEGER", "k": "INTEGER", "c0": "VARCHAR"}, True)
    rows = tuple((str(n), str(n % 3), f"'{n}'") for n in range(4))
    query = (
        "SELECT x1.id AS o1, x2.k AS o2, upper(x1.c0) AS o3 FROM t0 AS x1 LEFT JOIN t0 AS x2"
        " ON x1.id = x2.k AND x2.c0 <> 'z' WHERE x1.id IS NOT NULL AND (x1.k < 5 OR x1.c0 = 'a')"
    )
    found = Case(
        0, True, (table,), (View("v0", "SELECT k AS a FROM t0 AS x", 0), View("v1", query, 0)),
        ((Change(table, rows[:2]),), (Change(table, rows[2:]), Change(table, text="UPDATE t0 SET k = k WHERE id = 0"))),
    )  # fmt: skip

    def run(tried: Case) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            return play(Path(folder) / "pond", tried, Liar)

    outcome = run(found)
    assert list(outcome.wrong) == ["v1"] and "liar has it otherwise" in outcome.wrong["v1"]
    small = shrunk(found.only(["v1"]), lambda tried: "v1" in run(tried).wrong, budget_s=600)
    (view,) = small.views
    assert "LEFT JOIN" in view.query and "WHERE" not in view.query and len(view.query) < len(query) * 2 / 3
    assert sum(len(changes) for changes in small.epochs) == 1
    with millpond.open("memory://", engine="inline") as pond:
        pond.sql(report(small, "found", ["v1"]))
