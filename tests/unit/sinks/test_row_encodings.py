"""Rows as JSON, Avro and Protobuf, read back by other libraries."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from millpond.errors import InvalidError
from millpond.sinks.avro_encoding import AvroEncoding, avro_schema
from millpond.sinks.json_encoding import JsonEncoding
from millpond.sinks.json_rows import json_text
from millpond.sinks.murmur2 import murmur2
from millpond.sinks.protobuf_encoding import (
    ProtobufEncoding,
    columns_of,
    field_numbers,
    proto_schema,
)
from millpond.sinks.row_encoding import ChangeId, Unencodable
from millpond.testing.sinks import TYPES, every_type_row

CHANGE = ChangeId("pond", "out", 7, 3)
ROWS: list[dict[str, Any]] = [every_type_row(0), every_type_row(1), dict.fromkeys(TYPES.names) | {"k": 2}]
NESTED = pa.schema(
    [
        ("days", pa.list_(pa.date32())),
        ("at", pa.struct([("t", pa.timestamp("us")), ("n", pa.decimal128(5, 2))])),
        ("by_name", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("big", pa.uint64()),
        ("small", pa.int8()),
        ("ms", pa.timestamp("ms")),
        ("ns", pa.timestamp("ns")),
        ("clock", pa.time32("s")),
        ("word", pa.dictionary(pa.int32(), pa.string())),
        ("single", pa.float32()),
    ]
)


def nested_rows() -> list[dict[str, Any]]:
    import datetime

    at = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    full = {
        "days": [at.date(), None],
        "at": {"t": at, "n": Decimal("-1.25")},
        "by_name": [("a", [1, None]), ("b", None)],
        "big": 2**64 - 1,
        "small": -128,
        "ms": at.replace(microsecond=999000),
        "ns": at,
        "clock": datetime.time(23, 59, 59),
        "word": "w",
        "single": 0.5,
    }
    return [full, dict.fromkeys(NESTED.names)]


def from_avro(text: str, data: bytes) -> dict[str, Any]:
    stream = io.BytesIO(data)
    found: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(text)), None)
    assert stream.tell() == len(data)
    return dict(found)


def plain(value: Any) -> Any:
    """Times without the zone that Avro gives them."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value


def test_json_is_that_of_files() -> None:
    table = pa.Table.from_pylist(ROWS, schema=TYPES)
    encoding = JsonEncoding(TYPES)
    found = [encoding.row(body) for body in encoding.encoded(table) if isinstance(body, bytes)]
    assert [text.decode() for text in found] == [json_text(row) for row in table.to_pylist()]


def test_json_of_names_with_percent_signs_and_quotes() -> None:
    table = pa.table({'a"%s': [1], "100%": ["%d"]})
    encoding = JsonEncoding(table.schema)
    (body,) = encoding.encoded(table)
    assert isinstance(body, bytes)
    assert json.loads(encoding.row(body)) == {'a"%s': 1, "100%": "%d"}
    logged = json.loads(encoding.logged(body, "insert", CHANGE))
    assert logged == {'a"%s': 1, "100%": "%d", "_op": "insert", "_epoch": 7, "_n": 3}
    event = json.loads(encoding.event(None, body, "c", CHANGE))
    assert event["before"] is None and event["after"] == {'a"%s': 1, "100%": "%d"}
    assert event["source"] == {"connector": "millpond", "name": "pond", "table": "out", "epoch": 7, "n": 3}


@pytest.mark.parametrize("schema, rows", [(TYPES, ROWS), (NESTED, nested_rows())])
def test_avro_is_read_by_another_library(schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, schema=schema)
    encoding = AvroEncoding(schema, 1)
    text = avro_schema(schema, "row")
    for row, body in zip(rows, encoding.encoded(table), strict=True):
        assert isinstance(body, bytes)
        found = plain(from_avro(text, body))
        expected = plain(row)
        if "by_name" in expected and expected["by_name"] is not None:
            expected["by_name"] = dict(expected["by_name"])
        if "ns" in expected and expected["ns"] is not None:
            expected["ns"] = -1000  # fastavro knows no nanoseconds
        assert found == expected
        logged = plain(from_avro(avro_schema(schema, "logged"), encoding.logged(body, "delete", CHANGE)[5:]))
        assert logged == {**expected, "_op": "delete", "_epoch": 7, "_n": 3}
        event = plain(from_avro(avro_schema(schema, "event"), encoding.event(body, body, "u", CHANGE)[5:]))
        assert event["before"] == event["after"] == expected
        assert (event["op"], event["source"]["epoch"], event["source"]["n"]) == ("u", 7, 3)


def test_avro_numbers_of_every_size() -> None:
    rng = random.Random(1)
    values = [rng.randint(-(2**63), 2**63 - 1) >> rng.randint(0, 63) for _ in range(300)]
    decimals = [
        Decimal(rng.randint(-(10**38) + 1, 10**38 - 1) // 10 ** rng.randint(0, 38)).scaleb(-9)
        for _ in range(300)
    ]
    table = pa.table({"n": pa.array(values, pa.int64()), "d": pa.array(decimals, pa.decimal128(38, 9))})
    text = avro_schema(table.schema, "row")
    for n, d, body in zip(values, decimals, AvroEncoding(table.schema, 1).encoded(table), strict=True):
        assert isinstance(body, bytes)
        assert from_avro(text, body) == {"n": n, "d": d}


def test_names_that_avro_and_protobuf_do_not_have() -> None:
    for name in ("a b", "1a", "sum(n)", ""):
        schema = pa.schema([(name, pa.int64())])
        with pytest.raises(InvalidError, match="cannot be a field of Avro"):
            avro_schema(schema, "row")
        with pytest.raises(InvalidError, match="cannot be a field of Protobuf"):
            proto_schema(columns_of(schema, "row"), "Row")


def test_types_that_avro_and_protobuf_do_not_have() -> None:
    schema = pa.schema([("x", pa.month_day_nano_interval())])
    with pytest.raises(InvalidError, match="cannot be written as Avro"):
        avro_schema(schema, "row")
    with pytest.raises(InvalidError, match="cannot be written as Protobuf"):
        proto_schema(columns_of(schema, "row"), "Row")


def test_protobuf_numbers_stay_when_columns_come_and_go() -> None:
    kinds = {"a": pa.int64(), "b": pa.string(), "c": pa.int64()}
    first = proto_schema(kinds, "Row")
    second = proto_schema({"c": pa.int64(), "d": pa.string()}, "Row", first)
    assert field_numbers(["c", "d"], first) == {"c": 3, "d": 4}  # type: ignore[arg-type]
    third = proto_schema({"e": pa.int64(), "d": pa.string(), "a": pa.int64()}, "Row", second)
    numbers = field_numbers(["e", "d", "a"], second)  # type: ignore[arg-type]
    assert numbers == {"e": 5, "d": 4, "a": 6}  # the number of the old a is taken
    assert "reserved 1;" in third and "reserved 3;" in third


def test_protobuf_is_read_by_another_library() -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    made = file.message_type.add(name="Row")
    inner = made.nested_type.add(name="StructStruct")
    inner.field.add(name="a", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    inner.field.add(name="b", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    types = {"bool": "BOOL", "k": "INT64", "int": "INT32", "float": "DOUBLE", "binary": "BYTES"}
    for number, name in enumerate(TYPES.names, 1):
        label = kinds.LABEL_REPEATED if name == "list" else kinds.LABEL_OPTIONAL
        if name in ("timestamp", "instant", "struct"):
            kind = ".Row.StructStruct" if name == "struct" else ".google.protobuf.Timestamp"
            made.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, label=label, type_name=kind)
        else:
            kind = "INT64" if name == "list" else types.get(name, "STRING")
            made.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"), label=label)
    pool = descriptor_pool.DescriptorPool()
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    pool.Add(imported)
    pool.Add(file)
    read = message_factory.GetMessageClass(pool.FindMessageTypeByName("Row")).FromString

    rows = [{**row, "list": [1, -1, 2**63 - 1]} for row in ROWS[:2]]
    columns = columns_of(TYPES, "row")
    encoding = ProtobufEncoding(TYPES, field_numbers(columns, None), 5)
    table = pa.Table.from_pylist([*rows, ROWS[0], ROWS[2]], schema=TYPES)
    *found, with_null, empty = encoding.encoded(table)
    for row, body in zip(rows, found, strict=True):
        assert isinstance(body, bytes)
        value = encoding.row(body)
        assert value[:6] == b"\0\0\0\0\5\0"
        got = read(value[6:])
        assert (got.k, got.bool, got.int, got.float) == (row["k"], row["bool"], row["int"], row["float"])
        assert (got.text, got.binary, list(got.list)) == (row["text"], row["binary"], row["list"])
        assert (got.decimal, got.date, got.time) == (str(row["decimal"]), "2026-02-03", "04:05:06.000789")
        assert got.timestamp.ToDatetime() == row["timestamp"]
        assert got.instant.ToDatetime() == row["timestamp"]
        assert (got.struct.a, got.struct.b) == (1, "")
    assert isinstance(with_null, Unencodable) and "list with NULL" in with_null.reason
    assert isinstance(empty, bytes) and read(empty).k == 2


def test_murmur2_of_keys_of_every_length() -> None:
    """Against the plain algorithm of Kafka's Java client."""

    def slow(data: bytes) -> int:
        mask, m = 0xFFFFFFFF, 0x5BD1E995
        found = 0x9747B28C ^ len(data)
        for at in range(0, len(data) & ~3, 4):
            k = int.from_bytes(data[at : at + 4], "little") * m & mask
            found = (found * m & mask) ^ ((k ^ k >> 24) * m & mask)
        if rest := data[len(data) & ~3 :]:
            found = (found ^ int.from_bytes(rest, "little")) * m & mask
        found = (found ^ found >> 13) * m & mask
        return found ^ found >> 15

    rng = random.Random(2)
    keys = [rng.randbytes(n) for n in [*range(40), 1000]]
    assert murmur2(keys).tolist() == [slow(key) for key in keys]
    assert murmur2([]).tolist() == []
