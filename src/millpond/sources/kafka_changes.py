"""The changes of a table from the messages of a topic: upserts by key, or events of Debezium.

Law: messages of one key are in one partition and apply in the order of their offsets.  Connectors deliver at
least once: a change that comes again changes nothing.

*Upsert*: a message puts the row of its key; one without a value deletes it.  *Debezium*: events with the row
before and after; a message without a value (a tombstone, for compaction) says nothing new and is passed over.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.replicated_table import LOG_FIELDS, PUT, SEQUENCE
from millpond.operators.source_traits import PartitionLag
from millpond.sources import avro_messages, schema_registry
from millpond.sources.file_format import bad_rows
from millpond.sources.kafka import METADATA, KafkaSource
from millpond.sources.kafka_reader import reader
from millpond.sources.python_values import table_of
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

UNAVAILABLE = "__debezium_unavailable_value"  # of a large value that the update did not touch
_EPOCH = datetime.date(1970, 1, 1)
Row = dict[str, Any]


class BadMessageError(Exception):
    """Why a message says nothing that can be applied."""


@dataclass(frozen=True)
class KafkaChanges:
    """Changes of a table with a primary key: the columns of `source` and the fields of a log."""

    source: KafkaSource
    key: tuple[str, ...]
    form: Literal["upsert", "debezium"]

    append_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.source.format not in ("json", "avro"):
            raise InvalidError(
                f"changes are read from JSON or Avro, not from {self.source.format!r}",
                hint=f"FORMAT {self.form.upper()} ENCODE JSON, or AVRO",
            )
        if taken := [f.name for f in self.source.schema if f.name in METADATA]:
            raise InvalidError(f"column {taken[0]!r} belongs to a message, and a row comes from several")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.source.schema, *LOG_FIELDS])

    def table(self, step: str) -> TableSpec | None:
        return None

    def check(self) -> None:
        self.source.check()

    def lag(self, position: Any) -> list[PartitionLag]:
        return self.source.lag(position)

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        return self.source.poll(position, seen, max_rows)

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        return self.source.advance(position, admitted, rejects)

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        if "begin" in split.what:
            return
        p, first, last = (split.what[name] for name in ("partition", "first", "last"))
        topic = self.source.topic
        with reader(self.source.cluster, (topic, p, first)) as one:
            for messages in one.messages(topic, p, first, last):
                for table in self._tables(messages):
                    yield table if "_error" in table.column_names else table.select(list(columns))

    def _tables(self, messages: Sequence[Any]) -> Iterator[pa.Table]:
        values, bad = self._values(messages)
        rows: list[Row] = []
        offsets: list[int] = []
        kept_lists: list[list[int] | None] = []
        for number, message in enumerate(messages):
            if number in bad:
                continue
            try:
                found = list(self._changes(values[number], message))
            except BadMessageError as error:
                bad[number] = str(error)
                continue
            for second, (put, row) in enumerate(found):
                kept = [n for n, f in enumerate(self.source.schema) if row.get(f.name) == UNAVAILABLE]
                for place in kept:
                    row[self.source.schema.field(place).name] = None
                rows.append({**row, SEQUENCE: message.offset() * 2 + second, PUT: put})
                offsets.append(number)
                kept_lists.append(kept or None)
        table, good, wrong = table_of(rows, self.source.schema)
        for row_number, reason in wrong:
            bad[offsets[row_number]] = reason
        if good:
            # A message with a bad row is bad as a whole: no half of it is applied.
            chosen = [n for n in good if offsets[n] not in bad]
            if len(chosen) < len(good):
                table = table.take(pa.array([good.index(n) for n in chosen], pa.int64()))
            log = [
                pa.array([rows[n][SEQUENCE] for n in chosen], pa.int64()),
                pa.array([rows[n][PUT] for n in chosen], pa.bool_()),
                pa.array([kept_lists[n] for n in chosen], LOG_FIELDS[2].type),
            ]
            yield pa.table([*table.columns, *log], schema=self.schema)
        if bad:
            numbers = sorted(bad)
            texts = [(messages[n].value() or b"").decode("utf-8", "backslashreplace") for n in numbers]
            yield bad_rows(texts, [f"{self.source.place(messages[n])}: {bad[n]}" for n in numbers])

    # -- values -----------------------------------------------------------------

    def _values(self, messages: Sequence[Any]) -> tuple[dict[int, Any], dict[int, str]]:
        """The values of messages as Python dicts (None: no value), and why others are bad."""
        found: dict[int, Any] = {}
        bad: dict[int, str] = {}
        for number, message in enumerate(messages):
            value = message.value()
            if value is None:
                found[number] = None
                continue
            try:
                found[number] = self._decoded(value)
            except BadMessageError as error:
                bad[number] = str(error)
        return found, bad

    def _decoded(self, data: bytes) -> Any:
        if self.source.format == "json":
            try:
                return json.loads(data)
            except (ValueError, RecursionError) as error:
                raise BadMessageError(f"not JSON: {error}") from error
        try:
            number, datum = schema_registry.split_message(data)
            text = schema_registry.schema_by_id(self.source.registry, number)
        except (ValueError, schema_registry.UnknownSchemaError) as error:
            raise BadMessageError(str(error)) from error
        rows, bad = avro_messages.read_each(text, [datum])
        if bad:
            raise BadMessageError(bad[0])
        return {**rows[0], "schema": {"avro": text}}

    def _key_of(self, message: Any) -> Row:
        """The key columns from the key of a message: an object, or the value of the only key column."""
        data = message.key()
        if data is None:
            return {}
        if self.source.format == "avro" and data[:1] == b"\0":
            found = self._decoded(data)
            found.pop("schema", None)
        else:
            try:
                found = json.loads(data)
            except (ValueError, RecursionError):
                found = data.decode("utf-8", "backslashreplace")
        if isinstance(found, dict) and isinstance(found.get("payload"), dict):
            found = found["payload"]
        if not isinstance(found, dict):
            found = {self.key[0]: found} if len(self.key) == 1 else {}
        return {k: found[k] for k in self.key if k in found}

    def _changes(self, value: Any, message: Any) -> Iterator[tuple[bool, Row]]:
        if self.form == "upsert":
            yield from self._upsert(value, message)
        elif value is not None:
            yield from self._event(value, message)

    def _upsert(self, value: Any, message: Any) -> Iterator[tuple[bool, Row]]:
        key = self._key_of(message)
        if value is None:
            if len(key) < len(self.key):
                raise BadMessageError(f"a deletion needs the key ({', '.join(self.key)}) as a JSON object")
            yield False, self._typed(key, {})
            return
        if not isinstance(value, dict):
            raise BadMessageError("not an object")
        yield True, self._keyed(self._typed({**key, **value}, _meanings(value, "")))

    def _event(self, value: Any, message: Any) -> Iterator[tuple[bool, Row]]:
        if not isinstance(value, dict):
            raise BadMessageError("not an event of Debezium: not an object")
        meanings = _meanings(value, "after")
        event = value["payload"] if isinstance(value.get("payload"), dict) and "op" not in value else value
        op, before, after = event.get("op"), event.get("before"), event.get("after")
        if op in ("c", "r", "u"):
            if not isinstance(after, dict):
                raise BadMessageError(f"an event with op {op!r} has no row after it")
            row = self._keyed(self._typed(after, meanings))
            if isinstance(before, dict) and all(before.get(k) is not None for k in self.key):
                old = self._typed({k: before[k] for k in self.key}, meanings)
                if any(old[k] != row[k] for k in self.key):
                    yield False, old
            yield True, row
        elif op == "d":
            given = before if isinstance(before, dict) else {}
            if any(given.get(k) is None for k in self.key):
                given = {**given, **self._key_of(message)}
            yield False, self._keyed(self._typed({k: given.get(k) for k in self.key}, meanings))
        elif op == "m":
            return  # a message of the log, not a change
        else:
            raise BadMessageError(f"an event with op {op!r} cannot be applied")

    def _keyed(self, row: Row) -> Row:
        if missing := [k for k in self.key if row.get(k) is None]:
            raise BadMessageError(f"key column {missing[0]!r} has no value")
        return row

    def _typed(self, row: Mapping[str, Any], meanings: Mapping[str, str]) -> Row:
        """The declared columns of a row, as values of their types."""
        found: Row = {}
        for field in self.source.schema:
            value = row.get(field.name)
            try:
                found[field.name] = _value(value, field.type, meanings.get(field.name, ""))
            except (ValueError, TypeError, ArithmeticError) as error:
                raise BadMessageError(f"column {field.name!r}: {value!r} is not {field.type}") from error
        return found


def _value(value: Any, kind: pa.DataType, meaning: str) -> Any:
    """A value of JSON or Avro as a value of a type; `meaning` is the name that Debezium gives to its form.

    >>> _value(1, pa.date32(), ""), _value("AN4=", pa.decimal128(10, 2), "")
    (datetime.date(1970, 1, 2), Decimal('2.22'))
    """
    if value is None or value == UNAVAILABLE:
        return value
    t = pa.types
    if t.is_date(kind) and isinstance(value, int):
        return _EPOCH + datetime.timedelta(days=value)
    if t.is_date(kind) and isinstance(value, str):
        return datetime.date.fromisoformat(value[:10])
    if t.is_timestamp(kind):
        return _instant(value, kind, meaning)
    if t.is_time(kind) and isinstance(value, int):
        micros = value * 1000 if meaning.endswith(".Time") else value
        return (datetime.datetime.min + datetime.timedelta(microseconds=micros)).time()
    if t.is_time(kind) and isinstance(value, str):
        return datetime.time.fromisoformat(value)
    if t.is_decimal(kind):
        return _decimal(value, kind)
    if t.is_floating(kind) and isinstance(value, int | str):
        return float(value)
    if t.is_binary(kind) and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if t.is_string(kind) and isinstance(value, dict | list):
        return json.dumps(value)
    return value


def _instant(value: Any, kind: pa.DataType, meaning: str) -> Any:
    if isinstance(value, str):
        found = datetime.datetime.fromisoformat(value)
    elif isinstance(value, datetime.datetime):
        found = value
    else:
        factor = 1000 if meaning.endswith(".Timestamp") else 1
        micros = int(value) * factor // (1000 if meaning.endswith("NanoTimestamp") else 1)
        found = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)
    if found.tzinfo is not None:
        found = found.astimezone(datetime.UTC)
    return found if kind.tz is not None and found.tzinfo is not None else found.replace(tzinfo=None)


def _decimal(value: Any, kind: pa.DataType) -> decimal.Decimal:
    if isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, int | float):
        return decimal.Decimal(str(value))
    if isinstance(value, str):
        try:
            return decimal.Decimal(value)
        except decimal.InvalidOperation:
            value = base64.b64decode(value, validate=True)
    return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale)


def _meanings(value: Mapping[str, Any], inside: str) -> dict[str, str]:
    """By column: the name that the schema in a message gives to the form of its values."""
    schema = value.get("schema")
    if not isinstance(schema, dict):
        return {}
    if "avro" in schema:
        return _avro_meanings(json.loads(schema["avro"]), inside)
    fields = schema.get("fields") or []
    if inside:
        fields = next((f.get("fields") or [] for f in fields if f.get("field") == inside), [])
    return {f["field"]: f.get("name") or "" for f in fields if "field" in f}


def _avro_meanings(schema: Any, inside: str) -> dict[str, str]:
    fields = schema.get("fields", [])
    if inside:
        # The row is described where it first stands: `before`.
        rows = [_record(f["type"]) for f in fields if f["name"] in ("before", inside)]
        fields = next((row["fields"] for row in rows if row), [])
    found = {}
    for field in fields:
        for kind in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            if isinstance(kind, dict) and "connect.name" in kind:
                found[field["name"]] = str(kind["connect.name"])
    return found


def _record(kind: Any) -> Any:
    kinds = kind if isinstance(kind, list) else [kind]
    return next((k for k in kinds if isinstance(k, dict) and k.get("type") == "record"), None)
