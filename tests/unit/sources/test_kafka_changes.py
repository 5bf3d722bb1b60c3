"""Messages of a topic as changes of a table, without a broker."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.sources.kafka import KafkaSource
from millpond.sources.kafka_changes import KafkaChanges

DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
GONE = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Message:
    made: bytes | None
    given: bytes | None = None
    number: int = 0

    def value(self) -> bytes | None:
        return self.made

    def key(self) -> bytes | None:
        return self.given

    def offset(self) -> int:
        return self.number

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0


def changes(
    form: Any, columns: dict[str, Any], *messages: tuple[Any, Any], key: tuple[str, ...] = ("k",), **more: Any
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """(put, row) of each change, and the reasons of error rows, for messages (key, value)."""
    source = KafkaSource("b:1", "t", pa.schema(list(columns.items())))

    def data(value: Any) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

    given = [Message(data(value), data(one), n) for n, (one, value) in enumerate(messages)]
    rows, reasons = [], []
    for table in KafkaChanges(source, key, form, **more)._tables(given):
        if "_error" in table.column_names:
            reasons += table["_error"].to_pylist()
        else:
            rows += [(r["__put"], *(r[name] for name in columns)) for r in table.to_pylist()]
    return rows, reasons


K, TEXT = pa.int64(), pa.string()


def test_upserts_with_their_schema_beside_them() -> None:
    columns = {"k": pa.timestamp("us"), "price": pa.decimal128(10, 4)}
    at = {"field": "k", "type": "int64", "name": TIMESTAMP}
    price = {"field": "price", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}
    value = {"schema": {"fields": [at, price]}, "payload": {"k": 1000, "price": "1234"}}
    key = {"schema": {"fields": [at]}, "payload": {"k": 1000}}
    rows, reasons = changes("upsert", columns, (key, value), (key, None))
    assert reasons == []
    (_, put_at, found), (_, deleted_at, _) = rows
    assert put_at == deleted_at and put_at.second == 1  # the deletion meets the row
    assert [put for put, *_ in rows] == [True, False]
    assert found == Decimal("-26588.24")


def test_columns_may_be_named_schema_and_payload() -> None:
    columns = {"k": K, "schema": TEXT, "payload": TEXT}
    row = {"k": 1, "schema": "s", "payload": "p"}
    assert changes("upsert", columns, (None, row)) == ([(True, 1, "s", "p")], [])
    assert changes("debezium", columns, (None, {"op": "c", "after": row})) == ([(True, 1, "s", "p")], [])
    wrapped = {"schema": {}, "payload": {"op": "c", "after": row}}
    assert changes("debezium", columns, (None, wrapped)) == ([(True, 1, "s", "p")], [])


def test_keys_that_are_text() -> None:
    columns = {"k": TEXT, "n": K}
    for key in (b"123", b"true", b"null", b"plain", b'"quoted"'):
        wanted = key.decode().strip('"')
        assert changes("upsert", columns, (key, None)) == ([(False, wanted, None)], [])
        assert changes("upsert", columns, (key, {"n": 5})) == ([(True, wanted, 5)], [])
    rows, (reason,) = changes("upsert", columns, (b"\xff", {"n": 5}))
    assert rows == [] and "the key is neither JSON nor text" in reason
    rows, (reason,) = changes("upsert", columns, (b'{"k": null}', None))
    assert rows == [] and "key column 'k' has no value" in reason


def test_a_deletion_uses_the_schema_of_the_message_that_has_the_key() -> None:
    columns = {"k": pa.timestamp("us")}
    key = {"schema": {"fields": [{"field": "k", "name": TIMESTAMP}]}, "payload": {"k": 1000}}
    ((put, at),), _ = changes("debezium", columns, (key, {"payload": {"op": "d", "before": None}}))
    assert (put, at.second) == (False, 1)


def test_values_that_are_not_in_an_event_stay() -> None:
    columns = {"k": K, "raw": pa.binary(), "many": pa.list_(TEXT), "s": TEXT}
    after = {"k": 1, "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "many": [GONE], "s": GONE}
    source = KafkaSource("b:1", "t", pa.schema(list(columns.items())))
    event = {"op": "u", "before": None, "after": after}
    (table,) = KafkaChanges(source, ("k",), "debezium")._tables([Message(json.dumps(event).encode())])
    (row,) = table.to_pylist()
    assert row["__unchanged"] == [1, 2, 3]
    assert row["raw"] is row["many"] is row["s"] is None


def test_an_event_with_a_bad_value_is_one_error_row() -> None:
    columns = {"k": K, "price": pa.decimal128(10, 2)}
    rows, (reason,) = changes(
        "debezium",
        columns,
        (None, {"op": "c", "after": {"k": 1, "price": "12.5"}}),
        (None, {"op": "c", "after": {"k": 2, "price": "1234"}}),
    )
    assert rows == [(True, 1, Decimal("12.50"))]
    assert reason.startswith("t, partition 0, offset 1: column 'price': '1234' is not decimal128(10, 2)")
    assert reason.endswith("set decimal.handling.mode")
    given = (None, {"op": "c", "after": {"k": 2, "price": "1234"}})
    assert changes("debezium", columns, given, decimals="string") == ([(True, 2, Decimal(1234))], [])
