"""A database that is used again shows nothing of its last user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from millpond.kernels import spare_databases
from millpond.kernels.duck import connect
from millpond.kernels.spare_databases import SPARES_MAX, ReusableDatabase
from millpond.sql.binding.bind import Binder
from millpond.sql.lowering.expressions import StepColumn


@pytest.fixture
def taken() -> Iterator[list[ReusableDatabase]]:
    found: list[ReusableDatabase] = []
    yield found
    for database in found:
        database.close()


def take(taken: list[ReusableDatabase]) -> Any:
    taken.append(spare_databases.take("test", lambda: connect({"threads": 1})))
    return taken[-1].con


def test_nothing_is_left(taken: list[ReusableDatabase]) -> None:
    con = take(taken)
    for made in (
        "table t as select 1 as x",
        "view v as select 2 as y",
        "macro f() as 3",
        "type e as enum ('a')",
    ):
        con.execute(f"create {made}")
    con.execute("begin")
    con.execute("insert into t values (4)")
    taken.pop().give_back()
    again = take(taken)
    assert again is con
    for kind in ("tables", "views", "functions", "types"):
        left = f"select count(*) from duckdb_{kind}() where not internal and database_name <> 'system'"
        assert again.execute(left).fetchone() == (0,), kind
    again.execute("create table t as select 5 as x")
    assert again.execute("from t").fetchall() == [(5,)]


def test_a_database_that_cannot_be_emptied_is_not_used_again(taken: list[ReusableDatabase]) -> None:
    con = take(taken)
    taken.pop().give_back()
    con.close()
    assert take(taken).execute("select 1").fetchone() == (1,)


def test_few_are_kept(taken: list[ReusableDatabase]) -> None:
    made = [take(taken) for _ in range(SPARES_MAX + 2)]
    while taken:
        taken.pop().give_back()
    again = [take(taken) for _ in range(SPARES_MAX + 2)]
    assert sum(any(con is old for old in made) for con in again) == SPARES_MAX


def test_a_binder_starts_empty() -> None:
    first = Binder()
    first.table("t", [StepColumn("a", "INTEGER")])
    assert first.names("select * from t") == ["a"]
    del first
    second = Binder()
    with pytest.raises(Exception, match="does not exist"):
        second.plan("select * from t")
    second.table("t", [StepColumn("b", "VARCHAR")])
    assert second.constant("select count(*) as n from t").equals(pa.table({"n": pa.array([0], pa.int64())}))
