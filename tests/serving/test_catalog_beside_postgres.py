r"""psql's \d family: the same schema in a real PostgreSQL gives the same columns, types, keys and indexes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.serving.served import ServedPond, served
from tests.sql.fuzz import postgres

SCHEMA = """
CREATE TABLE kinds (id bigint PRIMARY KEY, a int NOT NULL, b smallint, c text, d boolean, e date, f timestamp,
    g timestamptz, h time, i numeric(12,3), j double precision, k real, l uuid, m interval, n int[], o text[]);
CREATE TABLE pair (a text, b int, n int NOT NULL, PRIMARY KEY (a, b));
CREATE TABLE plain (x int, y text);
CREATE TABLE sized (v varchar(52) NOT NULL, c char(3), j jsonb, w varchar(7));
CREATE INDEX kinds_c ON kinds (c);
CREATE INDEX kinds_a_b ON kinds (a, b);
CREATE UNIQUE INDEX pair_n_b ON pair (n, b);
CREATE VIEW shown AS SELECT id, c FROM kinds WHERE a > 1;
CREATE MATERIALIZED VIEW counted AS SELECT c, count(*) AS n FROM kinds GROUP BY c;
"""
COMMANDS = (
    r"\dt",
    r"\dv",
    r"\dm",
    r"\di",
    r"\d kinds",
    r"\d pair",
    r"\d plain",
    r"\d sized",
    r"\d shown",
    r"\d counted",
    r"\dn",
)
QUERIES = (
    "SELECT column_name, character_maximum_length FROM information_schema.columns WHERE table_name = 'sized' ORDER BY 1",
    "SELECT table_name, column_name, ordinal_position, is_nullable, data_type, udt_name FROM information_schema.columns"
    " WHERE table_schema = 'public' AND table_name <> 'counted' ORDER BY 1, 3",
    "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' AND table_name <> 'counted'"
    " ORDER BY 1",
    "SELECT c.relname, c.relkind, c.relnatts FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = 'public' AND c.relname <> 'counted_key' ORDER BY 1",
    "SELECT c.relname, a.attname, a.attnum, t.typname, a.attnotnull, format_type(a.atttypid, a.atttypmod) FROM"
    " pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON"
    " n.oid = c.relnamespace WHERE n.nspname = 'public' AND a.attnum > 0 AND c.relkind IN ('r', 'v', 'm') ORDER BY 1, 3",
    "SELECT c.relname, conname, contype FROM pg_constraint JOIN pg_class c ON c.oid = conrelid JOIN pg_namespace n ON"
    " n.oid = c.relnamespace WHERE contype = 'p' AND nspname = 'public' ORDER BY 1",
    "SELECT relname, indisunique, indisprimary FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname LIKE 'pair%'"
    " ORDER BY 1",
    "SELECT conname FROM pg_constraint WHERE conname LIKE 'pair%'",
    "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'pair' ORDER BY 1",
    "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'counted' ORDER BY 1, 2",
    "SELECT matviewname FROM pg_matviews",
    "SELECT kcu.table_name, kcu.column_name, kcu.ordinal_position FROM information_schema.table_constraints tc JOIN"
    " information_schema.key_column_usage kcu USING (constraint_name, table_name) WHERE constraint_type = 'PRIMARY KEY'"
    " AND tc.table_schema = 'public'"
    " ORDER BY 1, 3",
)  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    try:
        real = postgres.Server()
    except postgres.Missing as missing:
        pytest.skip(str(missing))
    try:
        real.con.execute(SCHEMA)
        with served(tmp_path_factory.mktemp("beside") / "pond") as ours:
            with psycopg.connect(ours.address(), autocommit=True) as con:
                con.execute(SCHEMA)
            yield real, ours
    finally:
        real.close()


def told(command: str, *where: str, env: dict[str, str] | None = None) -> list[str]:
    """What psql says, without padding, owners, sizes and access methods."""
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    done = subprocess.run(
        [program, "-X", "-q", "-A", "-t", *where, "-c", command], env=env, capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    # a view has an index on the key that was derived for it
    lines = [line for line in lines if "counted_key" not in line]
    return sorted(
        re.sub(r"\|(fuzz|ann|millpond|pg_database_owner)(?=\||$)", "|owner", line) for line in lines
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_psql_says_the_same(both: tuple[Any, ServedPond], command: str) -> None:
    real, ours = both
    wanted = told(command, "-h", str(real.folder), "-U", "fuzz", "-d", "postgres")
    assert told(command, env=ours.environment()) == wanted


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_catalog_give_the_same(both: tuple[Any, ServedPond], query: str) -> None:
    real, ours = both
    wanted = real.con.execute(query).fetchall()
    assert wanted
    with psycopg.connect(ours.address(), autocommit=True) as con:
        assert con.execute(query).fetchall() == wanted
