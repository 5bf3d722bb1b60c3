"""Division by zero, overflow and the like at run time: which row, which view, nothing lost (laws 1 and 9)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError, MillpondError
from millpond.pond import Pond


@pytest.fixture
def pond(tmp_path: Path) -> Iterator[Pond]:
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=2, checks=True) as made:
        made.sql("CREATE TABLE t (id int PRIMARY KEY, a int, s text, b bigint, d decimal(38,0), u ubigint)")
        yield made


GOOD = "(1, 5, '7', 1, 1, 1)", "(3, NULL, NULL, NULL, NULL, NULL)"
BAD = "(2, 0, 'x', 9223372036854775807, 99999999999999999999999999999999999999, 0)"
# What fails for row 2 alone: the query, what it shows of the good rows, and a part of the reason.
FAILING = {
    "by zero": ("SELECT id, 100 // a AS q FROM t", [(1, 20), (3, None)], "division by zero"),
    "rest by zero": ("SELECT id, 100 % a AS q FROM t", [(1, 0), (3, None)], "division by zero"),
    "sum too great": ("SELECT id, b + 1 AS q FROM t", [(1, 2), (3, None)], "bigint out of range"),
    "product too great": ("SELECT id, b * 2 AS q FROM t", [(1, 2), (3, None)], "bigint out of range"),
    "below zero": ("SELECT id, u - 1::ubigint AS q FROM t", [(1, 0), (3, None)], "Overflow in subtraction"),
    "too many digits": ("SELECT id, d * 10 AS q FROM t", [(1, 10), (3, None)], "numeric field overflow"),
    "no number": ("SELECT id, s::int AS q FROM t", [(1, 7), (3, None)], 'invalid input syntax for type integer: "x"'),
    "too small a type": ("SELECT id, b::int AS q FROM t", [(1, 1), (3, None)], "out of range"),
    "in WHERE": ("SELECT id FROM t WHERE 10 // a > 1", [(1,)], "division by zero"),
    "in GROUP BY": ("SELECT s::int AS k, count(*) AS n FROM t GROUP BY 1", [(7, 1), (None, 1)], '"x"'),
    "in an aggregate": ("SELECT sum(100 // a) AS n FROM t", [(20,)], "division by zero"),
    "in a join": ("SELECT t.id FROM t JOIN t u ON u.id = t.s::int - 6", [(1,)], '"x"'),
    "in ORDER BY": ("SELECT id FROM t ORDER BY s::int LIMIT 3", [(1,), (3,)], '"x"'),
    "in HAVING": ("SELECT a FROM t GROUP BY a HAVING 10 // sum(a) > 0", [(5,)], "division by zero"),
    "in a partition": ("SELECT id, sum(s::int) OVER (PARTITION BY a) AS n FROM t", [(1, 7), (3, None)], '"x"'),
}  # fmt: skip


def rows(pond: Pond, view: str) -> list[tuple[Any, ...]]:
    return sorted(pond.sql(f'SELECT * FROM "{view}"').fetchall(), key=repr)


def test_a_row_that_fails_is_left_out_of_that_view_alone_and_told(pond: Pond, tmp_path: Path) -> None:
    for name, (query, _, _) in FAILING.items():
        pond.sql(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
    pond.sql("CREATE MATERIALIZED VIEW fine AS SELECT id FROM t")
    pond.sql(f"INSERT INTO t VALUES {', '.join(GOOD)}, {BAD}; FLUSH")
    assert rows(pond, "fine") == [(1,), (2,), (3,)], "the table and other views have it"
    assert pond.errors("fine").num_rows == 0
    for name, (_, shown, reason) in FAILING.items():
        assert rows(pond, name) == sorted(shown, key=repr), name
        (error,) = pond.errors(name).to_pylist()
        assert reason in error["reason"], (name, error)
        told = json.loads(error["row"])
        assert told.get("id", 2) == 2 and told.get("a", 0) == 0, "the row itself, or the key of its partition"
        assert error["step"].startswith(f"{name}.")
    pond.close()
    with millpond.open(tmp_path / "pond", engine="inline", parallelism=3) as again:
        assert again.errors().num_rows == len(FAILING), "they are state like any other"
        again.sql("UPDATE t SET a = 5, s = '7', b = 1, d = 1, u = 1 WHERE id = 2; FLUSH")
        assert again.errors().num_rows == 0, "an error goes with its row"
        for name in ("by zero", "no number", "in WHERE", "in a partition"):
            assert (2, *rows(again, name)[0][1:]) in rows(again, name), "and the row comes"


def test_what_many_rows_make_is_null_where_it_does_not_fit(pond: Pond) -> None:
    pond.sql("""
        CREATE MATERIALIZED VIEW digits AS SELECT sum(d) AS n, count(*) AS c FROM t;
        CREATE MATERIALIZED VIEW wide AS SELECT sum(b) AS n, sum(u) AS m FROM t;
        CREATE MATERIALIZED VIEW one AS SELECT id, (SELECT x.id FROM t x WHERE x.a = t.a) AS o FROM t
    """)
    pond.sql(f"INSERT INTO t VALUES {BAD}, (1, 0, '', 9223372036854775807, 1, 18446744073709551615); FLUSH")
    assert rows(pond, "digits") == [(None, 2)] and "38 digits" in pond.errors("digits")["reason"][0].as_py()
    assert rows(pond, "wide") == [(2 * 9223372036854775807, 18446744073709551615)], "sums are wide integers"
    assert rows(pond, "one") == [(1, None), (2, None)]
    assert "more than one row" in pond.errors("one")["reason"][0].as_py()
    pond.sql("DELETE FROM t WHERE id = 2; FLUSH")
    assert rows(pond, "digits") == [(1, 1)] and rows(pond, "one") == [(1, 1)] and not pond.errors().num_rows


def test_reads_fail_and_changes_are_refused_whole(pond: Pond) -> None:
    pond.sql(f"INSERT INTO t VALUES {GOOD[0]}, {BAD}; FLUSH")
    for sql in ("SELECT 1 // a FROM t", "SELECT b + 1 FROM t"):
        with pytest.raises(MillpondError, match=r"division by zero|out of range"):
            pond.sql(sql)
    for sql in ("SELECT 1.0 / a FROM t WHERE id = 2", "SELECT 1::float8 / a FROM t WHERE id = 2"):
        with pytest.raises(InvalidError, match="division by zero"):
            pond.sql(sql)
    before = rows(pond, "t")
    for sql in ("UPDATE t SET b = b + 1", "UPDATE t SET a = 10 // a", "DELETE FROM t WHERE 10 // a = 2"):
        with pytest.raises(MillpondError, match="refused"):
            _ = pond.sql(sql).rowcount
    with pytest.raises(MillpondError, match=r"out of range|could not"):
        pond.sql("INSERT INTO t (id, a) VALUES (9, 99999999999)")
    assert rows(pond, "t") == before
    assert len(pond.errors()) == 3 and all(
        "SET" in e or "DELETE" in e for e in pond.errors()["reason"].to_pylist()
    )


def test_a_refused_change_is_told_as_it_was_written(pond: Pond) -> None:
    """Functions of the dialect and rewritten clauses stand in the entry, and not in its reason."""
    pond.sql(f"INSERT INTO t VALUES {GOOD[0]}, {BAD}; FLUSH")
    said = {
        "UPDATE t SET b = 7 / a WHERE b || 'x' <> 'y'": "division by zero",
        "INSERT INTO t (id, a) SELECT 9, id FROM t ON CONFLICT (id) DO UPDATE SET a = excluded.a":
            "ON CONFLICT DO UPDATE command cannot affect row a second time: "
            "two rows of the statement have the key (id)=(9)",
        "DELETE FROM t WHERE s::int / 2 = 1": 'invalid input syntax for type integer: "x"',
    }  # fmt: skip
    for sql, reason in said.items():
        with pytest.raises(InvalidError) as refused:
            _ = pond.sql(sql).rowcount
        assert refused.value.detail == f"{sql}: {reason}"


def test_views_are_the_batch_query_over_the_rows_that_do_not_fail(pond: Pond) -> None:
    """Random changes, with rows that fail and rows that are mended (law 1: the accounted input)."""
    pond.sql("""
        CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n, sum(100 // a) AS q FROM t GROUP BY a;
        CREATE MATERIALIZED VIEW w AS SELECT id, s::int AS n FROM t WHERE 10 // a >= 0
    """)
    chance, held = random.Random(5), {}
    for _ in range(12):
        n, a, s = chance.randint(1, 8), chance.choice([0, 1, 2, 5]), chance.choice(["1", "2", "x"])
        pond.sql(f"INSERT INTO t (id, a, s) VALUES ({n}, {a}, '{s}')")
        held[n] = (a, s)
        if chance.random() < 0.3:
            gone = chance.randint(1, 8)
            pond.sql(f"DELETE FROM t WHERE id = {gone}")
            held.pop(gone, None)
        pond.sql("FLUSH")
        good = [a for a, _ in held.values() if a]
        assert rows(pond, "v") == sorted(
            [(a, good.count(a), 100 // a * good.count(a)) for a in set(good)], key=repr
        )
        assert rows(pond, "w") == sorted(
            [(n, int(s)) for n, (a, s) in held.items() if a and s != "x"], key=repr
        )
        assert sum(pond.errors("v")["weight"].to_pylist()) == sum(not a for a, _ in held.values())
        assert sum(pond.errors("w")["weight"].to_pylist()) == sum(not a or s == "x" for a, s in held.values())
