"""Messages of Protobuf with the types that Google defines: exact, and a bad one is an error row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import InvalidError

pytest.importorskip("google.protobuf")
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

from millpond.sources.protobuf_messages import ProtobufMessages, message_class

KINDS = descriptor_pb2.FieldDescriptorProto


def descriptor() -> bytes:
    libraries = (wrappers_pb2, timestamp_pb2, struct_pb2)
    files = [descriptor_pb2.FileDescriptorProto.FromString(one.DESCRIPTOR.serialized_pb) for one in libraries]
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    file.dependency.extend(one.name for one in files)
    message = file.message_type.add(name="M")
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=KINDS.TYPE_INT32, label=KINDS.LABEL_OPTIONAL)
    fields = {
        "at": ".google.protobuf.Timestamp",
        "n": ".google.protobuf.Int64Value",
        "s": ".google.protobuf.StringValue",
        "b": ".google.protobuf.BoolValue",
        "any": ".google.protobuf.Struct",
        "inner": ".p.M.Inner",
    }
    for number, (name, kind) in enumerate(fields.items(), 1):
        message.field.add(
            name=name, number=number, type=KINDS.TYPE_MESSAGE, type_name=kind, label=KINDS.LABEL_OPTIONAL
        )
    message.field.add(name="i", number=20, type=KINDS.TYPE_INT64, label=KINDS.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[*files, file]).SerializeToString()


DESCRIPTOR = descriptor()
Message = message_class(DESCRIPTOR, "p.M")


def decoded(
    columns: dict[str, pa.DataType], *messages: Any
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    reader = ProtobufMessages(pa.schema(list(columns.items())), DESCRIPTOR, "p.M", False)
    (table,), bad = reader.decode([message.SerializeToString() for message in messages])
    return table.to_pylist(), bad


def test_wrapped_values_are_values_or_null() -> None:
    columns = {"n": pa.int64(), "s": pa.string(), "b": pa.bool_()}
    rows, bad = decoded(columns, Message(n={"value": 0}, s={"value": "w"}, b={"value": False}), Message())
    assert bad == []
    assert rows == [{"n": 0, "s": "w", "b": False}, {"n": None, "s": None, "b": None}]
    rows, bad = decoded({"n": pa.struct([("value", pa.int64())])}, Message(n={"value": 5}))
    assert (rows, bad) == ([{"n": {"value": 5}}], [])


def test_times_are_exact_or_error_rows() -> None:
    exact = Message(at={"seconds": 1_704_074_584, "nanos": 567_891_000})
    finer = Message(at={"seconds": 1_704_074_584, "nanos": 567_891_234})
    never = Message(at={"seconds": 10**15})
    rows, bad = decoded({"at": pa.timestamp("us")}, exact, finer, never, Message())
    assert [None if row["at"] is None else row["at"].microsecond for row in rows] == [567_891, None]
    assert [n for n, _ in bad] == [1, 2]
    assert "more digits of a second" in bad[0][1]
    reader = ProtobufMessages(pa.schema([("at", pa.timestamp("ns"))]), DESCRIPTOR, "p.M", False)
    (table,), _ = reader.decode([finer.SerializeToString()])
    assert table["at"][0].value == 1_704_074_584_567_891_234
    rows, ((_, reason),) = decoded({"i": pa.timestamp("us")}, Message(i=1_704_074_584_567))
    assert rows == [] and "unit is not known" in reason


def test_messages_in_text_are_json() -> None:
    given = Message(inner={"x": 5})
    given.any.update({"q": [1, "x"]})
    rows, bad = decoded({"any": pa.string(), "inner": pa.string()}, given, Message())
    assert bad == []
    assert rows == [{"any": '{"q": [1.0, "x"]}', "inner": '{"x": 5}'}, {"any": None, "inner": None}]


def test_fields_of_inner_messages_are_checked() -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    with pytest.raises(InvalidError, match=r"no field 'inner\.y'"):
        decoded({"inner": kind})
