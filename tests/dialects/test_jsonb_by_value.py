"""Documents of type jsonb are compared, grouped and ordered by value, as a real PostgreSQL does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import millpond
from millpond import Pond
from millpond.kernels.postgres.jsonb_order import jsonb_order, jsonb_value
from tests.sql.fuzz.postgres import Server

DOCUMENTS = [
    *(
        "null",
        "true",
        "false",
        "0",
        "-0.0",
        "1",
        "1.0",
        "1.50",
        "1.5",
        "-1.5",
        "-15",
        "9",
        "10",
        "1e3",
        "1000.00",
    ),
    *(
        "0.001",
        "0.0010",
        "123456789012345678901234567890.10",
        '""',
        '"a"',
        '"ab"',
        '"\\u0001"',
        '"\\u0002"',
        '"é"',
    ),
    *(
        "[]",
        "[1]",
        "[1.0]",
        "[2]",
        "[1, 2]",
        "[[]]",
        "[null]",
        '["a"]',
        '["a\\u0001"]',
        '["a", 1]',
        '["a\\u0001", 1]',
    ),
    *("{}", '{"a": 1}', '{"a": 1.00}', '{"b": 0}', '{"bb": 0}', '{"a": 1, "b": 2}', '{"a": {"b": [1.10]}}'),
]


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder: Path = tmp_path_factory.mktemp("documents")
    with millpond.open(folder / "pond", engine="inline") as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, j jsonb, k json)")
        made.sql(f"INSERT INTO t (id, j) VALUES {_rows()}; FLUSH")
        yield made


@pytest.fixture(scope="module")
def theirs(server: Server) -> Server:
    server.con.execute("CREATE TABLE t (id int PRIMARY KEY, j jsonb, k json)")
    server.con.execute(f"INSERT INTO t (id, j) VALUES {_rows()}")
    return server


def _rows() -> str:
    return ", ".join(f"({n}, '{text}')" for n, text in enumerate(DOCUMENTS)) + f", ({len(DOCUMENTS)}, NULL)"


QUERIES = [
    "SELECT a.id AS x, b.id AS y FROM t a JOIN t b ON a.j = b.j",
    "SELECT a.id AS x, b.id AS y, a.j < b.j AS l, a.j >= b.j AS m, a.j IS DISTINCT FROM b.j AS d FROM t a, t b",
    "SELECT id, rank() OVER (ORDER BY j) AS r, dense_rank() OVER (ORDER BY j DESC) AS d FROM t",
    "SELECT id, count(*) OVER (PARTITION BY j) AS n FROM t",
    "SELECT min(id) AS least, count(*) AS n FROM t GROUP BY j",
    "SELECT min(id) AS least, count(*) AS n FROM t GROUP BY j HAVING j = '1' OR j > '[]'",
    "SELECT count(DISTINCT j) AS n FROM t",
    "SELECT count(*) AS n FROM (SELECT DISTINCT j FROM t) AS q",
    "SELECT count(*) AS n FROM (SELECT j FROM t UNION SELECT '1.00'::jsonb) AS q",
    "SELECT id FROM t WHERE j IN ('1.00', '{\"a\":1.0}', '[]') OR j BETWEEN '9' AND '11'",
    "SELECT id FROM t WHERE j -> 'a' = '1' OR j #> '{a,b}' = '[1.1]'",
    "SELECT count(*) AS n FROM (SELECT j AS d FROM t) AS q WHERE q.d -> 'a' <> '{}' GROUP BY q.d -> 'a'",
]


@pytest.mark.parametrize("query", QUERIES)
def test_reads_and_views_answer_as_postgresql_does(pond: Pond, theirs: Server, query: str) -> None:
    wanted = theirs.con.execute(query).fetchall()
    assert sorted(map(str, pond.sql(query).fetchall())) == sorted(map(str, wanted))
    name = f"v{QUERIES.index(query)}"
    pond.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}; FLUSH")
    viewed = pond.sql(f"SELECT * FROM {name}").fetchall()
    assert sorted(map(str, viewed)) == sorted(map(str, wanted))


@pytest.mark.parametrize("order", ["j", "j DESC", "j NULLS FIRST", "2", "j -> 'a', j"])
def test_order(pond: Pond, theirs: Server, order: str) -> None:
    query = f"SELECT id, j FROM t ORDER BY {order}, id"
    assert [i for i, _ in pond.sql(query).fetchall()] == [i for i, _ in theirs.con.execute(query).fetchall()]


def test_the_first_rows_of_a_view_are_those_of_the_order(pond: Pond, theirs: Server) -> None:
    query = "SELECT id FROM t ORDER BY j DESC, id LIMIT 7"
    pond.sql(f"CREATE MATERIALIZED VIEW top AS {query}; FLUSH")
    wanted = theirs.con.execute(query).fetchall()
    assert sorted(pond.sql("SELECT * FROM top").fetchall()) == sorted(wanted)


def test_a_group_shows_numbers_without_zeros_at_their_end(pond: Pond) -> None:
    assert pond.sql("SELECT j FROM t WHERE id IN (7, 8) GROUP BY j").fetchall() == [("1.5",)]
    assert pond.sql("SELECT j FROM t WHERE id = 7").fetchall() == [("1.50",)]


def test_views_follow_changes(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, j jsonb)")
        pond.sql("CREATE MATERIALIZED VIEW v AS SELECT j, count(*) AS n FROM t GROUP BY j")
        pond.sql("INSERT INTO t VALUES (1, '1.0'), (2, '1'), (3, '[2.50]'); FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [("1", 2), ("[2.5]", 1)]
        pond.sql("DELETE FROM t WHERE j = '1.00' AND id = 1; UPDATE t SET j = '2' WHERE j = '[2.5]'; FLUSH")
        assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [("1", 1), ("2", 1)]


def test_the_value_and_the_order_of_equal_documents_are_equal() -> None:
    column = pa.chunked_array([DOCUMENTS])
    shown, keys = jsonb_value(column).to_pylist(), jsonb_order(column).to_pylist()
    for (a, x), (b, y) in itertools.combinations(zip(shown, keys, strict=True), 2):
        if "e" not in a + b and "-0" not in a + b and "\\u" not in a + b:
            assert (a == b) == (x == y), (a, b)
