"""Operators and literals whose meaning depends on the type of a column, as a real PostgreSQL has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond import Pond
from tests.serving.served import served
from tests.sql.fuzz.postgres import Server

TABLE = """CREATE TABLE t (id int PRIMARY KEY, s smallint, t time, u time, b bytea, c char(4), f float8, r real,
    d date, ts timestamp, tz timestamptz, x text)"""
ROWS = r"""INSERT INTO t VALUES
    (1, 32767, '13:45:30.25', '00:00:00', '\x00ff25', 'ab', 1.005, 0.1, '1999-01-08', '1999-01-08 04:05',
        '1999-01-08 04:05:06+00', 'Jan 8 1999'),
    (2, -32768, '00:00:00', '23:59:59.999999', '\x25', 'abcd', 2.675, 1.15, '2024-02-29', '2024-02-29', NULL, 'b'),
    (3, NULL, NULL, '01:00', '\x', '', 1e15, 1e6, NULL, NULL, NULL, NULL),
    (4, 2, '01:00', NULL, NULL, NULL, 0.3, NULL, '1999-01-31', '1999-01-31 15:00', '1999-01-08 20:00+00', '')"""
EXPRESSIONS = [
    *("s + 2", "2 - s", "s * 2", "s + id", "t - u", "t - time '01:00'"),
    *(r"b LIKE '\x0025'", r"b NOT LIKE '\x005f5f'::bytea", r"b LIKE '\x255c25'", r"b = '\x00ff25'", r"b < '\x00ff26'", "c LIKE 'ab'", "c LIKE 'ab%'"),
    *("c ILIKE 'AB  '", "c NOT LIKE '____'", "c ~ 'b $'", "c !~ '^ab$'", "octet_length(c)", "c::text LIKE 'ab'"),
    *("f::numeric = 1.005", "round(f::numeric, 2)", "f::numeric(20, 2)", "r::numeric(10, 1)", "(f * 3)::numeric"),
    *("d = 'Jan 8 1999'", "d BETWEEN 'Jan 1 1999' AND '1/31/1999'", "x = 'Jan 8 1999'", "ts < '1/8/1999 4:06 AM'"),
    *("tz = 'Jan 8 1999 12:00 PST'", "d IN ('Feb 29, 2024', '19990131')", "t = '1:45:30.25 PM'", "coalesce(d, 'Mar 5 2001')"),
    *("CASE WHEN id = 1 THEN d ELSE 'Mar 5 2001' END", "ts IS DISTINCT FROM 'Jan 31 1999 15:00'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def pond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pond]:
    folder: Path = tmp_path_factory.mktemp("typed")
    with millpond.open(folder / "pond", engine="inline") as made:
        made.sql(f"{TABLE}; {ROWS}; FLUSH")
        yield made


@pytest.fixture(scope="module")
def theirs(server: Server) -> Any:
    server.con.execute(TABLE)
    server.con.execute(ROWS)
    return server.con


@pytest.mark.parametrize("part", range(4))
def test_reads_and_views_answer_as_postgresql_does(pond: Pond, theirs: Any, part: int) -> None:
    asked = EXPRESSIONS[part::4]
    listed = ", ".join(f"({one})::text AS c{n}" for n, one in enumerate(asked))
    wanted = theirs.execute(f"SELECT id, {listed} FROM t ORDER BY id").fetchall()
    read = pond.sql(f"SELECT id, {listed} FROM t ORDER BY id").fetchall()
    pond.sql(f"CREATE MATERIALIZED VIEW v{part} AS SELECT id, {listed} FROM t; FLUSH")
    viewed = pond.sql(f"SELECT * FROM v{part} ORDER BY id").fetchall()
    for n, one in enumerate(asked, 1):
        their_values = [_plain(row[n]) for row in wanted]
        assert [_plain(row[n]) for row in read] == their_values, one
        assert [_plain(row[n]) for row in viewed] == their_values, one


def _plain(text: str | None) -> str | None:
    """A number without zeros at its end; everything else as it is."""
    if text is None or "." not in text or ":" in text:
        return text
    return text.rstrip("0").rstrip(".")


CHANGES = [
    "UPDATE t SET d = 'March 5 2001', ts = '5 Mar 2001 3:00 PM' WHERE id = 2",
    "UPDATE t SET tz = '5 Mar 2001 3:00 PM EST', t = '3:00 PM', x = '5 Mar 2001' WHERE tz = 'Jan 8 1999 12:00 PST'",
    "INSERT INTO t (id, d, ts, tz, x) SELECT 9, 'Apr 1 2010', 'Apr 1 2010 5:00', 'Apr 1 2010 5:00 PST', 'Apr 1 2010'",
    "INSERT INTO t (d, id) SELECT 'May 1 2010', 10",
    r"INSERT INTO t (id, b) VALUES (12, '\x00ff25'), (13, '\x'); UPDATE t SET b = '\x0102' WHERE b = '\x00ff25' AND id = 1",
    "INSERT INTO t (id, d) SELECT id + 20, 'Jun 1 2010' AS d FROM t WHERE d = 'Mar 5 2001'",
    "DELETE FROM t WHERE d = 'May 1, 2010'",
]


def test_changes(tmp_path: Path, server: Server) -> None:
    con = server.con
    con.execute("DROP SCHEMA IF EXISTS changes CASCADE; CREATE SCHEMA changes; SET search_path = changes")
    try:
        with millpond.open(tmp_path / "pond", engine="inline") as pond:
            for statement in [TABLE, ROWS, *CHANGES]:
                con.execute(statement)
                pond.sql(f"{statement}; FLUSH")
            asked = "SELECT id, d::text, ts::text, tz::text, t::text, x, b FROM t ORDER BY id"
            assert pond.sql(asked).fetchall() == con.execute(asked).fetchall()
            copied = "30\tJan 8, 1999\t1/8/1999 4:05 AM\t1999 Jan 8 4:05 PST\t4:05 PM\tJan 8 1999\n"
            pond.sql("COPY t (id, d, ts, tz, t, x) FROM STDIN", stdin=copied)
            pond.sql("FLUSH")
            with con.cursor().copy("COPY t (id, d, ts, tz, t, x) FROM STDIN") as copy:
                copy.write(copied)
            assert pond.sql(asked).fetchall() == con.execute(asked).fetchall()
    finally:
        con.execute("SET search_path = public")


def test_parameters_of_clients(tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with served(tmp_path / "pond") as found, psycopg.connect(found.address(), autocommit=True) as con:
        con.execute(TABLE)
        con.execute(ROWS)
        con.execute("FLUSH")
        for condition, value in (
            ("d = %s", "Jan 8 1999"),
            ("ts = %s", "1/8/1999 4:05 AM"),
            ("x = %s", "Jan 8 1999"),
        ):
            assert con.execute(f"SELECT id FROM t WHERE {condition}", [value]).fetchall() == [(1,)], condition
        asked = "SELECT id FROM t WHERE tz = %s"
        assert con.execute(asked, ["Jan 8 1999 12:00 PST"]).fetchall() == [(4,)]
        con.execute("INSERT INTO t (id, d, tz) VALUES (50, %s, %s)", ["Apr 1 2010", "Apr 1 2010 5:00 PST"])
        con.execute("FLUSH")
        shown = con.execute("SELECT d::text, tz::text FROM t WHERE id = 50").fetchone()
        assert shown == ("2010-04-01", "2010-04-01 13:00:00+00")
