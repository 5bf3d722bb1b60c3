"""Writes the changes of a view to a topic of Kafka, exactly once.

Law 7: one transaction holds the messages of a delivery and the record of its epoch.  The transactional id
follows from the pond and the sink alone, so a process that takes over ends the transactions of the one
before, and only then reads how far the target is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa

from millpond.arguments.call_errors import checked
from millpond.arguments.durations import microseconds
from millpond.errors import ConflictError, InvalidError
from millpond.masking import masked
from millpond.plan.sink_settings import EPOCH, NUMBER, OPERATION, Guarantee, SinkMode, SinkSettings
from millpond.secret_references import check_references
from millpond.sinks.avro_encoding import AvroEncoding, avro_schema
from millpond.sinks.delivery import Delivery, RefusedRow, SinkBinding
from millpond.sinks.json_encoding import JsonEncoding, key_texts
from millpond.sinks.kafka_messages import KeyEncoder, MessageMaker, key_columns
from millpond.sinks.kafka_producer import KafkaProducer, ProducerSettings
from millpond.sinks.kafka_progress import (
    SinkProgress,
    make_progress_topic,
    peek_progress,
    progress_key,
    progress_topic,
    read_progress,
)
from millpond.sinks.kafka_topics import TopicFacts, made_topic
from millpond.sinks.protobuf_encoding import (
    DescribedEncoding,
    ProtobufEncoding,
    columns_of,
    field_numbers,
    proto_schema,
)
from millpond.sinks.row_encoding import RowEncoding, Shape
from millpond.sources import schema_registry
from millpond.sources.kafka_client import Client, Cluster, library

Encoding = Literal["json", "avro", "protobuf"]
Envelope = Literal["plain", "debezium"]
KeyFormat = Literal["json", "text", "avro"]
_SECRETS = ("password", "secret", "ssl.key.pem", "sasl.oauthbearer.config", "sasl.jaas.config")
_REGISTRY = "schema.registry = 'http://host:8081' in SQL, registry= in Python"


@checked
@dataclass(frozen=True)
class KafkaSink:
    """A topic of Kafka.

    `brokers` is ``host:port``, several with commas.  `format` is that of the values: ``json``, ``avro`` or
    ``protobuf``; the last two need a schema `registry`, or `descriptor` and `message` of Protobuf.
    `envelope` is that of changelogs: ``plain`` rows with `_op`, `_epoch` and `_n`, or events of ``debezium``.
    `client` has settings of librdkafka, as in ``{"sasl.password": "${env:PASSWORD}"}``.
    Needs ``pip install 'millpond[kafka]'``.
    """

    brokers: str
    topic: str = ""
    format: Encoding = "json"
    envelope: Envelope = "plain"
    key_fields: tuple[str, ...] = ()  # columns of the key of messages; those of the sink's key if none
    key_format: KeyFormat | None = None  # that of the values if None, and JSON beside Protobuf
    registry: str = field(default="", repr=False)  # the address of a schema registry
    descriptor: bytes = field(default=b"", repr=False)  # of Protobuf: a FileDescriptorSet
    message: str = ""  # of Protobuf: the name of the message
    client: Client = field(default=(), repr=False)
    transaction_timeout: str = "5m"  # after which the broker ends a transaction of a dead process
    partitions: int = -1  # of the topic, if the sink creates it; -1: the default of the broker
    replicas: int = -1  # of the topics that the sink creates
    progress_topic: str = ""  # in which the sink stores its progress; one for each sink if not given

    guarantee: ClassVar[Guarantee] = "exactly_once"
    modes: ClassVar[tuple[SinkMode, ...]] = ("upsert", "append", "changelog")
    columns_by_name: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("brokers", "topic"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise InvalidError(f"a KafkaSink needs its {name}", detail=f"got {getattr(self, name)!r}")
        for name, known in (("format", Encoding), ("envelope", Envelope), ("key_format", KeyFormat)):
            value = getattr(self, name)
            if value not in get_args(known) and not (name == "key_format" and value is None):
                raise InvalidError(
                    f"a KafkaSink has no {name} {value!r}", detail=f"there are {', '.join(get_args(known))}"
                )
        given: Any = self.client
        pairs = given.items() if isinstance(given, Mapping) else given
        object.__setattr__(self, "client", tuple(sorted((str(k), str(v)) for k, v in pairs)))
        names: Any = self.key_fields
        object.__setattr__(self, "key_fields", (names,) if isinstance(names, str) else tuple(names))
        if self.progress_topic == self.topic:
            raise InvalidError("the progress topic must not be the topic of the messages")
        _check_secrets(self.registry, self.client)
        self._check_formats()
        if not 1_000 <= self.timeout_ms < 2**31:
            raise InvalidError("transaction_timeout is at least a second", detail=self.transaction_timeout)

    def _check_formats(self) -> None:
        if self.format == "avro" and not self.registry:
            raise InvalidError("Avro messages need a schema registry", hint=_REGISTRY)
        if self.key_format == "avro" and not self.registry:
            raise InvalidError("Avro keys need a schema registry", hint=_REGISTRY)
        if self.format == "protobuf" and bool(self.registry) == bool(self.descriptor):
            raise InvalidError(
                "Protobuf messages need a schema registry, or a descriptor without one",
                hint=f"{_REGISTRY}; or schema.location (in Python descriptor=) and message = 'package.Name'",
            )
        if self.format == "protobuf" and self.envelope == "debezium":
            raise InvalidError("events of Debezium are written as JSON or Avro", hint="ENCODE JSON, or AVRO")

    @property
    def timeout_ms(self) -> int:
        return microseconds(self.transaction_timeout) // 1000

    def check_view(self, schema: pa.Schema, settings: SinkSettings) -> None:
        """Refuse a view whose rows cannot be messages, when the sink is defined."""
        taken = {"changelog": (OPERATION, EPOCH, NUMBER), "upsert": (OPERATION,)}.get(settings.mode or "", ())
        if wrong := [name for name in schema.names if name in taken]:
            raise InvalidError(
                f"column {wrong[0]!r} has the name of a column that the sink adds",
                hint="give it another name in the view: SELECT … AS name",
            )
        key = self.message_key(settings.mode or "upsert", settings.key, schema)
        if self.format == "avro":
            avro_schema(schema, self.shape(settings.mode or "upsert"))
        if self.format == "protobuf" and not self.descriptor:
            proto_schema(columns_of(schema, self.shape(settings.mode or "upsert")), self.message or "Row")
        if key and (self.key_format or self.format) == "avro":
            avro_schema(pa.schema([schema.field(name) for name in key]), "row", "Key")

    def shape(self, mode: SinkMode) -> Shape:
        if mode != "changelog":
            return "row"
        return "event" if self.envelope == "debezium" else "logged"

    def message_key(self, mode: SinkMode, key: Sequence[str], schema: pa.Schema) -> tuple[str, ...]:
        """The columns of the key of messages; changes of one row must have one key."""
        names = self.key_fields or tuple(key)
        if unknown := [name for name in names if name not in schema.names]:
            raise InvalidError(
                f"the view has no column {unknown[0]!r} for the key of messages",
                detail=f"columns are {', '.join(schema.names)}",
            )
        if mode == "upsert" and set(names) != set(key):
            raise InvalidError(
                "the key of messages must be the key of the upserts",
                detail=f"the first is {', '.join(names)}, the second {', '.join(key)}",
                hint="leave key_fields out",
            )
        if mode == "changelog" and key and not set(names) <= set(key):
            raise InvalidError(
                "the key of messages must be columns of the view's key",
                detail=f"the key of the view is {', '.join(key)}, that of messages {', '.join(names)}",
                hint="otherwise changes of one row could come in another order",
            )
        if self.key_format == "text" and len(names) > 1:
            raise InvalidError(
                "a key of text is one column", detail=f"got {', '.join(names)}", hint="use key_format json"
            )
        return names

    def open(self, binding: SinkBinding) -> KafkaWriter:
        library()
        cluster = Cluster(self.brokers, self.client)
        config = {"cleanup.policy": "compact"} if binding.mode == "upsert" else {}
        facts = made_topic(cluster, self.topic, self.partitions, self.replicas, **config)
        makes = _Encodings(self, binding)
        writer = KafkaWriter(self, binding, cluster, facts, makes)
        if binding.guarantee == "exactly_once":
            try:
                writer.take_over()
            except BaseException:
                writer.close()
                raise
        return writer


class KafkaWriter:
    def __init__(
        self, sink: KafkaSink, binding: SinkBinding, cluster: Cluster, facts: TopicFacts, makes: _Encodings
    ) -> None:
        self._sink, self._binding, self._cluster, self._facts, self._makes = (
            sink,
            binding,
            cluster,
            facts,
            makes,
        )
        if facts.compacts and makes.key is None:
            raise InvalidError(
                f"topic {sink.topic!r} is compacted, so its messages need a key",
                hint="name columns: key_fields=[…], or use a topic without compaction",
            )
        self._limit = min(
            facts.message_bytes_max, int(dict(cluster.client).get("message.max.bytes", 2**31 - 1))
        )
        once = binding.guarantee == "exactly_once"
        name = f"millpond-{binding.pond}-{binding.sink}" if once else None
        self._producer = KafkaProducer(cluster, ProducerSettings(name, sink.timeout_ms, self._limit))
        self._progress_topic = sink.progress_topic or progress_topic(binding)
        self._key = progress_key(binding)
        self._progress: SinkProgress | None = None

    def take_over(self) -> None:
        """Keep out older coordinators, then read how far the target is."""
        make_progress_topic(self._cluster, self._progress_topic, self._sink.replicas)
        self._check_token(peek_progress(self._cluster, self._progress_topic, self._key))
        self._producer.init_transactions()
        found = read_progress(self._cluster, self._progress_topic, self._key)
        self._check_token(found)
        self._progress = found or SinkProgress(-1, -1, self._facts.partitions)
        if self._progress.token < self._binding.token:
            self._store(replace(self._progress, token=self._binding.token))

    def _check_token(self, found: SinkProgress | None) -> None:
        """A coordinator that was replaced must not end the transactions of the newer one again and again."""
        if found is not None and found.token > self._binding.token:
            raise ConflictError(
                f"sink {self._binding.sink!r} belongs to another coordinator",
                detail=f"its token is {found.token}, ours is {self._binding.token}",
            )

    def _store(self, progress: SinkProgress) -> None:
        """A transaction without messages of the view."""
        self._producer.begin()
        self._record(progress)
        self._producer.commit()
        self._progress = progress

    def _record(self, progress: SinkProgress) -> None:
        identity = f"{self._binding.pond}:{progress.epoch}"
        self._producer.send(self._progress_topic, [(self._key, progress.record(), identity, 0)])
        self._producer.sent()

    # -- deliveries -------------------------------------------------------------

    def write(self, delivery: Delivery) -> Sequence[RefusedRow]:
        if not delivery.rows.num_rows:
            return ()
        if self._progress is None:
            refused = self._send(delivery)
            self._producer.sent()
            return refused
        if self._progress.epoch >= delivery.epoch:
            return self._progress.refused if self._progress.epoch == delivery.epoch else ()
        # Epochs may be gathered in another way than before: those that the target has are left out.
        later = tuple(part for part in delivery.parts if part.epoch > self._progress.epoch)
        self._producer.begin()
        refused = self._send(replace(delivery, parts=later))
        progress = SinkProgress(
            delivery.epoch, self._binding.token, self._progress.partitions, tuple(refused)
        )
        self._record(progress)
        self._producer.commit()
        self._progress = progress
        return refused

    def _send(self, delivery: Delivery) -> list[RefusedRow]:
        refused: list[RefusedRow] = []
        for messages in self._maker().messages(delivery, refused):
            self._producer.send(self._sink.topic, messages)
        return refused

    def _maker(self) -> MessageMaker:
        now = self._facts.partitions
        spread = now if self._progress is None else min(now, self._progress.partitions)
        shape = self._sink.shape(self._binding.mode)
        limit, needs_key = self._limit, self._facts.compacts
        return MessageMaker(shape, self._makes.rows, self._makes.key, limit, spread, needs_key)

    def close(self) -> None:
        self._producer.close()


class _Encodings:
    """The encodings of values and keys; their schemas are registered."""

    def __init__(self, sink: KafkaSink, binding: SinkBinding) -> None:
        self._sink, self._registry = sink, sink.registry
        self.rows = self._rows(binding.schema, sink.shape(binding.mode))
        names = sink.message_key(binding.mode, binding.key, binding.schema)
        self.key = self._key(binding.schema, names) if names else None

    def _rows(self, schema: pa.Schema, shape: Shape) -> RowEncoding:
        sink = self._sink
        subject = f"{sink.topic}-value"
        if sink.format == "json":
            return JsonEncoding(schema)
        if sink.format == "avro":
            number = schema_registry.register(self._registry, subject, avro_schema(schema, shape), "AVRO")
            return AvroEncoding(schema, number)
        if sink.descriptor:
            return DescribedEncoding(schema, shape, sink.descriptor, sink.message)
        before, columns = schema_registry.latest(self._registry, subject), columns_of(schema, shape)
        text = proto_schema(columns, sink.message or "Row", before)
        number = schema_registry.register(self._registry, subject, text, "PROTOBUF")
        return ProtobufEncoding(schema, field_numbers(columns, before), number)

    def _key(self, schema: pa.Schema, names: tuple[str, ...]) -> KeyEncoder:
        kind = self._sink.key_format or ("avro" if self._sink.format == "avro" else "json")
        columns = pa.schema([schema.field(name) for name in names])
        if kind == "text":
            return lambda rows: key_texts(key_columns(rows, names).columns)
        encoding: RowEncoding = JsonEncoding(columns)
        if kind == "avro":
            text = avro_schema(columns, "row", "Key")
            number = schema_registry.register(self._registry, f"{self._sink.topic}-key", text, "AVRO")
            encoding = AvroEncoding(columns, number)

        def encoded(rows: pa.Table) -> list[bytes | None]:
            found = encoding.encoded(key_columns(rows, names))
            return [encoding.row(key) for key in found if isinstance(key, bytes)]

        return encoded


def _check_secrets(registry: str, client: Client) -> None:
    """Secrets are references: the settings are stored in the catalog."""
    check_references(registry)
    if masked(registry) != registry and "${" not in registry:
        raise InvalidError(
            "the address of the schema registry must not contain a password",
            detail=f"got {masked(registry)}",
            hint="write it as http://user:${env:PASSWORD}@host:8081",
        )
    for name, value in client:
        check_references(value)
        if any(part in name for part in _SECRETS) and "${" not in value:
            raise InvalidError(
                f"client setting {name!r} is a secret, and would be stored in the catalog",
                hint="write ${env:NAME}, ${file:/path} or ${secret:name} instead",
            )
