"""Flink's connectors as ours."""

from __future__ import annotations

import re

from millpond.sql.dialects.connector_table import ConnectorTable, start_at_ms


def _topics(value: str) -> dict[str, str]:
    """
    >>> _topics("a"), _topics("a.b;c")
    ({'topic': 'a'}, {'topic.pattern': 'a\\\\.b|c'})
    """
    names = [name.strip() for name in value.split(";")]
    return {"topic": value} if len(names) == 1 else {"topic.pattern": "|".join(map(re.escape, names))}


def _offsets(value: str) -> dict[str, str]:
    """
    >>> _offsets("partition:0,offset:42;partition:1,offset:300")
    {'start': 'offset:0=42,1=300'}
    """
    found = [
        re.fullmatch(r"\s*partition:(\d+),offset:(\d+)\s*", part) for part in value.rstrip(";").split(";")
    ]
    if None in found:
        raise ValueError(value)
    return {"start": "offset:" + ",".join(f"{one[1]}={one[2]}" for one in found if one is not None)}


def _delimiter(value: str) -> dict[str, str]:
    return {"delimiter": "\t" if value == "\\t" else value}


_FORMATS = {"json": "json", "csv": "csv", "avro": "avro", "parquet": "parquet", "orc": "orc"}
_KAFKA = {
    "properties.bootstrap.servers": "brokers",
    "properties.*": "",
    "format": "format",
    "value.format": "format",
}
_REGISTRY = {  # the address of the schema registry
    f"{before}{form}.{name}": "schema.registry"
    for before in ("", "value.")
    for form in ("avro-confluent", "debezium-avro-confluent")
    for name in ("url", "schema-registry.url")
}
_FORMS = ("json", "csv", "debezium-json")
_IGNORED = frozenset(  # errors become error rows, and schemas beside values are found
    f"{before}{name}"
    for before in ("", "value.")
    for name in (*(f"{form}.ignore-parse-errors" for form in _FORMS), "debezium-json.schema-include")
)
_ONLY_ONCE = "'source.monitor-interval' = '1 s': a pond follows the folder, and Flink reads it once without"
SOURCES = {
    "kafka": ConnectorTable(
        "kafka",
        {
            **_KAFKA,
            **_REGISTRY,
            "topic-pattern": "topic.pattern",
            "scan.startup.mode": "start",
        },
        _IGNORED | {"scan.topic-partition-discovery.interval"},
        {},
        {
            "start": {
                "earliest-offset": "earliest",
                "latest-offset": "latest",
                "timestamp": "",
                "specific-offsets": "",
            },
            "format": {
                "json": "json",
                "csv": "csv",
                "raw": "bytes",
                "avro-confluent": "avro",
                "debezium-json": "json",
                "debezium-avro-confluent": "avro",
            },
        },
        {
            "topic": _topics,
            "scan.startup.timestamp-millis": start_at_ms,
            "scan.startup.specific-offsets": _offsets,
            "csv.field-delimiter": _delimiter,
            "value.csv.field-delimiter": _delimiter,
        },
    ),
    "upsert-kafka": ConnectorTable(
        "kafka",
        {"topic": "topic", **_KAFKA, **_REGISTRY},
        _IGNORED | {"key.format", "key.avro-confluent.url"},
        {},
        {"format": {"json": "json", "avro-confluent": "avro"}},
    ),
    "filesystem": ConnectorTable(
        "files",
        {"path": "path", "format": "format"},
        frozenset({"source.monitor-interval"}),
        {"source.path.regex-pattern": "write pattern = '*.json' in CREATE SOURCE of the default dialect"},
        {"format": _FORMATS},
    ),
    "postgres-cdc": ConnectorTable(
        "postgres-cdc",
        {
            "hostname": "hostname",
            "port": "port",
            "username": "username",
            "password": "password",
            "database-name": "database.name",
            "schema-name": "schema.name",
            "table-name": "table.name",
            "slot.name": "slot.name",
        },
        frozenset({"scan.incremental.snapshot.enabled", "decoding.plugin.name"}),
    ),
}
SINKS = {
    "kafka": ConnectorTable(
        "kafka",
        {"topic": "topic", **_KAFKA, **_REGISTRY, "sink.delivery-guarantee": "guarantee"},
        frozenset({"scan.startup.mode", "sink.transactional-id-prefix", "sink.parallelism"}),
        {},
        {
            "format": {"json": "json", "avro-confluent": "avro"},
            "guarantee": {"exactly-once": "exactly_once", "at-least-once": "at_least_once"},
        },
    ),
    "upsert-kafka": ConnectorTable(
        "kafka",
        {"topic": "topic", **_KAFKA, **_REGISTRY, "key.format": "key.format"},
        frozenset({"sink.parallelism", "key.avro-confluent.url"}),
        {},
        {
            "format": {"json": "json", "avro-confluent": "avro"},
            "key.format": {"json": "json", "avro-confluent": "avro"},
        },
    ),
    "filesystem": ConnectorTable(
        "files",
        {"path": "path", "format": "format"},
        frozenset({"sink.parallelism", "source.monitor-interval"}),
        {},
        {"format": {"parquet": "parquet", "json": "json", "csv": "csv"}},
    ),
    "jdbc": ConnectorTable(
        "jdbc",
        {"url": "url", "table-name": "table", "username": "user", "password": "password", "driver": "driver"},
        frozenset({"sink.parallelism", "sink.buffer-flush.interval", "sink.buffer-flush.max-rows"}),
    ),
}
INSTEAD = {
    "datagen": "connector 'nexmark' of CREATE SOURCE makes events, in the default dialect; or INSERT rows",
    "nexmark": "CREATE SOURCE bid WITH (connector = 'nexmark', type = 'bid') in the default dialect",
    "print": "SUBSCRIBE TO view shows the changes of a view",
    "blackhole": "leave it out: CREATE MATERIALIZED VIEW computes without a sink",
    "jdbc": "a table of a database can be followed with 'postgres-cdc'",
}
NEEDED = {
    (
        "kafka",
        "scan.startup.mode",
    ): "'scan.startup.mode' = 'earliest-offset': Flink's default asks Kafka for the "
    "offsets of a group, and a pond stores its own",
    ("filesystem", "source.monitor-interval"): _ONLY_ONCE,
}
