"""COPY in `pond.sql`: the rows that PostgreSQL reads and the lines that it writes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.errors import InvalidError
from tests.sql.fuzz import postgres

TABLE = "CREATE TABLE t (a int, b text, c text DEFAULT 'd')"
READ = [  # options, what is read
    ("", "1\tx\ty\n2\t\\N\t\\\\a\\tb\n\\.\n"),
    ("(FORMAT csv)", '1,x,"y,""z"""\n2,,""\n3,"two\nlines", s \n'),
    ("(FORMAT csv, HEADER, DELIMITER ';', NULL 'nil')", 'a;b;c\n1;nil;"nil"\n'),
    ("(FORMAT csv, HEADER MATCH)", "a,b,c\n1,x,\n"),
    ("(FORMAT csv, QUOTE '$', ESCAPE '#')", "1,$a#$b$,c\n"),
    ("(FORMAT csv, FORCE_NULL (b), FORCE_NOT_NULL (c))", '1,"",\n2,,""\n'),
    ("(DELIMITER '|', NULL '')", "1||x\n2|y|\n"),
    ("CSV HEADER DELIMITER ','", "a,b,c\n1,x,y\n"),
]
WRITE = [
    "t TO STDOUT",
    "t (c, a) TO STDOUT WITH (FORMAT csv, HEADER)",
    "(SELECT a, b FROM t ORDER BY a) TO STDOUT (FORMAT csv, DELIMITER '|', NULL 'nil')",
    "t TO STDOUT (FORMAT csv, FORCE_QUOTE (b))",
    "t TO STDOUT (FORMAT csv, FORCE_QUOTE *, QUOTE '''', ESCAPE '#')",
    "(SELECT 1.50::numeric(5,2) AS n, true AS t, NULL AS u, timestamp '2024-01-01 10:00' AS at, ARRAY[1,2] AS l) TO STDOUT",
]


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    try:
        found = postgres.Server()
    except postgres.Missing as error:
        pytest.skip(str(error))
    yield found
    found.close()


def test_rows_and_lines_are_those_of_postgresql(server: postgres.Server, tmp_path: Path) -> None:
    con: Any = server.con
    con.execute("DROP SCHEMA IF EXISTS copied CASCADE; CREATE SCHEMA copied; SET search_path = copied")
    con.execute(TABLE)
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(TABLE)
        for options, text in READ:
            con.execute("TRUNCATE t")
            with con.cursor() as cursor, cursor.copy(f"COPY t FROM STDIN {options}") as copy:
                copy.write(text)
            pond.sql("TRUNCATE t")
            sent = pond.sql(f"COPY t FROM STDIN {options}", stdin=text)
            pond.sql("FLUSH")
            wanted = con.execute("SELECT * FROM t ORDER BY a").fetchall()
            assert pond.sql("SELECT * FROM t ORDER BY a").fetchall() == wanted, options
            assert sent.status == f"COPY {len(wanted)}"
        rows = "(1, 'plain', NULL), (2, NULL, 'a,b'), (3, 'qu\"ote', 'tab\there'), (4, 'it''s', 'back\\slash'), (5, '', '#')"
        for each in (con.execute, pond.sql):
            each("TRUNCATE t")
            each(f"INSERT INTO t VALUES {rows}")
        pond.sql("FLUSH")
        for what in WRITE:
            with con.cursor() as cursor, cursor.copy(f"COPY {what}") as copy:
                wanted_text = b"".join(bytes(block) for block in copy).decode()
            found = pond.sql(f"COPY {what}")
            (text,) = found.fetchone() or ("",)
            assert sorted(text.splitlines()) == sorted(wanted_text.splitlines()), what


def test_what_copy_reads_and_refuses(tmp_path: Path) -> None:
    with millpond.open(tmp_path / "pond", engine="inline") as pond:
        pond.sql(TABLE)
        (tmp_path / "rows.csv").write_text("b,a\nx,1\n")
        with (tmp_path / "rows.csv").open() as file:
            assert pond.sql("COPY t (b, a) FROM STDIN (FORMAT csv, HEADER)", stdin=file).rowcount == 1
        pond.sql("COPY t (a) FROM STDIN", stdin=io.BytesIO(b"2\n3\n"))
        pond.sql("FLUSH")
        assert sorted(pond.sql("SELECT * FROM t").fetchall()) == [
            (1, "x", "d"),
            (2, None, "d"),
            (3, None, "d"),
        ]
        for text, stdin, reason in (
            ("COPY t FROM 'rows.csv'", None, "COPY reads no files"),
            ("COPY t TO 'rows.csv'", None, "COPY reads no files"),
            ("COPY t FROM STDIN", None, "needs rows"),
            ("COPY t FROM STDIN", "1\t2\n", "missing data for column"),
            ("COPY t FROM STDIN (FORMAT csv, HEADER MATCH)", "a,x,c\n", "do not match"),
            ("COPY t FROM STDIN (FORMAT csv, FORCE_QUOTE *)", "", "only for COPY TO"),
            ("COPY t TO STDOUT (FORMAT binary)", None, "binary is for PostgreSQL clients"),
            ("COPY t FROM STDIN", "one\tx\ty\n", "invalid input syntax"),
        ):
            with pytest.raises(InvalidError, match=reason):
                pond.sql(text, stdin=stdin)
        with pond.transaction() as tx:
            tx.sql("DELETE FROM t")
        assert pond.sql("COPY (SELECT * FROM t) TO STDOUT").status == "COPY 0"
