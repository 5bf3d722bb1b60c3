"""The changes of a table from the messages of a topic: upserts by key, or events of Debezium.

Law: messages of one key are in one partition and apply in the order of their offsets.  Connectors deliver at
least once: a change that comes again changes nothing.

*Upsert*: a message puts the row of its key; one without a value deletes it.  The primary key is in the
message, or is the key of the message as it is.  *Debezium*: events with the row
before and after; a message without a value (a tombstone, for compaction) says nothing new and is passed over.
A truncation removes all rows before it; it is applied if the topic has one partition, because only the
changes of one partition have an order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa

from millpond.errors import InvalidError
from millpond.operators.replicated_table import LOG_FIELDS, PUT, SEQUENCE
from millpond.operators.source_traits import PartitionLag
from millpond.sources import avro_messages, kafka_metadata, schema_registry
from millpond.sources.file_format import bad_rows
from millpond.sources.kafka import KafkaSource
from millpond.sources.kafka_reader import reader
from millpond.sources.message_values import (
    NO_FORM,
    Decimals,
    Form,
    Reader,
    Times,
    Unnamed,
    avro_forms,
    is_unavailable,
    json_forms,
    read_json,
    reader_of,
)
from millpond.sources.python_values import table_of
from millpond.sources.source import Advance, Poll, Split
from millpond.state.tables.table_spec import TableSpec

Row = dict[str, Any]
Logged = tuple[bool | None, Row]  # put, deleted, or (None) all rows are gone
Forms = Mapping[str, Form]
_NO_ORDER = (
    "a truncation has no order among the changes of other partitions: the topic must have one partition"
)
_OLD_TABLE = "this table was defined before truncations were applied: define it again"
_UNAVAILABLE = object()  # of a large value that the update did not touch


class BadMessageError(Exception):
    """Why a message says nothing that can be applied."""


@dataclass(frozen=True)
class _Decoded:
    """A value of a message, and the schema that describes it."""

    value: Any
    schema: Any = None  # of JSON: beside the value; of Avro: its text

    def forms(self, inside: str = "") -> Forms:
        if isinstance(self.schema, str):
            return avro_forms(self.schema, inside)
        return json_forms(self.schema, inside)


@dataclass(frozen=True)
class KafkaChanges:
    """Changes of a table with a primary key: the columns of `source` and the fields of a log."""

    source: KafkaSource
    key: tuple[str, ...]
    form: Literal["upsert", "debezium"]
    decimals: Decimals = ""  # how they are written in messages without a schema
    times: Times = "adaptive"
    truncates: bool = False  # a row without `PUT` says that all rows before it are gone

    append_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.source.format not in ("json", "avro"):
            raise InvalidError(
                f"changes are read from JSON or Avro, not from {self.source.format!r}",
                hint=f"FORMAT {self.form.upper()} ENCODE JSON, or AVRO",
            )
        about = self.source._about
        for name in self.key:
            if name not in about or self._key_is_of_the_message:
                continue
            raise InvalidError(
                f"column {name!r} with the {about[name]} of messages cannot be in the primary key",
                hint="FORMAT UPSERT can have the key of messages as its whole primary key",
            )

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
        poll = self.source.poll(position, seen, max_rows)
        partitions = set() if position is None else {*position["partitions"]}
        for split in poll.splits:
            partitions |= split.what.get("begin", {}).keys()
        if not self.truncates or len(partitions) > 1:
            return poll
        return replace(poll, splits=tuple(replace(s, what={**s.what, "only": True}) for s in poll.splits))

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
                for table in self._tables(messages, split.what.get("only", False)):
                    yield table if "_error" in table.column_names else table.select(list(columns))

    def _tables(self, messages: Sequence[Any], only: bool = False) -> Iterator[pa.Table]:
        """The changes of messages; `only` says that the topic has no other partitions."""
        values, bad = self._values(messages)
        bad |= kafka_metadata.misfits(messages, self.source.schema, self.source._about)
        rows: list[Row] = []
        offsets: list[int] = []
        kept_lists: list[list[int] | None] = []
        for number, message in enumerate(messages):
            if number in bad:
                continue
            try:
                found = list(self._changes(values[number], message))
                if not only and any(put is None for put, _ in found):
                    raise BadMessageError(_NO_ORDER)
            except BadMessageError as error:
                bad[number] = str(error)
                continue
            for second, (put, row) in enumerate(found):
                kept = [n for n, f in enumerate(self.source.schema) if row.get(f.name) is _UNAVAILABLE]
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
            come_from = [messages[offsets[n]] for n in chosen]
            for name, column in kafka_metadata.columns_of(come_from, self.source.schema, self.source._about):
                place = table.column_names.index(name)
                table = table.set_column(place, self.source.schema.field(place), column)
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

    def _values(self, messages: Sequence[Any]) -> tuple[dict[int, _Decoded], dict[int, str]]:
        """The values of messages as Python values (None: no value), and why others are bad."""
        found: dict[int, _Decoded] = {}
        bad: dict[int, str] = {}
        for number, message in enumerate(messages):
            value = message.value()
            try:
                found[number] = _Decoded(None) if value is None else self._decoded(value)
            except BadMessageError as error:
                bad[number] = str(error)
        return found, bad

    def _decoded(self, data: bytes) -> _Decoded:
        if self.source.format == "json":
            try:
                return self._unwrapped(read_json(data))
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
        return _Decoded(rows[0], text)

    def _unwrapped(self, value: Any) -> _Decoded:
        """The value, without the schema that Kafka Connect can write beside it."""
        names = {"schema", "payload"}
        if not isinstance(value, dict):
            return _Decoded(value)
        if self.form == "debezium" and "op" not in value and "payload" in value:
            return _Decoded(value["payload"], value.get("schema"))
        if value.keys() == names and not names & set(self.source.schema.names):
            return _Decoded(value["payload"], value["schema"])
        return _Decoded(value)

    def _key_of(self, message: Any) -> tuple[Row, Forms]:
        """The key columns from the key of a message: an object, or the value of the only key column."""
        data = message.key()
        if data is None:
            return {}, {}
        if self.source.format == "avro" and data[:1] == b"\0":
            found = self._decoded(data)
        else:
            found = self._plain_key(data)
        row, forms = found.value, found.forms()
        if not isinstance(row, dict):
            row = {self.key[0]: row} if len(self.key) == 1 else {}
        return {k: row[k] for k in self.key if k in row}, forms

    def _plain_key(self, data: bytes) -> _Decoded:
        """JSON, or text as it is."""
        try:
            found = self._unwrapped(read_json(data))
        except (ValueError, RecursionError):
            found = _Decoded(None)
        is_text = len(self.key) == 1 and pa.types.is_string(self.source.schema.field(self.key[0]).type)
        if isinstance(found.value, dict) or (found.value is not None and not is_text):
            return found
        if isinstance(found.value, str):
            return found
        try:
            return _Decoded(data.decode())
        except UnicodeDecodeError as error:
            raise BadMessageError(f"the key is neither JSON nor text: {error}") from error

    def _changes(self, found: _Decoded, message: Any) -> Iterator[Logged]:
        if self.form == "upsert":
            yield from self._upsert(found, message)
        elif found.value is not None:
            yield from self._event(found, message)

    def _upsert(self, found: _Decoded, message: Any) -> Iterator[Logged]:
        value = found.value
        if self._key_is_of_the_message:
            if message.key() is None:
                raise BadMessageError("the message has no key")
            if value is None:
                yield False, {}
            elif isinstance(value, dict):
                yield True, self._typed(value, found.forms())
            else:
                raise BadMessageError("not an object")
            return
        key, forms = self._key_of(message)
        if value is None:
            if len(key) < len(self.key):
                raise BadMessageError(f"a deletion needs the key ({', '.join(self.key)}) as a JSON object")
            yield False, self._keyed(self._typed(key, forms))
            return
        if not isinstance(value, dict):
            raise BadMessageError("not an object")
        forms = {**forms, **{name: form for name, form in found.forms().items() if name in value}}
        yield True, self._keyed(self._typed({**key, **value}, forms))

    def _event(self, found: _Decoded, message: Any) -> Iterator[Logged]:
        event = found.value
        if not isinstance(event, dict):
            raise BadMessageError("not an event of Debezium: not an object")
        op, before, after = event.get("op"), event.get("before"), event.get("after")
        if op in ("c", "r", "u"):
            if not isinstance(after, dict):
                raise BadMessageError(f"an event with op {op!r} has no row after it")
            forms = found.forms("after")
            row = self._keyed(self._typed(after, forms))
            if isinstance(before, dict) and all(before.get(k) is not None for k in self.key):
                old = self._typed({k: before[k] for k in self.key}, forms)
                if any(old[k] != row[k] for k in self.key):
                    yield False, old
            yield True, row
        elif op == "d":
            given, forms = before if isinstance(before, dict) else {}, found.forms("after")
            if any(given.get(k) is None for k in self.key):
                given, forms = self._key_of(message)
            yield False, self._keyed(self._typed({k: given.get(k) for k in self.key}, forms))
        elif op == "t":
            if not self.truncates:
                raise BadMessageError(_OLD_TABLE)
            yield None, {}
        elif op == "m":
            return  # a message of the log, not a change
        else:
            raise BadMessageError(f"an event with op {op!r} cannot be applied")

    def _keyed(self, row: Row) -> Row:
        if missing := [k for k in self.key if row.get(k) is None]:
            raise BadMessageError(f"key column {missing[0]!r} has no value")
        return row

    def _typed(self, row: Mapping[str, Any], forms: Forms) -> Row:
        """The declared columns of a row, as values of their types."""
        unnamed = self._unnamed
        found: Row = {}
        for name, read in self._readers:
            value = row.get(name)
            if value is None:
                found[name] = None
                continue
            if is_unavailable(value):
                found[name] = _UNAVAILABLE
                continue
            try:
                found[name] = read(value, forms.get(name, NO_FORM), unnamed)
            except (ValueError, TypeError, ArithmeticError, KeyError) as error:
                why = f": {error}" if isinstance(error, ValueError | TypeError) else ""
                kind = self.source.schema.field(name).type
                raise BadMessageError(f"column {name!r}: {value!r} is not {kind}{why}") from error
        return found

    @cached_property
    def _unnamed(self) -> Unnamed:
        # Debezium writes decimals as bytes if it is not told otherwise; others write texts that are numbers.
        return Unnamed(self.decimals or ("string" if self.form == "upsert" else ""), self.times)

    @cached_property
    def _key_is_of_the_message(self) -> bool:
        """Is the primary key the key of the message, whatever it is?"""
        fields = [self.source._about.get(name) for name in self.key]
        return self.form == "upsert" and fields == ["key"]

    @cached_property
    def _readers(self) -> list[tuple[str, Reader]]:
        """How the values of columns are read that are in the messages."""
        about = self.source._about
        return [(f.name, reader_of(f.type)) for f in self.source.schema if f.name not in about]
