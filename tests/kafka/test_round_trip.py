"""A pond writes a topic and another one reads it: the rows are equal, in each format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from tests.registry import Registry

from .topic import Topic

pytestmark = pytest.mark.e2e

COLUMNS = {
    "k": "BIGINT",
    "s": "VARCHAR",
    "b": "BOOLEAN",
    "i": "INTEGER",
    "f": "DOUBLE",
    "d": "DECIMAL(20, 4)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "raw": "BYTEA",
    "many": "BIGINT[]",
}
CHANGES = (
    "INSERT INTO t VALUES (1, 'a\"\\\n漢', true, -5, 1.5, -1234.5600, '1969-12-31', '2026-02-03 04:05:06.000789',"
    " '\\x00ff', [1, -9223372036854775808]), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
    " (3, '', false, 0, -0.0, 0, '0001-01-01', '1969-12-31 23:59:59.999999', '', [])",
    "INSERT INTO t SELECT i, 's' || i, i % 2 = 0, i, i / 3, i, DATE '2026-01-01' + i::int, TIMESTAMP '2026-01-01 00:00:00',"
    " NULL, [i] FROM range(10, 40) r(i)",
    "UPDATE t SET s = 'changed', d = d + 1, many = [7] WHERE k % 2 = 0",
    "DELETE FROM t WHERE k % 3 = 0",
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def opened(place: Path) -> millpond.Pond:
    return millpond.open(place, engine="inline", parallelism=2, durable=False, checks=True)


def with_(topic: Topic, more: str = "") -> str:
    return f"WITH (connector = 'kafka', brokers = '{topic.brokers}', topic = '{topic.name}'{more})"


def definition(key: str = "") -> str:
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()) + key


def rows(pond: millpond.Pond, name: str) -> list[Any]:
    # As text, since 1.0 and 1 are equal for Python.
    return sorted(map(repr, pond.sql(f"SELECT * FROM {name}").fetchall()))


def read(pond: millpond.Pond, until: list[Any]) -> list[Any]:
    """The rows of the copy; brokers answer a commit before its messages can be seen."""
    end = time.monotonic() + 20
    while True:
        pond.drain()
        assert pond.errors().to_pylist() == []
        found = rows(pond, "copy")
        if found == until or time.monotonic() > end:
            return found
        time.sleep(0.02)


@pytest.mark.parametrize("form", ["UPSERT", "DEBEZIUM"])
@pytest.mark.parametrize("encode", ["JSON", "AVRO"])
def test_changes(form: str, encode: str, make_topic: Any, registry: Registry, tmp_path: Path) -> None:
    topic = make_topic(2)
    more = f" (schema.registry = '{registry.url}')" if encode == "AVRO" else ""
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        one.sql(f"CREATE TABLE t ({definition(key=', PRIMARY KEY (k)')})")
        one.sql(f"CREATE SINK out FROM t {with_(topic)} FORMAT {form} ENCODE {encode}{more}")
        other.sql(
            f"CREATE TABLE copy ({definition(key=', PRIMARY KEY (k)')}) {with_(topic)} FORMAT {form} ENCODE {encode}{more}"
        )
        for change in CHANGES:
            one.sql(change)
            one.drain()
            assert read(other, until=rows(one, "t")) == rows(one, "t")


@pytest.mark.parametrize("encode", ["JSON", "AVRO", "PROTOBUF"])
def test_rows(encode: str, make_topic: Any, registry: Registry, tmp_path: Path) -> None:
    topic = make_topic(2)
    ours = theirs = ""
    if encode == "AVRO":
        ours = theirs = f" (schema.registry = '{registry.url}')"
    if encode == "PROTOBUF":
        place = tmp_path / "row.desc"
        place.write_bytes(described())
        ours = f" (schema.registry = '{registry.url}')"
        theirs = f" (schema.registry = '{registry.url}', message = 'Row', schema.location = '{place}')"
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        one.sql(f"CREATE TABLE t ({definition()}) APPEND ONLY")
        one.sql(f"CREATE SINK out FROM t {with_(topic)} FORMAT PLAIN ENCODE {encode}{ours}")
        other.sql(
            f"CREATE SOURCE s ({definition()}) {with_(topic)} FORMAT PLAIN ENCODE {encode}{theirs};"
            "CREATE MATERIALIZED VIEW copy AS SELECT * FROM s"
        )
        for change in CHANGES[:2]:
            one.sql(change)
            one.drain()
        expected = rows(one, "t")
        if encode == "JSON":  # which has no bytes: a plain source takes the text as it is
            expected = [text.replace(r"b'\x00\xff'", "b'AP8='") for text in expected]
        if encode == "PROTOBUF":  # which has no NULL for a list
            expected = sorted(text.replace("None)", "[])") for text in expected)
        assert read(other, until=expected) == expected


def described() -> bytes:
    """The file descriptor set of the message that the sink makes of the columns."""
    from google.protobuf import descriptor_pb2, timestamp_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    made = file.message_type.add(name="Row")
    types = ["INT64", "STRING", "BOOL", "INT32", "DOUBLE", "STRING", "STRING", None, "BYTES", "INT64"]
    for number, (name, kind) in enumerate(zip(COLUMNS, types, strict=True), 1):
        if kind is None:
            made.field.add(
                name=name,
                number=number,
                type=kinds.TYPE_MESSAGE,
                label=kinds.LABEL_OPTIONAL,
                type_name=".google.protobuf.Timestamp",
            )
        elif name == "many":
            made.field.add(name=name, number=number, type=kinds.TYPE_INT64, label=kinds.LABEL_REPEATED)
        else:
            made.oneof_decl.add(name=f"_{name}")
            made.field.add(
                name=name,
                number=number,
                type=getattr(kinds, f"TYPE_{kind}"),
                label=kinds.LABEL_OPTIONAL,
                proto3_optional=True,
                oneof_index=len(made.oneof_decl) - 1,
            )
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return descriptor_pb2.FileDescriptorSet(file=[imported, file]).SerializeToString()


def test_a_users_own_message(make_topic: Any, tmp_path: Path) -> None:
    """Protobuf without a registry: the sink and the source use the same descriptor."""
    topic = make_topic(2)
    place = tmp_path / "row.desc"
    place.write_bytes(described())
    clause = f"FORMAT PLAIN ENCODE PROTOBUF (message = 'Row', schema.location = '{place}')"
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        one.sql("CREATE TABLE t (k BIGINT, s VARCHAR, at TIMESTAMP, many BIGINT[]) APPEND ONLY")
        one.sql(f"CREATE SINK out FROM t {with_(topic)} {clause}")
        one.sql("INSERT INTO t VALUES (1, 'a', '2026-01-02 03:04:05', [1, 2]), (2, NULL, NULL, [])")
        one.sql("INSERT INTO t VALUES (3, 'b', NULL, [NULL])")
        one.drain()
        other.sql(
            f"CREATE SOURCE s (k BIGINT, s VARCHAR, at TIMESTAMP, many BIGINT[]) {with_(topic)} {clause}"
        )
        other.sql("CREATE MATERIALIZED VIEW copy AS SELECT * FROM s")
        expected = [r for r in rows(one, "t") if not r.startswith("(3")]
        assert read(other, until=expected) == expected
        (error,) = one.errors().to_pylist()
        assert error["step"] == "out" and '"k": 3' in error["row"]
