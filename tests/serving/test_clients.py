"""Other clients: psql, SQLAlchemy, asyncpg, pgjdbc and pgbench find and read the tables of a pond."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.serving.fetched_clients import jars, node_modules
from tests.serving.served import ServedPond

COMMANDS = (
    r"\d \dt \dt+ \dm \dv \di \di+ \dn \dn+ \l \l+ \du \dg \df \dT \do \da \dD \dp \db \dx \des"
    r" \dC \dL \ds \dE \dP \dF \dy \dO \dA \drds"
)


def psql(server: ServedPond, *commands: str) -> tuple[str, str]:
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")
    text = "\n".join(commands) + "\n"
    done = subprocess.run(
        [program, "-X", "-q", "-v", "ON_ERROR_STOP=0"],
        input=text,
        env=server.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, done.stderr


def test_the_commands_of_psql(server: ServedPond) -> None:
    _, errors = psql(
        server, *COMMANDS.split(), r"\d t", r"\d+ t", r"\d m", r"\d+ m", r"\d v", r"\d+ v", r"\sv v"
    )
    assert "ERROR" not in errors


def test_psql_shows_columns_keys_and_indexes(server: ServedPond) -> None:
    shown, _ = psql(server, r"\d t", r"\d m")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for wanted in (
        'Table "public.t"',
        "id | integer | | not null |",
        "n | numeric(10,2) | | |",
        "at | timestamp with time zone | | | now()",
        '"t_pkey" PRIMARY KEY, btree (id)',
        '"t_name" btree (name)',
        'Materialized view "public.m"',
        "c | bigint | | |",
    ):
        assert wanted in lines, wanted


def test_sqlalchemy_reflects(server: ServedPond) -> None:
    sa = pytest.importorskip("sqlalchemy")
    engine = sa.create_engine(server.address().replace("postgresql:", "postgresql+psycopg:"))
    found = sa.inspect(engine)
    assert found.get_table_names() == ["t"]
    assert found.get_view_names() == ["v"] and found.get_materialized_view_names() == ["m"]
    assert [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns("t")][:3] == [
        ("id", "INTEGER", False),
        ("name", "TEXT", False),
        ("n", "NUMERIC(10, 2)", True),
    ]
    assert found.get_pk_constraint("t")["constrained_columns"] == ["id"]
    assert [(i["name"], i["column_names"]) for i in found.get_indexes("t")] == [("t_name", ["name"])]
    tables = sa.MetaData()
    tables.reflect(engine, views=True)
    assert set(tables.tables) == {"t", "m", "v"}
    with engine.connect() as con:
        t = tables.tables["t"]
        assert con.execute(sa.select(t.c.name).where(t.c.id == 1)).scalar() == "ann"
    engine.dispose()


def test_sqlalchemy_creates_unique_indexes(server: ServedPond) -> None:
    sa = pytest.importorskip("sqlalchemy")
    engine = sa.create_engine(server.address().replace("postgresql:", "postgresql+psycopg:"))
    made = sa.MetaData()
    names = ("mail", "called")
    columns = [sa.Column(name, sa.String(50), unique=True, index=True) for name in names]
    accounts = sa.Table("accounts", made, sa.Column("id", sa.Integer, primary_key=True), *columns)
    sa.Table(
        "logins", made, sa.Column("id", sa.Integer, primary_key=True), sa.Column("n", sa.Integer, unique=True)
    )
    made.create_all(engine)  # in one transaction
    found = sa.inspect(engine)
    assert [(i["name"], i["unique"]) for i in found.get_indexes("accounts")] == [
        ("ix_accounts_called", True),
        ("ix_accounts_mail", True),
    ]
    assert found.get_unique_constraints("accounts") == []
    with engine.begin() as con:
        con.execute(sa.insert(accounts), [{"mail": "a", "called": "x"}, {"mail": "b", "called": "y"}])
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as con:
        con.execute(sa.insert(accounts), [{"mail": "a", "called": "z"}])
    made.drop_all(engine)
    engine.dispose()


def test_asyncpg(server: ServedPond) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def run() -> None:
        con: Any = await asyncpg.connect(server.address())
        row = await con.fetchrow("SELECT id, name, n FROM t WHERE id = $1", 1)
        assert tuple(row)[:2] == (1, "ann")
        assert await con.fetchval("SELECT [1, 2, NULL]::int[]") == [1, 2, None]
        await con.execute("CREATE TABLE written (id int PRIMARY KEY, s text, a int[])")
        await con.execute("INSERT INTO written VALUES ($1, $2, $3)", 1, "x", [1, 2])
        await con.executemany("INSERT INTO written (id, s) VALUES ($1, $2)", [(2, "y"), (3, "z")])
        assert [tuple(r) for r in await con.fetch("SELECT * FROM written ORDER BY id")] == [
            (1, "x", [1, 2]),
            (2, "y", None),
            (3, "z", None),
        ]
        with pytest.raises(asyncpg.UndefinedTableError):
            await con.fetch("SELECT * FROM nosuch")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(con.fetch("SELECT count(*) FROM range(1000000) a, range(1000000) b"), 0.5)
        assert await con.fetchval("SELECT 5") == 5
        await con.reset()
        await con.close()

    asyncio.run(run())


def test_pgjdbc(server: ServedPond, tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed")
    found = jars("pgjdbc", "org.postgresql:postgresql:42.7.8")
    program = Path(__file__).parent / "Jdbc.java"
    url = f"jdbc:postgresql://{server.host}:{server.port}/pond"
    done = subprocess.run(
        [
            java,
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            ":".join(map(str, found)),
            str(program),
            url,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "m MATERIALIZED VIEW",
        "t TABLE",
        "v VIEW",
        "id int4 0",
        "name text 0",
        "n numeric 1",
        "at timestamptz 1",
        "key id",
        "index t_name false",
        "index t_pkey true",
        "extended ann",
        "cursor 10",
        "simple 2",
        "",
    ]


def test_node_postgres(server: ServedPond) -> None:
    modules = node_modules("pg")
    program = Path(__file__).parent / "Pg.js"
    done = subprocess.run(
        ["node", str(program), server.address()],
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        '[{"id":1,"name":"ann","n":"1.50","dated":true}]',
        "named []",
        'named [{"name":"ann"}]',
        'named [{"name":"bob"}]',
        "id:23 name:25 n:1700 dated:16",
        "error 42P01 15",
        "inside 1",
        "after 0",
        'several [{"a":1}] [{"b":2}]',
        "many 20000",
        'json {"a":[1,2],"s":{"k":"v"}}',
    ]


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(server: ServedPond, tmp_path: Path, mode: str) -> None:
    program = shutil.which("pgbench")
    if program is None:
        pytest.skip("pgbench is not installed")
    script = tmp_path / "read.sql"
    script.write_text("\\set id random(1, 2)\nSELECT name FROM t WHERE id = :id;\n")
    command = [program, "-n", "-M", mode, "-c", "4", "-t", "20", "-f", str(script)]
    done = subprocess.run(command, env=server.environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "number of transactions actually processed: 80/80" in done.stdout
