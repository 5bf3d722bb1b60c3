"""What BI tools, drivers and migration tools send when they look around: Metabase, Grafana, DBeaver, DataGrip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import millpond
from millpond.server.server import Server

STATEMENTS = (Path(__file__).parent / "bi_statements.sql").read_text().splitlines()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with millpond.open(tmp_path_factory.mktemp("bi") / "pond", engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, name text NOT NULL, n decimal(10,2), at timestamptz)")
        pond.sql("INSERT INTO t VALUES (1, 'ann', 1.5, '2026-01-02 03:04:05+00'), (2, 'bob', NULL, NULL)")
        pond.sql("CREATE MATERIALIZED VIEW m AS SELECT name, count(*) AS c FROM t GROUP BY name")
        pond.sql("CREATE VIEW v AS SELECT * FROM t WHERE id > 1; FLUSH")
        with pond.serve(pg_port=0) as found:
            yield found


@pytest.fixture
def con(server: Server) -> Iterator[Any]:
    with psycopg.connect(server.urls["pg"].replace("//", "//ann@"), autocommit=True) as found:
        yield found


def test_every_statement_runs_in_both_protocols(con: Any) -> None:
    for sql in STATEMENTS:
        simple = con.pgconn.exec_(sql.encode())
        assert not simple.error_message, f"{sql}: {simple.error_message.decode()}"
        con.execute(sql, prepare=True)


def test_names_with_the_schema_public(con: Any) -> None:
    wanted = [(1, "ann"), (2, "bob")]
    ask = 'SELECT "public"."t"."id" AS "id", "public"."t"."name" FROM "public"."t" ORDER BY "public"."t"."id" LIMIT 9'
    assert con.execute(ask).fetchall() == wanted
    assert con.execute("SELECT t.id, public.t.name FROM public.t WHERE id = %s", [1]).fetchall() == wanted[:1]
    assert con.execute("SELECT 'public.t', public.id FROM t AS public WHERE id = 1").fetchall() == [
        ("public.t", 1)
    ]
    with pytest.raises(psycopg.errors.UndefinedTable) as refused:
        con.execute("SELECT * FROM public.nosuch")
    assert refused.value.diag.statement_position == "22"
    con.execute("CREATE TABLE public.made (id int PRIMARY KEY)")
    con.execute('INSERT INTO "public".made VALUES (5)')
    with con.cursor() as cursor, cursor.copy("COPY public.made TO STDOUT") as copy:
        assert b"".join(bytes(block) for block in copy) == b"5\n"
    con.execute("DROP TABLE public.made")


def test_a_newer_protocol_is_negotiated(server: Server) -> None:
    address = server.urls["pg"].replace("//", "//ann@")
    if psycopg.pq.version() < 180000:
        pytest.skip("libpq before 18 asks for no other version")
    with psycopg.connect(address, max_protocol_version="latest") as con:
        assert con.execute("SELECT 1").fetchone() == (1,)
