"""Schemas over the PostgreSQL protocol: names, the search path, COPY, grants and the catalog."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import millpond
from millpond.server.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with millpond.open(tmp_path_factory.mktemp("schemas") / "pond", engine="inline") as pond:
        pond.sql(
            "CREATE SCHEMA sales; CREATE TABLE sales.orders (id int PRIMARY KEY, n int UNIQUE, CHECK (n > 0))"
        )
        pond.sql(
            "CREATE TABLE orders (id int PRIMARY KEY, n int); CREATE VIEW sales.big AS SELECT * FROM sales.orders"
        )
        pond.sql(
            "INSERT INTO orders VALUES (1, 100); INSERT INTO sales.orders VALUES (1, 10), (2, 20); FLUSH"
        )
        with pond.serve(pg_port=0, http_port=0) as found:
            yield found


def test_names_and_the_search_path(server: Server) -> None:
    address = server.urls["pg"].replace("//", "//ann@")
    with psycopg.connect(address, autocommit=True) as con, psycopg.connect(address, autocommit=True) as other:
        ask = "SELECT orders.n FROM orders WHERE orders.id = %s"
        for _ in range(3):  # a prepared read of one key
            assert con.execute(ask, [1], prepare=True).fetchone() == (100,)
        assert con.execute("SELECT current_schema(), 'orders'::regclass::text").fetchone() == (
            "public",
            "orders",
        )
        con.execute("SET search_path TO sales, public")
        assert con.execute(ask, [1], prepare=True).fetchone() == (10,)
        assert con.execute("SELECT n FROM public.orders").fetchall() == [(100,)]
        assert other.execute(ask, [1]).fetchone() == (100,), "another connection has its own"
        shown = con.execute(
            "SELECT current_schema(), current_schemas(false), to_regclass('big')::text"
        ).fetchone()
        assert shown == ("sales", ["sales", "public"], "big")
        with con.cursor() as cursor, cursor.copy("COPY orders (id, n) FROM STDIN") as copy:
            copy.write("7\t70\n")
        with con.cursor() as cursor, cursor.copy("COPY sales.orders TO STDOUT") as copy:
            assert b"7\t70\n" in b"".join(bytes(block) for block in copy)
        con.execute("CREATE TABLE made (a int)")
        assert other.execute("SELECT count(*) FROM sales.made").fetchone() == (0,)
        con.execute("DROP TABLE made; RESET search_path")
        assert con.execute(ask, [7], prepare=True).fetchone() is None


def test_the_catalog_has_schemas(server: Server) -> None:
    with psycopg.connect(server.urls["pg"].replace("//", "//ann@"), autocommit=True) as con:
        named = (
            "SELECT nspname, relname, relkind FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        )
        assert con.execute(f"{named} WHERE nspname = 'sales' ORDER BY 2").fetchall() == [
            ("sales", "big", "v"), ("sales", "orders", "r"), ("sales", "orders_n_key", "i"), ("sales", "orders_pkey", "i"),
        ]  # fmt: skip
        listed = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_name = 'orders' ORDER BY 1"
        assert con.execute(listed).fetchall() == [("public", "orders"), ("sales", "orders")]
        assert con.execute("SELECT 'sales.orders'::regclass::text").fetchone() == ("sales.orders",)
        assert con.execute("SELECT pg_get_viewdef('sales.big'::regclass)").fetchone() == (
            " SELECT * FROM sales.orders;",
        )
        rules = "SELECT constraint_schema, constraint_name FROM information_schema.table_constraints WHERE table_schema = 'sales'"
        assert sorted(con.execute(rules).fetchall()) == [
            ("sales", "orders_n_check"), ("sales", "orders_n_key"), ("sales", "orders_pkey")
        ]  # fmt: skip


def test_psql_lists_schemas(server: Server) -> None:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    address = server.urls["pg"].replace("//", "//ann@")
    commands = [
        part for command in (r"\dn", r"\dt", r"\dt sales.*", r"\d sales.orders") for part in ("-c", command)
    ]
    told = subprocess.run([program, address, "-X", *commands], capture_output=True, text=True, timeout=60)
    assert not told.stderr
    schemas, first, tables, columns = told.stdout.split("\n\n")[:4]
    assert " sales  | " in schemas
    assert " public | orders | table" in first and "sales" not in first
    assert " sales  | orders | table" in tables
    assert 'Table "sales.orders"' in columns and '"orders_n_key" UNIQUE' in told.stdout


def test_http_names_them(server: Server) -> None:
    import json
    import urllib.request

    def ask(path: str) -> Any:
        with urllib.request.urlopen(server.urls["http"] + path) as answer:
            return json.load(answer)

    assert {"id": 2, "n": 20} in ask("/v1/views/sales.orders")["rows"]


def test_the_catalog_shows_what_the_transaction_has_defined(server: Server) -> None:
    address = server.urls["pg"].replace("//", "//ann@")
    ask = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'mine%' ORDER BY tablename"
    with psycopg.connect(address) as con, psycopg.connect(address, autocommit=True) as other:
        con.execute("CREATE TABLE mine (id int PRIMARY KEY)")
        assert con.execute(ask).fetchall() == [("mine",)] and other.execute(ask).fetchall() == []
        con.execute("CREATE TABLE mine2 (id int PRIMARY KEY)")
        assert con.execute(ask).fetchall() == [("mine",), ("mine2",)]
        con.rollback()
        assert con.execute(ask).fetchall() == other.execute(ask).fetchall() == []
