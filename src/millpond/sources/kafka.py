"""Reads a Kafka topic: every committed message becomes a row, once.

Law: a split is a range of offsets of one partition, and reading it again gives the same messages (laws 1
and 3).
The position has the first and the next offset of each partition and is committed with the epoch; consumer
groups and their offsets are not used.
The end of a partition is its last stable offset at the time of the poll.

A poll reads the same fraction of the backlog of every partition.
Partitions that were filled over the same time are so read at the same pace, and no partition makes the rows
of
others late.
Offsets that were deleted before they were read, and a topic that was deleted and created again, are errors;
nothing is skipped (law 9).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Literal

import pyarrow as pa

from millpond.arguments.schemas import schema_of
from millpond.errors import DataError, InternalError, InvalidError
from millpond.operators.source_traits import KeepsHistory, PartitionLag, ReportsLag
from millpond.plan.backfill import FROM_NOW
from millpond.secret_references import check_references
from millpond.sources import kafka_client, kafka_metadata, schema_fit
from millpond.sources.file_format import bad_rows
from millpond.sources.kafka_client import Client, Cluster, Topic
from millpond.sources.kafka_reader import reader
from millpond.sources.message_formats import FormatOptions, MessageFormat, message_format
from millpond.sources.source import Advance, Poll, Split
from millpond.sources.unavailable import away
from millpond.state.tables.table_spec import TableSpec

ROUNDS_PER_POLL = 4
_SPLITS_PER_POLL = 8  # the minimum, if there are enough rows: so that all tasks get work
_FEW_ROWS = 10_000  # a poll for more rows measures the size of messages
_ROW_BYTES = 1 << 10  # assumed until it is measured
ALL = -1  # in offsets to start from: every partition that is not named


@dataclass(frozen=True)
class UnreadOffsets:
    """What a topic has after a position."""

    begin: tuple[Split, ...]  # records where new partitions begin
    ranges: Mapping[int, tuple[int, int]]  # by partition: the offsets that are not read

    @property
    def rows(self) -> int:
        return sum(last - first for first, last in self.ranges.values())


@dataclass(frozen=True)
class KafkaSource(KeepsHistory, ReportsLag):
    """The messages of a topic as rows, each in JSON or another format with these columns.

    `start` says where a new pond begins: ``"earliest"``, ``"latest"``, a time such as
    ``"2026-05-01 12:00:00"`` (UTC), or offsets such as ``"offset:100"`` and ``"offset:0=100,1=250"``;
    partitions that are added later are read from their beginning.  Columns named `kafka_partition`,
    `kafka_offset`, `kafka_timestamp`, `kafka_key`, `kafka_headers` and `kafka_topic` have the metadata;
    `metadata` names other columns, as in ``{"sent_at": "timestamp", "trace": "header:trace"}``.
    `client` has further settings of librdkafka, as in ``{"security.protocol": "ssl"}``; they are stored with
    the pond, so secrets are references such as ``"${env:PASSWORD}"``.

    >>> KafkaSource("localhost:9092", "bids", {"auction": int, "price": int}).schema.names
    ['auction', 'price']
    """

    brokers: str  # host:port, several with commas
    topic: str
    schema: pa.Schema
    format: Literal["json", "csv", "bytes", "avro", "protobuf"] = "json"
    start: str = "earliest"
    client: Client = field(default=(), repr=False)  # or a mapping; may contain secrets
    registry: str = field(default="", repr=False)  # the address of a schema registry; may contain a password
    descriptor: bytes = field(default=b"", repr=False)  # of Protobuf: a FileDescriptorSet
    message: str = ""  # of Protobuf: the full name of the message
    delimiter: str = ","  # of CSV
    metadata: tuple[tuple[str, str], ...] = ()  # or a mapping: columns that are not in the messages
    _row_bytes: list[int] = field(
        default_factory=lambda: [_ROW_BYTES], compare=False, repr=False, metadata={"durable": False}
    )

    append_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("brokers", "topic"):
            if not getattr(self, name):
                raise InvalidError(f"a Kafka source needs its {name}")
        given: Any = self.client
        pairs = given.items() if isinstance(given, Mapping) else given
        object.__setattr__(self, "client", tuple(sorted((str(k), str(v)) for k, v in pairs)))
        given = self.metadata
        pairs = given.items() if isinstance(given, Mapping) else given
        object.__setattr__(self, "metadata", tuple((str(name), str(field)) for name, field in pairs))
        object.__setattr__(self, "schema", schema_fit.declared(schema_of(self.schema)))
        _ = self._about
        if not self._inside.names:
            raise InvalidError("a Kafka source needs a column that is in the messages")
        for text in (self.registry, *(value for _, value in self.client)):
            check_references(text)
        _ = self._messages
        if self._start_offsets() is None:
            self._start_ms()

    def table(self, step: str) -> TableSpec | None:
        return None

    def check(self) -> None:
        """Check that the topic exists and can be read; defining a source does not connect."""
        kafka_client.look(self.cluster, self.topic)

    # -- in the driver --------------------------------------------------------

    def poll(self, position: Any, seen: pa.Table | None, max_rows: int) -> Poll:
        found = self.unread(position)
        splits = [*found.begin, *self.splits(found.ranges, max_rows)]
        left = found.rows - sum(split.rows for split in splits)
        return Poll(tuple(splits), backlog_rows=left, independent=True)

    def unread(self, position: Any) -> UnreadOffsets:
        """What there is after a position."""
        topic = kafka_client.look(self.cluster, self.topic)
        reached = self._reached(position, topic)
        fresh = {p: ends[0] for p, ends in topic.ends.items() if p not in reached}
        begin: list[Split] = []
        if fresh:
            if position is None:
                fresh = self._begin(topic)
            # An empty split that records where these partitions begin.
            places = {str(p): at for p, at in sorted(fresh.items())}
            begin.append(Split({"topic_id": topic.id, "begin": places}, 0, 0))
        ranges = {p: ({**reached, **fresh}[p], ends[1]) for p, ends in sorted(topic.ends.items())}
        for p, (first, _) in ranges.items():
            if first < topic.ends[p][0]:
                raise kafka_client.deleted(self.topic, p, first, topic.ends[p][0])
        return UnreadOffsets(tuple(begin), ranges)

    def splits(self, ranges: Mapping[int, tuple[int, int]], max_rows: int) -> list[Split]:
        """Splits of about `max_rows` rows."""
        there = sum(last - first for first, last in ranges.values())
        return _in_step(ranges, max_rows, self._size(ranges, min(there, max_rows)))

    def lag(self, position: Any) -> list[PartitionLag]:
        """How many offsets of each partition are not read yet; asks the cluster."""
        topic = kafka_client.look(self.cluster, self.topic)
        known = _partitions(position, self.topic)
        found = []
        for p, (first, end) in sorted(topic.ends.items()):
            at = known[p][1] if p in known else first
            found.append(PartitionLag(str(p), at, end, max(0, end - at)))
        return found

    def _reached(self, position: Any, topic: Topic) -> dict[int, int]:
        """The next offset of each partition, from a position that fits the topic as it is now."""
        known = _partitions(position, self.topic)
        if position is not None and position["topic_id"] != topic.id:
            if topic.id == kafka_client.NO_ID:  # a broker that has just started
                raise away(
                    f"the id of topic {self.topic!r} is not known yet",
                    f"topic {self.topic!r} has no id yet ({self.brokers})",
                )
            raise DataError(
                f"topic {self.topic!r} was deleted and created again",
                detail=f"its id was {position['topic_id']}, and is {topic.id} now",
                hint="define the source under another name to read the new topic",
            )
        for p, (_, reached) in known.items():
            if p not in topic.ends:  # partitions are never removed: the broker does not know all of them yet
                raise away(
                    f"a partition of topic {self.topic!r} is not known yet",
                    f"partition {p} of topic {self.topic!r} is not known yet ({self.brokers})",
                )
            end = topic.ends[p][1]
            if reached > end:
                raise DataError(
                    f"topic {self.topic!r} has lost messages that were read before",
                    detail=f"partition {p} was read up to offset {reached}, and ends at {end} now",
                    hint="a broker without all messages became the leader; roll back to an epoch before "
                    "them, or define the source under another name",
                )
        return {p: reached for p, (_, reached) in known.items()}

    def _begin(self, topic: Topic) -> dict[int, int]:
        """Where a new pond begins."""
        if self.start == "earliest":
            return {p: ends[0] for p, ends in topic.ends.items()}
        if self.start == "latest":
            return {p: ends[1] for p, ends in topic.ends.items()}
        offsets = self._start_offsets()
        if offsets is not None:
            return {
                p: min(max(low, offsets.get(p, offsets.get(ALL, low))), high)
                for p, (low, high) in topic.ends.items()
            }
        at_ms = self._start_ms()
        assert at_ms is not None
        return kafka_client.offsets_since(self.cluster, topic, self.topic, at_ms)

    def _size(self, ranges: Mapping[int, tuple[int, int]], rows: int) -> int:
        """The approximate size of a message in bytes; measured before many are admitted."""
        if rows > _FEW_ROWS:
            p, (first, last) = max(ranges.items(), key=lambda of: of[1][1] - of[1][0])
            with reader(self.cluster, (self.topic, p, first)) as one:
                found = one.sample(self.topic, p, first, last)
            if found:
                self._row_bytes[0] = max(1, sum(len(m.value() or b"") for m in found) // len(found))
        return self._row_bytes[0]

    def advance(
        self, position: Any, admitted: Sequence[Split], rejects: Sequence[tuple[str, str]]
    ) -> Advance:
        known = _partitions(position, self.topic)
        topic_id = None if position is None else position["topic_id"]
        for split in admitted:
            what = split.what
            if "begin" in what:
                topic_id = what["topic_id"]
                known |= {int(p): (at, at) for p, at in what["begin"].items()}
                continue
            p = what["partition"]
            if p not in known or known[p][1] != what["first"]:
                raise InternalError(
                    "a partition was left before its end",
                    detail=f"partition {p} of {self.topic!r} stood at {known.get(p)}, then {dict(what)}",
                )
            known[p] = known[p][0], what["last"]
        if topic_id is None:
            return Advance(position)
        partitions = {str(p): list(at) for p, at in sorted(known.items())}
        return Advance({"topic_id": topic_id, "partitions": partitions})

    def history(self, position: Any, seen: pa.Table | None, rows: int) -> Iterator[Split]:
        """Splits of all messages that were read, if the topic still has them."""
        ranges = _partitions(position, self.topic)
        if not ranges:
            return
        topic = kafka_client.look(self.cluster, self.topic)
        self._reached(position, topic)
        gone = [p for p, (first, last) in ranges.items() if first < last and first < topic.ends[p][0]]
        if gone or kafka_client.compacts(self.cluster, self.topic):
            why = (
                f"the first offsets of partition {gone[0]} were deleted" if gone else "the topic is compacted"
            )
            raise InvalidError(
                f"topic {self.topic!r} no longer has all messages that were read",
                detail=f"{why}; they cannot be read again",
                hint=f"build on a view that stores the rows, or {FROM_NOW}",
            )
        left = {p: at for p, at in ranges.items() if at[0] < at[1]}
        while left:
            for split in _in_step(left, max(1, rows), self._row_bytes[0]):
                yield split
                p = split.what["partition"]
                left[p] = split.what["last"], left[p][1]
            left = {p: at for p, at in left.items() if at[0] < at[1]}

    # -- in a task ------------------------------------------------------------

    def read(self, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        if "begin" in split.what:
            return
        p, first, last = (split.what[name] for name in ("partition", "first", "last"))
        decoder = self._messages
        with reader(self.cluster, (self.topic, p, first)) as one:
            for messages in one.messages(self.topic, p, first, last):
                yield from self._tables(decoder, messages, columns)

    def _tables(
        self, decoder: MessageFormat, messages: list[Any], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        wrong = kafka_metadata.misfits(messages, self.schema, self._about)
        if wrong:
            yield self._refused(messages, wrong)
            messages = [message for n, message in enumerate(messages) if n not in wrong]
            if not messages:
                return
        good, bad = decoder.decode([message.value() for message in messages])
        if bad:
            yield self._refused(messages, dict(bad))
        if not good:
            return
        table = pa.concat_tables(good)
        about = {name: field for name, field in self._about.items() if name in columns}
        if about:
            out = {index for index, _ in bad}
            kept = [message for i, message in enumerate(messages) if i not in out] if out else messages
            for name, values in kafka_metadata.columns_of(kept, self.schema, about):
                table = table.append_column(self.schema.field(name), values)
        yield table.select(list(columns))

    def _refused(self, messages: Sequence[Any], reasons: Mapping[int, str]) -> pa.Table:
        """The error rows of messages, by their numbers."""
        texts = [(messages[n].value() or b"").decode("utf-8", "backslashreplace") for n in reasons]
        return bad_rows(texts, [f"{self.place(messages[n])}: {why}" for n, why in reasons.items()])

    # -- inside -----------------------------------------------------------------

    def place(self, message: Any) -> str:
        """Where a message is, as errors say it."""
        return f"{self.topic}, partition {message.partition()}, offset {message.offset()}"

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.brokers, self.client)

    @property
    def _messages(self) -> MessageFormat:
        options = FormatOptions(self.registry, self.descriptor, self.message, self.delimiter)
        return message_format(self.format, self._inside, options)

    @property
    def _inside(self) -> pa.Schema:
        """The columns that the messages bring."""
        about = self._about
        return pa.schema([column for column in self.schema if column.name not in about])

    @cached_property
    def _about(self) -> dict[str, str]:
        """The metadata by column."""
        return kafka_metadata.fields_of(self.schema, dict(self.metadata))

    def _start_offsets(self) -> dict[int, int] | None:
        """The offsets of ``"offset:100"`` or ``"offset:0=100,1=250"``, by partition; other forms are None."""
        if not self.start.startswith("offset:"):
            return None
        parts = self.start.removeprefix("offset:").split(",")
        try:
            pairs = [part.split("=") if "=" in part else (str(ALL), part) for part in parts]
            found = {int(p): int(at) for p, at in pairs}
        except ValueError as error:
            raise InvalidError(
                f"a Kafka source cannot start at {self.start!r}",
                hint="'offset:100' for every partition, or 'offset:0=100,1=250'",
            ) from error
        return found

    def _start_ms(self) -> int | None:
        if self.start in ("earliest", "latest"):
            return None
        try:
            at = datetime.fromisoformat(self.start)
        except ValueError as error:
            raise InvalidError(
                f"a Kafka source cannot start at {self.start!r}",
                hint="'earliest', 'latest', a time such as '2026-05-01 12:00:00', or 'offset:100'",
            ) from error
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return round(at.timestamp() * 1000)


def _in_step(ranges: Mapping[int, tuple[int, int]], max_rows: int, row_bytes: int) -> list[Split]:
    """Splits in rounds, one per partition, so that all partitions advance at the same pace.

    >>> [(*s.what.values(),) for s in _in_step({0: (0, 800), 1: (50, 90)}, 420, 1)]
    [(0, 0, 400), (1, 50, 70)]
    >>> [(*s.what.values(),) for s in _in_step({0: (0, 80_000), 1: (50, 90)}, 40_020, 1)][:4]
    [(0, 0, 10000), (1, 50, 55), (0, 10000, 20000), (1, 55, 60)]
    """
    there = sum(last - first for first, last in ranges.values())
    wanted = min(max_rows, there)
    rounds = max(ROUNDS_PER_POLL, -(-_SPLITS_PER_POLL // max(1, len(ranges))))
    if wanted <= _FEW_ROWS:
        rounds = 1  # too few for a second connection
    splits: list[Split] = []
    for number in range(rounds):
        round_splits = []
        for p, (first, last) in ranges.items():
            share = -(-(last - first) * wanted // max(1, there))
            lo, hi = (first + share * n // rounds for n in (number, number + 1))
            if lo < hi:
                what = {"partition": p, "first": lo, "last": hi}
                round_splits.append(Split(what, hi - lo, (hi - lo) * row_bytes, str(p), with_next=True))
        if round_splits:
            last_one = round_splits.pop()
            splits += [*round_splits, Split(last_one.what, last_one.rows, last_one.bytes, last_one.partition)]
    return splits


def _partitions(position: Any, topic: str) -> dict[int, tuple[int, int]]:
    """By partition: the first offset and the next offset."""
    if position is None:
        return {}
    if not isinstance(position, dict) or {*position} != {"topic_id", "partitions"}:
        raise DataError(
            f"the position is not one of topic {topic!r}",
            detail=f"got {json.dumps(position, default=str)}",
            hint="the step read another kind of source before; give this one another name",
        )
    return {int(p): (int(first), int(reached)) for p, (first, reached) in position["partitions"].items()}
