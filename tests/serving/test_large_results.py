"""Results that are larger than the server keeps in memory: slow readers, cursors, portals, COPY, Flight."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millpond.sql.reads.spooled_rows import MEMORY_BYTES
from tests.serving.served_process import ServedPond, served

ROWS = 600_000
LARGE = f"SELECT i, repeat('x', 200) AS t FROM range({ROWS}) r(i)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPond]:
    folder = tmp_path_factory.mktemp("large") / "pond"
    with served(folder, "--pg", "0", "--flight", "0", listeners=2) as found:
        yield found


def address(server: ServedPond) -> str:
    return server.url("postgresql").replace("//", "//ann@")


def own_mb(server: ServedPond) -> float:
    """Memory of the server that is not a file."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise LookupError("RssAnon")


def test_a_slow_reader_costs_little_memory_and_nobodys_time(server: ServedPond) -> None:
    assert ROWS * 200 > 3 * MEMORY_BYTES, "the result must not fit"
    with psycopg.connect(address(server), autocommit=True) as con:
        con.execute("SELECT i, repeat('x', 200) AS t FROM range(1000) r(i)").fetchall()
        before = own_mb(server)
        slow = _asked(server, LARGE)
        try:
            deadline = time.monotonic() + 60
            while not slow.recv(4096):  # the first rows
                assert time.monotonic() < deadline
            for _ in range(20):
                assert con.execute("SELECT 1").fetchone() == (1,)
            assert own_mb(server) - before < 100, "the rows are in a file"
            busy = con.execute("SELECT usename, datname FROM pg_stat_activity").fetchall()
            assert busy == [("ann", "pond")] * 2
        finally:
            slow.close()
        assert not list(Path("/proc").glob(f"{server.process.pid}/fd/*millpond-rows*"))


def _asked(server: ServedPond, sql: str) -> socket.socket:
    """A client that logs in, sends a query and reads only when told."""
    host, _, port = server.url("postgresql").split("/")[2].partition(":")
    made = socket.create_connection((host, int(port)), timeout=60)
    body = struct.pack("!i", 3 << 16) + b"user\0ann\0database\0pond\0\0"
    made.sendall(struct.pack("!i", len(body) + 4) + body)
    data = b""
    while not data.endswith(b"Z\0\0\0\x05I"):
        data += made.recv(4096)
    text = sql.encode() + b"\0"
    made.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
    return made


def test_cursors_give_all_rows_piece_by_piece(server: ServedPond) -> None:
    before = own_mb(server)
    with psycopg.connect(address(server)) as con:
        with con.cursor(name="large") as cursor:
            cursor.itersize = 50_000
            cursor.execute(LARGE)
            assert cursor.fetchmany(2) == [(0, "x" * 200), (1, "x" * 200)]
            assert con.execute("SELECT 1").fetchone() == (1,), "between two fetches"
            seen = 2
            for row in cursor:
                assert row[0] == seen
                seen += 1
        assert seen == ROWS
    assert own_mb(server) - before < 150


def test_portals_with_row_limits(server: ServedPond) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def run() -> list[int]:
        con: Any = await asyncpg.connect(address(server))
        found = []
        async with con.transaction():
            async for row in con.cursor(LARGE, prefetch=100_000):
                found.append(row[0])
        await con.close()
        return found

    assert asyncio.run(run()) == list(range(ROWS))


def test_copy_and_flight(server: ServedPond) -> None:
    with (
        psycopg.connect(address(server)) as con,
        con.cursor() as cursor,
        cursor.copy(f"COPY ({LARGE}) TO STDOUT") as copy,
    ):
        assert sum(bytes(block).count(b"\n") for block in copy) == ROWS
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi")
    with dbapi.connect(server.url("grpc"), autocommit=True) as flight, flight.cursor() as cursor:
        cursor.execute(LARGE)
        table = cursor.fetch_arrow_table()
    assert table.num_rows == ROWS and table.column("i").to_pylist()[-1] == ROWS - 1
