"""Avro messages: at once and one by one give the same rows, and a bad message never changes its neighbours."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import UnavailableError
from millpond.sources import avro_messages
from millpond.sources.avro_messages import AvroMessages
from tests.registry import Registry

UTC = datetime.UTC
FLAT = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": "bytes"},
    ],
}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {
            "name": "inner",
            "type": [
                "null",
                {"type": "record", "name": "In", "fields": [{"name": "x", "type": ["null", "long"]}]},
            ],
        },
    ],
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("who", pa.string()),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.string()),
        ("raw", pa.binary()),
        ("missing", pa.int64()),
    ]
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def order(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "who": None if n % 3 == 0 else f"w{n}",
        "price": n / 7,
        "at": datetime.datetime(2024, 1, 1, 0, 0, n % 60, tzinfo=UTC),
        "day": None if n % 2 else datetime.date(2024, 1, 1),
        "tags": ["t"] * (n % 3),
        "kind": "AB"[n % 2],
        "raw": bytes([n % 256]),
    }


def expected(n: int) -> dict[str, Any]:
    row = order(n)
    return {
        **{k: row[k] for k in SCHEMA.names if k in row},
        "at": row["at"].replace(tzinfo=None),
        "missing": None,
    }


def rows(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


def test_at_once_and_one_by_one_agree(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    number = registry.add(FLAT)
    values: list[bytes | None] = [registry.message(number, order(n)) for n in range(300)]
    decoder = AvroMessages(SCHEMA, registry.url)
    with monkeypatch.context() as patch:
        patch.setattr(avro_messages, "read_each", None)  # all of it goes the fast way
        good, bad = decoder.decode(values)
    assert bad == [] and rows(good) == [expected(n) for n in range(300)]
    monkeypatch.setattr(avro_messages, "is_flat", lambda text: False)
    assert rows(decoder.decode(values)[0]) == rows(good)
    assert len(registry.asked) == 1


def test_a_bad_message_is_reported_and_the_others_stay(registry: Registry) -> None:
    """A message with a byte too many would shift all that follow it."""
    number = registry.add(FLAT)
    chance = random.Random(1)
    for _ in range(60):
        values: list[bytes | None] = [registry.message(number, order(n)) for n in range(20)]
        at = chance.randrange(20)
        broken = bytearray(values[at] or b"")
        match chance.randrange(5):
            case 0:
                broken += bytes(chance.randrange(1, 9))
            case 1:
                del broken[chance.randrange(6, len(broken)) :]
            case 2:
                broken = bytearray(b"\0\0\0\0\x63x")
            case 3:
                broken = bytearray(b"{}")
            case 4:
                broken[5:5] = b"\2"
        values[at] = bytes(broken)
        good, bad = AvroMessages(SCHEMA, registry.url).decode(values)
        assert [n for n, _ in bad] in (
            [at],
            [],
        )  # bytes that are a value of the schema are none to complain of
        found = rows(good)
        if bad:
            assert found == [expected(n) for n in range(20) if n != at]
        else:
            assert [row for row in found if row["id"] != found[at]["id"]] == [
                expected(n) for n in range(20) if n != at and n != found[at]["id"]
            ]


def test_schemas_may_alternate_and_nest(registry: Registry) -> None:
    from decimal import Decimal

    first, second = registry.add(FLAT), registry.add(NESTED)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("who", pa.string()),
            ("inner", pa.struct([("x", pa.int64())])),
            ("price", pa.decimal128(10, 2)),
        ]
    )
    nested = {"id": 5, "who": "n", "price": Decimal("1.25"), "inner": {"x": 3}}
    values = [
        registry.message(second, nested),
        registry.message(second, {**nested, "id": 6, "inner": None}),
        None,
        registry.message(second, {**nested, "id": 7}),
    ]
    good, bad = AvroMessages(schema, registry.url).decode(values)
    assert [(r["id"], r["inner"], r["price"]) for r in rows(good)] == [
        (5, {"x": 3}, Decimal("1.25")),
        (6, None, Decimal("1.25")),
        (7, {"x": 3}, Decimal("1.25")),
    ]
    assert bad == [(2, "there is no value")]
    two = pa.schema([("id", pa.int64()), ("who", pa.string())])
    mixed = [
        registry.message(first, order(1)),
        registry.message(second, nested),
        registry.message(first, order(2)),
    ]
    assert [r["id"] for r in rows(AvroMessages(two, registry.url).decode(mixed)[0])] == [1, 5, 2]


def test_a_registry_that_does_not_answer() -> None:
    with pytest.raises(UnavailableError, match="the schema registry does not answer"):
        AvroMessages(SCHEMA, "http://127.0.0.1:1").decode([struct.pack(">BI", 0, 1)])


def one(
    registry: Registry, kind: Any, value: Any, column: pa.DataType
) -> tuple[list[Any], list[tuple[int, str]]]:
    """A field of one message as a column, and the reasons of error rows."""
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    message = registry.message(registry.add(record), {"a": value})
    good, bad = AvroMessages(pa.schema([("a", column)]), registry.url).decode([message])
    return [item for table in good for item in table.column("a").cast(column)], bad


@pytest.mark.parametrize("nested", [False, True])
def test_times_are_exact_or_refused(nested: bool, registry: Registry) -> None:
    """`nested`: records are decoded one by one."""
    at = datetime.datetime(2024, 1, 1, 2, 3, 4, 567_891, tzinfo=UTC)
    us, ms, ns = pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns")

    def kind(said: Any) -> Any:
        return [said, "null", "string"] if nested else said  # a union of three

    micros = kind({"type": "long", "logicalType": "timestamp-micros"})
    ((found,), bad) = one(registry, micros, at, us)
    assert (found.as_py(), bad) == (at.replace(tzinfo=None), [])
    assert one(registry, micros, at, ms)[0] == []  # it has microseconds
    ((found,), bad) = one(registry, micros, at.replace(microsecond=567_000), ms)
    assert (found.value % 1000, bad) == (567, [])
    nanos = kind({"type": "long", "logicalType": "timestamp-nanos"})
    value = 1_704_074_584_567_891_234
    ((found,), bad) = one(registry, nanos, value, ns)
    assert (found.value, bad) == (value, [])
    ((found,), bad) = one(registry, nanos, value - 234, us)
    assert (found.value, bad) == (value // 1000, [])
    assert one(registry, nanos, value, us)[0] == []
    debezium = kind({"type": "long", "connect.name": "io.debezium.time.Timestamp"})
    ((found,), bad) = one(registry, debezium, 1_704_074_584_567, us)
    assert (found.value, bad) == (1_704_074_584_567_000, [])
    for column in (us, pa.date32(), pa.time64("us")):
        found, ((_, reason),) = one(registry, kind("long"), 1_704_074_584_567, column)
        assert found == [] and "unit is not known" in reason


def test_identifiers_are_text(registry: Registry) -> None:
    text = "00000000-0000-0000-0000-000000000005"
    for kind in (
        {"type": "string", "logicalType": "uuid"},
        ["null", {"type": "string", "logicalType": "uuid"}],
    ):
        (found,), bad = one(registry, kind, text, pa.string())
        assert (found.as_py(), bad) == (text, [])


def test_an_enum_that_may_be_null_is_read_without_a_panic(
    registry: Registry, capfd: pytest.CaptureFixture[str]
) -> None:
    kind = ["null", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}]
    assert [one(registry, kind, value, pa.string())[0][0].as_py() for value in ("Y", None)] == ["Y", None]
    assert "panicked" not in capfd.readouterr().err
