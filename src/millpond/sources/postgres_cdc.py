"""Change data capture from PostgreSQL: tables as of a moment, then every change, by logical replication.

The source is a log of the changes of some tables, which the steps of each table read (`DecodeChanges`).
Law: positions are LSNs behind commits, so a transaction is in one epoch, whichever of the tables it changes.
Changes are *peeked* from the replication slot, and the slot advances to a position only after the epoch that
has it was committed: a process that dies reads the same changes again.  The position after the first copy is
where the slot began (`postgres_copy`).

The driver reads the changes once, and they travel with their splits: a slot serves one reader at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from millpond.errors import DataError, InvalidError, MillpondError
from millpond.operators.decode_changes import CHANGE_LOG, DELETE_OP, PUT_OP, TRUNCATE_OP
from millpond.operators.source_traits import RestoresSplits
from millpond.sources import pgoutput, postgres_connection, postgres_copy, postgres_publication
from millpond.sources.pgoutput import UNCHANGED, Row
from millpond.sources.pgoutput_columns import BYTES_MAX, LoggedMessages, LoggedTable, decoded
from millpond.sources.postgres_copy import lsn_number, lsn_text
from millpond.sources.postgres_schema import PostgresTable, identifier, places_of
from millpond.sources.source import Advance, Poll, Split
from millpond.sources.unavailable import away
from millpond.state.tables.table_spec import TableSpec

IDLE_BYTES = (
    16 << 20
)  # bytes of the log without changes of our tables, after which the slot advances nevertheless
_PIECE_ROWS = 50_000
_NUMBERS = 2  # sequence numbers for each change: an update of a key is a deletion and an insertion

_peeked: dict[tuple[str, str], tuple[Split, ...]] = {}  # the splits of the last peek, by connection and slot

_SLOT = """
SELECT confirmed_flush_lsn::text, coalesce(wal_status, 'reserved'), active,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text
FROM pg_replication_slots WHERE slot_name = %s
"""
_PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(
    %s, NULL, %s, 'proto_version', '1', 'publication_names', %s)
"""


@dataclass(frozen=True)
class PostgresSource(RestoresSplits):
    """The changes of some tables, as rows of `operators.decode_changes.CHANGE_LOG`.

    `connection` is an address such as ``postgresql://user:${env:PASSWORD}@host/database``.  `slot` belongs to
    this source alone.  `if_lost` says what happens if the server no longer has changes that were not read:
    ``"stop"``, or ``"copy"`` the tables again.
    """

    connection: str = field(repr=False)  # may contain a password
    tables: tuple[PostgresTable, ...]
    slot: str
    publication: str
    if_lost: Literal["stop", "copy"] = "stop"

    append_only: ClassVar[bool] = True
    schema: ClassVar[pa.Schema] = CHANGE_LOG

    def table(self, step: str) -> TableSpec | None:
        return None

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        psycopg = postgres_connection.library()
        try:
            if position is None or position["lsn"] is None:
                return self._poll_copy(position, max_rows)
            return self._poll_changes(position, max_rows)
        except psycopg.Error as error:
            postgres_connection.forget(self.connection)
            raise self._refused(error) from None

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        found = position
        for split in admitted:
            if split.what.get("to") is not None:  # it ends a transaction, or is a part of the first copy
                found = split.what["to"]
        return Advance(found)

    def again(self, what: Mapping[str, Any]) -> Split:
        raise InvalidError(
            "the changes of this epoch are no longer on the server",
            detail=f"slot {self.slot!r} has advanced since they were committed",
            hint="what they changed is in the tables: epochs after them can be read",
        )

    def _poll_copy(self, position: Any, max_rows: int) -> Poll:
        """The next rows of the first copy; one that another process began is begun anew."""
        done: Mapping[str, Any] = {"rows": 0, "seq": 0, "copy": None} if position is None else position
        copy = postgres_copy.current(self.connection, self.slot)
        pieces = None
        if copy is not None and (done["copy"] == copy.id or (done["rows"] == 0 and done["copy"] is None)):
            pieces = copy.after(done["rows"], max_rows)
        splits: list[Split] = []
        sequence = int(done["seq"])
        if copy is None or pieces is None:
            copy = postgres_copy.begin(self.connection, self.slot, self.publication, self.tables)
            pieces = copy.after(0, max_rows)
            assert pieces is not None
            if position is not None:  # what an unfinished copy has brought goes first
                sequence += _NUMBERS
                to = {"lsn": None, "copy": copy.id, "rows": 0, "seq": sequence}
                splits.append(self._split(to, 1, {"truncate": True}, b"", with_next=True))
        for piece in pieces:
            first = sequence
            sequence += piece.rows * _NUMBERS
            to = {"lsn": None, "copy": copy.id, "rows": piece.last, "seq": sequence}
            splits.append(self._split(to, piece.rows, {"table": piece.table, "seq": first}, piece.data))
        if copy.finished:
            to = {"lsn": lsn_text(copy.lsn), "seq": sequence}
            splits.append(self._split(to, 0, {}, b""))
        return Poll(tuple(splits), backlog_rows=0 if copy.finished else max_rows)

    def _poll_changes(self, position: Mapping[str, Any], max_rows: int) -> Poll:
        postgres_copy.end(self.connection, self.slot)
        server = postgres_connection.shared(self.connection)
        reached = lsn_number(position["lsn"])
        found = server.execute(_SLOT, [self.slot]).fetchone()
        if found is None or found[1] == "lost" or lsn_number(found[0]) > reached:
            return self._lost(position, found, max_rows)
        confirmed, flushed = lsn_number(found[0]), lsn_number(found[3])
        if confirmed < reached <= flushed:
            server.execute("SELECT pg_replication_slot_advance(%s, %s)", [self.slot, lsn_text(reached)])
        if flushed <= reached:
            _peeked.pop((self.connection, self.slot), None)
            return Poll(backlog_rows=0)
        left = self._left(position)
        if sum(split.rows for split in left) >= max(1, max_rows // 4):
            return Poll(left, backlog_rows=max_rows)
        cursor = server.cursor(binary=True)
        names = identifier(self.publication)
        messages = [row[0] for row in cursor.execute(_PEEK, [self.slot, max(1, max_rows), names]).fetchall()]
        splits, changes = self._transactions(messages, reached, int(position["seq"]), max_rows)
        wrong = postgres_publication.changed(server, self.publication, self.tables)
        if wrong is not None:
            raise wrong
        _peeked[self.connection, self.slot] = tuple(splits)
        if not splits and flushed - reached > IDLE_BYTES:
            splits = [self._split({"lsn": lsn_text(flushed), "seq": position["seq"]}, 0, {}, b"")]
        return Poll(tuple(splits), backlog_rows=max_rows if changes >= max_rows else 0)

    def _left(self, position: Mapping[str, Any]) -> tuple[Split, ...]:
        """What the last peek gave after this position: an epoch may admit less than was offered."""
        found = _peeked.get((self.connection, self.slot), ())
        ends = [number for number, split in enumerate(found) if split.what["to"] == position]
        return found[ends[-1] + 1 :] if ends else ()

    def _transactions(
        self, messages: Sequence[bytes], reached: int, sequence: int, max_rows: int
    ) -> tuple[list[Split], int]:
        """Splits that end where transactions end, each with about a fourth of the rows of an epoch."""
        wanted = max(1, min(_PIECE_ROWS, max_rows // 4))
        mine = {table.relation: number for number, table in enumerate(self.tables)}
        relations: dict[
            int, tuple[int, list[int]]
        ] = {}  # by OID: our table, and the positions of its columns
        known: set[bytes] = set()  # their OIDs, as in messages
        splits: list[Split] = []
        waiting: list[bytes] = []  # of a transaction that has not ended yet, or of several
        first = sequence
        total = 0

        def flush(to: Mapping[str, Any] | None) -> None:
            nonlocal waiting, first
            header = {"seq": first, "relations": {str(oid): found for oid, found in relations.items()}}
            body = b"".join([np.array([*map(len, waiting)], np.uint32).tobytes(), *waiting])
            splits.append(self._split(to, len(waiting), header, body, with_next=to is None))
            waiting, first = [], sequence

        ended: dict[str, Any] | None = None  # the last position at which everything in `waiting` had ended
        for message in messages:
            kind = message[0]
            if kind in pgoutput.CHANGES:
                if kind == pgoutput.TRUNCATE:
                    is_mine = any(oid in relations for oid in pgoutput.truncated(message))
                else:
                    is_mine = message[1:5] in known
                if is_mine:
                    waiting.append(message)
                    sequence += _NUMBERS
                    total += 1
                    if len(waiting) >= _PIECE_ROWS:
                        flush(None)
            elif kind == pgoutput.RELATION:
                relation = pgoutput.relation(message)
                number = mine.get(f"{relation.schema}.{relation.name}")
                if number is None:
                    relations.pop(relation.oid, None)
                    known.discard(message[1:5])
                    continue
                places = places_of(relation, self.tables[number])
                if waiting and relations.get(relation.oid, (number, places)) != (number, places):
                    flush(None)  # earlier rows have the columns from before this message
                relations[relation.oid] = number, places
                known.add(message[1:5])
            elif kind == pgoutput.COMMIT:
                end = pgoutput.commit_end(message)
                if end <= reached:
                    raise DataError(
                        "the replication slot gave a transaction again",
                        detail=f"slot {self.slot!r}, {lsn_text(end)} is not behind {lsn_text(reached)}",
                    )
                ended = {"lsn": lsn_text(end), "seq": sequence}
                if len(waiting) >= wanted:
                    flush(ended)
                    ended = None
        # Transactions without changes of our tables are passed with the next one, or if there are too many.
        is_open = bool(splits) and splits[-1].what["to"] is None  # its last piece was full
        if ended is not None and (waiting or is_open or len(messages) >= max_rows):
            flush(ended)
        return splits, total

    def _lost(self, position: Mapping[str, Any], found: Any, max_rows: int) -> Poll:
        """The server no longer has what was not read: the tables are copied again, or the pond stops."""
        if self.if_lost == "copy":
            return self._poll_copy({"lsn": None, "copy": "lost", "rows": 0, "seq": position["seq"]}, max_rows)
        why = (
            "there is no such slot"
            if found is None
            else "the server has removed its log (max_slot_wal_keep_size)"
            if found[1] == "lost"
            else f"it was advanced to {found[0]} by someone else, or the pond was rolled back"
        )
        raise DataError(
            f"changes behind {position['lsn']} are lost: replication slot {self.slot!r} does not have them",
            detail=f"{why} ({postgres_connection.place_of(self.connection)})",
            hint="set if_lost = 'copy' to copy the tables again, or drop them here and create them again",
        )

    def _split(
        self, to: Any, rows: int, header: Mapping[str, Any], body: bytes, *, with_next: bool = False
    ) -> Split:
        data = json.dumps(header).encode() + b"\n" + body
        return Split({"to": to}, rows, len(body), data=data, with_next=with_next)

    def _refused(self, error: Exception) -> MillpondError:
        psycopg = postgres_connection.library()
        if isinstance(error, psycopg.errors.ObjectInUse):
            return away(
                "the replication slot is in use",
                f"slot {self.slot!r} is in use ({postgres_connection.place_of(self.connection)})",
                hint="another process reads it; each pond needs a slot of its own",
            )
        return postgres_connection.refused(self.connection, error)

    # -- in a task ------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        if split.data is None or not split.rows:
            return
        line, _, body = split.data.partition(b"\n")
        header = json.loads(line)
        log = _Log(self.tables)
        if "truncate" in header:
            for number in range(len(self.tables)):
                log.add(number, TRUNCATE_OP, int(split.what["to"]["seq"]) - 1, None, ())
            yield log.rows().select(list(columns))
        elif "table" in header:
            yield _copied(self.tables[header["table"]], header["seq"], body).select(list(columns))
        else:
            relations = {int(oid): (number, places) for oid, (number, places) in header["relations"].items()}
            yield self._logged(body, split.rows, int(header["seq"]), relations).select(list(columns))

    def _logged(
        self, body: bytes, count: int, first: int, relations: Mapping[int, tuple[int, list[int]]]
    ) -> pa.Table:
        """Rows of the log, in the order of their numbers; unusual messages are decoded one by one."""
        sizes = np.frombuffer(body, np.uint32, count)
        messages = LoggedMessages(body[sizes.nbytes :], sizes)
        sequences = first + _NUMBERS * np.arange(count, dtype=np.int64)
        found: list[pa.Table] = []
        left = np.arange(count)
        if len(messages.data) <= BYTES_MAX:
            tables = {oid: self._logged_table(*of) for oid, of in relations.items()}
            found, left = decoded(messages, sequences, tables)
        if len(left):
            log = _Log(self.tables)
            for number in left.tolist():
                data = messages.data[messages.starts[number] : messages.ends[number]]
                log.message(data, int(sequences[number]), relations)
            found = [*found, log.rows()]
        rows = pa.concat_tables(found or [CHANGE_LOG.empty_table()])
        return rows.sort_by("seq") if len(found) > 1 else rows

    def _logged_table(self, number: int, places: Sequence[int]) -> LoggedTable:
        table = self.tables[number]
        return LoggedTable(table.relation, places, [table.schema.names.index(k) for k in table.key])


class _Log:
    """Collects rows of the log of changes."""

    def __init__(self, tables: Sequence[PostgresTable]) -> None:
        self._names = [table.relation for table in tables]
        self._widths = [len(table.schema) for table in tables]
        self._keys = [[table.schema.names.index(k) for k in table.key] for table in tables]
        self._tables: list[int] = []
        self._ops: list[str] = []
        self._sequence: list[int] = []
        self._flat: list[Any] = []
        self._ends: list[int] = [0]
        self._unchanged: list[Sequence[int] | None] = []

    def message(
        self, message: bytes, sequence: int, relations: Mapping[int, tuple[int, Sequence[int]]]
    ) -> None:
        if message[0] == pgoutput.TRUNCATE:
            for oid in pgoutput.truncated(message):
                if oid in relations:
                    self.add(relations[oid][0], TRUNCATE_OP, sequence, None, ())
            return
        change = pgoutput.change(message)
        table, places = relations[change.relation]
        old, new = pgoutput.picked(change.old, places), pgoutput.picked(change.new, places)
        if new is None:
            self.add(table, DELETE_OP, sequence, old, ())
            return
        kept: list[int] = []
        if UNCHANGED in new:
            for number, value in enumerate(new):
                if value is UNCHANGED:
                    before = None if old is None or message[5] != 79 else old[number]  # O: all columns
                    if before is None or before is UNCHANGED:
                        new[number] = None
                        kept.append(number)
                    else:
                        new[number] = before
        if old is not None and any(old[k] != new[k] for k in self._keys[table]):
            self.add(table, DELETE_OP, sequence, old, ())
        self.add(table, PUT_OP, sequence + 1, new, kept)

    def add(self, table: int, op: str, sequence: int, row: Row | None, kept: Sequence[int]) -> None:
        self._tables.append(table)
        self._ops.append(op)
        self._sequence.append(sequence)
        if row is None:
            self._flat += [None] * self._widths[table]
        elif UNCHANGED in row:
            self._flat += [None if value is UNCHANGED else value for value in row]
        else:
            self._flat += row
        self._ends.append(len(self._flat))
        self._unchanged.append(kept or None)

    def rows(self) -> pa.Table:
        names = pa.array(self._names, pa.string()).take(pa.array(self._tables, pa.int32()))
        values = pa.array(self._flat, pa.binary()).cast(pa.string())
        lists = pa.ListArray.from_arrays(pa.array(self._ends, pa.int32()), values)
        kept = pa.array(self._unchanged, pa.list_(pa.int32()))
        ops, sequence = pa.array(self._ops, pa.string()), pa.array(self._sequence, pa.int64())
        return pa.table([names, ops, sequence, lists, kept], schema=CHANGE_LOG)


def _copied(table: PostgresTable, sequence: int, data: bytes) -> pa.Table:
    """Rows of the first copy as rows of the log."""
    names = [str(n) for n in range(len(table.schema))]
    found = arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    count, wide = found.num_rows, len(names)
    by_column = pa.concat_arrays([column.combine_chunks() for column in found.columns])
    order = (np.arange(wide)[None, :] * count + np.arange(count)[:, None]).ravel()
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * wide)
    lists = pa.ListArray.from_arrays(ends, by_column.take(pa.array(order)))
    numbers = sequence + 1 + _NUMBERS * np.arange(count, dtype=np.int64)
    columns = [
        pa.array([table.relation] * count, pa.string()),
        pa.array([PUT_OP] * count, pa.string()),
        pa.array(numbers),
        lists,
        pa.nulls(count, pa.list_(pa.int32())),
    ]
    return pa.table(columns, schema=CHANGE_LOG)
