"""Other dialects: each construct means what it means there, or is refused; the answers are written down."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import MillpondError
from millpond.pond import Pond


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    with millpond.open(tmp_path_factory.mktemp("dialects") / "pond", engine="inline") as made:
        made.sql("""
            CREATE TABLE t (id int PRIMARY KEY, s text, a int, f double, d decimal(10,2), l int[], m map(int, text));
            INSERT INTO t VALUES (1, 'x', 7, 1.5, 2.5, [1, 2], MAP {1: 'one'}), (2, NULL, 0, 2, 3, NULL, NULL);
            CREATE FUNCTION twice(x int) RETURNS int AS 'SELECT x * 2';
            FLUSH
        """)
        yield made


# What Spark 4 answers.
SPARK: dict[str, list[tuple[Any, ...]]] = {
    "SELECT 7 / 2": [(3.5,)],
    "SELECT a / 2 FROM t WHERE id = 1": [(3.5,)],
    "SELECT 7 DIV 2, -7 DIV 2, -7 % 3": [(3, -3, -1)],
    "SELECT CAST('12' AS INT), CAST(a AS BIGINT), CAST(a AS STRING) FROM t WHERE id = 1": [(12, 7, "7")],
    "SELECT CAST(f AS INT) FROM t WHERE id = 2": [(2,)],
    "SELECT CAST('1.55' AS DECIMAL)": [(decimal.Decimal(2),)],
    "SELECT CAST(1 AS DECIMAL(5, 2)), CAST('t' AS BOOLEAN), CAST(1 AS BOOLEAN)": [
        (decimal.Decimal(1), True, True)
    ],
    "SELECT TRY_CAST('x' AS INT), TRY_CAST('5' AS INT)": [(None, 5)],
    "SELECT 'a' || NULL, concat('a', NULL), concat('a', 'b'), concat_ws('-', 'a', NULL, 'b')": [
        (None, None, "ab", "a-b")
    ],
    "SELECT s FROM t ORDER BY s": [(None,), ("x",)],
    "SELECT s FROM t ORDER BY s DESC": [("x",), (None,)],
    "SELECT id, row_number() OVER (ORDER BY s) FROM t ORDER BY id": [(1, 2), (2, 1)],
    "SELECT greatest(1, NULL), least(2, 1)": [(1, 1)],
    "SELECT substring('abc', 2), substr('abc', 1, 2)": [("bc", "ab")],
    "SELECT nvl(NULL, 2), ifnull(s, 'n'), if(a > 1, 'big', 'small') FROM t WHERE id = 2": [(2, "n", "small")],
    "SELECT NULL <=> NULL, 1 <=> NULL": [(True, False)],
    "SELECT \"text\", 'it\\'s', `a` FROM t WHERE id = 1": [("text", "it's", 7)],
    "SELECT count(DISTINCT a, s) FROM t": [(1,)],
    "SELECT collect_list(s) FROM t": [(["x"],)],
    "SELECT * FROM t LEFT ANTI JOIN (SELECT 1 AS id) u ON t.id = u.id WHERE s LIKE 'x%'": [],
    "SELECT twice(a) FROM t WHERE id = 1": [(14,)],
    "SELECT length('abc'), char_length('abc'), upper('a'), trim('  a ')": [(3, 3, "A", "a")],
    "SELECT TIMESTAMP '2024-01-01 10:00:00'": [(datetime.datetime(2024, 1, 1, 10, tzinfo=datetime.UTC),)],
    "SELECT round(2.5), ceil(1.2), floor(-1.2)": [(3, 2, -2)],
    "SELECT sum(d), avg(d), avg(DISTINCT d), sum(d) / 3 FROM t": [
        (
            decimal.Decimal("5.50"),
            decimal.Decimal("2.750000"),
            decimal.Decimal("2.750000"),
            decimal.Decimal("1.833333"),
        )
    ],
    "SELECT hash('Spark', 123, 2L, 1.5D, true), xxhash64('Spark', 123, 2L)": [
        (1385940774, 5111155446588258968)
    ],
    "SELECT shiftleft(-5, 3), shiftleft(5L, 62), shiftrightunsigned(-1L, 60)": [
        (-40, 4611686018427387904, 15)
    ],
    "SELECT DATE'2024-01-31' + INTERVAL '1' MONTH, CAST(NULL AS DATE) + INTERVAL '1' MONTH": [
        (datetime.date(2024, 2, 29), None)
    ],
    "SELECT format_number(-0.05D, 1), printf('%5.2f', sqrt(-1D)), get_json_object('24 0', '$')": [
        ("-0.1", "  NaN", "24")
    ],
    "SELECT parse_url('http://h:80/p?x=1', 'HOST'), parse_url('http://h/p?x=1', 'QUERY', 'x')": [("h", "1")],
    "SELECT map_zip_with(map(1, 'a'), map(1, 'x', 3, 'y'), (k, v, w) -> concat_ws('-', v, w))": [
        ({1: "a-x", 3: "y"},)
    ],
}


@pytest.mark.parametrize(("sql", "answer"), SPARK.items())
def test_spark_answers(pond: Pond, sql: str, answer: list[tuple[Any, ...]]) -> None:
    assert pond.sql(sql, dialect="spark").fetchall() == answer


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST('x' AS INT)",
        "SELECT CAST(s AS INT) FROM t",
        "SELECT CAST('x' AS DATE)",
        "SELECT a / 0 FROM t",
        "SELECT 1 / a FROM t",
        "SELECT 1 % 0",
        "SELECT CAST('1.5' AS INT)",
        "SELECT CAST(3000000000 AS INT)",
        "SELECT 2147483647 + 1",
        "SELECT array(1)[1]",
        "SELECT element_at(array(1), 2)",
        "SELECT to_date('x')",
        "SELECT map(1, 2, 1, 3)",
    ],
)
def test_what_is_an_error_in_spark_is_one(pond: Pond, sql: str) -> None:
    with pytest.raises(MillpondError):
        pond.sql(sql, dialect="spark").fetchall()


REFUSED = [
    "SELECT rand()",
    "SELECT parse_json('{}')",
    "SELECT session_window(s, '1 hour') FROM t",
    "SELECT CAST(a AS INTERVAL DAY) FROM t",
    "SELECT INTERVAL 'x' DAY",
    "SELECT 'a' LIKE 'a\\\\b'",
    "SELECT a FROM t SORT BY a",
    "SELECT a FROM t CLUSTER BY a",
    "SELECT a FROM t TABLESAMPLE (10 PERCENT)",
    "SELECT *, posexplode(l) FROM t",
    "INSERT OVERWRITE t SELECT 1",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_would_mean_something_else_is_refused(pond: Pond, sql: str) -> None:
    with pytest.raises(MillpondError) as told:
        pond.sql(sql, dialect="spark").fetchall()
    assert "spark" in str(told.value).lower(), told.value


@pytest.mark.parametrize(
    ("dialect", "sql", "names"),
    [
        ("spark", "SELECT * FROM VALUES (1, 2)", ["col1", "col2"]),
        ("spark", "SELECT * FROM (VALUES (1, 2)) AS v", ["col1", "col2"]),
        ("spark", "SELECT * FROM VALUES (1, 2) AS v(a, b)", ["a", "b"]),
        ("spark", "VALUES (1, 2)", ["col1", "col2"]),
        ("spark", "WITH c AS (VALUES (1, 2)) SELECT col2 FROM c", ["col2"]),
        ("postgres", "VALUES (1, 2)", ["column1", "column2"]),
        ("postgres", "VALUES (2, 1), (1, 1) ORDER BY column1 LIMIT 1", ["column1", "column2"]),
        ("postgres", "SELECT column2 FROM (VALUES (1, 2)) v", ["column2"]),
        ("postgres", "SELECT v.column1 FROM (VALUES (1)) AS v", ["column1"]),
        ("postgres", "SELECT column1 FROM (VALUES (1))", ["column1"]),
        ("postgres", "SELECT * FROM (VALUES (1, 2)) v(a, b)", ["a", "b"]),
        ("postgres", "SELECT * FROM (VALUES (1, 2)) AS v (a, b)", ["a", "b"]),
        ("postgres", "WITH c AS (VALUES (1, 2)) SELECT column2 FROM c", ["column2"]),
        ("postgres", "WITH c(x, y) AS (VALUES (1, 2)) SELECT * FROM c", ["x", "y"]),
        ("postgres", "SELECT a FROM t WHERE (id, a) IN (VALUES (1, 7))", ["a"]),
        ("postgres", "SELECT * FROM (VALUES (1), (2) UNION ALL VALUES (3)) v", ["column1"]),
        ("duckdb", "VALUES (1, 2)", ["col0", "col1"]),
        ("duckdb", "SELECT col0 FROM (VALUES (1)) v", ["col0"]),
        ("presto", "SELECT * FROM (VALUES (1, 2)) AS v", ["_col0", "_col1"]),
        ("snowflake", "SELECT * FROM (VALUES (1, 2)) AS v", ["COLUMN1", "COLUMN2"]),
    ],
)
def test_columns_of_values_have_the_names_of_the_dialect(
    pond: Pond, dialect: str, sql: str, names: list[str]
) -> None:
    found = pond.sql(sql, dialect=dialect)
    assert list(found.columns) == names
    assert found.fetchall()


def test_values_of_a_view_have_the_names_of_the_dialect(pond: Pond) -> None:
    pond.sql("CREATE MATERIALIZED VIEW vs AS SELECT * FROM VALUES (1, 'a')", dialect="spark")
    pond.sql("CREATE MATERIALIZED VIEW vp AS VALUES (1, 'a'), (2, 'b')")
    assert [r[0] for r in pond.sql("DESCRIBE vs")] == ["col1", "col2"]
    assert [r[0] for r in pond.sql("DESCRIBE vp")] == ["column1", "column2"]
    assert pond.sql("SELECT column2 FROM vp WHERE column1 = 2").fetchall() == [("b",)]
    pond.sql("DROP MATERIALIZED VIEW vs, vp")


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("presto", "SELECT a / 2 FROM t"),  # an integer there
        ("tsql", "SELECT a / 2 FROM t"),
        ("mysql", "SELECT CAST('x' AS SIGNED)"),  # 0 there
        ("mysql", "SELECT s = 'X' FROM t"),  # without regard to case
        ("mysql", "SELECT s LIKE 'X' FROM t"),
        ("mysql", "SELECT length('é')"),  # bytes
        ("oracle", "SELECT '' FROM t"),  # NULL there
        ("bigquery", "SELECT CAST(1 AS NUMERIC)"),
        ("snowflake", "SELECT greatest(1, NULL)"),  # NULL there
        ("bigquery", "SELECT l[OFFSET(0)] FROM t"),
        ("presto", "SELECT l[1] FROM t"),
    ],
)
def test_other_dialects_refuse_as_well(pond: Pond, dialect: str, sql: str) -> None:
    with pytest.raises(MillpondError) as told:
        pond.sql(sql, dialect=dialect).fetchall()
    assert dialect in str(told.value)


def test_a_view_of_another_dialect_keeps_its_meaning(pond: Pond) -> None:
    pond.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT id, CAST(a AS STRING) AS s, a / 2 AS h FROM t", dialect="spark"
    )
    pond.drain()
    assert sorted(pond.sql("SELECT * FROM v").fetchall()) == [(1, "7", 3.5), (2, "0", 0.0)]
    pond.sql("DROP MATERIALIZED VIEW v")
    pond.sql("CREATE TABLE c (x decimal, y int DEFAULT CAST('3' AS INT))", dialect="spark")
    assert [r[1] for r in pond.sql("DESCRIBE c")] == ["DECIMAL(10,0)", "INTEGER"]
    pond.sql("DROP TABLE c")


def test_own_dialects_are_not_offered(tmp_path: Path) -> None:
    with (
        millpond.open(tmp_path / "pond", engine="inline") as pond,
        pytest.raises(MillpondError, match="no SQL dialect named 'nope'") as told,
    ):
        pond.sql("SELECT 1", dialect="nope")
    assert "spark" in str(told.value) and "_own" not in str(told.value) and "strict" not in str(told.value)


def test_how_spark_stores_a_table_means_nothing(pond: Pond) -> None:
    pond.sql(
        """
        CREATE TABLE stored (a INT, b STRING) USING parquet PARTITIONED BY (b) COMMENT 'y' TBLPROPERTIES ('z' = '1');
        CREATE TABLE copied USING delta AS SELECT 1 AS a;
        DROP TABLE stored; DROP TABLE copied
        """,
        dialect="spark",
    )


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT avg(d) FROM typed",
        "SELECT date_add(s, l) FROM typed",
        "SELECT array_contains(a, 1) FROM typed",
        "SELECT transform(a, x -> x + 1) FROM typed",
        "SELECT element_at(a, 1) FROM typed",
        "SELECT a + l FROM typed",
    ],
)
def test_types_that_do_not_fit_name_no_other_function(tmp_path: Path, asked: str) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE typed (a int PRIMARY KEY, s text, d date, l int[])")
        with pytest.raises(MillpondError, match="takes arguments of these types") as caught:
            pond.sql(asked, dialect="spark")
    told = f"{caught.value.message} {caught.value.hint}"
    assert not re.search(r"sum|trunc|list_|lambda|cardinality|Candidate|\+\(", told), told
