"""Turns a delivery into messages: keys, values, identities and partitions.

Law 3: the messages of a delivery depend only on the delivery, the encoding and the limit of the topic.
Messages with the same key are in one partition, in the order of the changes; changes of a view without a key
are placed by their rows, so a row and its retraction are in one partition, too.

A row that is too large or cannot be encoded is refused.  The target then has no row in its place: in mode
`upsert` a tombstone, in a changelog the retraction of the old row.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from millpond.identity import canonical, one_chunk
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION
from millpond.sinks.delivery import Delivery, RefusedRow, row_text
from millpond.sinks.kafka_producer import Message
from millpond.sinks.murmur2 import partitions_of
from millpond.sinks.row_changes import AFTER, BEFORE, DELETE, INSERT
from millpond.sinks.row_encoding import ChangeId, RowEncoding, Shape, Unencodable

CHUNK = 10_000  # rows that are encoded at once
RESERVE = 512  # bytes of a message besides its key and its rows: header, identity, names of the envelope
ROW_TEXT_MAX = 2_000  # characters of a refused row that are kept
TOMBSTONE = ":tombstone"  # behind the identity of a deletion

T = TypeVar("T")
KeyEncoder = Callable[[pa.Table], list[bytes | None]]


@dataclass(frozen=True)
class MessageMaker:
    shape: Shape
    rows: RowEncoding
    key: KeyEncoder | None  # None: messages without a key
    bytes_max: int  # of a message
    partitions: int  # by which messages are spread
    needs_key: bool  # does the topic refuse messages without a key?

    def messages(self, delivery: Delivery, refused: list[RefusedRow]) -> Iterator[list[Message]]:
        """The messages in order; rows that are refused are added to the list."""
        identities = delivery.identities()
        before: _Change | None = None  # the first half of an update
        for start in range(0, delivery.rows.num_rows, CHUNK):
            some = delivery.rows.slice(start, CHUNK)
            ids = list(itertools.islice(identities, some.num_rows))
            if delivery.binding.mode == "append":
                yield self._appended(some, ids, refused, start)
            elif delivery.binding.mode == "upsert":
                yield self._upserts(some, ids, refused)
            else:
                changes = self._changes(delivery, some, ids)
                if self.shape == "logged":
                    yield self._logged(changes, refused)
                else:
                    made, before = self._events(changes, before, refused)
                    yield made

    # -- modes ----------------------------------------------------------------

    def _appended(
        self, rows: pa.Table, ids: Sequence[str], refused: list[RefusedRow], start: int
    ) -> list[Message]:
        made: list[Message] = []
        keys, bodies = self._encoded(rows)
        partitions = self._partitions(keys)
        room = self.bytes_max - RESERVE
        for place, (key, body, identity) in enumerate(zip(keys, bodies, ids, strict=True)):
            lacks_key = key is None and self.needs_key
            if isinstance(body, bytes) and len(body) + len(key or b"") <= room and not lacks_key:
                partition = (start + place) % self.partitions if key is None else partitions[place]
                made.append((key, self.rows.row(body), identity, partition))
            else:
                refused.append(self._refused(rows, place, key, body))
        return made

    def _upserts(self, rows: pa.Table, ids: Sequence[str], refused: list[RefusedRow]) -> list[Message]:
        made: list[Message] = []
        keys, bodies = self._encoded(rows)
        partitions = self._partitions(keys)
        room = self.bytes_max - RESERVE
        operations = rows.column(OPERATION).to_pylist()
        for place, (key, body, identity) in enumerate(zip(keys, bodies, ids, strict=True)):
            fits = key is not None and isinstance(body, bytes) and len(body) + len(key) <= room
            if operations[place] != DELETE and not fits:
                refused.append(self._refused(rows, place, key, body))
            if key is None or len(key) > room:
                continue  # the target never had a row of this key
            is_put = fits and operations[place] != DELETE and isinstance(body, bytes)
            value = self.rows.row(body) if is_put and isinstance(body, bytes) else None
            made.append((key, value, identity, partitions[place]))
        return made

    def _logged(self, changes: Sequence[_Change], refused: list[RefusedRow]) -> list[Message]:
        made: list[Message] = []
        for one in changes:
            if self._fits(one):
                value = self.rows.logged(one.body_bytes, one.operation, one.id)
                made.append((one.key, value, one.identity, one.partition))
            else:
                refused.append(self._refused(one.rows, one.place, one.key, one.body))
        return made

    def _events(
        self, changes: Sequence[_Change], before: _Change | None, refused: list[RefusedRow]
    ) -> tuple[list[Message], _Change | None]:
        """The events of Debezium, and an update whose second row is not there yet."""
        made: list[Message] = []
        for one in changes:
            if one.operation == BEFORE:
                before = one
                continue
            if one.operation == AFTER:
                assert before is not None
                self._update(before, one, made, refused)
                before = None
            elif one.operation == INSERT:
                self._create(one, made, refused)
            else:
                self._delete(one, made, refused)
        return made, before

    def _update(self, old: _Change, new: _Change, made: list[Message], refused: list[RefusedRow]) -> None:
        together = len(old.body_bytes) + len(new.body_bytes) + len(new.key or b"") + RESERVE
        if self._fits(old) and self._fits(new) and together <= self.bytes_max:
            value = self.rows.event(old.body_bytes, new.body_bytes, "u", new.id)
            made.append((new.key, value, new.identity, new.partition))
            return
        self._delete(old, made, refused)
        self._create(new, made, refused)

    def _create(self, new: _Change, made: list[Message], refused: list[RefusedRow]) -> None:
        if not self._fits(new):
            refused.append(self._refused(new.rows, new.place, new.key, new.body))
            return
        value = self.rows.event(None, new.body_bytes, "c", new.id)
        made.append((new.key, value, new.identity, new.partition))

    def _delete(self, old: _Change, made: list[Message], refused: list[RefusedRow]) -> None:
        fits = self._fits(old)
        if not fits and (old.key is None or len(old.key) + RESERVE > self.bytes_max):
            refused.append(self._refused(old.rows, old.place, old.key, old.body))
            return
        # The key is enough to delete a row that is too large; the target has it if its limit was larger then.
        value = self.rows.event(old.body_bytes if fits else None, None, "d", old.id)
        made.append((old.key, value, old.identity, old.partition))
        if old.key is not None:  # for compaction
            made.append((old.key, None, old.identity + TOMBSTONE, old.partition))

    def _fits(self, one: _Change) -> bool:
        lacks_key = one.key is None and self.needs_key
        size = len(one.body_bytes) + len(one.key or b"") + RESERVE
        return isinstance(one.body, bytes) and not lacks_key and size <= self.bytes_max

    # -- parts ----------------------------------------------------------------

    def _changes(self, delivery: Delivery, rows: pa.Table, ids: Sequence[str]) -> list[_Change]:
        keys, bodies = self._encoded(rows)
        partitions = self._partitions(keys) if self.key is not None else self._by_row(rows, bodies)
        columns = [rows.column(name).to_pylist() for name in (OPERATION, EPOCH, NUMBER)]
        found = []
        for place, (operation, epoch, number) in enumerate(zip(*columns, strict=True)):
            key, body = keys[place], bodies[place]
            change = ChangeId(delivery.binding.pond, delivery.binding.sink, epoch, number)
            found.append(_Change(rows, place, operation, key, body, ids[place], partitions[place], change))
        return found

    def _encoded(self, rows: pa.Table) -> tuple[list[bytes | None], list[bytes | Unencodable]]:
        """The keys and the bodies of rows; a value that Python does not have makes its row unencodable."""
        keys = _tried(rows, self._keys, lambda error: None)
        return keys, _tried(rows, self.rows.encoded, lambda error: Unencodable(_first_line(error)))

    def _keys(self, rows: pa.Table) -> list[bytes | None]:
        return [None] * rows.num_rows if self.key is None else self.key(rows)

    def _partitions(self, keys: Sequence[bytes | None]) -> list[int]:
        return partitions_of([key or b"" for key in keys], self.partitions)

    def _by_row(self, rows: pa.Table, bodies: list[bytes | Unencodable]) -> list[int]:
        """The partitions of messages without a key; equal rows are in one."""
        names = [name for name in rows.column_names if name not in (OPERATION, EPOCH, NUMBER)]
        columns = [one_chunk(rows.column(name)) for name in names]
        clean = [canonical(column) for column in columns]
        if any(new is not old for new, old in zip(clean, columns, strict=True)):
            bodies = self._encoded(pa.table(clean, names=names))[1]
        return [zlib.crc32(b) % self.partitions if isinstance(b, bytes) else 0 for b in bodies]

    def _refused(
        self, rows: pa.Table, place: int, key: bytes | None, body: bytes | Unencodable
    ) -> RefusedRow:
        text = _shown(rows.slice(place, 1))
        if len(text) > ROW_TEXT_MAX:
            text = text[:ROW_TEXT_MAX] + "…"
        if isinstance(body, Unencodable):
            return RefusedRow(text, body.reason)
        if self.key is not None and key is None:
            return RefusedRow(text, "its key is NULL, and the message needs one")
        size = len(body) + len(key or b"")
        limit = f"the topic takes messages of {self.bytes_max} bytes"
        return RefusedRow(text, f"it is too large: {size} bytes, and {limit}")


class _Change(NamedTuple):
    """A row of a changelog."""

    rows: pa.Table
    place: int
    operation: str
    key: bytes | None
    body: bytes | Unencodable
    identity: str
    partition: int
    id: ChangeId

    @property
    def body_bytes(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else b""


def _tried(rows: pa.Table, encode: Callable[[pa.Table], list[T]], wrong: Callable[[Exception], T]) -> list[T]:
    """Encode all rows at once; if that fails, smaller and smaller parts of them."""
    try:
        return encode(rows)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        if rows.num_rows == 1:
            return [wrong(error)]
    half = rows.num_rows // 2
    return [*_tried(rows.slice(0, half), encode, wrong), *_tried(rows.slice(half), encode, wrong)]


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _shown(row: pa.Table) -> str:
    """A row as text; values that Python does not have as Arrow shows them."""
    found: dict[str, Any] = {}
    for name in row.column_names:
        try:
            found[name] = row.column(name).to_pylist()[0]
        except (ValueError, ArithmeticError, pa.ArrowException):
            found[name] = row.column(name).cast(pa.string()).to_pylist()[0]
    return row_text(found)


def key_columns(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns of keys; equal keys have equal bytes, since there is one zero and one NaN."""
    return pa.table({name: canonical(one_chunk(rows.column(name))) for name in names})
