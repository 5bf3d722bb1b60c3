"""The type that a parameter is cast to is the type that clients are told."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import millpond
from millpond.server.server import Server

asyncpg = pytest.importorskip("asyncpg")
UTC = datetime.UTC
CASTS: list[tuple[str, Any]] = [
    ("int", 5),
    ("smallint", -3),
    ("bigint", 2**40),
    ("numeric", decimal.Decimal("12.340")),
    ("numeric(10,2)", decimal.Decimal("12.34")),
    ("real", 0.5),
    ("float8", 1e300),
    ("text", "é"),
    ("varchar(5)", "abc"),
    ("bool", True),
    ("date", datetime.date(2024, 1, 2)),
    ("time", datetime.time(1, 2, 3)),
    ("timestamp", datetime.datetime(2024, 1, 2, 3, 4, 5, 678)),
    ("timestamptz", datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("interval", datetime.timedelta(days=3, seconds=5)),
    ("uuid", uuid.UUID(int=5)),
    ("json", '{"a": 1}'),
    ("bytea", b"\0\xff"),
    ("date", datetime.date.max),  # how asyncpg shows an infinity
    ("timestamp", datetime.datetime.max),
    ("date[]", [datetime.date.max, None, datetime.date(2024, 1, 2)]),
    ("int[]", [1, None, 3]),
    ("text[]", ["a", None, 'b,"c', ""]),
    ("timestamptz[]", [datetime.datetime(2024, 1, 2, tzinfo=UTC), None]),
    ("float8[]", [0.5, None]),
    ("numeric(9,1)[]", [decimal.Decimal("1.5")]),
    ("uuid[]", [uuid.UUID(int=5)]),
    ("bytea[]", [b"\0", None]),
    ("bool[]", [True, None]),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with millpond.open("memory://", engine="inline") as pond, pond.serve(pg_port=0) as found:
        yield found


def test_asyncpg(server: Server) -> None:
    """It sends and reads every value in binary, by the types that the server tells it."""

    async def ask() -> list[Any]:
        con = await asyncpg.connect(server.urls["pg"].replace("//", "//ann@"))
        try:
            found = [await con.fetchval(f"SELECT $1::{kind}", value) for kind, value in CASTS]
            nulls = [await con.fetchval(f"SELECT $1::{kind}", None) for kind, _ in CASTS]
            assert nulls == [None] * len(CASTS)
            return found
        finally:
            await con.close()

    found = asyncio.run(ask())
    for (kind, value), seen in zip(CASTS, found, strict=True):
        assert seen == value and isinstance(seen, type(value)), kind


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("interval", "1 year 2 mons -3 days 04:05:06.7", "1 year 2 mons -3 days +04:05:06.7"),
        ("interval", "P1Y2M3DT4H", "1 year 2 mons 3 days 04:00:00"),
        ("date", "infinity", "infinity"),
        ("date", "0044-03-15 BC", "0044-03-15 BC"),
        ("date", "12000-01-02", "12000-01-02"),
        ("timestamp", "-infinity", "-infinity"),
        ("timestamptz", "infinity", "infinity"),
        ("date[]", "{infinity,NULL,2024-01-02}", "{infinity,NULL,2024-01-02}"),
        ("numeric", "0.0010", "0.0010"),
        ("numeric", "12345678901234567890.123456789012", "12345678901234567890.123456789012"),
    ],
)
def test_nothing_is_lost(server: Server, kind: str, text: str, shown: str, binary: bool) -> None:
    """What Python's types cannot hold, and the digits of a numeric."""
    with psycopg.connect(server.urls["pg"].replace("//", "//ann@")) as con:
        result = con.pgconn.exec_params(
            f"SELECT $1::{kind}".encode(), [text.encode()], result_format=psycopg.pq.Format(binary)
        )
        assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
        value = result.get_value(0, 0)
        again = con.pgconn.exec_params(
            f"SELECT $1::{kind}".encode(), [value], param_formats=[psycopg.pq.Format(binary)]
        )
        assert again.get_value(0, 0) == shown.encode()


@pytest.mark.parametrize(
    ("call", "value", "answer"),
    [
        ("repeat('ab', $1)", 2, "abab"),
        ("left('abc', $1)", 2, "ab"),
        ("(SELECT count(*) FROM generate_series(1, $1) AS t (n))", 3, 3),
        ("CASE 1 WHEN $1 THEN 'one' END", 1, "one"),
        ("NOT $1", True, False),
        ('quote_ident($1::"pg_catalog"."text")', "A", '"A"'),
        ("$1::pg_catalog.int8 + pg_backend_pid() * 0", 7, 7),
        ("$1 = ANY(ARRAY[1, 2])", 2, True),
    ],
)
def test_arguments_have_the_types_of_their_functions(
    server: Server, call: str, value: Any, answer: Any
) -> None:
    async def ask() -> Any:
        con = await asyncpg.connect(server.urls["pg"].replace("//", "//ann@"))
        try:
            return await con.fetchval(f"SELECT {call}", value)
        finally:
            await con.close()

    assert asyncio.run(ask()) == answer
