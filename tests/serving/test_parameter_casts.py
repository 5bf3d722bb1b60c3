"""The type that a parameter is cast to is the type that clients are told."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import uuid
from collections.abc import Iterator
from typing import Any

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
