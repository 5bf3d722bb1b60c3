"""Every pass keeps the rows: DuckDB executes what each pass made of a query, and the query itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from millpond.sql.binding.bind import Binder
from millpond.sql.bound.reader import read_plan
from millpond.sql.lowering.expressions import StepColumn, render
from millpond.sql.passes.passes import passes
from tests import sampling
from tests.sql.test_lowering import QUERIES, TABLES, queries, row
from tests.sql.world import Rows, plain
from tests.unit.sql.relation_sql import Writer

TEXTS = [query for path in sorted(QUERIES.glob("*.sql")) for query in queries(path)]
GROUP = 40


class Both:
    """Tables in DuckDB with rows, and in a binder."""

    def __init__(self) -> None:
        self.con = duckdb.connect()
        self.con.execute("set timezone = 'UTC'")
        self.binder = Binder()
        rng = random.Random(7)
        for name, (columns, _) in TABLES.items():
            listed = ", ".join(f"{c} {k}" for c, k in columns.items())
            self.con.execute(f"create table {name} ({listed})")
            self.binder.table(name, [StepColumn(c, k) for c, k in columns.items()])
            for number in range(12):
                values = {**row(name, rng), "id": number}
                marks = ", ".join("?" for _ in columns)
                self.con.execute(f"insert into {name} values ({marks})", [values.get(c) for c in columns])
        self.writer = Writer({name: list(columns) for name, (columns, _) in TABLES.items()})

    def value(self, node: Any) -> object:
        return self.binder.constant(f"select {render(node, ())} as v").column(0)[0].as_py()

    def rows(self, sql: str) -> Rows:
        return plain(self.con.execute(sql).fetchall())


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    found = Both()
    yield found
    found.con.close()


def check(both: Both, query: str, every: bool) -> bool:
    """Does DuckDB return the rows of a query for its bound plan, before and after the passes?

    With `every`, also after each pass.  False if DuckDB cannot execute it here.
    """
    relation = read_plan(both.binder.plan(query))
    try:
        wanted = both.rows(query)
    except duckdb.Error:
        return False
    assert both.rows(both.writer.sql(relation)) == wanted, query
    done = []
    for one in passes(both.value):
        relation = one(relation)
        done.append(one)
        if every:
            assert both.rows(both.writer.sql(relation)) == wanted, (query, done)
    assert both.rows(both.writer.sql(relation)) == wanted, query
    return True


@pytest.mark.parametrize("first", sampling.first(7, range(0, len(TEXTS), GROUP)))
def test_passes_keep_the_rows(both: Both, first: int) -> None:
    done = [check(both, query, every=n % 10 == 0) for n, query in enumerate(TEXTS[first : first + GROUP])]
    assert sum(done) > 0.8 * len(done)
