"""A topic as the target of a sink, read by a consumer of its own: committed messages only."""

from __future__ import annotations

import io
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
import fastavro

from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION, SinkMode
from millpond.sinks.json_rows import json_value
from millpond.sinks.kafka import KafkaSink
from millpond.sources.protobuf_messages import _unframed
from tests.registry import Registry

from .topic import Topic

_numbers = itertools.count()
MESSAGE_BYTES_MAX = 20_000


class Committed:
    """All committed messages of a topic, as a consumer sees them.

    Brokers answer a commit before its messages can be seen; so reading waits for transactions to end.
    """

    def __init__(self, brokers: str, topic: str, partitions: int, patience_s: float = 5.0) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": brokers, "group.id": "reader", "log_level": 0}
        settings |= {"enable.partition.eof": True, "fetch.wait.max.ms": 5, "enable.auto.commit": False}
        self._consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed"})
        self._other = confluent_kafka.Consumer({**settings, "isolation.level": "read_uncommitted"})
        self._patience_s = patience_s
        self._places = [confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)]
        self._ends: dict[int, int] = {}
        self.messages: list[Any] = []

    def read(self) -> list[Any]:
        give_up = time.monotonic() + self._patience_s
        for place in self._places:
            all_of_it = _end(self._other, place)
            while (end := _end(self._consumer, place)) < all_of_it and time.monotonic() < give_up:
                time.sleep(0.005)
            if end > self._ends.get(place.partition, 0):
                self._read_to(place, end)
        return self.messages

    def _read_to(self, place: Any, end: int) -> None:
        first = self._ends.get(place.partition, 0)
        self._consumer.assign([confluent_kafka.TopicPartition(place.topic, place.partition, first)])
        while True:
            one = self._consumer.poll(20)
            assert one is not None, "no end of the partition"
            error = one.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                if (one.offset() or 0) >= end:
                    self._ends[place.partition] = one.offset() or 0
                    return
            else:
                self.messages.append(one)

    def close(self) -> None:
        self._consumer.close()
        self._other.close()


def _end(consumer: Any, place: Any) -> int:
    return int(consumer.get_watermark_offsets(place, timeout=20)[1])


class KafkaTarget:
    def __init__(
        self,
        brokers: str,
        modes: Sequence[SinkMode],
        partitions: int = 3,
        patience_s: float = 5.0,
        **settings: Any,
    ) -> None:
        self.partitions, self._patience_s = partitions, patience_s
        self.brokers, self.modes, self.settings = brokers, modes, settings
        self.registry: Registry | None = None
        if settings.get("format", "json") != "json":
            self.registry = Registry()
            self.settings = {**settings, "registry": self.registry.url}
        self._seen: Committed | None = None
        self._mode = 0
        self.name = "none"

    @property
    def debezium(self) -> bool:
        return self.settings.get("envelope") == "debezium"

    def reset(self) -> None:
        """A new topic for the next mode."""
        if self._seen is not None:
            self._seen.close()
        name = f"target-{os.getpid()}-{next(_numbers)}"
        Topic(self.brokers, name, self.partitions, **{"max.message.bytes": str(MESSAGE_BYTES_MAX)})
        self.name = name
        self._seen = Committed(self.brokers, name, self.partitions, self._patience_s)
        self.mode = self.modes[self._mode % len(self.modes)]
        self._mode += 1

    def sink(self) -> Any:
        return KafkaSink(self.brokers, self.name, progress_topic=self.progress, **self.settings)

    @property
    def progress(self) -> str:
        return f"{self.name}-progress"

    def read(self) -> Sequence[Mapping[str, Any]]:
        assert self._seen is not None
        messages = self._seen.read()
        ids = Counter(dict(m.headers())["millpond-id"] for m in messages)
        assert not [one for one, count in ids.items() if count > 1], "a message is there twice"
        places = {(m.key(), m.partition()) for m in messages if m.key() is not None}
        assert len(places) == len({key for key, _ in places}), "a key is in two partitions"
        if self.mode == "upsert":
            newest = {m.key(): m for m in sorted(messages, key=lambda m: m.offset())}
            return [self.decoded(m.value()) for m in newest.values() if m.value() is not None]
        found = [self.decoded(m.value()) for m in messages if m.value() is not None]
        return [row for event in found for row in _rows(event)] if self.debezium else found

    def decoded(self, value: bytes) -> dict[str, Any]:
        kind = self.settings.get("format", "json")
        if kind == "json":
            found: dict[str, Any] = json.loads(value)
            return found
        assert self.registry is not None
        text = self.registry.schemas[int.from_bytes(value[1:5], "big")]
        if kind == "avro":
            stream = io.BytesIO(value[5:])
            row: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(text)), None)
            assert stream.tell() == len(value) - 5
            return dict(row)
        return _from_proto(text, _unframed(value))

    def poison(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "s": "x" * 2 * MESSAGE_BYTES_MAX}

    def same(self, expected: Any, found: Any) -> bool:
        if self.settings.get("format", "json") == "json":
            return bool(json_value(expected) == found)
        if getattr(expected, "tzinfo", None) is None and getattr(found, "tzinfo", None) is not None:
            found = found.replace(tzinfo=None)
        return bool(expected == found)

    def close(self) -> None:
        if self._seen is not None:
            self._seen.close()
        if self.registry is not None:
            self.registry.close()


def _rows(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a changelog that an event stands for."""
    about = {EPOCH: event["source"]["epoch"], NUMBER: event["source"]["n"]}
    rows = []
    if event["before"] is not None:
        kind = "update_before" if event["op"] == "u" else "delete"
        shift = -1 if event["op"] == "u" else 0  # the two rows of an update have numbers of their own
        rows.append({**event["before"], **about, NUMBER: about[NUMBER] + shift, OPERATION: kind})
    if event["after"] is not None:
        rows.append(
            {**event["after"], **about, OPERATION: "update_after" if event["op"] == "u" else "insert"}
        )
    return rows


def _from_proto(text: str, data: bytes) -> dict[str, Any]:
    """Read a message by its own schema, which is compiled by hand: one flat message of plain fields."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3")
    made = file.message_type.add(name="Row")
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["optional"]:
            kind = getattr(kinds, f"TYPE_{words[1].upper()}")
            made.oneof_decl.add(name=f"X_{words[2]}")  # as compilers call it if _name is a field
            made.field.add(
                name=words[2],
                number=int(words[4].rstrip(";")),
                type=kind,
                label=kinds.LABEL_OPTIONAL,
                proto3_optional=True,
                oneof_index=len(made.oneof_decl) - 1,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    row = message_factory.GetMessageClass(pool.FindMessageTypeByName("Row")).FromString(data)
    return {f.name: getattr(row, f.name) if row.HasField(f.name) else None for f in row.DESCRIPTOR.fields}
