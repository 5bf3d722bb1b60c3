"""The first statements of a pond: views have their rows over empty input from the epoch that brings them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import Pond
from millpond.errors import InvalidError
from millpond.operators.aggregate import Aggregate
from millpond.plan.nodes import Node
from millpond.sinks.callback import CallbackSink

TABLES = "CREATE TABLE t (k int, s text); CREATE TABLE u (k int PRIMARY KEY, n int)"
VIEWS = {  # over empty tables: the query, and what it gives
    "count": ("SELECT count(*) AS n FROM t", [(0,)]),
    "several aggregates": ("SELECT count(k) n, sum(k) s, avg(k) a, min(s) m FROM t", [(0, None, None, None)]),
    "by query": ("SELECT string_agg(s, ',' ORDER BY k) l, median(k) m FROM t", [(None, None)]),
    "distinct": ("SELECT count(DISTINCT k) n FROM t WHERE k > 0", [(0,)]),
    "having": ("SELECT count(*) n FROM t HAVING count(*) = 0", [(0,)]),
    "over a join": ("SELECT count(*) n FROM t JOIN u ON t.k = u.k", [(0,)]),
    "grouping sets": ("SELECT k, count(*) n FROM t GROUP BY GROUPING SETS ((k), ())", [(None, 0)]),
    "constant": ("SELECT 1 AS a, 'x' AS b", [(1, "x")]),
    "values": ("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(x, y)", [(1, "a"), (2, "b")]),
    "series": ("SELECT i FROM generate_series(1, 3) g(i)", [(1,), (2,), (3,)]),
    "union all": ("SELECT k FROM t UNION ALL SELECT 7", [(7,)]),
    "scalar subquery": ("SELECT (SELECT max(k) FROM t) AS m, 1 AS one", [(None, 1)]),
    "exists": ("SELECT EXISTS (SELECT 1 FROM t) AS e", [(False,)]),
    "not in": ("SELECT x FROM (VALUES (1)) v(x) WHERE x NOT IN (SELECT k FROM t)", [(1,)]),
    "left join": ("SELECT x, n FROM (VALUES (1), (2)) v(x) LEFT JOIN u ON u.k = x", [(1, None), (2, None)]),
    "cross join": (
        "SELECT a.n, b.m FROM (SELECT count(*) n FROM t) a, (SELECT sum(n) m FROM u) b",
        [(0, None)],
    ),
    "recursive": (
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 3) SELECT i FROM r",
        [(1,), (2,), (3,)],
    ),
    "recursive over a table": (
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION SELECT u.n FROM r JOIN u ON u.k = r.i) SELECT i FROM r",
        [(1,)],
    ),
    "window": ("SELECT x, sum(x) OVER (ORDER BY x) s FROM (VALUES (1), (2)) v(x)", [(1, 1), (2, 3)]),
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Pond]]:
    ponds: list[Pond] = []

    def again() -> Pond:
        for pond in ponds:
            pond.close()
        ponds.append(millpond.open(tmp_path / "pond", engine="inline"))
        return ponds[-1]

    yield again
    for pond in ponds:
        pond.close()


def rows(pond: Pond, sql: str, **named: Any) -> list[tuple[Any, ...]]:
    return sorted(pond.sql(sql, **named).fetchall(), key=repr)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_new_pond_has_its_rows(name: str, opened: Callable[[], Pond]) -> None:
    query, expected = VIEWS[name]
    pond = opened()
    pond.sql(f"{TABLES}; CREATE MATERIALIZED VIEW v AS {query}")
    assert pond.epoch == 0 and rows(pond, "SELECT * FROM v") == expected
    pond = opened()  # a pond that has never run an epoch
    assert rows(pond, "SELECT * FROM v") == expected
    pond.sql("FLUSH")
    assert rows(pond, "SELECT * FROM v") == expected
    assert rows(pond, "SELECT * FROM v AS OF EPOCH 0") == expected
    pond.sql("INSERT INTO t VALUES (1, 'a'); INSERT INTO u VALUES (1, 2); FLUSH")
    pond.sql("DELETE FROM t; DELETE FROM u; FLUSH")
    assert rows(pond, "SELECT * FROM v") == expected


def test_a_chain_of_views_in_one_text(opened: Callable[[], Pond]) -> None:
    pond = opened()
    pond.sql(
        f"{TABLES}; CREATE MATERIALIZED VIEW a AS SELECT count(*) n FROM t;"
        "CREATE MATERIALIZED VIEW b AS SELECT n + 1 AS n FROM a;"
        "CREATE MATERIALIZED VIEW c AS SELECT sum(n) AS n FROM (SELECT n FROM a UNION ALL SELECT n FROM b) x;"
        "CREATE VIEW d AS SELECT c.n, b.n AS m FROM b, c"
    )
    assert pond.epoch == 0 and rows(pond, "SELECT * FROM d") == [(1, 1)]
    assert pond.read("c").to_pylist() == [{"n": 1}]
    pond.sql("INSERT INTO t VALUES (1, 'a'); FLUSH")
    assert rows(pond, "SELECT * FROM d") == [(3, 2)]


def test_a_view_is_told_to_its_followers_from_epoch_0(opened: Callable[[], Pond]) -> None:
    pond = opened()
    pond.sql(f"{TABLES}; CREATE MATERIALIZED VIEW v AS SELECT count(*) n FROM t")
    pond.sql("INSERT INTO t VALUES (1, 'a'); FLUSH")
    told = [(d.epoch, d.table.sort_by("_w").to_pylist()) for d in pond.changes("v", 0)]
    assert told == [(pond.epoch, [{"n": 0, "_w": -1}, {"n": 1, "_w": 1}])]
    assert pond.diff("v", 0, pond.epoch).num_rows == 2


def test_aggregates_of_the_flow_api_without_a_key_always_have_a_row(opened: Callable[[], Pond]) -> None:
    def defined(pond: Pond) -> Pond:
        table = pond.table("t", pa.schema([("k", pa.int64()), ("s", pa.string())]))
        table.aggregate(n="count(*)", total="sum(k)", least="min(k)", kinds="count(distinct s)").view("all")
        table.key_by("s").aggregate(n="count(*)").view("by_s")
        table.filter("k > 100").aggregate(n="count(*)").view("large")
        return pond

    empty = {"n": 0, "total": None, "least": None, "kinds": 0}
    pond = defined(opened())
    pond.drain()
    assert pond.read("all").to_pylist() == [empty] and pond.read("large").to_pylist() == [{"n": 0}]
    assert pond.read("all", epoch=0).to_pylist() == [empty] and pond.read("by_s").num_rows == 0
    pond = defined(opened())
    pond.insert("t", [{"k": 2, "s": "a"}, {"k": 1, "s": "a"}])
    pond.drain()
    assert pond.read("all").to_pylist() == [{"n": 2, "total": 3, "least": 1, "kinds": 1}]
    pond.delete("t", [{"k": 2, "s": "a"}, {"k": 1, "s": "a"}])
    pond.drain()
    assert pond.read("all").to_pylist() == [empty] and pond.read("by_s").num_rows == 0
    with pond.changing():
        pond.stream_of("t").aggregate(n="count(*)").view("later")
    assert pond.read("later").to_pylist() == [{"n": 0}]


def test_code_that_gains_an_aggregate_gives_its_row_at_once(opened: Callable[[], Pond]) -> None:
    schema = pa.schema([("k", pa.int64())])
    pond = opened()
    pond.table("t", schema)
    pond.drain()
    pond = opened()
    pond.table("t", schema)
    pond.table("other", schema).aggregate(n="count(*)").view("counted")
    pond.sql("FLUSH")
    head = pond.epoch
    assert pond.read("counted").to_pylist() == [{"n": 0}]
    shown = [e for e in range(head + 1) if "counted" in pond.at(e).views()]
    assert shown and all(pond.read("counted", epoch=e).to_pylist() == [{"n": 0}] for e in shown)


@pytest.mark.parametrize(
    "sql",
    [
        *("", " ; ", "FLUSH", "EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN SELECT 1", "SHOW TABLES", "SHOW VIEWS"),
        *("SHOW EPOCHS", "SHOW SAVEPOINTS", "SHOW LATE", "SHOW JOBS", "SHOW FUNCTIONS"),
    ],
)
def test_statements_that_need_no_table(sql: str, opened: Callable[[], Pond]) -> None:
    pond = opened()
    pond.sql(sql)
    assert pond.sql("SELECT 1 + ? AS n", params=[1]).fetchall() == [(2,)]
    assert rows(pond, "VALUES (1), (2)") == [(1,), (2,)]
    with pytest.raises(InvalidError, match="does not exist"):
        pond.sql("SELECT * FROM nothing")
    with pytest.raises(InvalidError, match="no epochs yet"):
        pond.sql("SELECT 1 AS OF EPOCH 0")
    pond.sql("CREATE TABLE t (k int); INSERT INTO t VALUES (1); FLUSH")
    assert rows(pond, "SELECT * FROM t") == [(1,)]


def test_views_and_functions_need_no_table_and_stay(opened: Callable[[], Pond]) -> None:
    opened().sql("CREATE VIEW one AS SELECT 1 AS n; CREATE FUNCTION twice(x int) AS x * 2")
    pond = opened()
    assert rows(pond, "SELECT twice(n) FROM one") == [(2,)]
    pond.sql(TABLES)
    assert rows(opened(), "SELECT count(*) + twice(2) FROM t, one") == [(4,)]


def test_a_function_in_python_waits_for_what_the_flow_api_defines(opened: Callable[[], Pond]) -> None:
    pond = opened()

    @pond.function
    def shout(text: str) -> str:
        return text.upper()

    assert rows(pond, "SELECT shout('a')") == [("A",)]
    pond.table("t", pa.schema([("s", pa.string())]))
    pond.insert("t", [{"s": "b"}])
    pond.drain()
    assert rows(pond, "SELECT shout(s) FROM t") == [("B",)]
    assert pond.views() == ["t"]


def test_a_pond_of_an_older_version_gains_the_row(opened: Callable[[], Pond]) -> None:
    def defined(pond: Pond) -> Pond:
        pond.table("t", pa.schema([("k", pa.int64())])).aggregate(n="count(*)").view("all")
        return pond

    pond = defined(opened())
    plan = pond.plan
    step = plan.views["all"].step
    node = plan.nodes[step]
    assert isinstance(node.operator, Aggregate) and node.operator.always
    operator = replace(node.operator, feeds=node.operator.feeds[:-1])
    inputs = node.inputs[:-1]
    binding = operator.bind(step, tuple(plan.shape(i) for i in inputs))
    older = {**plan.nodes, step: Node(step, operator, inputs, binding)}
    del older["one-row"]
    pond._builder.reopen(replace(plan, nodes=older))
    pond.drain()
    assert pond.read("all").num_rows == 0
    pond = defined(opened())
    pond.drain()
    assert pond.read("all").to_pylist() == [{"n": 0}]
    pond.insert("t", [{"k": 1}])
    pond.drain()
    assert pond.read("all").to_pylist() == [{"n": 1}]


def test_a_sink_is_given_the_rows_of_epoch_0(opened: Callable[[], Pond]) -> None:
    given: list[tuple[str, list[Any]]] = []

    def take(id: str, rows: pa.Table) -> None:
        given.append((id.split(":")[1], rows.sort_by("_w").to_pylist()))

    pond = opened()
    table = pond.table("t", pa.schema([("k", pa.int64())]))
    table.aggregate(n="count(*)").view("all").sink("told", CallbackSink(take))
    pond.drain()
    pond.insert("t", [{"k": 1}])
    pond.drain()
    told = [one for one in given if one[1]]
    assert told[0] == ("0", [{"n": 0, "_w": 1}])
    assert told[1][1] == [{"n": 0, "_w": -1}, {"n": 1, "_w": 1}] and len(told) == 2
