"""Rows in text and binary: what a column of Arrow becomes is read back as the same values."""

from __future__ import annotations

import datetime
import decimal
import struct
import uuid
from typing import Any

import duckdb
import pytest

from millpond.kernels.duck import connect
from millpond.server.pgwire.data_rows import RowEncoder
from millpond.server.pgwire.messages import Fields
from millpond.server.pgwire.parameter_values import InvalidValueError, value_of
from millpond.sql.binding.types import CLOSED
from millpond.sql.pg_catalog.pg_types import column_type

UTC = datetime.UTC
VALUES: list[tuple[str, Any]] = [
    ("true", True),
    ("-7::smallint", -7),
    ("2147483647", 2147483647),
    ("-9223372036854775808", -9223372036854775808),
    ("170141183460469231731::hugeint", decimal.Decimal("170141183460469231731")),
    ("18446744073709551615::ubigint", decimal.Decimal("18446744073709551615")),
    ("0.5::float", 0.5),
    ("1e300::double", 1e300),
    ("'inf'::double", float("inf")),
    ("-12345.678::decimal(20,3)", decimal.Decimal("-12345.678")),
    ("0.00000001::decimal(18,8)", decimal.Decimal("0.00000001")),
    ("0::decimal(18,8)", decimal.Decimal("0.00000000")),
    ("10000::decimal(18,0)", decimal.Decimal("10000")),
    ("'héllo'", "héllo"),
    ("''", ""),
    ("'\\x00\\xff'::blob", b"\x00\xff"),
    ("date '1999-12-31'", datetime.date(1999, 12, 31)),
    ("timestamp '2024-01-02 03:04:05.000678'", datetime.datetime(2024, 1, 2, 3, 4, 5, 678)),
    ("timestamp '1960-01-02 03:04:00'", datetime.datetime(1960, 1, 2, 3, 4)),
    ("timestamptz '2024-01-02 03:04:05+02'", datetime.datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
    ("timestamp_ns '2024-01-02 03:04:05.5'", datetime.datetime(2024, 1, 2, 3, 4, 5, 500000)),
    ("time '10:20:30.5'", datetime.time(10, 20, 30, 500000)),
    ("interval '1 month 1 day 00:00:05.5'", "1 months 1 days 5500000 microseconds"),
    ("'00000000-0000-0000-0000-000000000005'::uuid", uuid.UUID(int=5)),
    ("[1, NULL, 3]", [1, None, 3]),
    ("[]::int[]", []),
    ("['a b', '', 'q\"uo\\te', NULL, 'NULL']", ["a b", "", 'q"uo\\te', None, "NULL"]),
    ("[date '2024-01-01']", [datetime.date(2024, 1, 1)]),
    ("[1, 2]::int[2]", [1, 2]),
    ("'a'::enum('a', 'b')", "a"),
]


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    found = connect(CLOSED)
    found.execute("set timezone = 'UTC'")
    return found


def decoded(data: bytes, oid: int, form: int) -> list[Any]:
    found, at = [], 0
    while at < len(data):
        assert data[at : at + 1] == b"D"
        (size,) = struct.unpack("!i", data[at + 1 : at + 5])
        fields = Fields(data[at + 5 : at + 1 + size])
        assert fields.count() == 1
        length = fields.int32()
        value = value_of(None if length == -1 else fields.take(length), oid, form)
        found.append(value.object if isinstance(value, duckdb.Value) else value)
        fields.end()
        at += 1 + size
    return found


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(("sql", "value"), VALUES, ids=[sql for sql, _ in VALUES])
def test_values(con: duckdb.DuckDBPyConnection, sql: str, value: Any, form: int) -> None:
    found = con.sql(f"select case when i % 3 = 1 then null else {sql} end as x from range(4) t(i)")
    kind, table = str(found.types[0]), found.to_arrow_table()
    for part in (table, table.slice(1, 2)):
        data = b"".join(RowEncoder([kind], [form]).messages(part))
        wanted = [value if n % 3 != 1 else None for n in (range(4) if part is table else range(1, 3))]
        assert decoded(data, column_type(kind).oid, form) == wanted


@pytest.mark.parametrize(
    ("data", "oid", "form"),
    [
        (b"x", 23, 0),
        (b"\0", 23, 1),
        (b"99999999999", 23, 0),
        (b"{1,2", 1007, 0),
        (b"2024-13-01", 1082, 0),
        (b"\xff", 25, 0),
        (b"zz", 2950, 0),
        (b"maybe", 16, 0),
    ],
)
def test_bad_values_are_refused(data: bytes, oid: int, form: int) -> None:
    with pytest.raises(InvalidValueError):
        value_of(data, oid, form)


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_infinities_are_those_of_postgresql(con: duckdb.DuckDBPyConnection, kind: str) -> None:
    table = con.sql(
        f"SELECT unnest(['infinity', '-infinity', NULL, '2000-01-02'])::{kind} AS v"
    ).to_arrow_table()
    shown, layout = str(con.sql(f"SELECT NULL::{kind}").types[0]), "!i" if kind == "date" else "!q"
    (text,) = RowEncoder([shown], [0]).messages(table)
    assert b"\0\0\0\x08infinity" in text and b"\0\0\0\x09-infinity" in text and b"2000-01-02" in text
    (binary,) = RowEncoder([shown], [1]).messages(table)
    size = struct.calcsize(layout)
    ends = [(1 << 8 * size - 1) - 1, -(1 << 8 * size - 1)]
    for value in (*ends, 1 if kind == "date" else 86_400_000_000):
        assert struct.pack("!i", size) + struct.pack(layout, value) in binary
