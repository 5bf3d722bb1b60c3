"""No message shows a name that only the translation of dialects knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import millpond
from millpond.errors import MillpondError

INTERNAL = re.compile(
    r"__pg|__spark|\bmain\.|system\.|\bpg\.\w+\.\d|sum_of|avg_of|summed|array_beside|number_beside|__a\d|__computed|any_value"
)

SETUP = """
    CREATE TABLE t (id int PRIMARY KEY, i int, n numeric(10,2), x text, d date, ts timestamp, a int[], f float8);
    CREATE TABLE bag (k text, v int);
    CREATE MATERIALIZED VIEW totals AS SELECT k, sum(v) / count(*) AS mean FROM bag GROUP BY k;
    INSERT INTO t VALUES (1, 1, 1, 'abc', '2024-01-01', '2024-01-01', '{1}', 1), (2, 0, 0, NULL, NULL, NULL, NULL, NULL);
    FLUSH
"""
# Expressions that are wrong by their types, their names or their values.
EXPRESSIONS = [
    "i / x", "x / 2", "upper(i, x)", "substr(5, 'a')", "to_char(i)", "lpad(i)", "date_trunc('day')", "nope(i / 2)",
    "nope / 2", "i / nope", "sum(x)", "avg(x)", "avg(d)", "sum(nope)", "sum(i, i)", "avg()", "sum(sum(i))", "i / 0",
    "n / 0", "f / 0", "1 / (i - 1)", "i ^ x", "x ^ 2", "sqrt(-1)", "ln(0.0)", "sqrt(x)", "x || nope", "a || 'x'",
    "a || d", "a['x']", "i[1]", "a[nope]", "a[1:x]", "x::int", "x::numeric", "x::bool", "x::date", "x::int[]",
    "'abc'::int", "i + 'abc'", "n * 'abc'", "d + 'abc'", "ts - 'abc'", "i = 'abc'", "n = 'abc'", "d > 'x'", "a = '{x}'",
    "a = '{1'", "i IN ('1', 'x')", "CASE WHEN i = 1 THEN n ELSE 'x' END", "coalesce(i, 'x')", "extract(nope from ts)",
    "extract(year from x)", "ts ~ 'a'", "i ~ 'a'", "x ~ '('", "regexp_replace(i, 'a', 'b')", "jsonb_agg(nope)",
    "x -> 'a'", "i -> 'a'", "x #> '{a}'", "generate_series(1, 2, 0)", "round(x)", "round(n, x)", "power(x, 2)",
    "array_length(i, 1)", "array_append(a, 'x')", "to_number('1')", "to_date(i, 'x')", "age(x)", "mod(i, x)",
    "width_bucket(1, 2)", "make_date(1)", "date_bin(i, ts, ts)", "row(1, 2) / 2", "(SELECT i / x FROM t)", "i % 'x'",
    "sum(i) OVER (ORDER BY nope)", "sum(x) OVER ()", "avg(i / x) FILTER (WHERE i)", "format(i)", "concat_ws(nope, 1)",
    "greatest(i, 'x')", "nullif(i, 'x')", "i BETWEEN 'a' AND 'b'", "string_agg(i / x, ',')", "ARRAY[1, 'x'] || 2",
]  # fmt: skip
STATEMENTS = [
    "UPDATE t SET i = i / x", "UPDATE t SET i = i / 0", "UPDATE t SET n = n / 0 WHERE id = 1 RETURNING n / 2",
    "UPDATE t SET i = 1 WHERE id = 1 RETURNING i / x", "UPDATE t SET i = 1 RETURNING nope / 2",
    "UPDATE t SET i = 1 RETURNING i / 0", "DELETE FROM t WHERE i / x > 1", "DELETE FROM t WHERE i / (i - i) > 1",
    "DELETE FROM t RETURNING upper(i, i)", "INSERT INTO t (id, i) SELECT id + 10, i / x FROM t",
    "INSERT INTO t (id, i) SELECT id + 10, i / 0 FROM t", "INSERT INTO t (id, i) VALUES (3, 1 / 0)",
    "INSERT INTO t (id, i) VALUES (3, 'x' / 2)", "INSERT INTO t (id, a) VALUES (3, '{x}')",
    "INSERT INTO t (id, a) VALUES (3, '{1') RETURNING a / 2", "UPDATE t SET a = '{x}'", "UPDATE t SET (i, a) = (1, '{x}')",
    "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET i = excluded.i / t.x",
    "MERGE INTO t USING bag ON t.i = bag.v / 0 WHEN MATCHED THEN UPDATE SET i = bag.v / bag.k",
    "CREATE TABLE y (a int, b int GENERATED ALWAYS AS (a / c))", "CREATE TABLE y (a text, b int GENERATED ALWAYS AS (a / 2))",
    "CREATE TABLE y (a int DEFAULT (1 / 'x'))", "CREATE TABLE y (a text CHECK (a / 2 > 1))",
    "CREATE VIEW y AS SELECT i / x FROM t", "CREATE FUNCTION y(a text) RETURNS int RETURN a / 2",
    "SELECT k, sum(v) FROM bag", "SELECT sum(v) / 2 FROM bag GROUP BY nope", "SELECT 1 FROM t GROUP BY i HAVING sum(x) > 1",
    "SELECT * FROM t JOIN bag ON t.i / bag.k = 1", "SELECT * FROM t, LATERAL (SELECT t.i / t.x) l",
    "SELECT sum(v) AS s, * , * FROM bag", "SELECT i / 2 FROM t UNION SELECT x / 2 FROM t", "EXPLAIN SELECT i / x FROM t",
    "SELECT i FROM t ORDER BY i / x", "SELECT DISTINCT ON (i / x) i FROM t", "PREPARE p AS SELECT i / x FROM t",
    "SELECT * FROM generate_series(1, 'x')", "SELECT unnest(i) / 2 FROM t", "SELECT $1 / 'x'",
]  # fmt: skip


def test_messages_show_no_internal_names(tmp_path: Path) -> None:
    shown = {}
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(SETUP)
        tried = [f"SELECT {e} FROM t" for e in EXPRESSIONS] + STATEMENTS
        tried += [
            f"CREATE MATERIALIZED VIEW w{n} AS SELECT id, {e} AS e FROM t"
            for n, e in enumerate(EXPRESSIONS[:60:4])
        ]
        for sql in tried:
            try:
                _ = pond.sql(sql).fetchall()
            except MillpondError as error:
                said = str(error).replace(sql, "")
                if INTERNAL.search(said):
                    shown[sql] = said
        reasons = [r for r in pond.errors()["reason"].to_pylist() if INTERNAL.search(r)]
    assert not shown and not reasons


@pytest.mark.parametrize("text", ["__pg.main.sum_of(1)", 'function "pg.lpad.1" failed'])
def test_the_check_can_fail(text: str) -> None:
    assert INTERNAL.search(text)
